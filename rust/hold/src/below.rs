//! Files below a root, in one go: every step down is taken by descriptor, and none follows a symbolic link.
//!
//! The root alone may be one, because the operator chose it. Road not taken: openat2(2) with RESOLVE_NO_SYMLINKS is one
//! call instead of three, but Linux has it since 5.6 only, and sandboxes refuse it.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, fstat, openat, unlinkat};

const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);
/// Non-blocking, so that a pipe planted at a name of ours cannot hang us.
pub(crate) const SAFELY: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// Opens `name` below `root`: a regular file, or, with `O_DIRECTORY`, a directory.
///
/// # Errors
/// Those of open(2); `EINVAL` for what is neither.
pub fn open_below(root: &CStr, name: &str, flags: u32, mode: u32) -> io::Result<OwnedFd> {
    let (directory, segment) = parent_of(root, name)?;
    open(&directory, &segment, OFlags::from_bits_retain(flags as _), Mode::from_bits_retain(mode as _))
}

/// Reads `name` below `root`, which has `most` bytes at most.
///
/// # Errors
/// As `open_below`; `EFBIG`.
pub fn read_below(root: &CStr, name: &str, most: usize) -> io::Result<Vec<u8>> {
    let (directory, segment) = parent_of(root, name)?;
    read(open(&directory, &segment, OFlags::RDONLY, Mode::empty())?, most)
}

pub(crate) fn read(file: OwnedFd, most: usize) -> io::Result<Vec<u8>> {
    let file = File::from(file);
    // What a record usually has, and one byte more than may be, to see that there is more.
    let mut data = Vec::with_capacity(1024);
    file.take(most as u64 + 1).read_to_end(&mut data)?;
    if data.len() > most { Err(io::Error::from_raw_os_error(libc::EFBIG)) } else { Ok(data) }
}

/// Unlinks `name` below `root`.
///
/// # Errors
/// Those of open(2) and unlink(2).
pub fn unlink_below(root: &CStr, name: &str) -> io::Result<()> {
    let (directory, segment) = parent_of(root, name)?;
    Ok(unlinkat(&directory, &*segment, AtFlags::empty())?)
}

fn parent_of(root: &CStr, name: &str) -> io::Result<(OwnedFd, CString)> {
    let (parents, segment) = name.rsplit_once('/').unwrap_or(("", name));
    Ok((directory_below(root, parents)?, CString::new(segment)?))
}

/// The directory `name` below `root`, or the root itself for an empty name.
pub(crate) fn directory_below(root: &CStr, name: &str) -> io::Result<OwnedFd> {
    let mut segments = name.split('/').filter(|segment| !segment.is_empty());
    let Some(first) = segments.next() else { return Ok(openat(CWD, root, DIRECTORY, Mode::empty())?) };
    // The first step together with the root: O_NOFOLLOW speaks of the last component alone.
    let first = CString::new([root.to_bytes(), first.as_bytes()].join(&b'/'))?;
    let mut directory = openat(CWD, first, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
    for segment in segments {
        directory = openat(&directory, segment, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
    }
    Ok(directory)
}

pub(crate) fn open(directory: &OwnedFd, segment: &CStr, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
    let file = openat(directory, segment, flags | SAFELY, mode)?;
    let wanted = if flags.contains(OFlags::DIRECTORY) { FileType::Directory } else { FileType::RegularFile };
    if FileType::from_raw_mode(fstat(&file)?.st_mode) != wanted {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    Ok(file)
}
