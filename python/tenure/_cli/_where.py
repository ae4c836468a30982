"""What a command is about: a datastore by its URL, or the checkout in a directory, which knows its datastore."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from tenure._cli import _output
from tenure._datastore._catalog import Catalog
from tenure._datastore._checkout import Checkout
from tenure._datastore._datastore import Datastore
from tenure._datastore._names import RESERVED
from tenure.errors import Error

_CATALOG = Path(RESERVED) / "catalog.db"

at_option = click.option(
    "--at", type=click.IntRange(min=1), metavar="VERSION", help="As of this version, as `tenure log` shows it."
)
json_option = click.option("--json", "as_json", is_flag=True, help="JSON instead of text.")
checkout_option = click.option(
    "-C",
    "--checkout",
    "path",
    default=".",
    show_default=True,
    metavar="DIR",
    help="The checkout, or a directory inside it.",
)
wait_option = click.option(
    "--wait", type=click.FloatRange(min=0), default=0.0, metavar="SECONDS", help="For another writer to end; default 0."
)


def datastore_at(where: str) -> Datastore:
    """The datastore at a URL, or that of the checkout in a directory."""
    url = _url_of(Path(where))
    with bad_input():
        return Datastore(where if url is None else url)


def checkout_root(path: str) -> Path:
    """The checkout that *path* is in."""
    start = Path(path).absolute()
    for directory in (start, *start.parents):
        if (directory / _CATALOG).is_file():
            return directory
    raise click.UsageError(f"there is no checkout in {start}, nor above it. Make one: tenure pull --from URL -C DIR")


@contextmanager
def bad_input() -> Iterator[None]:
    """Turn what is wrong with an argument into wrong usage. What the library says of records and stores stays as it is."""
    try:
        yield
    except Error:
        raise
    except (ValueError, FileNotFoundError) as error:
        raise click.UsageError(str(error)) from error


@contextmanager
def opened_checkout(path: str, *, url: str | None = None, label: str | None = None) -> Iterator[Checkout]:
    """The checkout that *path* is in; with *url*, made there if need be."""
    root = checkout_root(path) if url is None else Path(path).absolute()
    with bad_input():
        datastore = Datastore(_url_of(root) or "" if url is None else url)
    with datastore.checkout(root, label=label) as checkout:
        yield checkout


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """A bar on stderr while it lasts, if that is a terminal; None in a pipe."""
    console = _output.console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    # Only here: it costs as much to load as all the rest of the command.
    from rich.progress import Progress  # noqa: PLC0415  see above

    with Progress(console=console, transient=True) as bars:
        bar = bars.add_task(what, total=None)
        yield lambda done, total: bars.update(bar, completed=done, total=total)


def _url_of(directory: Path) -> str | None:
    """What datastore the checkout in *directory* is one of; None if there is no checkout."""
    if not (directory / _CATALOG).is_file():
        return None
    catalog = Catalog(directory / _CATALOG)
    try:
        return catalog.about("url")
    finally:
        catalog.close()
