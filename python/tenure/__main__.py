"""`python -m tenure` is the command."""

import sys

from tenure._cli import main

sys.exit(main())
