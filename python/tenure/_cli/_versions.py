"""`tenure log`, `pull`, `recover`, `retain` and `verify`: a datastore's versions, and its checkouts."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import asdict
from itertools import islice
from typing import Any

import click

from tenure._cli import _output
from tenure._cli._where import (
    checkout_option,
    datastore_at,
    json_option,
    opened_checkout,
    progress_bar,
    wait_option,
)
from tenure._datastore._recovery import Recovered

_LOG_HELP = """List what was committed, newest first, as far back as it is kept.

WHERE is the URL of a datastore, or the directory of a checkout. Times are those of the machines that wrote, for people.

\b
Keys of --json, one object on one line for each entry:
  v        1: raised when a key changes its meaning
  version  as text
  kind     "commit", "snapshot" or "seal" (a new writer began)
  id       of the commit
  fence    of the writer, as text
  at       when
  message  of the commit, or null
  count    how many files it changed; of a snapshot, how many there were
"""

_PULL_HELP = """Bring a checkout to the newest version. With --from, make it first, if there is none.

Never touches a file while a writer of this checkout is alive or may be; after one that died it recovers first. What anybody changed
there and did not commit is moved aside where it is in the way, and listed.

\b
Keys of --json:
  v             1: raised when a key changes its meaning
  before, after version of the files, as text
  files         how many changed
  moved_aside   where files are now that nobody had committed
  recovered     null, or the keys of `tenure recover --json`
"""

_RECOVER_HELP = """Put right what a dead writer of the checkout has left.

Its prepared commits land, unless what they change has moved since: then they are kept and reported. Its half-done files are moved
aside, and what was committed is put back.

\b
Keys of --json:
  v            1: raised when a key changes its meaning
  landed       prepared commits that are in the log now
  conflicted   ... that cannot land any more
  skipped      ... whose writer lives, or may
  undecided    ... of which nobody can tell yet
  interrupted  fences of the writers that had died here, as text
  restored     files that got their committed content back
  moved_aside  where files are now that nobody had committed
  conflicts    id and reason of each conflicted commit that is kept
"""

_RETAIN_HELP = """Give up old versions, and the content that only they had.

A version is kept if --keep or --older-than asks for it. Old ones go as far as the last snapshot before them, and content in two
passes: what one pass condemns, the next one deletes.

\b
Keys of --json:
  v          1: raised when a key changes its meaning
  skipped    null, or why nothing was done
  oldest     version that can still be read, as text
  entries    of the log that were removed
  condemned  blobs that the next pass deletes
  deleted    blobs that are gone
"""

_VERIFY_HELP = """Read everything that a datastore keeps, and compare it with its digests.

WHERE is the URL of a datastore, or the directory of a checkout. Exits with 1 if anything is damaged or missing.

\b
Keys of --json, one object on one line for each damage:
  v        1: raised when a key changes its meaning
  version  of the entry that it was found by, as text
  key      of the record or blob
  reason   for people
