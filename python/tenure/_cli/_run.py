"""`tenure run`: a command that runs under the lease, and only under the lease."""

from __future__ import annotations

import sys
from typing import Literal

import click

from tenure._cli import _output
from tenure._lease._lease import WriterLease
from tenure._lease._sight import DEFAULT_SKEW, DEFAULT_TTL
from tenure._pidfile import PidFile
from tenure.errors import StoreCannotLockError

_HELP = """Take the lease of URL, run COMMAND, give the lease back.

COMMAND finds its fence in TENURE_FENCE and the store in TENURE_URL, and inherits the lifeline: should `tenure run` be
killed while COMMAND writes on, nobody takes over until COMMAND has ended.

Signals (HUP, INT, TERM, QUIT, USR1, USR2, WINCH, CONT) are passed on to COMMAND itself, not to its children: start
scripts with `exec` where that matters. When the lease is lost, COMMAND gets TERM, and KILL after --grace; --on-lost
changes that.

\b
Exit codes:
  the command's own, or 128+n if it died of signal n
  75       somebody else holds the lease; the command was not started
  1        the lease was lost; the command was stopped
  126, 127 the command cannot be started, was not found
`tenure --help` lists them all.

\b
Example:
  tenure run --wait 60 --label 'nightly import' /srv/data -- ./import.sh
"""


@click.command(
    "run",
    help=_HELP,
    short_help="Run a command under the lease.",
    # Without this, options of COMMAND would be taken for ours.
    context_settings={"allow_interspersed_args": False},
)
@click.option(
    "--wait",
    "--timeout",
    "wait",
    type=click.FloatRange(min=0),
    default=0.0,
    metavar="SECONDS",
    help="How long to wait for the lease. [default: 0, try once]",
)
@click.option(
    "--ttl", type=float, default=DEFAULT_TTL, show_default=True, metavar="S", help="How long one heartbeat is good."
)
@click.option(
    "--skew", type=float, default=DEFAULT_SKEW, show_default=True, metavar="S", help="What waiters add to the ttl."
)
@click.option("--label", metavar="TEXT", help="What COMMAND is doing, for those who wait. [default: COMMAND]")
@click.option(
    "--grace",
    type=click.FloatRange(min=0, max=86_400),
    default=10.0,
    show_default=True,
    metavar="S",
    help="From TERM to KILL, when the lease is lost.",
)
@click.option(
    "--close-lifeline",
    is_flag=True,
    help="COMMAND does not inherit the lifeline. For commands that leave daemons behind, which would keep the lease; "
    "if `tenure run` is killed, the lease is free although COMMAND runs on.",
)
@click.option(
    "--on-lost",
    type=click.Choice(["stop", "kill", "continue"]),
    default="stop",
    show_default=True,
    help="What becomes of COMMAND when the lease is lost: TERM and then KILL, KILL at once, or nothing, for commands "
    "whose store compares fences.",
)
@click.option(
    "--pidfile",
    metavar="PATH",
    help="A pid file with COMMAND's number, which old tools can read, and which a crash or a container restart does not "
    "turn into a stranger's.",
)
@click.argument("url")
@click.argument("command", metavar="-- COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
def run_command(
    *,
    url: str,
    command: tuple[str, ...],
    wait: float,
    ttl: float,
    skew: float,
    label: str | None,
    grace: float,
    close_lifeline: bool,
    on_lost: Literal["stop", "kill", "continue"],
    pidfile: str | None,
) -> int:
    """Check what was asked for, then run it."""
    # nan is neither below nor above anything, so a range lets it through.
    if wait != wait or grace != grace:  # noqa: PLR0124  the one number that differs from itself
        raise click.BadParameter("nan is no number of seconds")

    words = _words_of(command)
    if sys.platform != "win32":
        from tenure._cli._attend import Plan, attend  # noqa: PLC0415  Windows has none of these signals
        from tenure._cli._signals import LOST, Inbox  # noqa: PLC0415

        # Before anything else: a signal that comes from now on is not lost.
        inbox = Inbox()
        try:
            lease = WriterLease(
                url,
                ttl=ttl,
                skew=skew,
                label=_label_of(words) if label is None else label,
                on_lost=lambda _: inbox.put(LOST),
            )
        except ValueError as error:
            raise click.UsageError(str(error)) from error
        pid_file = None if pidfile is None else PidFile(pidfile, ttl=ttl, skew=skew)
        return attend(Plan(lease, words, wait, grace, not close_lifeline, on_lost, pid_file), inbox)
    else:
        raise StoreCannotLockError("`tenure run` needs POSIX signals", hint="use the library")


def _words_of(command: tuple[str, ...]) -> tuple[str, ...]:
    # `--` is ours where it stands between URL and COMMAND; click leaves it in after the first argument.
    if command[0] == "--":
        if len(command) == 1:
            raise click.UsageError("Missing argument 'COMMAND...'.")
        return command[1:]
    if command[0].startswith("-"):
        raise click.UsageError(f"Options stand before URL: {command[0]}. A command of that name goes after `--`.")
    return command


def _label_of(words: tuple[str, ...]) -> str:
    # The program alone: arguments may be secrets, and the store is read by others.
    return _output.printable(words[0])[-200:] or "a command"
