//! What there is to see of a lease in a directory, at one glance: the highest claim and its heartbeat.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags, fstat};
use rustix::io::Errno;

use crate::below::{directory_below, open, read};
use crate::standing::highest_of;
use crate::system::each_name_in;

/// The highest claim and its heartbeat. Fence 0: there is no claim.
#[derive(Default)]
pub struct Glance {
    /// The fence that it takes.
    pub fence: u64,
    /// What it says.
    pub claim: Vec<u8>,
    /// What its heartbeat says; empty where there is none.
    pub beat: Vec<u8>,
    /// When the heartbeat was written, in nanoseconds, by the file system's clock.
    pub stamp: i64,
}

/// Looks into the directory `claims` below `root`, in which the directory `beats` has the heartbeats, by the same names.
///
/// # Errors
/// Those of the system calls; `EFBIG` for a claim of more than `most` bytes, `EINVAL` for what is no regular file.
pub fn glance(root: &CStr, claims: &str, beats: &str, most: usize) -> io::Result<Glance> {
    let directory = directory_below(root, claims)?;
    let fence = highest_of(|see| each_name_in(&directory, see))?;
    if fence == 0 {
        return Ok(Glance::default());
    }
    let name = CString::new(format!("{fence:020}"))?;
    let claim = read(open(&directory, &name, OFlags::RDONLY, Mode::empty())?, most)?;
    let (beat, stamp) = match heartbeat(&directory, beats, &name) {
        Err(error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => (Vec::new(), 0),
        seen => seen?,
    };
    Ok(Glance { fence, claim, beat, stamp })
}

#[allow(clippy::useless_conversion, reason = "signed on macOS")]
fn heartbeat(directory: &OwnedFd, beats: &str, name: &CStr) -> io::Result<(Vec<u8>, i64)> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let beats = rustix::fs::openat(directory, beats, flags, Mode::empty())?;
    let file = open(&beats, name, OFlags::RDONLY, Mode::empty())?;
    // The stamp first: a beat between the two then shows as a change at the next look, not as none.
    let status = fstat(&file)?;
    let nanoseconds = i64::try_from(status.st_mtime_nsec).unwrap_or_default();
    let stamp = status.st_mtime.saturating_mul(1_000_000_000).saturating_add(nanoseconds);
    // One that is longer is none of ours, and its beginning says so as well.
    let mut beat = vec![0; 320];
    let length = rustix::io::read(&file, &mut beat)?;
    beat.truncate(length);
    Ok((beat, stamp))
}
