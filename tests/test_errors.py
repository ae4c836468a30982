"""The error tree is a promise: names, bases, `kind` slugs, exit codes, and fields that survive a trip."""

from __future__ import annotations

import builtins
import copy
import inspect
import pickle
import re
import sys
import traceback

import pytest

from tenure import errors
from tenure.errors import (
    CommitUnknownError,
    ContentMismatchError,
    Error,
    FencedError,
    HoldError,
    IdentityError,
    RecordError,
    RecordTooNewError,
    RefusedError,
    StoreCannotLockError,
    StoreError,
    StoreUnavailableError,
    WriterBusyError,
)

# (class, its parent in the tree, the builtin a caller may catch instead, kind, exit code)
TREE: list[tuple[type[Error], type[Exception], type[Exception] | None, str, int]] = [
    (Error, Exception, None, "error", 1),
    (WriterBusyError, Error, TimeoutError, "writer_busy", 75),
    (FencedError, Error, None, "fenced", 1),
    (CommitUnknownError, Error, None, "commit_unknown", 1),
    (ContentMismatchError, Error, None, "content_mismatch", 1),
    (RecordError, Error, ValueError, "record_damaged", 1),
    (RecordTooNewError, RecordError, None, "record_too_new", 1),
    (StoreError, Error, OSError, "store_failed", 1),
    (StoreUnavailableError, StoreError, None, "store_unavailable", 75),
    (StoreCannotLockError, StoreError, None, "store_cannot_lock", 78),
    (RefusedError, Error, None, "refused", 1),
    (HoldError, Error, None, "not_the_holder", 1),
    (IdentityError, Error, OSError, "identity_unknown", 1),
]
CLASSES = [row[0] for row in TREE]


def test_the_tree_is_complete() -> None:
    found = {name for name, value in vars(errors).items() if inspect.isclass(value) and issubclass(value, Error)}
    assert found == {cls.__name__ for cls in CLASSES}
    assert errors.__all__ == sorted(found)


@pytest.mark.parametrize(("cls", "parent", "builtin", "kind", "exit_code"), TREE)
def test_bases_kind_and_exit_code_are_pinned(
    cls: type[Error], parent: type[Exception], builtin: type[Exception] | None, kind: str, exit_code: int
) -> None:
    assert cls.__bases__ == ((parent,) if builtin is None else (parent, builtin))
    assert (cls.kind, cls.exit_code) == (kind, exit_code)


def test_kinds_tell_the_classes_apart() -> None:
    assert len({cls.kind for cls in CLASSES}) == len(CLASSES)


def test_the_drawing_equals_the_tree() -> None:
    drawn = re.findall(
        r"^ {4}([│├└─ ]*)(\w*Error)(?:\((\w+)\))?(?: .*?)??(?: +exit (\d+))?$", errors.__doc__ or "", re.MULTILINE
    )
    above: list[str] = []
    seen = []
    for branch, name, builtin, exit_code in drawn:
        depth = len(branch) // 4
        del above[depth:]
        seen.append((name, above[-1] if above else "Exception", builtin or None, int(exit_code) if exit_code else 1))
        above.append(name)
    expected = [
        (cls.__name__, parent.__name__, builtin.__name__ if builtin else None, exit_code)
        for cls, parent, builtin, _, exit_code in TREE
    ]
    assert sorted(seen, key=str) == sorted(expected, key=str)


@pytest.mark.parametrize("cls", CLASSES)
def test_every_field_that_a_class_announces_is_documented(cls: type[Error]) -> None:
    announced = {name for name in cls.__annotations__ if name in vars(cls).get("__annotations__", {})}
    described = set(re.findall(r"^ {4,}(\w+): ", inspect.getdoc(cls) or "", re.MULTILINE))
    assert announced <= described


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("cls", CLASSES)
def test_an_error_arrives_in_another_process_with_all_its_fields(cls: type[Error], protocol: int) -> None:
    error = cls("it went wrong. key=`lease/7`", hint="try again", applied=None, fence=12, key="lease/7")

    arrived = pickle.loads(pickle.dumps(error, protocol))

    assert type(arrived) is cls
    assert str(arrived) == "it went wrong. key=`lease/7`"
    assert vars(arrived) == {"hint": "try again", "applied": None, "fence": 12, "key": "lease/7"}
    assert arrived.args == error.args


@pytest.mark.parametrize("cls", CLASSES)
def test_a_copy_is_a_like_error(cls: type[Error]) -> None:
    error = cls("it went wrong", hint="try again", fence=12)
    for other in (copy.copy(error), copy.deepcopy(error)):
        assert (type(other), str(other), vars(other)) == (cls, "it went wrong", vars(error))


def test_the_cause_travels_in_this_process_and_its_text_everywhere() -> None:
    # pickle leaves `__cause__` of any exception behind. What must arrive elsewhere stands in fields and sentence.
    cause = OSError(28, "No space left on device")
    with pytest.raises(StoreError) as caught:
        raise StoreError("the store failed. reason=`No space left on device`") from cause

    assert caught.value.__cause__ is cause
    assert "direct cause" in "".join(traceback.format_exception(caught.value))
    arrived = pickle.loads(pickle.dumps(caught.value))
    assert arrived.__cause__ is None
    assert "No space left on device" in str(arrived)


@pytest.mark.parametrize("cls", CLASSES)
def test_by_default_nothing_was_applied_and_nothing_is_advised(cls: type[Error]) -> None:
    error = cls("it went wrong")
    assert error.hint is None
    assert error.applied is False


@pytest.mark.parametrize("cls", [cls for cls in CLASSES if issubclass(cls, OSError)])
def test_an_oserror_of_ours_speaks_our_sentence_and_has_no_number_of_its_own(cls: type[OSError]) -> None:
    error = cls("it went wrong")
    assert str(error) == "it went wrong"
    assert error.errno is None


@pytest.mark.parametrize("cls", CLASSES)
def test_the_public_name_is_what_a_traceback_shows(cls: type[Error]) -> None:
    shown = "".join(traceback.format_exception_only(cls("it went wrong")))
    assert shown == f"tenure.errors.{cls.__name__}: it went wrong\n"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="needs exception-groups")
@pytest.mark.parametrize("cls", CLASSES)
def test_an_error_survives_an_exception_group(cls: type[Error]) -> None:
    if sys.version_info >= (3, 11):  # for mypy, which does not read marks
        group = builtins.ExceptionGroup("two failed", [cls("it went wrong", fence=12), KeyError("other")])
        ours, others = group.split(Error)
        assert ours is not None
        assert others is not None
        (arrived,) = pickle.loads(pickle.dumps(ours)).exceptions
        assert type(arrived) is cls
        assert (str(arrived), arrived.fence) == ("it went wrong", 12)
