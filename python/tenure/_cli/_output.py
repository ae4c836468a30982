"""What people and scripts read: rows and JSON on stdout, one message on stderr."""

from __future__ import annotations

import errno
import json
import logging
import os
import sys
import textwrap
from collections.abc import Iterable
from typing import Any, TextIO

from rich.console import Console
from rich.text import Text

from tenure._identity import Judgement

_LABEL_WIDTH = 10
_STYLES = {
    "alive": "green",
    "gone": "red",
    "unknown": "yellow",
    # Free is what a waiter hopes for, held what an operator expects: neither is an alarm.
    "free": "green",
    "held": "cyan",
}

Row = tuple[str, str | Text]


class _Console(Console):
    def on_broken_pipe(self) -> None:
        # Rich would raise SystemExit here, which ends a pulse without a word. Who prints decides.
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def console(*, stderr: bool = False) -> Console:
    """A console that invents nothing: no markup in other people's labels, no colours for numbers."""
    return _Console(stderr=stderr, markup=False, highlight=False, emoji=False, soft_wrap=True)


def styled(word: str, rest: str = "") -> Text:
    """*word* in its colour, where there are colours; the words alone say everything."""
    return Text.assemble((word, f"bold {_STYLES[word]}"), rest)


def verdict_rows(judgement: Judgement, *words: str) -> list[Row]:
    """Verdict, reason and evidence on one line, *words* below it, and the detail where there is one."""
    slugs = f" · {judgement.reason} · evidence: {judgement.evidence}"
    found: list[Row] = [("verdict", styled(judgement.verdict.value, slugs))]
    found += [("", text) for text in words]
    if judgement.detail:
        found.append(("detail", judgement.detail))
    return found


def show(title: str, rows: Iterable[Row]) -> None:
    """A title and labelled rows."""
    console().print(Text(printable(title), "bold"))
    for label, value in rows:
        show_row(label, value)


def show_row(label: str, value: str | Text) -> None:
    """A labelled row. A terminal gets its lines broken between words, a pipe gets one line a row."""
    out = console()
    width = max(30, out.width - _LABEL_WIDTH - 3) if out.is_terminal else 0
    # Assembled: what is appended to a styled text would take on its style.
    head = Text.assemble((f"  {label:<{_LABEL_WIDTH}}", "dim"))
    if isinstance(value, Text):
        out.print(head + value)
        return
    text = printable(value)
    lines = textwrap.wrap(text, width, break_long_words=False) if width else [text]
    for line in lines or [""]:
        out.print(head + Text(line))
        head = Text(" " * (_LABEL_WIDTH + 2))


def styled_check(ok: bool, words: str) -> Text:
    """*words* behind a yes or a no."""
    return Text.assemble(("yes  ", "bold green") if ok else ("no   ", "bold yellow"), printable(words))


def show_json(fields: dict[str, Any]) -> None:
    """One JSON object on one line: for `jq`, and for `while read`."""
    print(json.dumps(fields, ensure_ascii=False))


def complain(message: str, hint: str | None = None) -> None:
    """One message on stderr: what happened, and on a line of its own what to do."""
    _say(Text.assemble(("tenure: ", "bold red"), printable(message)))
    if hint is not None:
        _say(Text.assemble(("hint: ", "bold"), printable(hint)))


def note(message: str) -> None:
    """A line on stderr about what is going on."""
    _say(Text(f"tenure: {printable(message)}", "dim"))


def _say(line: Text) -> None:
    try:
        err = console(stderr=True)
        # On a terminal broken between words; elsewhere one message is one line.
        err.print(line, soft_wrap=not err.is_terminal)
    except OSError:
        # That must not end a pulse, nor a command.
        nobody_reads(sys.stderr)


def nobody_reads(stream: TextIO) -> None:
    """Whoever read *stream* has left. The interpreter flushes it once more at its end, and would complain then."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
    except OSError:
        pass


def printable(text: str) -> str:
    """*text* without what could steer a terminal: paths and labels come from others."""
    return "".join(character if character.isprintable() else "�" for character in text)


def judgement_fields(judgement: Judgement | None) -> dict[str, str | None]:
    """The four keys that each `--json` with a verdict has."""
    if judgement is None:
        return {"verdict": None, "reason": None, "evidence": None, "detail": None}
    return {
        "verdict": judgement.verdict.value,
        "reason": judgement.reason,
        "evidence": judgement.evidence,
        "detail": judgement.detail,
    }


def show_warnings_of_the_library() -> None:
    """A takeover and a lost lease are one warning each in the library's log; a command's log is its stderr."""
    logger = logging.getLogger("tenure")
    if not logger.handlers:
        logger.addHandler(_Notes(logging.WARNING))
        logger.propagate = False


class _Notes(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        note(record.getMessage())
