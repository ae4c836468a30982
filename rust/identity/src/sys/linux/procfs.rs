//! /proc, believed only after it has shown that it is ours.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Dir, Mode, OFlags, fstat, fstatfs, open, openat, readlinkat};
use rustix::io::{Errno, read};

use super::call::or_absent;
use crate::parse::{self, Stat, TimeOffset};

/// Source: linux/magic.h, PROC_SUPER_MAGIC.
const PROC_SUPER_MAGIC: i64 = 0x9fa0;

const READ: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);

/// A /proc that shows the pid namespace of the process that opened it. Keeps the directory open.
pub(super) struct Proc {
    directory: OwnedFd,
    device: u64,
    inode: u64,
}

/// Why a process could not be read.
pub(super) enum Unread {
    /// No entry: gone or hidden (`hidepid`), which look the same.
    NoEntry,
    /// The entry is not for us.
    Denied,
    /// The entry was opened and its process has ended since.
    Ended,
    /// Out of descriptors.
    NoFds,
    /// Anything else.
    Failed(Errno),
}

impl Proc {
    /// Opens and verifies /proc.
    ///
    /// It may belong to another pid namespace (`unshare --pid` without a new mount, `nsenter -m`), and then /proc/1 is
    /// a stranger. `readlink /proc/self` can match by accident; an `NSpid` line of exactly one number, our own,
    /// cannot: it starts at the namespace of the mount.
    ///
    /// # Errors
    /// Out of descriptors or memory: nothing is known.
    pub(super) fn verified() -> Result<Option<Self>, Errno> {
        let flags = OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC;
        let Some(directory) = or_absent(open("/proc", flags, Mode::empty()))? else { return Ok(None) };
        if fstatfs(&directory).is_ok_and(|file_system| file_system.f_type != PROC_SUPER_MAGIC) {
            return Ok(None);
        }
        let Some(status) = or_absent(read_whole(directory.as_fd(), "self/status"))? else { return Ok(None) };
        let me = u64::from(std::process::id());
        let ours = match parse::namespace_pids(&status) {
            Some(pids) => pids == [me],
            // Linux before 4.1 and gVisor print no such line; neither can mount a foreign /proc by accident as easily.
            None => or_absent(readlinkat(&directory, "self", Vec::new()))?
                .is_some_and(|link| parse::number(link.as_bytes()) == Some(me)),
        };
        let Some(stat) = or_absent(fstat(&directory))?.filter(|_| ours) else { return Ok(None) };
        Ok(Some(Self { directory, device: stat.st_dev, inode: stat.st_ino }))
    }

    /// The directory, if the descriptor is still ours: code that closes every descriptor exists, and the number may
    /// be another directory's by now.
    pub(super) fn directory(&self) -> Option<BorrowedFd<'_>> {
        let stat = fstat(&self.directory).ok()?;
        ((stat.st_dev, stat.st_ino) == (self.device, self.inode)).then(|| self.directory.as_fd())
    }
}

/// Reads /proc/PID/stat.
pub(super) fn stat(directory: BorrowedFd<'_>, pid: u32) -> Result<Stat, Unread> {
    read_stat(&open_stat(directory, pid)?)
}

/// Opens /proc/PID/stat. The descriptor is bound to that very process: after its end it answers ESRCH, also once the
/// number is taken again.
pub(super) fn open_stat(directory: BorrowedFd<'_>, pid: u32) -> Result<OwnedFd, Unread> {
    openat(directory, Path::new(pid, "/stat").as_str(), READ, Mode::empty()).map_err(|error| match error {
        Errno::NOENT => Unread::NoEntry,
        Errno::ACCESS | Errno::PERM => Unread::Denied,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM => Unread::NoFds,
        Errno::SRCH => Unread::Ended,
        other => Unread::Failed(other),
    })
}

/// Reads an opened stat file from its start.
pub(super) fn read_stat(file: &OwnedFd) -> Result<Stat, Unread> {
    // 52 numbers of at most 20 digits and a name of at most 64 bytes; proc_pid_stat(5).
    let mut line = [0; 2048];
    let length = loop {
        match rustix::io::pread(file, &mut line, 0) {
            Err(Errno::INTR) => {}
            Err(Errno::SRCH) => return Err(Unread::Ended),
            Err(Errno::ACCESS | Errno::PERM) => return Err(Unread::Denied),
            Err(other) => return Err(Unread::Failed(other)),
            Ok(length) => break length,
        }
    };
    parse::stat(&line[..length]).ok_or(Unread::Failed(Errno::BADMSG))
}

