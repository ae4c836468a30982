"""The command's front door: which sub-commands there are, and how every failure ends."""

from __future__ import annotations

import sys

import click

from tenure._cli import _output
from tenure._cli._doctor import doctor_command
from tenure._cli._files import get_command, init_command, ls_command, put_command, rm_command
from tenure._cli._history import history_command
from tenure._cli._judge import judge_command
from tenure._cli._release import release_command
from tenure._cli._run import run_command
from tenure._cli._status import status_command
from tenure._cli._versions import log_command, pull_command, recover_command, retain_command, verify_command
from tenure._cli._whoami import whoami_command
from tenure.errors import Error

_EPILOG = """\b
Exit codes:
  0        done; of `run`: the command's own code, whatever it is
  1        failed; of `run` also: the lease was lost and the command stopped.
           Not safe to repeat blindly
  2        wrong usage
  3, 4     of `judge`: gone, unknown
  75       somebody holds the lease, or the store did not answer: try again
  78       this store cannot keep a lease; another one is needed
  126, 127 of `run`: the command cannot be started, was not found
  128+n    ended by signal n

\b
Data goes to stdout, everything else to stderr. NO_COLOR is respected.
A URL is a path, file:///srv/data or file:data.
"""


@click.group(
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 88},
)
@click.version_option(package_name="tenure", message="%(prog)s %(version)s")
def app() -> None:
    """One writer at a time, and proof when the last one is gone."""


for _command in (
    run_command,
    status_command,
    history_command,
    release_command,
    doctor_command,
    whoami_command,
    judge_command,
    init_command,
    put_command,
    rm_command,
    get_command,
    ls_command,
    log_command,
    pull_command,
    recover_command,
    retain_command,
    verify_command,
):
    app.add_command(_command)


def run(arguments: list[str] | None = None) -> int:
    """Run the command; the exit code. No failure that was foreseen shows a traceback."""
    _output.show_warnings_of_the_library()
    try:
        code = app.main(args=arguments, prog_name="tenure", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return 130
    except Error as error:
        _output.complain(str(error), error.hint)
        return error.exit_code
    except BrokenPipeError:
        _output.nobody_reads(sys.stdout)
        return 1
    return code if isinstance(code, int) else 0
