"""`tenure status`: who holds the lease, since when, doing what, alive or not, and why."""

from __future__ import annotations

import json
from typing import Any

import click

from tenure._cli import _output
from tenure._cli._words import sentence
from tenure._clock import seconds_since
from tenure._lease._lease import WriterLease
from tenure._lease._sight import LeaseStatus

_HELP = """Show who holds the lease of URL, and whether that process still lives.

Looks only: writes nothing, waits for nobody, signals nobody. Works on a read-only mount. Exits with 0 whatever the
state is.

\b
Keys of --json, none of which is ever left out (null where there is nothing):
  v              1: raised when a key changes its meaning
  url            the store
  state          "free", "held" or "unknown"
  fence          highest fence so far, as text; "0" if never taken
  verdict        "alive", "gone" or "unknown"; on the holder of that fence
  reason         slug, see docs/concepts/verdicts.md
  evidence       what the verdict rests on
  detail         more for people, often ""
  holder         host/pid in one word
  host_name      what its machine calls itself
  pid            its number in its own pid namespace
  identity       the recorded identity, for `tenure judge`
  label          what it said it is doing
  since          when it took the lease, by its own clock
  ttl_s, skew_s  of the claim
  beat           number of its last heartbeat, as text
  last_beat      when that was, by the file system's clock
  last_beat_age_s  seconds since, if that clock and ours agree
  nonce          of the claim
  retry_after_s  seconds of watching until the earliest takeover; 0 when free,
                 null while the holder is proven alive
  problem        what is wrong with the claim
"""


@click.command("status", help=_HELP, short_help="Who holds the lease, and does it still live?")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on one line.")
@click.argument("url")
def status_command(url: str, as_json: bool) -> None:
    """Look, and show."""
    try:
        lease = WriterLease(url)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="URL") from error
    seen = lease.inspect()
    if as_json:
        _output.show_json(fields(seen))
    else:
        _output.show(seen.url, rows(seen))


def fields(seen: LeaseStatus) -> dict[str, Any]:
    """The keys of --json. Fence and beat are text, since JavaScript loses integers above 2**53."""
    taken = seen.fence > 0
    return {
        "v": 1,
        "url": seen.url,
        "state": seen.state,
        "fence": str(seen.fence),
        **_output.judgement_fields(seen.judgement),
        "holder": seen.holder_for_people() if taken else None,
        "host_name": seen.host_name,
        "pid": None if seen.holder is None else seen.holder.pid,
        "identity": None if seen.holder is None else json.loads(seen.holder.to_json()),
        "label": seen.label,
        "since": seen.since,
        "ttl_s": seen.ttl,
        "skew_s": seen.skew,
        "beat": str(seen.beat),
        "last_beat": seen.last_beat,
        "last_beat_age_s": None if seen.last_beat is None else seconds_since(seen.last_beat),
        "nonce": seen.nonce,
        "retry_after_s": seen.retry_after_s,
        "problem": seen.problem,
    }


def rows(seen: LeaseStatus) -> list[_output.Row]:
    """The same for people."""
    if seen.judgement is None:
        return [("state", _output.styled(seen.state)), ("fence", "0: never taken")]
    # Of a lease that is free nobody is the holder any more.
    who = "last held" if seen.state == "free" else "holder"
    found: list[_output.Row] = [("state", _output.styled(seen.state)), (who, seen.holder_for_people())]
    if seen.label is not None:
        found.append(("doing", seen.label))
    if seen.since is not None:
        found.append(("since", f"{seen.since} by its own clock"))
    if seen.last_beat is not None:
        age = seconds_since(seen.last_beat)
        found.append(("last beat", f"{seen.last_beat} by the file system's clock, {age:.0f} s ago by ours"))
    found.append(("fence", str(seen.fence)))
    if seen.nonce is not None:
        found.append(("nonce", seen.nonce))
    found += _output.verdict_rows(seen.judgement, sentence(seen.judgement))
    if seen.problem is not None:
        found.append(("problem", seen.problem))
    found.append(("takeover", _takeover(seen)))
    return found


def _takeover(seen: LeaseStatus) -> str:
    if seen.retry_after_s is None:
        return "not while it lives"
    if seen.retry_after_s == 0:
        return "now"
    return f"after {seen.retry_after_s:g} s of watching it be silent (ttl {seen.ttl:g} s + skew {seen.skew:g} s)"