/// Whether every thread of a process whose leader has exited has exited too.
///
/// Said only of a list of threads that did not change while it was read: a thread may start another and end in between,
/// so a thread that vanished, or one that was not there before, counts as life.
pub(super) fn all_threads_exited(directory: BorrowedFd<'_>, pid: u32) -> Result<bool, Errno> {
    let tasks = openat(directory, Path::new(pid, "/task").as_str(), READ | OFlags::DIRECTORY, Mode::empty())?;
    let before = threads(&tasks)?;
    for &thread in &before {
        match stat(tasks.as_fd(), thread) {
            Ok(stat) if stat.exited() => {}
            _ => return Ok(false),
        }
    }
    Ok(!before.is_empty() && before == threads(&tasks)?)
}

fn threads(tasks: &OwnedFd) -> Result<Vec<u32>, Errno> {
    let mut found = Vec::new();
    for entry in Dir::read_from(tasks)? {
        if let Some(number) = parse::number(entry?.file_name().to_bytes()) {
            found.push(u32::try_from(number).map_err(|_| Errno::BADMSG)?);
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Our own time namespace's offset, or `None` where it cannot be known.
///
/// `timens_offsets` shows the offsets that *children* will have. It is ours only while both namespaces are one.
/// Source: time_namespaces(7).
///
/// # Errors
/// Out of descriptors or memory: nothing is known.
pub(super) fn time_offset(directory: BorrowedFd<'_>) -> Result<Option<TimeOffset>, Errno> {
    let ours = match readlinkat(directory, "self/ns/time", Vec::new()) {
        // No such entry: a kernel without time namespaces (before 5.6), so nothing is shifted.
        Err(Errno::NOENT) => return Ok(Some(TimeOffset::default())),
        other => or_absent(other)?,
    };
    let childrens = or_absent(readlinkat(directory, "self/ns/time_for_children", Vec::new()))?;
    if ours.is_none() || ours != childrens {
        return Ok(None);
    }
    Ok(or_absent(read_whole(directory, "self/timens_offsets"))?.and_then(|text| parse::time_offset(&text)))
}

/// The whole of a small file.
pub(super) fn read_whole(directory: BorrowedFd<'_>, path: &str) -> Result<Vec<u8>, Errno> {
    // Not with NOFOLLOW alone: "self" is a link of the kernel's own, in the middle of the path.
    let file = openat(directory, path, READ, Mode::empty())?;
    let mut text = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        match read(&file, &mut chunk) {
            Ok(0) => return Ok(text),
            Ok(length) => text.extend_from_slice(&chunk[..length]),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// "PID/stat" without an allocation.
struct Path {
    bytes: [u8; 16],
    length: usize,
}

impl Path {
    fn new(pid: u32, tail: &str) -> Self {
        let mut digits = [0; 10];
        let mut at = digits.len();
        let mut rest = pid;
        loop {
            at -= 1;
            digits[at] = b'0' + u8::try_from(rest % 10).unwrap_or_default();
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        let digits = &digits[at..];
        let length = digits.len() + tail.len();
        let mut bytes = [0; 16];
        bytes[..digits.len()].copy_from_slice(digits);
        bytes[digits.len()..length].copy_from_slice(tail.as_bytes());
        Self { bytes, length }
    }

    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.length]).expect("digits and an ASCII tail")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_made_of_every_number() {
        for pid in [1, 9, 10, 4_194_304, u32::MAX] {
            assert_eq!(Path::new(pid, "/stat").as_str(), format!("{pid}/stat"));
        }
    }

    #[test]
    fn our_own_proc_is_verified_and_shows_this_process() {
        let Ok(Some(proc)) = Proc::verified() else { return };
        let directory = proc.directory().expect("just opened");
        let stat = stat(directory, std::process::id()).ok().expect("our own entry");
        assert!(stat.num_threads >= 1 && stat.start > 0);
        assert!(!all_threads_exited(directory, std::process::id()).expect("our own entry"));
    }
}
