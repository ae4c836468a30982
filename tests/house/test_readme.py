"""What the README shows works as shown."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tenure import Datastore

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
# What each block of Python prints, in their order.
SAYS = ["writing with fence 1\n", "2 b'first things first'\n"]


def blocks(language: str) -> list[str]:
    """The fenced blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def shown(command: str) -> list[str]:
    """What is called of *command* in the console blocks, one line each, without the comment."""
    lines = re.findall(rf"^\$ {command} (.+?)(?: +#.*)?$", "\n".join(blocks("console")), re.MULTILINE)
    assert lines, f"the README shows no `{command}`"
    return lines


def test_there_is_python() -> None:
    assert len(blocks("python")) == len(SAYS)


@pytest.mark.parametrize(("code", "says"), list(zip(blocks("python"), SAYS, strict=True)))
def test_the_python_runs(code: str, says: str, tmp_path: Path) -> None:
    code = code.replace('"/srv/', f'"{tmp_path}/')
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == says


def test_each_make_target_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in shown("make"):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_the_command_runs_as_shown(tmp_path: Path) -> None:
    (tmp_path / "import.sh").write_text("#!/bin/sh\necho imported\n", encoding="utf-8")
    (tmp_path / "import.sh").chmod(0o755)
    # The block of Python above it has made it.
    Datastore.create(tmp_path / "files")
    for line in shown("tenure"):
        words = shlex.split(line.replace("/srv/", f"{tmp_path}/"))
        command = [sys.executable, "-c", "import sys; from tenure._cli import main; sys.exit(main())", *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        if words[0] == "run":
            assert "imported" in done.stdout
