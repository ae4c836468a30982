//! What a store in a directory needs, in place of calls that take a directory's descriptor.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::windows::ffi::OsStrExt;
use std::os::windows::fs::OpenOptionsExt;
use std::os::windows::io::{AsRawHandle, OwnedHandle};
use std::path::Path;

use windows_sys::Win32::Foundation::{
    ERROR_ACCESS_DENIED, ERROR_DIRECTORY, ERROR_INVALID_NAME, ERROR_SHARING_VIOLATION, ERROR_STOPPED_ON_SYMLINK,
};
use windows_sys::Win32::Storage::FileSystem::{
    FILE_FLAG_OPEN_REPARSE_POINT, FILE_LIST_DIRECTORY, FILE_SHARE_READ, FILE_SHARE_WRITE, MOVEFILE_WRITE_THROUGH,
    MoveFileExW,
};

use super::{Descriptor, open_as, patiently};

/// A directory that nobody can rename, remove or replace while this lives, so that a path through it stays what it is.
pub struct PinnedDirectory {
    handle: File,
}

impl PinnedDirectory {
    /// Opens `path`, which must be a directory and no link to one. The path's own parents are the caller's business.
    ///
    /// # Errors
    /// 267 `ERROR_DIRECTORY` for a file, 681 `ERROR_STOPPED_ON_SYMLINK` for a link or junction; the system's own.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut how = OpenOptions::new();
        // Without FILE_SHARE_DELETE: that is the pin.
        let handle =
            open_as(path, how.access_mode(FILE_LIST_DIRECTORY).share_mode(FILE_SHARE_READ | FILE_SHARE_WRITE))?;
        let kind = handle.metadata()?.file_type();
        match (kind.is_symlink(), kind.is_dir()) {
            (true, _) => Err(error(ERROR_STOPPED_ON_SYMLINK)),
            (_, false) => Err(error(ERROR_DIRECTORY)),
            _ => Ok(Self { handle }),
        }
    }

    /// To ask about its file system; closed with this.
    #[must_use]
    pub fn handle(&self) -> Descriptor {
        self.handle.as_raw_handle() as Descriptor
    }
}

fn error(code: u32) -> io::Error {
    io::Error::from_raw_os_error(code as i32)
}

/// How `open_shared` opens; always to read, too.
#[derive(Clone, Copy, Debug, Default)]
pub struct Opening {
    /// Also to write.
    pub write: bool,
    /// Made if it is not there.
    pub create: bool,
    /// Made, and an error if it is there.
    pub create_new: bool,
    /// Emptied.
    pub truncate: bool,
}

/// A file that others may rename and remove meanwhile, and that is no link. Python's own `open` forbids both.
///
/// # Errors
/// 681 `ERROR_STOPPED_ON_SYMLINK` for a link; 5 `ERROR_ACCESS_DENIED` for a directory too; the system's own.
pub fn open_shared(path: &Path, opening: Opening) -> io::Result<OwnedHandle> {
    let mut how = OpenOptions::new();
    how.read(true).write(opening.write).create(opening.create).create_new(opening.create_new);
    how.truncate(opening.truncate).custom_flags(FILE_FLAG_OPEN_REPARSE_POINT);
    let file = patiently(&[ERROR_SHARING_VIOLATION], || how.open(path))?;
    if file.metadata()?.file_type().is_symlink() {
        return Err(error(ERROR_STOPPED_ON_SYMLINK));
    }
    Ok(file.into())
}

/// Renames, failing if the target exists; returns once the new name is on the disk. Source: MoveFileExW.
///
/// # Errors
/// 183 `ERROR_ALREADY_EXISTS`, or what else the system says.
pub fn rename_noreplace(source: &Path, target: &Path) -> io::Result<()> {
    let (source, target) = (wide(source)?, wide(target)?);
    patiently(&[ERROR_SHARING_VIOLATION], || {
        // SAFETY: both end with a zero and outlive the call.
        match unsafe { MoveFileExW(source.as_ptr(), target.as_ptr(), MOVEFILE_WRITE_THROUGH) } {
            0 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    })
}

/// Renames over the target. Older systems and some file systems refuse while anybody has that open, so again and again.
///
/// # Errors
/// What the system says, in the end.
pub fn rename_over(source: &Path, target: &Path) -> io::Result<()> {
    patiently(&[ERROR_SHARING_VIOLATION, ERROR_ACCESS_DENIED], || std::fs::rename(source, target))
}

fn wide(path: &Path) -> io::Result<Vec<u16>> {
    let mut text: Vec<u16> = path.as_os_str().encode_wide().collect();
    if text.contains(&0) {
        return Err(error(ERROR_INVALID_NAME));
    }
    text.push(0);
    Ok(text)
}
