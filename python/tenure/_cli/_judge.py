"""`tenure judge`: does the process that a record describes still live?"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import click

from tenure._cli import _output
from tenure._cli._words import sentence
from tenure._identity import Judgement, Verdict, judge
from tenure.errors import RecordError

# What a claim may have at most (tenure._lease._claim). One byte more is read, to see that there is more.
_MAX_BYTES = 16_384

# Those of the Linux Standard Base for `status` actions: 3 "not running", 4 "unknown". Source: LSB 5.0, Core, 22.2.
_EXIT_CODES = {Verdict.ALIVE: 0, Verdict.GONE: 3, Verdict.UNKNOWN: 4}

_HELP = """Judge whether the process that RECORD describes still lives, without signalling anybody.

RECORD is JSON (it starts with "{"), a path to a file with it, or - for stdin. A whole claim of a lease will do: its
holder is judged. `tenure status` knows more about a lease, since it also sees the lifeline.

\b
Exit codes:
  0  alive: that very process runs
  3  gone: it has ended, for good
  4  unknown: nobody can tell from here; also for a record that is damaged
  1  there is no such file, or the platform would not say who we are
  2  wrong usage

\b
Keys of --json:
  v         1: raised when a key changes its meaning
  verdict   "alive", "gone" or "unknown"
  reason    slug, see docs/concepts/verdicts.md
  evidence  what the verdict rests on
  detail    more for people, often ""
  sentence  the reason in words; may change
"""


@click.command("judge", help=_HELP, short_help="Does the process of this record still live?")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on one line.")
@click.option("--host-id", metavar="ID", help="This host's id, as set by its operator; wins over TENURE_HOST_ID.")
@click.option(
    "--host-id-is-unique",
    is_flag=True,
    default=None,
    help="No other machine, clone or restored snapshot carries that id: another boot id then proves a reboot.",
)
@click.argument("record")
def judge_command(record: str, as_json: bool, host_id: str | None, host_id_is_unique: bool | None) -> int:
    """Read, judge, show."""
    data = _read(record)
    try:
        judgement = _judge(data, host_id=host_id, host_id_is_unique=host_id_is_unique)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--host-id") from error
    if as_json:
        _output.show_json({"v": 1, **_output.judgement_fields(judgement), "sentence": sentence(judgement)})
    else:
        _output.show(sentence(judgement), _output.verdict_rows(judgement))
    return _EXIT_CODES[judgement.verdict]


def _judge(data: bytes, **options: Any) -> Judgement:
    if len(data) > _MAX_BYTES:
        return Judgement(Verdict.UNKNOWN, "malformed", "record", f"longer than {_MAX_BYTES} bytes")
    return judge(_holder_of(data), **options)


def _holder_of(data: bytes) -> bytes | str | None:
    """The holder's record if *data* is a claim, else *data*, whose faults the judgement describes best."""
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        return data
    # An identity has no field of that name, and a claim always has.
    if isinstance(fields, dict) and "holder" in fields:
        return None if fields["holder"] is None else json.dumps(fields["holder"])
    return data


def _read(record: str) -> bytes:
    if record.lstrip().startswith("{"):
        return record.encode("utf-8", "surrogateescape")
    try:
        if record == "-":
            return sys.stdin.buffer.read(_MAX_BYTES + 1)
        with open(record, "rb") as file:
            return file.read(_MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        words = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise RecordError(
            f"the record cannot be read. path=`{os.fsdecode(record)}`, cause=`{words}`",
            hint='give JSON that starts with "{", a path, or - for stdin',
            key=None,
            reason=words,
        ) from error