"""

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


class _Duration(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.2 only
    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smhdw]?)", str(value))
        if match is None:
            self.fail(f"{value!r} is not a time: write 90, 90s, 15m, 12h, 30d or 8w", param, ctx)
        return float(match[1]) * _UNITS[match[2] or "s"]


@click.command("log", help=_LOG_HELP, short_help="What was committed.")
@click.option("-n", "--last", "count", type=click.IntRange(min=1), default=20, show_default=True, metavar="N")
@click.option("--all", "everything", is_flag=True, help="Seals and snapshots too.")
@json_option
@click.argument("where", default=".")
def log_command(where: str, count: int, everything: bool, as_json: bool) -> None:
    """Read the log, and show the last of it."""
    lines = (line for line in datastore_at(where).log() if everything or line.kind == "commit")
    for line in islice(reversed(deque(lines, maxlen=count)), count):
        if as_json:
            facts = asdict(line)
            _output.show_json({"v": 1, "version": str(facts.pop("slot")), **facts, "fence": str(line.fence)})
        else:
            said = line.message if line.kind == "commit" else line.kind
            text = f"{line.slot:>8}  {line.at or '?':25}  {line.count:>6}  {said or ''}"
            print(_output.printable(text.replace("\n", " ")).rstrip())


@click.command("pull", help=_PULL_HELP, short_help="Bring a checkout up to date.")
@click.option("--from", "url", metavar="URL", help="Of the datastore, for a checkout that is not there yet.")
@checkout_option
@json_option
def pull_command(url: str | None, path: str, as_json: bool) -> None:
    """Catch up, and say what changed."""
    with opened_checkout(path, url=url) as checkout, progress_bar("catching up") as progress:
        done = checkout.catch_up(progress=progress)
        kept = checkout.outbox.entries("conflicted")
        recovered = None if done.recovered is None else _fields(done.recovered, kept)
    if as_json:
        facts: dict[str, Any] = {"v": 1, "before": str(done.before), "after": str(done.after), "files": done.files}
        _output.show_json(facts | {"moved_aside": list(done.moved_aside), "recovered": recovered})
        return
    if done.recovered is not None:
        _show_recovered(done.recovered)
    else:
        _show_moved(done.moved_aside)
    print(f"version {done.after}" + ("" if done.files == 0 else f", {done.files} files changed"))


@click.command("recover", help=_RECOVER_HELP, short_help="Put right what a dead writer left.")
@wait_option
@checkout_option
@json_option
def recover_command(wait: float, path: str, as_json: bool) -> None:
    """Take the lease, recover, and say what there was."""
    with opened_checkout(path, label="tenure recover") as checkout:
        with progress_bar("recovering") as progress:
            recovered = checkout.recover(wait, progress=progress)
        fields = _fields(recovered, checkout.outbox.entries("conflicted"))
    if as_json:
        _output.show_json(fields)
        return
    _show_recovered(recovered)
    for conflict in fields["conflicts"]:
        _output.note(f"commit {conflict['id']} cannot land: {conflict['reason']}")
    if not recovered:
        print("nothing to recover")


@click.command("retain", help=_RETAIN_HELP, short_help="Give up old versions.")
@click.option("--keep", type=click.IntRange(min=1), metavar="N", help="Keep at least the newest N versions.")
@click.option("--older-than", type=_Duration(), metavar="TIME", help="Keep what is younger: 90s, 15m, 12h, 30d, 8w.")
@wait_option
@checkout_option
@json_option
def retain_command(*, keep: int | None, older_than: float | None, wait: float, path: str, as_json: bool) -> None:
    """Take the lease, tidy up, and say what is gone."""
    if keep is None and older_than is None:
        raise click.UsageError("Say what to keep: --keep N, --older-than TIME, or both.")
    with opened_checkout(path, label="tenure retain") as checkout:
        done = checkout.retain(keep=keep, older_than=older_than, timeout=wait)
    if as_json:
        _output.show_json({"v": 1, **asdict(done), "oldest": str(done.oldest)})
    elif done.skipped is not None:
        _output.complain(f"nothing was given up: {done.skipped}")
    else:
        print(
            f"oldest version {done.oldest}: {done.entries} entries removed, {done.condemned} blobs condemned, "
            f"{done.deleted} deleted"
        )


@click.command("verify", help=_VERIFY_HELP, short_help="Read everything and check it.")
@json_option
@click.argument("where", default=".")
def verify_command(where: str, as_json: bool) -> int:
    """One line for each damage."""
    found = 0
    with progress_bar("reading"):
        for damage in datastore_at(where).verify():
            found += 1
            if as_json:
                facts = {"v": 1, "version": str(damage.slot), "key": damage.key, "reason": damage.reason}
                _output.show_json(facts)
            else:
                print(_output.printable(f"version {damage.slot}: {damage.key}: {damage.reason}"))
    if not found and not as_json:
        print("undamaged")
    return 1 if found else 0


def _fields(recovered: Recovered, conflicted: Any) -> dict[str, Any]:
    outbox = recovered.outbox
    return {
        "v": 1,
        "landed": outbox.landed,
        "conflicted": outbox.conflicted,
        "skipped": outbox.skipped,
        "undecided": outbox.undecided,
        "interrupted": [str(fence) for fence in recovered.interrupted],
        "restored": recovered.restored,
        "moved_aside": list(recovered.moved_aside),
        "conflicts": [{"id": entry.commit_id, "reason": entry.note} for entry in conflicted],
    }


def _show_recovered(recovered: Recovered) -> None:
    outbox = recovered.outbox
    for count, said in (
        (outbox.landed, "prepared commits landed"),
        (
            outbox.conflicted,
            "prepared commits cannot land: what they change has moved; `tenure recover --json` lists them",
        ),
        (outbox.skipped, "prepared commits left alone: their writer lives, or may"),
        (outbox.undecided, "prepared commits are not decided yet"),
        (len(recovered.interrupted), "writers had died here"),
        (recovered.restored, "files were put back"),
    ):
        if count:
            print(f"{count} {said}")
    _show_moved(recovered.moved_aside)


def _show_moved(moved_aside: tuple[str, ...]) -> None:
    for moved in moved_aside:
        print(_output.printable(f"moved aside: {moved}"))
