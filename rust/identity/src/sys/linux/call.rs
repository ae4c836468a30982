//! The system calls that rustix has no function for, and the pidfd calls in the form this crate needs.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::fs::fstat;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, getpgid, pidfd_open};

/// `f_type` of a pidfd that has an inode of its own. Source: linux/magic.h, PID_FS_MAGIC, since Linux 6.9.
pub(super) const PID_FS_MAGIC: i64 = 0x5049_4446;

/// Names the pidfs root as a mount to `open_by_handle_at`. Source: linux/fcntl.h, FD_PIDFS_ROOT, since Linux 6.17.
const FD_PIDFS_ROOT: i32 = -10002;

/// Source: linux/pidfd.h, PIDFD_GET_PID_NAMESPACE, since Linux 6.11.
const PIDFD_GET_PID_NAMESPACE: libc::Ioctl = 0xFF05;
/// Source: linux/nsfs.h, NS_GET_ID = _IOR(0xb7, 13, __u64), since Linux 6.18.
const NS_GET_ID: libc::Ioctl = 0x8008_b70d_u32 as libc::Ioctl;

/// A pidfd for `pid`. It is close-on-exec by itself. Source: pidfd_open(2).
///
/// Inlined, like all that stands around the system calls of a judgement: the kernel's own calls wipe the processor's
/// memory of where to return to, and a return after a system call costs a tenth of that call.
#[inline(always)]
pub(super) fn open_pid(pid: u32) -> Result<OwnedFd, Errno> {
    // A record's pid is 1 to 2^31 - 1, so 0 and -1, which mean something else to many calls, never get here.
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(Errno::INVAL)?;
    pidfd_open(pid, PidfdFlags::empty())
}

/// Whether the kernel knows no process or thread of that number in our namespace.
///
/// `getpgid` asks for no permission and sends nothing. Only its ESRCH means anything: a thread id succeeds too.
pub(super) fn no_such_pid(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some() && getpgid(pid) == Err(Errno::SRCH)
}

/// The never-reused number of the process behind a pidfd. Only pidfs inodes are such numbers: see `PID_FS_MAGIC`.
#[inline(always)]
pub(super) fn unique_id(pidfd: BorrowedFd<'_>) -> Result<u64, Errno> {
    fstat(pidfd).map(|stat| stat.st_ino)
}

/// Whether the process behind a pidfd has ended: the last thread has exited, reaped or not. Source: pidfd_open(2).
///
/// Not by rustix, which has only `ppoll`: that reads the timeout and writes it back, a fifth of the call's time.
#[inline(always)]
pub(super) fn has_exited(pidfd: BorrowedFd<'_>) -> Result<bool, Errno> {
    let mut polled = libc::pollfd { fd: pidfd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    loop {
        // SAFETY: a pointer to one `pollfd`, which outlives the call.
        match unsafe { libc::poll(&raw mut polled, 1, 0) } {
            ready if ready >= 0 => return Ok(ready > 0),
            _ => match last_error() {
                Errno::INTR => {}
                error => return Err(error),
            },
        }
    }
}

/// A file handle that names a pidfs inode. Source: open_by_handle_at(2); the layout is `struct file_handle`.
#[repr(C)]
struct Handle {
    bytes: u32,
    kind: i32,
    inode: u64,
}

/// The handle type that pidfs uses on this kernel: asked for, since it has changed before.
pub(super) fn handle_kind(pidfd: BorrowedFd<'_>) -> Result<i32, Errno> {
    let mut handle = Handle { bytes: 8, kind: 0, inode: 0 };
    let mut mount_id = 0i32;
    // SAFETY: `Handle` has the layout of `struct file_handle` with room for the 8 bytes that it announces; the empty
    // name is a valid C string; both pointers outlive the call.
    let done = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            pidfd.as_raw_fd(),
            c"".as_ptr(),
            &raw mut handle,
            &raw mut mount_id,
            libc::AT_EMPTY_PATH,
        )
    };
    if done == 0 && handle.bytes == 8 { Ok(handle.kind) } else { Err(last_error()) }
}

/// A pidfd for the process with that unique id, wherever below our pid namespace it lives.
pub(super) fn open_unique_id(inode: u64, kind: i32) -> Result<OwnedFd, Errno> {
    match open_handle(FD_PIDFS_ROOT, inode, kind) {
        // Before Linux 6.17 the root had no name; any pidfd of our own names the mount as well. Opened anew each
        // time: a kept descriptor could have been closed and given to another file by code that closes them all.
        Err(Errno::BADF) => open_handle(open_pid(std::process::id())?.as_raw_fd(), inode, kind),
        answer => answer,
    }
}

fn open_handle(mount: i32, inode: u64, kind: i32) -> Result<OwnedFd, Errno> {
    let mut handle = Handle { bytes: 8, kind, inode };
    // SAFETY: `Handle` has the layout of `struct file_handle` and outlives the call.
    let fd = unsafe { libc::syscall(libc::SYS_open_by_handle_at, mount, &raw mut handle, libc::O_CLOEXEC) };
    match i32::try_from(fd) {
        // SAFETY: the call has just made this descriptor and nobody else knows of it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(last_error()),
    }
}

/// Our own pid namespace by way of our own pidfd, which needs no /proc.
pub(super) fn pid_namespace(own_pidfd: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    // SAFETY: this ioctl takes no pointer; its argument must be 0.
    let fd = unsafe { libc::ioctl(own_pidfd.as_raw_fd(), PIDFD_GET_PID_NAMESPACE, 0) };
    if fd < 0 {
        return Err(last_error());
    }
    // SAFETY: the call has just made this descriptor and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The id of a namespace, never reused within a boot.
pub(super) fn namespace_id(namespace: BorrowedFd<'_>) -> Option<u64> {
    let mut id = 0u64;
    // SAFETY: this ioctl writes one u64 through the pointer, which outlives the call.
    let done = unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_ID, &raw mut id) };
    (done == 0).then_some(id)
}

/// What is absent is `None`; what could not be asked for want of descriptors or memory is an error, since it says nothing
/// about the kernel and must not be remembered as if it did.
pub(super) fn or_absent<T>(answer: Result<T, Errno>) -> Result<Option<T>, Errno> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(error @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => Err(error),
        Err(_) => Ok(None),
    }
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
