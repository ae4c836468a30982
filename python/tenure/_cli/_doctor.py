"""`tenure doctor`: which evidence this machine can give, and what its lack costs."""

from __future__ import annotations

import os
from collections.abc import Iterator

import click

from tenure._cli import _output
from tenure._identity import ProcessIdentity, capabilities
from tenure._lease._sight import DEFAULT_SKEW, DEFAULT_TTL
from tenure._lifeline import filesystem_of
from tenure._store._kit import check_store
from tenure.errors import StoreError
from tenure.stores import as_directory, open_store

_HELP = """Say which evidence this machine, and the store at URL, can give about a dead writer, and what its lack costs.

Looks only and writes nothing, except that a bucket is tried in scratch keys, which are removed again; `--try` does that
with any store, `--no-try` with none. What is missing makes a takeover slower, never unsafe: where nobody can prove that a holder
is gone, the next one waits for ttl + skew of silence.

\b
Keys of --json:
  v       1: raised when a key changes its meaning
  checks  a list of objects: name, ok (true or false), found, cost
"""

_SLOW = f"takeovers wait for ttl + skew ({DEFAULT_TTL + DEFAULT_SKEW:g} s by default)"

Check = tuple[str, bool, str, str]
_BUCKETS = ("s3:", "gs:", "az:")
_COSTS_OF_BROKEN = "tenure refuses this store: it could lose the lease to two writers at once"
_NOTES = {
    "s3:": "an answered write is kept in several zones (one, with S3 Express)",
    "gs:": "an answered write is kept in several zones; about one change a second per name, so keep ttl above 5 s",
    "az:": "an answered write is kept in one zone or several, as the account's redundancy says",
}


@click.command("doctor", help=_HELP, short_help="What this machine can prove, and what its lack costs.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on one line.")
@click.option("--try/--no-try", "trying", default=None, help="Try what the store promises, in scratch keys.")
@click.argument("url", required=False)
def doctor_command(url: str | None, as_json: bool, trying: bool | None) -> None:
    """Look at the machine, then at the store."""
    checks = list(_machine())
    if url is not None:
        try:
            checks += _store(url)
            if trying or (trying is None and url.startswith(_BUCKETS)):
                checks += _tried(url)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="URL") from error
    if as_json:
        found = [{"name": name, "ok": ok, "found": what, "cost": cost or None} for name, ok, what, cost in checks]
        _output.show_json({"v": 1, "checks": found})
        return
    _output.show("what can be proven here", [])
    for name, ok, what, cost in checks:
        _output.show_row(name, _output.styled_check(ok, what))
        if cost:
            _output.show_row("", cost)


def _machine() -> list[Check]:
    has, me = capabilities(), ProcessIdentity.current()
    found: list[Check] = [
        (
            "processes",
            "pidfs" in has,
            "by ids that are never reused (pidfs, Linux 6.9)" if "pidfs" in has else "by start times of 10 ms",
            "" if "pidfs" in has else "two processes of one number and one 10 ms tick look the same",
        ),
        (
            "pidfd",
            "pidfd" in has,
            "processes are pinned while they are judged" if "pidfd" in has else "none: an old kernel, or seccomp",
            "" if "pidfd" in has else "a waiter sees a death by looking, not at once; /proc must be ours",
        ),
        (
            "/proc",
            "proc" in has,
            "shows our own pid namespace" if "proc" in has else "absent, or of another pid namespace",
            "" if "proc" in has or "pidfs" in has else f"nobody here can be judged: {_SLOW}",
        ),
        (
            "namespace",
            "handle" in has,
            "processes of inner pid namespaces can be found" if "handle" in has else "cannot be looked into",
            "" if "handle" in has else f"other containers are judged by the lifeline alone; without one {_SLOW}",
        ),
        (
            "boot id",
            me.boot is not None,
            me.boot or "none",
            "" if me.boot is not None else f"nobody can be judged, and no lifeline is believed: {_SLOW}",
        ),
    ]
    if me.host_set_by_operator:
        found.append(("host id", True, f"{me.host}, set by the operator", ""))
    else:
        derived = "none" if me.host is None else "a hash of the machine id"
        found.append(
            (
                "host id",
                True,
                derived,
                f"after a reboot {_SLOW}; TENURE_HOST_ID and TENURE_HOST_ID_IS_UNIQUE change that",
            )
        )
    return found


def _store(url: str) -> list[Check]:
    store = open_store(url)
    directory = as_directory(store)
    if directory is None:
        return [("store", True, store.url, "no directory: lifelines lie on this host, and each renewal is a request")]
    root = directory.path_of("x").parent
    if not root.is_dir():
        return [("store", True, f"{store.url}: not there yet; the first acquire makes it", "")]
    filesystem = filesystem_of(root)
    writable = os.access(root, os.W_OK | os.X_OK)
    return [
        ("store", writable, store.url, "" if writable else "not writable for us: status works, acquire does not"),
        (
            "lifeline",
            filesystem is not None,
            f"{filesystem}: this kernel alone keeps its locks" if filesystem else "not on this file system",
            "" if filesystem else f"it may be shared with other machines, so its locks prove nothing: {_SLOW}",
        ),
    ]


def _tried(url: str) -> Iterator[Check]:
    try:
        store = open_store(url)
        # A store that refuses itself before its first write is asked to be tried all the same.
        to_try = getattr(store, "to_try", None)
        tried = store if to_try is None else to_try()
    except StoreError as error:
        yield "tried", False, str(error), error.hint or ""
        return
    for promise in check_store(lambda: tried):
        yield promise.name, promise.kept, promise.found, "" if promise.kept else _COSTS_OF_BROKEN
    note = next((note for scheme, note in _NOTES.items() if url.startswith(scheme)), None)
    if note is not None:
        yield "durability", True, note, ""
