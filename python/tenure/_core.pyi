"""
The Rust core: who a process is, whether it still lives, and the few calls to the system that Python has no door for.

Nothing here sends a signal, reads a wall clock or trusts a record. The GIL is released around system calls unless a
function says otherwise. The facts about operating systems, with their sources, are in docs/concepts/identity.md.

Where it can tell something today: Linux, macOS and Windows. Elsewhere every judgement is UNKNOWN, `unsupported_platform`.

Where a function takes a descriptor, Windows has a handle instead, as a number: `msvcrt.get_osfhandle`.
"""

import sys
from collections.abc import Iterable, Sequence
from os import PathLike
from types import TracebackType
from typing import Literal, TypeAlias, final

from tenure._verdict import Verdict

__version__: str

Record: TypeAlias = ProcessIdentity | str | bytes | None
"""What can be judged: an identity, its JSON, or None for "the record names nobody"."""

Reason: TypeAlias = Literal[
    # decided by the record alone
    "malformed",
    "version",
    "no_identity",
    "other_os",
    "other_host",
    "no_boot_id",
    "other_boot",
    "rebooted",
    "self",
    "no_pid_namespace",
    "namespace_gone",
    # decided by the kernel
    "handle_opens",
    "handle_stale_seen_from_initial_namespace",
    "other_pid_namespace",
    "no_such_pid",
    "pid_is_now_a_thread",
    "no_fds",
    "pid_reused",
    "same_unique_id",
    "exited",
    "probe_failed",
    "no_start_time",
    "foreign_or_missing_proc",
    "time_namespace",
    "hidden",
    "same_start_time",
    "leader_exited",
    "unsupported_platform",
    # decided above the core
    "lifeline_held",
    "lifeline_free",
    "released",
]
"""Why a verdict was given; a stable slug. docs/concepts/verdicts.md explains each."""

Evidence: TypeAlias = Literal[
    "record",
    "handle",
    "pidfs",
    "pidfd",
    "proc",
    "proc_info",
    "getpgid",
    "unique_id",
    "process_handle",
    "process_table",
    "none",
    "lifeline",
    "beat",
]
"""
What a verdict rests on.

`record`: the record's own fields. `handle`: a pidfs file handle, across pid namespaces. `pidfs`: a pidfd and its
never-reused inode. `pidfd`: a pidfd, with the start time from /proc where two processes must be told apart. `proc`:
/proc/PID/stat alone. `getpgid`: a number that the kernel does not know. `proc_info`: the kernel's word about a number,
with the never-reused id of who has it (macOS). `unique_id`: a handle and the kernel's never-reused number of the process
(Windows). `process_handle`: a handle, with the time of creation where two processes must be told apart (Windows).
`process_table`: the list of all processes, for one that may not be asked about by itself. `none`: nothing could be asked.
`lifeline` and `beat` belong to the lease: the kernel-held lock, and a heartbeat marked released.
"""

Capability: TypeAlias = Literal["handle", "pidfs", "pidfd", "proc", "unique_id"]
"""
A kind of evidence a kernel may lack: pidfs file handles (Linux 6.14), pidfds with an inode of their own (6.9), pidfds
(5.3, or seccomp), a /proc that shows our own pid namespace, and, where the system is not Linux, a never-reused number of
each process. Each is found out by trying, never from a version number.
"""

