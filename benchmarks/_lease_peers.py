"""What an acquire and release is held against: its own system calls, and the locks that others have written."""

from __future__ import annotations

import fcntl
import importlib
import itertools
import os
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks._measure import Turn
from tenure import WriterLease

# A claim of ours has about this many bytes.
_RECORD = b"x" * 700
# struct flock of 64-bit Linux: a write lock on all of it. Source: fcntl_locking(2).
_WHOLE_FILE = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)

Cycle = Callable[[], None]


def fresh(base: Path, cycle_in: Callable[[Path], Cycle], count: int) -> Turn:
    """A turn of *count* cycles in a directory of its own, which the first one, not timed, has set up."""

    def turn() -> float:
        with tempfile.TemporaryDirectory(dir=base) as directory:
            cycle = cycle_in(Path(directory))
            cycle()
            started = time.perf_counter_ns()
            for _ in range(count):
                cycle()
            return (time.perf_counter_ns() - started) / count

    return turn


def ours(directory: Path) -> Cycle:
    lease = WriterLease(directory / "store")

    def cycle() -> None:
        lease.acquire().release()

    return cycle


def with_claims(claims: int) -> Callable[[Path], Cycle]:
    """The same in a store that has seen that many holders."""

    def cycle_in(directory: Path) -> Cycle:
        cycle = ours(directory)
        cycle()
        (sample,) = (path for path in (directory / "store" / "lease").iterdir() if path.is_file())
        for fence in range(2, claims):
            # By name, which is all that a look at the directory reads; the last one is real.
            (sample.parent / f"{fence:020d}").touch()
            (sample.parent / "beat" / f"{fence:020d}").touch()
        text = sample.read_text().replace('"fence":"1"', f'"fence":"{claims}"')
        (sample.parent / f"{claims:020d}").write_text(text)
        beat = (sample.parent / "beat" / sample.name).read_bytes()
        (sample.parent / "beat" / f"{claims:020d}").write_bytes(beat)
        return cycle

    return cycle_in


def publish_and_lifeline(directory: Path) -> Cycle:
    """The system calls alone, in Python, in a directory that is kept open: two syncs, seven names, one lock."""
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    numbers = itertools.count(1)
    new = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC

    def cycle() -> None:
        number = next(numbers)
        lifeline = os.open(f"lifeline-{number}", new, 0o600, dir_fd=opened)
        fcntl.fcntl(lifeline, fcntl.F_OFD_SETLK, _WHOLE_FILE)
        temporary = os.open("temporary", new, 0o600, dir_fd=opened)
        os.write(temporary, _RECORD)
        os.fsync(temporary)
        os.link("temporary", f"{number:020d}", src_dir_fd=opened, dst_dir_fd=opened)
        os.fsync(opened)
        os.unlink("temporary", dir_fd=opened)
        os.close(temporary)
        os.close(lifeline)
        os.unlink(f"lifeline-{number}", dir_fd=opened)

    return cycle


def peers() -> Iterator[tuple[str, Callable[[Path], Cycle] | None]]:
    """Each lock that is installed, and None for each that is not."""
    for name, module, attribute in (
        ("filelock FileLock", "filelock", "FileLock"),
        ("filelock SoftFileLock", "filelock", "SoftFileLock"),
        ("filelock SoftFileLease", "filelock", "SoftFileLease"),
        ("filelock StrictSoftFileLock", "filelock", "StrictSoftFileLock"),
        ("portalocker Lock", "portalocker", "Lock"),
        ("fasteners InterProcessLock", "fasteners", "InterProcessLock"),
    ):
        try:
            kind = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError):
            yield name, None
        else:
            yield name, _cycles_of(kind)


def _cycles_of(kind: Callable[[str], object]) -> Callable[[Path], Cycle]:
    def cycle_in(directory: Path) -> Cycle:
        lock = kind(str(directory / "lock"))
        names: dict[str, object] = {"lock": lock}
        # The loop of a Python program that uses it, without a call of ours in between.
        exec("def cycle():\n with lock: pass", names)
        cycle = names["cycle"]
        assert callable(cycle)
        return lambda: cycle() and None

    return cycle_in
