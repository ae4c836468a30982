//! Files by path, as a hold needs them, where they are reached by descriptors. `windows` has the same names.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
#[cfg(target_os = "linux")]
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, Stat, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, fstat, futimens, openat, stat};
use rustix::io::{Errno, pwrite};
use rustix::time::{ClockId, clock_gettime};

/// What an open file is called by.
pub type Descriptor = i32;

/// A path, as the system takes it: made once, so that a beat allocates nothing.
pub(crate) type Name = CString;

/// Device and inode.
pub(crate) type FileId = (u64, u64);

/// A file that is open to be written to.
pub(crate) type Opened = OwnedFd;

pub(crate) fn name(path: &Path) -> io::Result<Name> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

#[allow(clippy::unnecessary_cast, reason = "a device has 32 bits on macOS")]
fn id(status: &Stat) -> FileId {
    (status.st_dev as u64, status.st_ino)
}

pub(crate) fn id_of(name: &Name) -> io::Result<FileId> {
    Ok(id(&stat(&**name)?))
}

pub(crate) fn id_of_open(fd: Descriptor) -> io::Result<FileId> {
    Ok(id(&fstat(borrow(fd)?)?))
}

pub(crate) fn borrow<'fd>(fd: Descriptor) -> io::Result<BorrowedFd<'fd>> {
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: not -1, and used for one system call, to which a descriptor that is not open is an EBADF.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}

pub(crate) fn exists(name: &Name) -> io::Result<bool> {
    match stat(&**name) {
        Ok(_) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// When a directory was changed. Both times, since a rename over a name moves the one and a restored backup may set the
/// other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp(i64, u64, i64, u64);

impl Stamp {
    #[allow(clippy::unnecessary_cast, reason = "signed on macOS")]
    pub(crate) fn of(directory: &Name) -> io::Result<Self> {
        let status = stat(&**directory)?;
        Ok(Self(status.st_mtime, status.st_mtime_nsec as u64, status.st_ctime, status.st_ctime_nsec as u64))
    }

    /// A name that appears in the same tick of the file system's clock as a reading would not show. So a stamp is trusted
    /// only once it has aged, as version control does with files that were changed just now.
    pub(crate) fn has_aged(self) -> bool {
        self.0.max(self.2).saturating_add(2) < clock_gettime(ClockId::Realtime).tv_sec
    }
}

/// The first bytes of a file, which is not followed if it is a link.
pub(crate) fn read(name: &Name, limit: usize) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = File::from(openat(CWD, &**name, flags, Mode::empty())?);
    let mut found = Vec::with_capacity(limit);
    file.take(limit as u64).read_to_end(&mut found)?;
    Ok(found)
}

/// A file to write to in place, and which one it is.
pub(crate) fn open(name: &Name) -> io::Result<(Opened, FileId)> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = openat(CWD, &**name, flags, Mode::empty())?;
    let status = fstat(&file)?;
    Ok((file, id(&status)))
}

pub(crate) fn write_at_start(file: &Opened, text: &[u8]) -> io::Result<usize> {
    Ok(pwrite(file, text, 0)?)
}

/// Gives it a new time stamp and no new content.
pub(crate) fn touch(file: &Opened) -> io::Result<()> {
    const NOW: Timestamps = Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT as _ },
        last_modification: Timespec { tv_sec: 0, tv_nsec: UTIME_NOW as _ },
    };
    Ok(futimens(file, &NOW)?)
}

pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT))
}

/// Every name in a directory, which is not followed if it is a link.
pub(crate) fn each_name(directory: &Name, see: impl FnMut(&[u8])) -> io::Result<()> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    each_name_in(&openat(CWD, &**directory, flags, Mode::empty())?, see)
}

/// Without an allocation for each name: a directory may hold the claims of years.
#[cfg(target_os = "linux")]
pub(crate) fn each_name_in(directory: &OwnedFd, mut see: impl FnMut(&[u8])) -> io::Result<()> {
    let mut buffer = [MaybeUninit::uninit(); 32 * 1024];
    let mut entries = rustix::fs::RawDir::new(directory, &mut buffer);
    while let Some(entry) = entries.next() {
        see(entry?.file_name().to_bytes());
    }
    Ok(())
}

/// The same with the list that the C library has.
#[cfg(not(target_os = "linux"))]
pub(crate) fn each_name_in(directory: &OwnedFd, mut see: impl FnMut(&[u8])) -> io::Result<()> {
    for entry in rustix::fs::Dir::read_from(directory)? {
        see(entry?.file_name().to_bytes());
    }
    Ok(())
}

/// Keeps the process's signals away from this thread, or the handlers of the program would run on its small stack.
pub(crate) fn block_signals() {
    // SAFETY: both calls write to and read from a set that outlives them.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
    }
}
