//! Hearing of changes in directories and to files, so that a waiter need not look all the time. Source: inotify(7).
//!
//! A hint and nothing more: what another machine changes on a shared file system is not told.

use std::io;
use std::path::Path;

#[cfg(target_os = "linux")]
use rustix::fs::inotify;
#[cfg(target_os = "linux")]
use std::os::fd::{AsRawFd, OwnedFd};

/// Turns readable when something changes in one of its directories, or to one of its files.
#[cfg(target_os = "linux")]
pub struct Changes(OwnedFd);

#[cfg(target_os = "linux")]
impl Changes {
    /// Hears of nothing yet.
    ///
    /// # Errors
    /// `EMFILE` where the user has too many of them.
    pub fn new() -> io::Result<Self> {
        Ok(Self(inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?))
    }

    /// Hears from now on of files in `path`, or of the file `path`, that appear, vanish, are written to, or are closed
    /// after writing, as everything is that a process had open when it died. A link is not followed.
    ///
    /// # Errors
    /// It is not there or not readable; `ENOSPC` where the user watches too much.
    pub fn add(&self, path: &Path) -> io::Result<()> {
        let what = inotify::WatchFlags::CREATE
            | inotify::WatchFlags::MOVED_TO
            | inotify::WatchFlags::DELETE
            | inotify::WatchFlags::MODIFY
            | inotify::WatchFlags::CLOSE_WRITE
            | inotify::WatchFlags::DONT_FOLLOW;
        inotify::add_watch(&self.0, path, what)?;
        Ok(())
    }

    /// Forgets what has been heard, so that the next change shows again.
    pub fn drain(&self) {
        let mut heard = [0; 4096];
        while rustix::io::read(&self.0, &mut heard).is_ok_and(|length| length > 0) {}
    }

    /// What to wait on.
    #[must_use]
    pub fn descriptor(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

/// Not on this system: there is no value of this type, and waiters look by themselves.
#[cfg(not(target_os = "linux"))]
pub enum Changes {}

#[cfg(not(target_os = "linux"))]
impl Changes {
    /// There is no such thing here.
    ///
    /// # Errors
    /// Always `Unsupported`.
    pub fn new() -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Not reached.
    ///
    /// # Errors
    /// Not reached.
    pub fn add(&self, _path: &Path) -> io::Result<()> {
        match *self {}
    }

    /// Not reached.
    pub fn drain(&self) {
        match *self {}
    }

    /// Not reached.
    #[must_use]
    pub fn descriptor(&self) -> i32 {
        match *self {}
    }
}
