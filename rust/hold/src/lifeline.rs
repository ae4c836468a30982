//! The lock that the kernel drops when the last process that carries it ends.
//!
//! On Linux an open-file-description lock. `flock` would do as a lock, but can be asked about only by taking it, and two
//! askers would see each other; a POSIX lock is dropped when its process closes *any* descriptor of the file. Source:
//! fcntl_locking(2), flock(2).

use std::io;

#[cfg(target_os = "linux")]
mod ofd {
    use super::io;

    /// A request that speaks of the whole file, whatever its length.
    pub(super) fn ask(fd: i32, command: i32, kind: i32) -> io::Result<libc::flock> {
        // SAFETY: all-zero bytes are a valid `flock`: from offset 0 (SEEK_SET) to the end, and l_pid 0, as
        // fcntl_locking(2) demands of open-file-description locks.
        let mut request: libc::flock = unsafe { std::mem::zeroed() };
        request.l_type = i16::try_from(kind).unwrap_or_default();
        loop {
            // SAFETY: the pointer outlives the call; a descriptor that is not open is an EBADF.
            if unsafe { libc::fcntl(fd, command, &raw mut request) } == 0 {
                return Ok(request);
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
}

/// Takes the lock; `false` when another open file has it.
///
/// # Errors
/// `EBADF` if the descriptor is not open for writing, `ENOLCK`, `EINVAL` on kernels before 3.15.
#[cfg(target_os = "linux")]
pub fn lifeline_lock(fd: i32) -> io::Result<bool> {
    match ofd::ask(fd, libc::F_OFD_SETLK, i32::from(libc::F_WRLCK as i16)) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether anybody has the lock. A read-only descriptor suffices, and nothing is taken.
///
/// Asked for a *read* lock, which only the holder's write lock refuses: askers do not see each other, and nobody who may
/// merely read the file can pass for its holder.
///
/// # Errors
/// As of `lifeline_lock`.
#[cfg(target_os = "linux")]
pub fn lifeline_held(fd: i32) -> io::Result<bool> {
    let answer = ofd::ask(fd, libc::F_OFD_GETLK, i32::from(libc::F_RDLCK as i16))?;
    Ok(i32::from(answer.l_type) != i32::from(libc::F_UNLCK as i16))
}

/// There is no lifeline on this system yet.
///
/// # Errors
/// Always `Unsupported`.
#[cfg(not(target_os = "linux"))]
pub fn lifeline_lock(_fd: i32) -> io::Result<bool> {
    Err(io::ErrorKind::Unsupported.into())
}

/// There is no lifeline on this system yet.
///
/// # Errors
/// Always `Unsupported`.
#[cfg(not(target_os = "linux"))]
pub fn lifeline_held(_fd: i32) -> io::Result<bool> {
    Err(io::ErrorKind::Unsupported.into())
}
