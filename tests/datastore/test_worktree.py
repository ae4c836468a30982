"""Many new files at once: as whole, as careful and as bound to the checkout as one by one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenure import Checkout, Datastore, StoreError
from tenure._datastore._worktree import Worktree
from tests.datastore.test_checkout import files
from tests.helpers.capabilities import NEEDS_STRACE
from tests.helpers.scripts import Script
from tests.helpers.tracing import traced

FOLLOW = """
import sys
from tenure import Datastore
with Datastore(sys.argv[1]).checkout(sys.argv[2]) as checkout:
    print("ready")
    sys.stdin.readline()
    done = checkout.catch_up()
    print(done.files, len(done.moved_aside))
"""


@pytest.fixture
def worktree(tmp_path: Path) -> Worktree:
    (tmp_path / "here" / ".tenure").mkdir(parents=True)
    return Worktree(tmp_path / "here")


def test_new_files_have_the_stamp_they_are_found_with(worktree: Worktree) -> None:
    files = {"a": b"1", "d/a": b"22", "d/b": b"", "d/e/f": b"333", "g": b"4"}
    placed = worktree.write_new(sorted(files.items()))
    assert placed == {name: worktree.stamp(name) for name in files}
    assert {name: (worktree.root / name).read_bytes() for name in files} == files
    assert list((worktree.own / "tmp").iterdir()) == []


def test_what_is_there_is_left_out_and_stays(worktree: Worktree) -> None:
    (worktree.root / "file").write_bytes(b"theirs")
    (worktree.root / "directory").mkdir()
    (worktree.root / "link").symlink_to("nowhere")
    placed = worktree.write_new(
        (name, b"ours") for name in ("directory", "file", "file/below", "link", "link/below", "z")
    )
    assert list(placed) == ["z"]
    assert (worktree.root / "file").read_bytes() == b"theirs"
    assert (worktree.root / "link").readlink() == Path("nowhere")
    assert list((worktree.own / "tmp").iterdir()) == []


def test_nothing_is_written_behind_a_link(worktree: Worktree, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (worktree.root / "a").symlink_to(tmp_path / "outside")
    assert worktree.write_new([("a/b", b"x"), ("a/c", b"x")]) == {}
    assert list((tmp_path / "outside").iterdir()) == []


def test_a_failure_names_the_file(worktree: Worktree) -> None:
    (worktree.own / "tmp").mkdir()
    (worktree.own / "tmp" / "0").mkdir()
    with pytest.raises(StoreError, match="d/first") as caught:
        worktree.write_new([("d/first", b"x")])
    assert "EISDIR" in str(caught.value)


@NEEDS_STRACE
@pytest.mark.parametrize("error", ["EINVAL", "ENOSYS"])
def test_a_file_system_without_a_rename_that_replaces_nothing_gets_its_files_all_the_same(
    checkout: Checkout, datastore: Datastore, tmp_path: Path, error: str
) -> None:
    content = {f"d{number % 3}/{number}": b"%d" % number for number in range(20)}
    with checkout.writer() as writer:
        for name, data in content.items():
            writer.put(name, data)
        writer.commit()
    (tmp_path / "other" / "d1").mkdir(parents=True)
    (tmp_path / "other" / "d1" / "1").write_bytes(b"theirs")
    with Script(FOLLOW, datastore.url, tmp_path / "other") as script:
        assert script.says() == "ready"
        with traced(script, "-e", "trace=renameat2", "-e", f"inject=renameat2:error={error}") as trace:
            script.tell()
            assert script.says() == "20 1"
    assert trace.calls["renameat2"]
    assert files(tmp_path / "other") == content
