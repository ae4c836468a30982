//! The heartbeat's file: opened for each beat, known again by device and inode, written in place.

use std::io;
use std::path::Path;

use crate::system::{self, FileId, Name};

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
    file: Name,
    id: FileId,
    record: Record,
}

impl Heartbeat {
    pub(crate) fn new(file: &Path, record: Record) -> io::Result<Self> {
        let file = system::name(file)?;
        let (_, id) = system::open(&file)?;
        Ok(Self { file, id, record })
    }

    pub(crate) fn write_next(&mut self) -> io::Result<()> {
        self.record.count();
        match self.write(&self.record.held) {
            // A file system that writes elsewhere (btrfs, or a snapshot below) needs room even for a byte that is
            // already there. Its time stamp does not, and moves as well.
            Err(error) if system::is_full(&error) => system::touch(&self.open()?),
            written => written,
        }
    }

    pub(crate) fn write_released(&mut self) -> io::Result<()> {
        self.record.count();
        self.write(&self.record.released)
    }

    fn write(&self, text: &[u8]) -> io::Result<()> {
        match system::write_at_start(&self.open()?, text)? {
            written if written == text.len() => Ok(()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    }

    fn open(&self) -> io::Result<system::Opened> {
        let (file, id) = system::open(&self.file)?;
        if id != self.id {
            // Somebody has moved ours away. What is there now is not ours to write to.
            return Err(io::Error::new(io::ErrorKind::NotFound, "the heartbeat has been replaced"));
        }
        Ok(file)
    }
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
