//! Files by path, as a hold needs them, where they are reached by handles. `posix` has the same names.
//!
//! Whoever has a file open decides what others may do meanwhile. All that is opened here lets them read, write, rename and
//! remove; for moments somebody else's programs, such as scanners, do not, and then the call is made again.

mod locks;
mod store;

pub use locks::{filesystem_type, lifeline_held, lifeline_lock, lifeline_unlock};
pub use store::{Opening, PinnedDirectory, open_shared, rename_noreplace, rename_over};

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::windows::fs::{FileExt, OpenOptionsExt};
use std::os::windows::io::{AsRawHandle, BorrowedHandle};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use windows_sys::Win32::Foundation::{ERROR_DISK_FULL, ERROR_DISK_QUOTA_EXCEEDED, ERROR_SHARING_VIOLATION};
use windows_sys::Win32::Storage::FileSystem::{
    BY_HANDLE_FILE_INFORMATION, FILE_FLAG_BACKUP_SEMANTICS, FILE_FLAG_OPEN_REPARSE_POINT, FILE_READ_ATTRIBUTES,
    GetFileInformationByHandle,
};

/// What an open file is called by: a handle, as a number. Python's own descriptors mean something in its C library alone.
pub type Descriptor = isize;

pub(crate) type Name = PathBuf;

/// The volume's serial number, and the file's number on it.
pub(crate) type FileId = (u64, u64);

/// A file that is open to be written to.
pub(crate) type Opened = File;

pub(crate) fn name(path: &Path) -> io::Result<Name> {
    Ok(path.to_owned())
}

pub(crate) fn id_of(name: &Name) -> io::Result<FileId> {
    id(&open_as(name, OpenOptions::new().access_mode(FILE_READ_ATTRIBUTES))?)
}

pub(crate) fn id_of_open(handle: Descriptor) -> io::Result<FileId> {
    id(&borrow(handle))
}

fn borrow<'handle>(handle: Descriptor) -> BorrowedHandle<'handle> {
    // SAFETY: used for one system call, to which a handle that is not open is an error.
    unsafe { BorrowedHandle::borrow_raw(handle as _) }
}

fn id(file: &impl AsRawHandle) -> io::Result<FileId> {
    let mut found = BY_HANDLE_FILE_INFORMATION::default();
    // SAFETY: a pointer to a struct that outlives the call; a handle that is not open is an error.
    if unsafe { GetFileInformationByHandle(file.as_raw_handle(), &raw mut found) } == 0 {
        return Err(io::Error::last_os_error());
    }
    let number = u64::from(found.nFileIndexHigh) << 32 | u64::from(found.nFileIndexLow);
    Ok((u64::from(found.dwVolumeSerialNumber), number))
}

/// Opens, never following a link, and again for as long as somebody else's open file forbids it.
fn open_as(name: &Path, how: &mut OpenOptions) -> io::Result<File> {
    how.custom_flags(FILE_FLAG_OPEN_REPARSE_POINT | FILE_FLAG_BACKUP_SEMANTICS);
    patiently(&[ERROR_SHARING_VIOLATION], || how.open(name))
}

/// Calls again and again while the error is one that passes; for about half a second.
fn patiently<T>(passing: &[u32], mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for pause in [1, 1, 2, 3, 5, 8, 13, 20, 30, 40, 50, 60, 70, 80, 90] {
        match call() {
            Err(error) if error.raw_os_error().is_some_and(|code| passing.contains(&(code as u32))) => {
                std::thread::sleep(Duration::from_millis(pause));
            }
            done => return done,
        }
    }
    call()
}

pub(crate) fn exists(name: &Name) -> io::Result<bool> {
    match fs::symlink_metadata(name) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Nothing to rely on: not every file system here stamps a directory when a name appears in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp;

impl Stamp {
    pub(crate) fn of(_directory: &Name) -> io::Result<Self> {
        Ok(Self)
    }

    pub(crate) fn has_aged(self) -> bool {
        false
    }
}

/// The first bytes of a file, which is not followed if it is a link.
pub(crate) fn read(name: &Name, limit: usize) -> io::Result<Vec<u8>> {
    let mut found = Vec::with_capacity(limit);
    open_as(name, OpenOptions::new().read(true))?.take(limit as u64).read_to_end(&mut found)?;
    Ok(found)
}

/// A file to write to in place, and which one it is.
pub(crate) fn open(name: &Name) -> io::Result<(Opened, FileId)> {
    let file = open_as(name, OpenOptions::new().write(true))?;
    let id = id(&file)?;
    Ok((file, id))
}

pub(crate) fn write_at_start(file: &Opened, text: &[u8]) -> io::Result<usize> {
    file.seek_write(text, 0)
}

/// Gives it a new time stamp and no new content.
pub(crate) fn touch(file: &Opened) -> io::Result<()> {
    file.set_modified(SystemTime::now())
}

pub(crate) fn is_full(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|code| [ERROR_DISK_FULL, ERROR_DISK_QUOTA_EXCEEDED].contains(&(code as u32)))
}

/// Every name in a directory, which is not followed if it is a link.
pub(crate) fn each_name(directory: &Name, mut see: impl FnMut(&[u8])) -> io::Result<()> {
    let _pinned = PinnedDirectory::open(directory)?;
    for entry in fs::read_dir(directory)? {
        see(entry?.file_name().as_encoded_bytes());
    }
    Ok(())
}

/// There are none here that would come to a thread.
pub(crate) fn block_signals() {}
