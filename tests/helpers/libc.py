"""
The C library through cffi, in ABI mode: a second way to the kernel that shares no code with the core.

Numbers are from the kernel's headers: asm/unistd.h, linux/nsfs.h, linux/magic.h, linux/sched.h.
"""

from __future__ import annotations

import errno
import os
import platform
from typing import Any

from cffi import FFI

ffi = FFI()
ffi.cdef(
    """
    long syscall(long number, ...);
    int fstatfs(int fd, void *buffer);
    struct file_handle { unsigned int handle_bytes; int handle_type; unsigned char f_handle[128]; };
    int name_to_handle_at(int fd, const char *name, struct file_handle *handle, int *mount_id, int flags);
    int open_by_handle_at(int mount_fd, struct file_handle *handle, int flags);
    int ioctl(int fd, unsigned long request, ...);
    int prctl(int option, ...);
    int unshare(int flags);
    int setns(int fd, int kind);
    long ptrace(int request, ...);
    """
)


class _Missing:
    """In place of a library that is not there, so that whatever needs one of its functions is found to be missing."""

    def __getattr__(self, name: str) -> Any:
        raise OSError(errno.ENOSYS, f"this system has no {name}")


def _c_library() -> Any:
    try:
        return ffi.dlopen(None)
    except OSError:
        # Windows: there is no one library that a process has by itself.
        return _Missing()


C: Any = _c_library()


def needed() -> None:
    """Skip the test that needs it, where there is none."""
    if isinstance(C, _Missing):
        import pytest

        pytest.skip("needs c-library")


SYS_PIDFD_OPEN = 434
SYS_CLONE3 = 435
# The numbers below 400 differ between architectures; aarch64 has the generic table.
SYS_EXIT = 60 if platform.machine() == "x86_64" else 93

NS_GET_ID = 0x8008B70D
PIDFS_MAGIC = 0x50494446
AT_EMPTY_PATH = 0x1000
CLONE_NEWTIME = 0x80
CLONE_NEWPID = 0x20000000
PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PTRACE_TRACEME = 0
PTRACE_SEIZE = 0x4206


def checked(result: int) -> int:
    """What the C library answered, or its errno as an OSError."""
    if result < 0:
        number = ffi.errno
        raise OSError(number, os.strerror(number))
    return result


def syscall(number: int, *arguments: int) -> int:
    return checked(C.syscall(number, *(ffi.cast("long", argument) for argument in arguments)))


def pidfd_open(pid: int) -> int:
    return syscall(SYS_PIDFD_OPEN, pid, 0)


def filesystem_magic(fd: int) -> int:
    """`f_type`, the first word of struct statfs on every architecture with 64 bits. Source: statfs(2)."""
    buffer = ffi.new("long[32]")
    checked(C.fstatfs(fd, buffer))
    return int(buffer[0])


def namespace_id(fd: int) -> int:
    """The id of the namespace behind an open /proc/PID/ns file. Source: linux/nsfs.h, NS_GET_ID, Linux 6.18."""
    number = ffi.new("uint64_t *")
    checked(C.ioctl(fd, NS_GET_ID, number))
    return int(number[0])


def opened_again_by_handle(pidfd: int) -> int:
    """A second descriptor for a pidfd's process, by its file handle. Source: open_by_handle_at(2), Linux 6.14 for pidfs."""
    handle: Any = ffi.new("struct file_handle *")
    mount = ffi.new("int *")
    handle.handle_bytes = 128
    checked(C.name_to_handle_at(pidfd, b"", handle, mount, AT_EMPTY_PATH))
    return checked(C.open_by_handle_at(pidfd, handle, os.O_RDONLY | os.O_CLOEXEC))


def prctl(option: int, argument: int) -> None:
    checked(C.prctl(option, ffi.cast("long", argument), *(ffi.cast("long", 0),) * 3))


def setns(fd: int, kind: int) -> None:
    checked(C.setns(fd, kind))


def unshare(flags: int) -> None:
    checked(C.unshare(flags))


def allow_tracing_by_the_parent() -> None:
    checked(C.ptrace(PTRACE_TRACEME, ffi.cast("long", 0), ffi.cast("long", 0), ffi.cast("long", 0)))


def seize(thread: int) -> None:
    """Trace *thread* without stopping it. Source: ptrace(2), PTRACE_SEIZE."""
    checked(C.ptrace(PTRACE_SEIZE, ffi.cast("long", thread), ffi.cast("long", 0), ffi.cast("long", 0)))


def end_this_thread() -> None:
    """Raw `exit`: ends the calling thread and no other, with none of the unwinding of pthread_exit(3)."""
    syscall(SYS_EXIT, 0)


def clone_without_hooks(pid: int = 0) -> int:
    """
    A fork that runs no pthread_atfork handler; with *pid*, under that number. Source: clone(2), clone3.

    Only for single-threaded callers: the child must take the interpreter's lock again.
    """
    fields = ffi.new("uint64_t[11]")
    fields[4] = 17  # SIGCHLD
    numbers = ffi.new("int32_t[1]", [pid])
    if pid:
        fields[8], fields[9] = int(ffi.cast("uintptr_t", numbers)), 1
    return checked(C.syscall(SYS_CLONE3, ffi.cast("void *", fields), ffi.cast("long", ffi.sizeof(fields))))
