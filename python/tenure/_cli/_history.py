"""`tenure history`: who held the lease before, and how it ended."""

from __future__ import annotations

import json
from collections import deque
from itertools import islice

import click

from tenure._cli import _output
from tenure._lease._history import PastHold
from tenure._lease._lease import WriterLease

_ENDINGS = {
    "released": "gave it back",
    "taken_over": "did not give it back; the next one took over",
    "forced": "was broken by force",
    "last": "has not given it back",
    "unreadable": "left a claim that cannot be read",
}

_HELP = """List who held the lease of URL, newest first, as far back as claims are kept. Writes nothing.

Times are those of the machines that wrote them, for people.

\b
Keys of --json, one object on one line for each hold:
  v          1: raised when a key changes its meaning
  fence      as text
  ended      "released", "taken_over", "forced", "last" or "unreadable"; "collected", in the last line alone, stands for
             this fence and all below, which are no longer kept
  holder     host/pid in one word
  host_name, label, nonce, identity
  since, until
"""


@click.command("history", help=_HELP, short_help="Who held the lease before, and how it ended.")
@click.option("-n", "--last", "count", type=click.IntRange(min=1), default=20, show_default=True, metavar="N")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.argument("url")
def history_command(url: str, count: int, as_json: bool) -> None:
    """Read the claims, and show the last of them."""
    try:
        lease = WriterLease(url)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="URL") from error
    # Never more in memory than is shown, however long the history is.
    last = deque(lease.history(), maxlen=count)
    newest_first = list(islice(reversed(last), count))
    if as_json:
        for past in newest_first:
            _output.show_json(_fields(past))
        return
    _output.show(lease.store.url, [("", "never taken")] if not newest_first else [])
    for past in newest_first:
        if past.ended == "collected":
            _output.show_row(f"fence {past.fence}", "and all before: no longer kept")
            continue
        doing = "" if past.label is None else f" · {past.label}"
        _output.show_row(f"fence {past.fence}", f"{_holder(past)}{doing}")
        _output.show_row("", f"{past.since or '?'} to {past.until or '?'}, {_ENDINGS[past.ended]}")


def _holder(past: PastHold) -> str:
    if past.holder is None:
        return past.host_name or "somebody unknown"
    return f"{past.host_name or 'unnamed host'}/{past.holder.pid}"


def _fields(past: PastHold) -> dict[str, object]:
    return {
        "v": 1,
        "fence": str(past.fence),
        "ended": past.ended,
        "holder": _holder(past),
        "host_name": past.host_name,
        "label": past.label,
        "nonce": past.nonce,
        "identity": None if past.holder is None else json.loads(past.holder.to_json()),
        "since": past.since,
        "until": past.until,
    }
