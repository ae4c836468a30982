"""`tenure release`: the operator's way out of a hold that nobody can judge."""

from __future__ import annotations

import click

from tenure._cli import _output
from tenure._cli._status import fields, rows
from tenure._commit._log import CommitLog
from tenure._lease._lease import WriterLease

_HELP = """Break the hold of URL whose nonce `tenure status` has shown. Takes nothing and waits for nobody.

A fence is burnt: the holder is fenced at its next check, and by storage that compares fences; a commit log is sealed, so
that nothing of it lands any more. It is not stopped. A free
lease is left as it is, and a hold that has changed hands since it was looked at is refused; so is one that is proven
alive, unless --even-if-alive says that you know better.

\b
Exit codes:
  0   broken, or there was nothing to break
  1   refused: another hold is there, or its holder is alive
`tenure --help` lists them all.

\b
Keys of --json:
  v        1: raised when a key changes its meaning
  before   the lease as it was found, with the keys of `tenure status --json`
  fence    the fence that was burnt, as text; null if nothing was done
  dry_run  whether it was one
"""


@click.command("release", help=_HELP, short_help="Break a hold by force.")
@click.option("--nonce", metavar="NONCE", help="Of the claim, as shown by `tenure status`.")
@click.option("--damaged", is_flag=True, help="Instead of --nonce, for a claim that cannot be read.")
@click.option("--even-if-alive", is_flag=True, help="Also if the holder is proven alive.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on one line.")
@click.argument("url")
def release_command(
    *, url: str, nonce: str | None, damaged: bool, even_if_alive: bool, dry_run: bool, as_json: bool
) -> None:
    """Check what was asked for, break it, and say what was seen."""
    if (nonce is None) != damaged:
        raise click.UsageError("Name the claim: --nonce NONCE, as `tenure status` shows it, or --damaged.")
    try:
        lease = WriterLease(url)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="URL") from error
    done = lease.force_release(nonce, even_if_alive=even_if_alive, dry_run=dry_run)
    if done.fence is not None:
        # Where there is a commit log too: not even a commit that is under way lands any more.
        CommitLog(lease.store).shut_out(done.fence)
    if as_json:
        burnt = None if done.fence is None else str(done.fence)
        _output.show_json({"v": 1, "before": fields(done.before), "fence": burnt, "dry_run": dry_run})
        return
    _output.show(done.before.url, rows(done.before))
    if done.fence is not None:
        said = f"broken: fence {done.fence} is burnt, and every older one is refused"
    elif done.before.state == "free":
        said = "nothing to do: the lease is free"
    else:
        said = "nothing was done: a dry run. The next fence would have been burnt"
    _output.show_row("force", said)
