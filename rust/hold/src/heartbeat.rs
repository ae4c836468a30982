//! The heartbeat's file: opened for each beat, known again by device and inode, written in place.

use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{CWD, Dev, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, fstat, futimens, openat};
use rustix::io::pwrite;

/// The two texts a heartbeat can hold, of one length, with a 20-digit counter at one place.
#[derive(Clone, Debug)]
pub struct Record {
    held: Vec<u8>,
    released: Vec<u8>,
    digits_at: usize,
}

const DIGITS: usize = 20;

impl Record {
    /// From the two texts, whose counters are at `digits_at`.
    ///
    /// # Errors
    /// They are not of one length, or have no counter there.
    pub fn new(held: &[u8], released: &[u8], digits_at: usize) -> io::Result<Self> {
        let counter =
            |text: &[u8]| text.get(digits_at..digits_at + DIGITS).is_some_and(|at| at.iter().all(u8::is_ascii_digit));
        if held.len() != released.len() || !counter(held) || !counter(released) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the two records do not match"));
        }
        Ok(Self { held: held.to_vec(), released: released.to_vec(), digits_at })
    }

    fn count(&mut self) {
        let digits = self.digits_at..self.digits_at + DIGITS;
        for digit in self.held[digits.clone()].iter_mut().rev() {
            if *digit == b'9' {
                *digit = b'0';
            } else {
                *digit += 1;
                break;
            }
        }
        let (held, released) = (&self.held, &mut self.released);
        released[digits.clone()].copy_from_slice(&held[digits]);
    }
}

pub(crate) struct Heartbeat {
    file: CString,
    device: Dev,
    inode: u64,
    record: Record,
}

impl Heartbeat {
    pub(crate) fn new(file: &Path, record: Record) -> io::Result<Self> {
        let file = CString::new(file.as_os_str().as_bytes())?;
        let status = fstat(open(&file)?)?;
        Ok(Self { file, device: status.st_dev, inode: status.st_ino, record })
    }

    pub(crate) fn write_next(&mut self) -> io::Result<()> {
        self.record.count();
        match self.write(&self.record.held) {
            // A file system that writes elsewhere (btrfs, or a snapshot below) needs room even for a byte that is
            // already there. Its time stamp does not, and moves as well.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT)) => {
                Ok(futimens(self.open()?, &NOW)?)
            }
            written => written,
        }
    }

    pub(crate) fn write_released(&mut self) -> io::Result<()> {
        self.record.count();
        self.write(&self.record.released)
    }

    fn write(&self, text: &[u8]) -> io::Result<()> {
        match pwrite(self.open()?, text, 0)? {
            written if written == text.len() => Ok(()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    }

    fn open(&self) -> io::Result<OwnedFd> {
        let file = open(&self.file)?;
        let status = fstat(&file)?;
        if (status.st_dev, status.st_ino) != (self.device, self.inode) {
            // Somebody has moved ours away. What is there now is not ours to write to.
            return Err(io::Error::new(io::ErrorKind::NotFound, "the heartbeat has been replaced"));
        }
        Ok(file)
    }
}

const NOW: Timestamps = Timestamps {
    last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT as _ },
    last_modification: Timespec { tv_sec: 0, tv_nsec: UTIME_NOW as _ },
};

fn open(path: &CString) -> io::Result<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    Ok(openat(CWD, &**path, flags, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_carries_and_both_texts_show_it() {
        let text = |state: &str| format!("{{\"beat\":\"{:020}\",\"state\":\"{state}\"}}", 98).into_bytes();
        let mut record = Record::new(&text("held____"), &text("released"), 9).expect("they match");
        record.count();
        record.count();
        let shows = |text: &[u8]| String::from_utf8_lossy(text).contains(&format!("\"{:020}\"", 100));
        assert!(shows(&record.held) && shows(&record.released));
    }

    #[test]
    fn records_that_do_not_match_are_refused() {
        assert!(Record::new(b"00000000000000000000", b"0000000000000000000", 0).is_err());
        assert!(Record::new(b"0000000000000000000x", b"0000000000000000000x", 0).is_err());
        assert!(Record::new(b"00000000000000000000", b"00000000000000000000", 1).is_err());
    }
}
