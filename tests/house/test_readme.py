"""What the README shows works as shown."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The fenced blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def shown(command: str) -> list[str]:
    """What is called of *command* in the console blocks, one line each, without the comment."""
    lines = re.findall(rf"^\$ {command} (.+?)(?: +#.*)?$", "\n".join(blocks("console")), re.MULTILINE)
    assert lines, f"the README shows no `{command}`"
    return lines


def test_the_first_screen_has_python() -> None:
    assert len(blocks("python")) == 1


@pytest.mark.parametrize("code", blocks("python"))
def test_the_python_runs(code: str, tmp_path: Path) -> None:
    code = code.replace('"/srv/data"', repr(str(tmp_path / "data")))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "writing with fence 1\n"


def test_each_make_target_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in shown("make"):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_the_command_runs_as_shown(tmp_path: Path) -> None:
    (tmp_path / "import.sh").write_text("#!/bin/sh\necho imported\n", encoding="utf-8")
    (tmp_path / "import.sh").chmod(0o755)
    for line in shown("tenure"):
        words = line.replace("/srv/data", str(tmp_path / "data")).split()
        command = [sys.executable, "-c", "import sys; from tenure._cli import main; sys.exit(main())", *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        if words[0] == "run":
            assert "imported" in done.stdout
