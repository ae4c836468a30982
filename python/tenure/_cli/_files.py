"""`tenure init`, `put`, `rm`, `get` and `ls`: a datastore's files."""

from __future__ import annotations

import shutil
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import BinaryIO

import click

from tenure._cli import _output
from tenure._cli._where import (
    at_option,
    bad_input,
    checkout_option,
    checkout_root,
    datastore_at,
    json_option,
    opened_checkout,
    progress_bar,
    wait_option,
)
from tenure._commit._writer import Committed
from tenure._datastore._datastore import Datastore
from tenure._datastore._recovery import Recovered

_INIT_HELP = """Make a datastore in URL: a directory, or whatever else a store can be. One that is there already is left as it is.

\b
Keys of --json:
  v    1: raised when a key changes its meaning
  url  of the store
  id   of the datastore
"""

_PUT_HELP = """Put files into the datastore, all of them as one commit.

Each NAME is relative to the checkout, and is taken as it lies there; with --from, one NAME gets the content of another file, or of
standard input. Others see all of it or nothing.

\b
Keys of --json:
  v            1: raised when a key changes its meaning
  version      that the commit made, as text; null if nothing had changed
  id           of the commit, or null
  moved_aside  where files are now that a dead writer had left
"""

_GET_HELP = """Write the content of NAME to standard output, or to a file.

WHERE is the URL of a datastore, or the directory of a checkout. A file appears under its name only when all of it is there and was
found undamaged.
"""

_LS_HELP = """List the files of a datastore: size, version of the last change, name.

WHERE is the URL of a datastore, or the directory of a checkout.

\b
Keys of --json, one object on one line for each file:
  v        1: raised when a key changes its meaning
  name     of the file
  size     in bytes
  sha256   of its content
  version  that changed it last, as text
"""


@click.command("init", help=_INIT_HELP, short_help="Make a datastore.")
@json_option
@click.argument("url")
def init_command(url: str, as_json: bool) -> None:
    """Make it, and say which it is."""
    with bad_input():
        datastore = Datastore.create(url)
    if as_json:
        _output.show_json({"v": 1, "url": datastore.url, "id": datastore.id})
    else:
        _output.show(datastore.url, [("datastore", datastore.id)])


@click.command("put", help=_PUT_HELP, short_help="Put files into the datastore.")
@click.option("--from", "source", metavar="FILE", help="Take the content from here; - is standard input.")
@click.option("-m", "--message", help="For `tenure log`.")
@click.option("--id", "commit_id", metavar="ID", help="Names the commit: tried again with the same, it lands once.")
@wait_option
@checkout_option
@json_option
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
def put_command(
    *,
    names: tuple[str, ...],
    source: str | None,
    message: str | None,
    commit_id: str | None,
    wait: float,
    path: str,
    as_json: bool,
) -> None:
    """Stage each, and commit them together."""
    if source is not None and len(names) != 1:
        raise click.UsageError("--from gives the content of one file: name one NAME.")
    with opened_checkout(path, label="tenure put") as checkout:
        with progress_bar("catching up") as progress:
            writer = checkout.writer(wait, progress=progress)
        with writer, bad_input():
            for name in names:
                if source is None:
                    writer.put(_inside(checkout.path, name))
                else:
                    with _source(source) as content:
                        writer.put(_inside(checkout.path, name), content)
            with progress_bar("storing") as progress:
                done = writer.commit(message, id=commit_id, progress=progress)
        _show_commit(done, writer.recovered, as_json)


@click.command("rm", help=_PUT_HELP.replace("Put files into", "Remove files from"), short_help="Remove files.")
@click.option("-m", "--message", help="For `tenure log`.")
@wait_option
@checkout_option
@json_option
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
def rm_command(*, names: tuple[str, ...], message: str | None, wait: float, path: str, as_json: bool) -> None:
    """Stage each, and commit them together."""
    with opened_checkout(path, label="tenure rm") as checkout:
        with checkout.writer(wait) as writer, bad_input():
            for name in names:
                writer.delete(_inside(checkout.path, name))
            done = writer.commit(message)
        _show_commit(done, writer.recovered, as_json)


@click.command("get", help=_GET_HELP, short_help="Read a file.")
@at_option
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Instead of standard output.")
@click.argument("where")
@click.argument("name")
def get_command(where: str, name: str, at: int | None, output: Path | None) -> None:
    """Copy it, in memory that does not grow."""
    # A bar and the content itself cannot share a terminal.
    with progress_bar("reading") if output is not None else nullcontext() as progress:
        with bad_input():
            content = datastore_at(where).open(name, at=at, progress=progress)
        _copy(content, output)


def _copy(content: BinaryIO, output: Path | None) -> None:
    with content:
        if output is None:
            shutil.copyfileobj(content, sys.stdout.buffer)
            return
        beside = output.with_name(f".{output.name}.tenure")
        try:
            with beside.open("wb") as target:
                shutil.copyfileobj(content, target)
            beside.replace(output)
        finally:
            beside.unlink(missing_ok=True)


@click.command("ls", help=_LS_HELP, short_help="List the files.")
@at_option
@json_option
@click.argument("where", default=".")
def ls_command(where: str, at: int | None, as_json: bool) -> None:
    """One line for each."""
    with bad_input():
        for found in datastore_at(where).files(at=at):
            if as_json:
                facts = {"v": 1, "name": found.name, "size": found.size, "sha256": found.sha256}
                _output.show_json(facts | {"version": str(found.slot)})
            else:
                print(f"{found.size:>12}  {found.slot:>8}  {_output.printable(found.name)}")


def _inside(root: Path, name: str) -> str:
    """*name* as the datastore has it; a path that leads into the checkout will do too."""
    path = Path(name)
    if path.is_absolute():
        try:
            return path.relative_to(checkout_root(str(root))).as_posix()
        except ValueError:
            raise click.UsageError(f"{name} is not in the checkout {root}") from None
    return path.as_posix()


def _source(source: str) -> BinaryIO:
    return sys.stdin.buffer if source == "-" else Path(source).open("rb")


def _show_commit(done: Committed | None, recovered: Recovered, as_json: bool) -> None:
    for moved in recovered.moved_aside:
        _output.note(f"a dead writer had left this uncommitted; it is now {moved}")
    if as_json:
        version = None if done is None else str(done.slot)
        facts = {"v": 1, "version": version, "id": None if done is None else done.id}
        _output.show_json(facts | {"moved_aside": list(recovered.moved_aside)})
    elif done is None:
        print("nothing has changed")
    else:
        print(f"version {done.slot}")