@final
class ProcessIdentity:
    """
    Who a process is, in a form that still means something tomorrow. Immutable, hashable, picklable.

    The numbers mean something only on the boot, in the pid namespace and on the host they come from; `judge` knows.
    """

    @property
    def os(self) -> str:
        """`linux`, `macos`, `windows` or `freebsd`; another name where a record says so."""
    @property
    def host(self) -> str | None:
        """
        The operator's host id, else a keyed hash of the machine id (32 hex digits), else None.

        Never a host name: two machines may share one. Source: machine-id(5) on why the raw id is not given out.
        """
    @property
    def host_set_by_operator(self) -> bool:
        """Whether `host` was set by an operator (argument or `TENURE_HOST_ID`)."""
    @property
    def boot(self) -> str | None:
        """The kernel's boot id. Source: proc_sys_kernel(5), random/boot_id."""
    @property
    def ns(self) -> str | None:
        """The pid namespace: its inode, as decimal digits. Reused soon after a namespace ends. Source: namespaces(7)."""
    @property
    def ns_id(self) -> int | None:
        """The pid namespace's id, never reused within a boot (Linux 6.18, NS_GET_ID), or None."""
    @property
    def pid(self) -> int:
        """1 … 2**31 - 1, as seen in `ns`."""
    @property
    def start(self) -> int | None:
        """Start time in 1/100 s since boot, without the offset of a time namespace. Source: proc_pid_stat(5), field 22."""
    @property
    def uniq(self) -> int | None:
        """The inode of its pidfd: never reused within a boot, equal in all namespaces (Linux 6.9), or None."""
    @property
    def nonce(self) -> str | None:
        """32 hex digits, new for each process image; only for "is this record mine". None for a process described by another."""

    @staticmethod
    def current(*, host_id: str | None = None) -> ProcessIdentity:
        """
        The calling process. Captured once, about 50 us; then cached, and captured anew after a fork.

        Args:
            host_id: the operator's id for this host, 1 to 255 bytes as UTF-8; wins over `TENURE_HOST_ID`, which is read
                once per process. An empty string is refused.

        Raises:
            IdentityError: the platform would not say.
            ValueError: the host id is empty or too long.
        """
    @staticmethod
    def of(pid: int, *, host_id: str | None = None) -> ProcessIdentity:
        """
        Another process of this pid namespace, read in a way that pid reuse cannot mix up. It has no nonce.

        Raises:
            ProcessLookupError: no such process, or it has exited.
            IdentityError: the platform would not say.
            ValueError: *pid* is not 1 … 2**31 - 1.
        """
    @staticmethod
    def from_json(text: str | bytes) -> ProcessIdentity:
        """
        Read a record of at most 4096 bytes. Unknown fields are kept and written again by `to_json`.

        Raises:
            RecordTooNewError: its `v` is above 1.
            RecordError: anything else that is wrong with it; the message says which field.
        """
    def to_json(self) -> str:
        """One line of JSON, schema number first. Ids are decimal strings, since JavaScript loses integers above 2**53."""
    def is_current(self) -> bool:
        """
        Whether this is the calling process still: pid, unique id or start time, boot and namespace, read anew.

        False after a fork, in a clone and after a checkpoint was restored (CRIU gives a new start time and inode).
        """
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[object, ...]: ...

