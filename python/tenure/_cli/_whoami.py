"""`tenure whoami`: who this process is, and what this machine can prove about others."""

from __future__ import annotations

import json

import click

from tenure._cli import _output
from tenure._identity import ProcessIdentity, capabilities, host_name

_KINDS = {
    "pidfs": "never-reused process ids",
    "pidfd": "processes pinned by a descriptor",
    "proc": "a /proc that shows our own pid namespace",
    "handle": "processes of other pid namespaces, by handle",
}

_HELP = """Show this process's identity, and which evidence this machine can give about others.

The identity is what a lease records of its holder, so `tenure whoami --json | jq -c .identity` is a record for
`tenure judge`.

\b
Keys of --json:
  v             1: raised when a key changes its meaning
  host_name     what this machine calls itself; proves nothing
  identity      the record: v, os, host, boot, ns, ns_id, pid, start, uniq, nonce
  capabilities  those of "handle", "pidfd", "pidfs", "proc" that are there
"""


@click.command("whoami", help=_HELP, short_help="This process's identity, and what can be proven here.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on one line.")
def whoami_command(as_json: bool) -> None:
    """Capture, and show."""
    me, name, kinds = ProcessIdentity.current(), host_name(), capabilities()
    if as_json:
        _output.show_json(
            {
                "v": 1,
                "host_name": name,
                "identity": json.loads(me.to_json()),
                "capabilities": sorted(kinds),
            }
        )
        return
    by = "set by the operator" if me.host_set_by_operator else "a hash of the machine id"
    rows: list[_output.Row] = [
        ("host", "none: this machine has no id" if me.host is None else f"{me.host} ({by})"),
        ("boot", me.boot or "unknown"),
        ("namespace", (me.ns or "unknown") + ("" if me.ns_id is None else f" (id {me.ns_id})")),
        ("pid", str(me.pid)),
        ("start", "unknown" if me.start is None else f"{me.start} hundredths of a second after boot"),
        ("unique id", "none on this kernel" if me.uniq is None else str(me.uniq)),
        ("nonce", me.nonce or "none"),
    ]
    label = "evidence"
    for kind, words in _KINDS.items():
        rows.append((label, f"{'yes' if kind in kinds else 'no ':<5}{kind:<8}{words}"))
        label = ""
    _output.show(f"{name or 'unnamed host'}/{me.pid}", rows)
