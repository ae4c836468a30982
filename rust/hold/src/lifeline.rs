//! The lock that the kernel drops when the last process that carries it ends.
//!
//! On Linux an open-file-description lock. `flock` would do as a lock, but can be asked about only by taking it; a POSIX
//! lock is dropped when its process closes *any* descriptor of the file. macOS has no other than these two, so there it is
//! `flock`, asked for a shared one. Source: fcntl_locking(2), flock(2).

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

/// With `flock`. Compiled for the tests of other systems too, whose `flock` is the same.
#[cfg(any(target_os = "macos", all(test, unix)))]
mod shared {
    use super::io;

    /// Takes the lock; `false` when another open file has it.
    pub(super) fn take(fd: i32) -> io::Result<bool> {
        flock(fd, libc::LOCK_EX)
    }

    /// Whether anybody has it. For a moment the asker has a shared lock, which refuses no other asker. It would refuse
    /// the one who takes, but that one locks a file whose name nobody can know yet.
    ///
    /// Unlike on Linux, who may merely read the file can lock it, and pass for its holder: it makes others wait.
    pub(super) fn is_held(fd: i32) -> io::Result<bool> {
        if !flock(fd, libc::LOCK_SH)? {
            return Ok(true);
        }
        // Closing would do, but a process that was forked meanwhile has the descriptor too.
        // SAFETY: takes numbers only.
        unsafe { libc::flock(fd, libc::LOCK_UN) };
        Ok(false)
    }

    fn flock(fd: i32, kind: i32) -> io::Result<bool> {
        loop {
            // SAFETY: takes numbers only; a descriptor that is not open is an EBADF.
            if unsafe { libc::flock(fd, kind | libc::LOCK_NB) } == 0 {
                return Ok(true);
            }
            let error = io::Error::last_os_error();
            match error.kind() {
                io::ErrorKind::WouldBlock => return Ok(false),
                io::ErrorKind::Interrupted => {}
                _ => return Err(error),
            }
        }
    }
}

/// Takes the lock; `false` when another open file has it.
///
/// # Errors
/// `EBADF`; `ENOTSUP` where the file system has no such locks.
#[cfg(target_os = "macos")]
pub fn lifeline_lock(fd: i32) -> io::Result<bool> {
    shared::take(fd)
}

/// Whether anybody has the lock. A read-only descriptor suffices; other askers do not show.
///
/// # Errors
/// As of `lifeline_lock`.
#[cfg(target_os = "macos")]
pub fn lifeline_held(fd: i32) -> io::Result<bool> {
    shared::is_held(fd)
}

/// There is no lifeline on this system yet.
///
/// # Errors
/// Always `Unsupported`.
#[cfg(not(any(target_os = "linux", target_os = "macos")))]
pub fn lifeline_lock(_fd: i32) -> io::Result<bool> {
    Err(io::ErrorKind::Unsupported.into())
}

/// There is no lifeline on this system yet.
///
/// # Errors
/// Always `Unsupported`.
#[cfg(not(any(target_os = "linux", target_os = "macos")))]
pub fn lifeline_held(_fd: i32) -> io::Result<bool> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(all(test, unix))]
mod tests {
    use super::shared::{is_held, take};
    use std::fs::{self, File, OpenOptions};
    use std::os::fd::AsRawFd;

    struct Scene(std::path::PathBuf);

    impl Scene {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("tenure-lifeline-{}-{name}", std::process::id()));
            fs::write(&path, "").expect("written");
            Self(path)
        }

        fn open(&self) -> File {
            OpenOptions::new().read(true).write(true).open(&self.0).expect("there")
        }
    }

    impl Drop for Scene {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    #[test]
    fn a_lock_that_is_held_shows_to_whoever_asks_and_is_refused_to_whoever_takes() {
        let scene = Scene::new("held");
        let (holder, other) = (scene.open(), File::open(&scene.0).expect("there"));
        assert!(!is_held(other.as_raw_fd()).expect("asked"));
        assert!(take(holder.as_raw_fd()).expect("taken"));
        assert!(is_held(other.as_raw_fd()).expect("asked"));
        assert!(!take(scene.open().as_raw_fd()).expect("asked"));
        drop(holder);
        assert!(!is_held(other.as_raw_fd()).expect("asked"));
    }

    #[test]
    fn who_asks_leaves_nothing_behind_and_does_not_show_to_others_who_ask() {
        let scene = Scene::new("asked");
        let (one, two) = (scene.open(), scene.open());
        for _ in 0..2 {
            assert!(!is_held(one.as_raw_fd()).expect("asked") && !is_held(two.as_raw_fd()).expect("asked"));
        }
        assert!(take(scene.open().as_raw_fd()).expect("asked"));
    }

    #[test]
    fn a_descriptor_that_is_not_open_is_an_error_and_no_answer() {
        assert!(is_held(-1).is_err() && take(-1).is_err());
    }
}