@final
class Judgement:
    """A verdict and why. ALIVE and UNKNOWN are snapshots; only GONE is final. Immutable, hashable, picklable."""

    def __new__(cls, verdict: Verdict, reason: Reason, evidence: Evidence = "none", detail: str = "") -> Judgement: ...
    @property
    def verdict(self) -> Verdict: ...
    @property
    def reason(self) -> Reason: ...
    @property
    def evidence(self) -> Evidence: ...
    @property
    def detail(self) -> str:
        """For people: what was malformed, or the system's own words; often empty."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[object, ...]: ...

def judge(
    record: Record,
    *,
    host_id: str | None = None,
    host_id_is_unique: bool | None = None,
    without: Sequence[Capability] | None = None,
) -> Judgement:
    """
    Whether the very process that *record* describes still lives. Never raises for a bad record, never signals.

    On Linux 6.9 and later: `pidfd_open`, `fstat`, `poll`, `close`, whatever the number of threads; a pid that nobody
    has costs the first call only. None of them waits, so the GIL is kept; it is released where /proc must be read.

    Args:
        host_id: the operator's id for *this* host, as in `ProcessIdentity.current`.
        host_id_is_unique: the operator's word that no other machine, clone or restored snapshot carries this host id.
            Then, and only then, an equal host id with another boot id proves a reboot: GONE, `rebooted`. None reads
            `TENURE_HOST_ID_IS_UNIQUE` (`1` or `0`), once per process.
        without: evidence not to use, as if the kernel lacked it; for tests.

    Where the calling process cannot find out about itself (no descriptor free at its first question), the answer is
    UNKNOWN, `probe_failed`, and it is asked again the next time.

    Raises:
        ValueError: a bad host id or capability name.
    """

def judge_many(
    records: Iterable[Record],
    *,
    host_id: str | None = None,
    host_id_is_unique: bool | None = None,
    without: Sequence[Capability] | None = None,
) -> list[Judgement]:
    """
    `judge` for many, in their order: one probe per distinct process, in chunks of 256 that share one `poll`.

    The GIL is released once. Where descriptors run out the chunks get smaller, down to one.
    """

@final
class Watch:
    """
    One process, pinned: what is watched is that very process, whatever happens to its number.

    Holds a pidfd (one descriptor, close-on-exec), where there is none a descriptor on its /proc entry.
    """

    def __new__(
        cls,
        record: Record,
        *,
        host_id: str | None = None,
        host_id_is_unique: bool | None = None,
        without: Sequence[Capability] | None = None,
    ) -> Watch:
        """
        Judge *record* and keep hold of the process. One that is gone already makes a watch that says so.

        Raises:
            IdentityError: it is UNKNOWN, so there is nothing to watch; `reason` is the judgement's.
        """
    @property
    def judgement(self) -> Judgement:
        """How the process was judged when the watch was made."""
    def alive(self) -> bool:
        """One `poll` that returns at once. The GIL is kept: giving it up costs more than the call."""
    def wait(self, timeout: float | None = None) -> bool:
        """
        Wait until the process is gone; True when it is, False when *timeout* seconds ran out first.

        Interrupted by a signal whose Python handler raises. None waits without bound; 0 does not wait.
        """
    def fileno(self) -> int:
        """
        A descriptor that turns readable when the process ends, for `select`, `epoll` and asyncio.

        Raises:
            IdentityError: this kernel has none to give (no pidfds), or the process was gone from the start.
        """
    def close(self) -> None:
        """Let go. Afterwards every method but `close` raises ValueError."""
    def __enter__(self) -> Watch: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

@final
class WatchSet:
    """
    Many processes, watched at a cost that follows the deaths and not the size: one `epoll`.

    Beyond *limit* members, or where there are no pidfds, members are judged one by one at each `ended()`.
    """

    def __new__(cls, records: Iterable[ProcessIdentity] | None = None, *, limit: int | None = None) -> WatchSet:
        """
        Args:
            limit: pidfds to hold at most; by default a quarter of the soft limit on open files (RLIMIT_NOFILE).
        """
    def add(self, record: ProcessIdentity, /) -> Judgement:
        """
        Judge *record* and watch it if it is ALIVE. One that is GONE is reported by the next `ended()`; one that is
        UNKNOWN cannot be watched and is left out. Adding a member again changes nothing.
        """
    def discard(self, record: ProcessIdentity, /) -> None:
        """Stop watching, if it was watched."""
    def ended(self, timeout: float | None = 0.0) -> list[ProcessIdentity]:
        """Those that ended since the last call, each once; waits up to *timeout* seconds (None: without bound) for the first."""
    def fileno(self) -> int:
        """Readable when a member that is held by a pidfd has ended. Members beyond the limit are not seen by it."""
    def close(self) -> None: ...
    def __len__(self) -> int: ...
    def __contains__(self, record: object, /) -> bool: ...
    def __enter__(self) -> WatchSet: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

def capabilities() -> frozenset[Capability]:
    """The evidence this process can get, found out by trying; see `Capability`."""

def awake_ns() -> int:
    """Nanoseconds on a clock that stands still while the machine sleeps. CLOCK_MONOTONIC, QueryUnbiasedInterruptTime."""

def boottime_ns() -> int:
    """Nanoseconds on a clock that counts while the machine sleeps. CLOCK_BOOTTIME, GetTickCount64 (in steps of 10 to 16 ms)."""

@final
class LocalHold:
    """
    What a hold on a directory does without Python: its pulse, and the question where it stands.

    The pulse is a thread of the operating system. It never takes the GIL, allocates and syncs nothing, keeps no
    descriptor open, blocks all signals, and does not survive a fork: in the child every method does nothing.
    """

    def __new__(
        cls,
        *,
        directory: str | PathLike[str],
        claim: str | PathLike[str],
        claimed: bytes,
        successor: str | PathLike[str],
        fence: int,
        heartbeat: str | PathLike[str],
        held: bytes,
        released: bytes,
        digits_at: int,
        interval: float,
        holder: ProcessIdentity,
        lifeline: int | None,
    ) -> LocalHold:
        """
        Args:
            directory: where the claims are; each is named by its fence in 20 digits.
            claim: our own, which must be there.
            claimed: what it says; a file that is deleted and made again can have the same inode.
            successor: where the claim of the next fence would appear.
            heartbeat: the file to write to, which must be there.
            held, released: what it can say, of one length.
            digits_at: where in both stands the counter of 20 digits.
            interval: seconds from beat to beat; a quarter of it after a beat that failed.
            holder: who we are, by our claim.
            lifeline: its descriptor, which stays the caller's.

        Raises:
            OSError: the claim or the heartbeat is not there.
        """
    def start(self) -> None:
        """Start the thread. Raises OSError if the system gives none."""
    def beat(self) -> bool:
        """
        One beat now; False, and nothing is written, if the successor's claim is there.

        On a file system that needs room even to write in place (btrfs), a full disk gets a new time stamp instead.

        Raises:
            OSError: it cannot be written, or the file has been replaced.
        """
    def check(self) -> int | None:
        """
        None while our claim is there, none is above it, our lifeline is open and this is the process of `holder`; else
        the fence that holds instead, which is our own where the claim is another's or this process another one.

        Three calls of stat(2) and two of fstat(2), as long as nobody changes the directory.

        Raises:
            FileNotFoundError: our claim is gone.
            OSError: nothing is known.
        """
    @property
    def renewed_at_ns(self) -> int:
        """`boottime_ns()`, taken before the last good beat was written."""
    @property
    def lost(self) -> bool:
        """Whether a successor's claim has been seen by a beat."""
    def wait_lost(self, timeout: float) -> bool | None:
        """Wait until `lost` (True), the thread has ended (False) or *timeout* seconds are over (None)."""
    def stop(self, *, release: bool) -> bool:
        """
        Stop to beat; with *release*, write last that the hold is over. At most 5 s; usually at once.

        Returns whether that is done. Not so where the word could not be written, or where a beat hangs in its file
        system: then the thread writes it when it comes back.
        """

