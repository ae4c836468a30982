"""The errors of the fence are a promise: bases, `kind`, `retry`, `applied` and HTTP status; and so are the public names."""

from __future__ import annotations

import inspect
import pickle
import re
import subprocess
import sys

import pytest

import tenure.sql
from tenure import Error, FencedError
from tenure.sql import _errors
from tenure.sql._errors import FenceError

CLASSES = [value for value in vars(_errors).values() if inspect.isclass(value) and issubclass(value, FenceError)]
APPLIED = {"CommitUnknownError": None, "PublishFailedError": True, "LeaseLostAppliedError": True}


def drawn() -> dict[str, tuple[str, str, str, str]]:
    rows = re.findall(
        r"^ {4}(?:├── |└── )(\w+) +([\w, ]+?) {2,}(False|True|None) +(\d+)(?: +also an? (\w+))?$",
        _errors.__doc__ or "",
        re.MULTILINE,
    )
    return {name: (retry, applied, status, also) for name, retry, applied, status, also in rows}


def test_the_drawing_equals_the_tree() -> None:
    expected = {cls.__name__ for cls in CLASSES if cls is not FenceError}
    assert drawn().keys() == expected
    for cls in CLASSES:
        if cls is FenceError:
            continue
        retry, applied, status, also = drawn()[cls.__name__]
        assert cls.retry in retry.split(", "), cls
        assert cls.http_status == int(status)
        assert str(APPLIED.get(cls.__name__, False)) == applied
        assert [base.__name__ for base in cls.__bases__] == ["FenceError", *([also] if also else [])]


def test_kinds_tell_them_apart() -> None:
    assert len({cls.kind for cls in CLASSES}) == len(CLASSES)


def test_whoever_catches_what_a_lease_raises_catches_a_stale_epoch_too() -> None:
    assert issubclass(tenure.sql.StaleEpochError, FencedError)


@pytest.mark.parametrize("cls", CLASSES)
def test_an_error_arrives_in_another_process_with_all_its_fields(cls: type[FenceError]) -> None:
    token = tenure.sql.CommitToken("doc:42", 7, "0" * 32, "1" * 32)
    error = cls("it went wrong", hint="load again", applied=None, scope="doc:42", retry="same", token=token)
    arrived = pickle.loads(pickle.dumps(error))
    assert type(arrived) is cls
    assert isinstance(arrived, Error)
    assert (str(arrived), vars(arrived)) == ("it went wrong", vars(error))


@pytest.mark.parametrize("name", tenure.sql.__all__)
def test_a_public_name_is_documented_and_shows_its_public_home(name: str) -> None:
    value = getattr(tenure.sql, name)
    if name == "Resolution":
        # A union, which can have neither.
        return
    assert inspect.getdoc(value)
    assert value.__module__ == "tenure.sql"


def test_nothing_is_imported_before_it_is_needed() -> None:
    code = "import sys, tenure.sql; from tenure.sql import StaleEpochError, Pin; print(*sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert {"sqlalchemy", "psycopg", "asyncio"} & set(out.split()) == set()


@pytest.mark.parametrize(("name", "library"), [("EpochFence", "sqlalchemy"), ("PsycopgFence", "psycopg")])
def test_a_missing_library_is_named_with_what_to_install(name: str, library: str) -> None:
    code = (
        f"import sys; sys.modules[{library!r}] = None\n"
        f"from tenure import sql\n"
        f"try: sql.{name}\n"
        f"except ModuleNotFoundError as error: print(error)\n"
    )
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert library in out
    assert "pip install 'tenure[" in out
