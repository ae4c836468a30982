"""What an agent does with a datastore, from where it stands; plain JSON on both sides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.helpers.holding import told

if TYPE_CHECKING:
    import tenure

_writers: list[tenure.CheckoutWriter] = []
_checkouts: list[tenure.Checkout] = []


def open_checkout(store: str, path: str, **options: Any) -> str:
    import tenure

    _checkouts.append(tenure.Datastore(store, **options).checkout(path))
    return _checkouts[-1].id


def write(timeout: float = 0.0) -> dict[str, Any]:
    """Become the writer; the fence, or what the refusal said."""
    import tenure

    try:
        _writers.append(_checkouts[-1].writer(timeout))
    except tenure.Error as error:
        return told(error)
    return {"fence": _writers[-1].fence, "moved_aside": list(_writers[-1].recovered.moved_aside)}


def put(name: str, data: str) -> None:
    _writers[-1].put(name, data.encode())


def stage(name: str) -> None:
    """Stage the file as it lies in the checkout."""
    _writers[-1].put(name)


def commit(message: str | None = None, id: str | None = None) -> dict[str, Any]:  # noqa: A002  the real name
    import tenure

    try:
        done = _writers[-1].commit(message, id=id)
    except tenure.Error as error:
        return told(error)
    return {"slot": None if done is None else done.slot}


def retain(keep: int) -> str | None:
    """Why it was skipped, or None."""
    return _writers[-1].retain(keep=keep).skipped


def close_writer() -> list[str]:
    return list(_writers[-1].close())


def catch_up() -> dict[str, Any]:
    import tenure

    try:
        done = _checkouts[-1].catch_up()
    except tenure.Error as error:
        return told(error)
    return {"after": done.after, "moved_aside": list(done.moved_aside)}