@final
class Changes:
    """
    Turns readable when a file in one of its directories appears, vanishes, is written to, or is closed after writing; of a
    path that is a file, when that one is.

    No link is followed at the end of a path. One descriptor, close-on-exec, given back by `close` or with the object. A hint: what another machine changes on a shared file
    system is not told. Source: inotify(7).
    """

    def __new__(cls, paths: Iterable[str | PathLike[str]]) -> Changes:
        """
        Raises:
            OSError: one is not there, too many are watched, or this system has nothing of the kind.
        """
    def drain(self) -> None:
        """Forget what has been heard, so that the next change shows again."""
    def close(self) -> None:
        """
        Give the descriptor back. The kernel takes 5 to 20 ms over it, during which the GIL is released.

        Afterwards the other methods raise ValueError.
        """
    def fileno(self) -> int:
        """What to wait on."""

def glance(root: str | PathLike[str], claims: str, beats: str, most: int) -> tuple[int, bytes, bytes, int]:
    """
    The highest fence that a file of the directory *claims* below *root* is named by, that file's content, of *most* bytes
    at most, the content of the file of the same name in the directory *beats* of it, empty where there is none, and its
    time stamp in nanoseconds. Zeros and nothing where there is no claim. See `open_below`.

    Raises:
        OSError: as `read_below`.
    """

def highest_fence(directory: str | PathLike[str]) -> int:
    """
    The highest fence, 20 digits, that a file in *directory* is named by; 0 if there is none.

    Raises:
        OSError: the directory cannot be read, or its last component is a link.
    """

def open_below(root: str | PathLike[str], name: str, flags: int, mode: int = 0) -> int:
    """
    Open *name*, whose segments are joined by "/", below *root*: a regular file, or a directory with `os.O_DIRECTORY`.

    No link is followed but *root* itself. The descriptor is close-on-exec and non-blocking.

    Raises:
        OSError: as open(2); EINVAL for what is neither; on Windows always, where it takes a pin for each step.
    """

def read_below(root: str | PathLike[str], name: str, most: int) -> bytes:
    """
    The content of the regular file *name* below *root*, of *most* bytes at most; see `open_below`.

    Raises:
        OSError: as `open_below`; EFBIG.
    """

