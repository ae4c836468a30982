//! Many new files in one call: a checkout of thousands would otherwise spend most of its time between Python and the kernel.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, Mode, OFlags, fstat, openat, unlinkat};

use crate::below::SAFELY;
use crate::filesystem::rename_noreplace;
use crate::system::{Descriptor, borrow};

/// What tells a file from any other that is put at its name later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// When it was last changed, in nanoseconds since 1970.
    pub mtime_ns: i64,
    /// Its number on the file system.
    pub inode: u64,
}

/// Puts new files into the directory `into`, each complete when it appears: written as `temporary` in `beside`, then renamed.
///
/// Nothing is replaced: where something is, the answer is None. Nothing is synced.
///
/// # Errors
/// Which file it was, and what the system said; `EINVAL` or `ENOSYS` where it cannot rename so. The files before it are there.
pub fn place_new(
    beside: Descriptor,
    temporary: &str,
    into: Descriptor,
    files: &[(&str, &[u8])],
) -> Result<Vec<Option<Placed>>, (usize, io::Error)> {
    let place = |(index, (name, data)): (usize, &(&str, &[u8]))| {
        place_one(beside, temporary, into, name, data).map_err(|error| (index, error))
    };
    files.iter().enumerate().map(place).collect()
}

#[allow(clippy::unnecessary_cast, reason = "wider than the system's own on some")]
fn place_one(
    beside: Descriptor,
    temporary: &str,
    into: Descriptor,
    name: &str,
    data: &[u8],
) -> io::Result<Option<Placed>> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | SAFELY;
    let mut file = File::from(openat(borrow(beside)?, temporary, flags, Mode::from_raw_mode(0o666))?);
    let placed = file.write_all(data).and_then(|()| rename_noreplace(beside, temporary, into, name));
    if let Err(error) = placed {
        // What stays is replaced by the next one.
        let _kept = unlinkat(borrow(beside)?, temporary, AtFlags::empty());
        return if error.kind() == ErrorKind::AlreadyExists { Ok(None) } else { Err(error) };
    }
    let found = fstat(file.as_fd())?;
    let mtime_ns = found.st_mtime as i64 * 1_000_000_000 + found.st_mtime_nsec as i64;
    Ok(Some(Placed { mtime_ns, inode: found.st_ino as u64 }))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;
    use std::path::PathBuf;

    use super::*;

    /// A directory with `own` in it.
    fn scratch(name: &str) -> io::Result<PathBuf> {
        let path = std::env::temp_dir().join(format!("tenure-place-{}-{name}", std::process::id()));
        fs::create_dir_all(path.join("own"))?;
        Ok(path)
    }

    #[test]
    fn new_files_appear_whole_and_nothing_is_replaced_or_left_beside() -> io::Result<()> {
        let root = scratch("new")?;
        fs::write(root.join("there"), "theirs")?;
        let (own, into) = (File::open(root.join("own"))?, File::open(&root)?);

        let files: [(&str, &[u8]); 3] = [("a", b"one"), ("there", b"ours"), ("b", b"")];
        let placed = place_new(own.as_raw_fd(), "new", into.as_raw_fd(), &files).map_err(|(_, error)| error)?;

        let first = fs::metadata(root.join("a"))?;
        let mtime_ns = first.mtime() * 1_000_000_000 + first.mtime_nsec();
        assert_eq!(placed[0], Some(Placed { mtime_ns, inode: first.ino() }));
        assert!(placed[1].is_none() && placed[2].is_some());
        assert_eq!(fs::read(root.join("a"))?, b"one");
        assert_eq!(fs::read(root.join("there"))?, b"theirs");
        assert_eq!(fs::read_dir(root.join("own"))?.count(), 0);
        fs::remove_dir_all(root)
    }

    #[test]
    fn a_failure_names_the_file_and_leaves_those_before_it() -> io::Result<()> {
        let root = scratch("failing")?;
        let (own, into) = (File::open(root.join("own"))?, File::open(&root)?);

        let files: [(&str, &[u8]); 2] = [("a", b"one"), ("no/b", b"two")];
        let placed = place_new(own.as_raw_fd(), "new", into.as_raw_fd(), &files);

        assert!(placed.is_err_and(|(index, error)| (index, error.kind()) == (1, ErrorKind::NotFound)));
        assert!(root.join("a").exists());
        assert_eq!(fs::read_dir(root.join("own"))?.count(), 0);
        fs::remove_dir_all(root)
    }
}