def unlink_below(root: str | PathLike[str], name: str) -> None:
    """
    Unlink *name* below *root*; see `open_below`.

    Raises:
        OSError: as open(2) and unlink(2).
    """

if sys.platform == "win32":
    def rename_noreplace(source: str | PathLike[str], target: str | PathLike[str]) -> None:
        """
        Rename, failing if *target* exists. Returns once the new name is on the disk. Source: MoveFileExW.

        Raises:
            FileExistsError: *target* exists.
        """
    def rename_over(source: str | PathLike[str], target: str | PathLike[str]) -> None:
        """Rename over *target*; again and again for half a second while somebody's open file forbids it."""
    def open_shared(path: str | PathLike[str], *, write: bool, create: bool, create_new: bool, truncate: bool) -> int:
        """
        Open a file to read, and to write if asked for. Others may read, write, rename and remove it meanwhile.

        Returns its handle, which is the caller's. Not inherited by processes that are started.

        Raises:
            OSError: winerror 681 for a link, which is not followed; what else the system says.
        """
    def lifeline_unlock(fd: int) -> None:
        """Give the lock of `lifeline_lock` back. Raises OSError if it was not held."""
    @final
    class PinnedDirectory:
        """A directory that nobody can rename, remove or replace until it is closed."""

        def __new__(cls, path: str) -> PinnedDirectory:
            """
            Raises:
                NotADirectoryError: it is a file.
                OSError: winerror 681 for a link or junction, which is not followed; what else the system says.
            """
        @property
        def path(self) -> str:
            """As it was given."""
        @property
        def handle(self) -> int:
            """To ask about its file system. Raises ValueError once closed."""
        def close(self) -> None:
            """Let go. A second call does nothing."""

else:
    def rename_noreplace(source: str, target: str, *, dir_fd: int) -> None:
        """
        Rename within the directory *dir_fd*, failing if *target* exists. renameat2(RENAME_NOREPLACE), macOS renameatx_np.

        Raises:
            FileExistsError: *target* exists.
            OSError: EINVAL or ENOSYS where the file system or the kernel cannot do it.
        """
    def place_new(
        files: Sequence[tuple[str, bytes]], *, temporary: str, src_dir_fd: int, dst_dir_fd: int
    ) -> list[tuple[int, int] | None]:
        """
        Put new files into the directory *dst_dir_fd*, each complete when it appears, in one call without the GIL.

        Args:
            files: names without ``/``, and what each contains.
            temporary: the name that each has while it is written, in *src_dir_fd*; whatever is there is replaced.
            src_dir_fd, dst_dir_fd: directories on one file system.

        Returns:
            Of each its time of change in nanoseconds since 1970 and its inode; None where something is already, which stays.
            Nothing is synced.

        Raises:
            OSError: what the system says, with the name of the file; EINVAL or ENOSYS where it has no rename that replaces
                nothing. The files before that one are there.
        """

def sync_filesystem(fd: int) -> None:
    """
    Make durable all that was written to the file system of *fd*: one call, however many files. syncfs(2), elsewhere sync(2).

    Raises:
        OSError: what the system says; on Windows always, which has no such call.
    """

def filesystem_type(fd: int) -> str | None:
    """
    The kind of file system that *fd* is on, if it is one whose locks this machine's kernel alone manages, else None.

    ext4, xfs, btrfs, tmpfs, overlay and their like have a name here; NFS, SMB, FUSE, 9p, Lustre, Ceph and whatever is
    not known do not. Source: statfs(2).
    """

def lifeline_lock(fd: int) -> bool:
    """
    Take the lock that ends with the last process that carries *fd*; False when another open file has it.

    Linux: an open-file-description write lock, which a fork or a passed descriptor shares and no other `close` of the
    file drops. Source: fcntl_locking(2). *fd* must be open for writing. Windows: LockFileEx far beyond the end; it belongs
    to the process, so a child that inherits the handle does not carry it on.
    """

def lifeline_held(fd: int) -> bool:
    """
    Ask whether anybody holds the lock of `lifeline_lock` on that file, without taking it. A read-only *fd* suffices.

    Linux: F_OFD_GETLK for a read lock, so that askers never see each other. macOS and Windows have no question that takes
    nothing: there the asker has a shared lock for a moment, which refuses no other asker.
    """
