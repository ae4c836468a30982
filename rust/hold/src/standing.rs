//! Where our claim stands among all claims.

use std::ffi::CString;
use std::io::{self, Read};
#[cfg(target_os = "linux")]
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{CWD, Dev, Mode, OFlags, Stat, openat, stat};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

/// The answer of the store to "am I still the current one?".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Our claim is there, and none is above it.
    Current,
    /// A claim with this higher fence is there.
    Above(u64),
    /// Another file has our claim's name.
    Replaced,
    /// Our claim is gone, so nobody can see our hold.
    Missing,
}

pub(crate) struct Claims {
    directory: CString,
    own: CString,
    device: Dev,
    inode: u64,
    /// What our claim says. An inode is given out again as soon as its file is deleted.
    record: Vec<u8>,
    successor: CString,
    fence: u64,
    /// The directory's time stamps when it was last read whole, where they can be trusted.
    read_at: Option<Stamp>,
}

/// Both, since a rename over a name moves the one and a restored backup may set the other.
type Stamp = (i64, i128, i64, i128);

fn stamp(status: &Stat) -> Stamp {
    // Nanoseconds have a sign on some systems.
    (status.st_mtime, status.st_mtime_nsec.into(), status.st_ctime, status.st_ctime_nsec.into())
}

impl Claims {
    /// `own` is our claim, which must be there, in `directory`, and says `record`; `successor` is the name of the next
    /// fence's claim.
    pub(crate) fn new(directory: &Path, own: &Path, record: &[u8], successor: &Path, fence: u64) -> io::Result<Self> {
        let path = |path: &Path| CString::new(path.as_os_str().as_bytes());
        let own = path(own)?;
        let status = stat(&*own)?;
        Ok(Self {
            directory: path(directory)?,
            own,
            device: status.st_dev,
            inode: status.st_ino,
            record: record.to_vec(),
            successor: path(successor)?,
            fence,
            read_at: None,
        })
    }

    /// Whether the next higher claim is there. One call, for the pulse; `standing` asks for every higher one.
    pub(crate) fn successor_exists(&self) -> io::Result<bool> {
        match stat(&*self.successor) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Asks anew. Three calls of stat(2), as long as nobody changes the directory.
    pub(crate) fn standing(&mut self) -> io::Result<Standing> {
        match stat(&*self.own) {
            Ok(status) if (status.st_dev, status.st_ino) == (self.device, self.inode) => {}
            Ok(_) => return Ok(Standing::Replaced),
            Err(Errno::NOENT) => {
                // Collected, or deleted. A higher one is proof of loss in either case.
                let highest = self.highest()?;
                return Ok(if highest > self.fence { Standing::Above(highest) } else { Standing::Missing });
            }
            Err(error) => return Err(error.into()),
        }
        if self.successor_exists()? {
            return Ok(Standing::Above(self.fence + 1));
        }
        // A gap above us is possible: people delete lock files, and the counter has other witnesses than the claims.
        let before = stamp(&stat(&*self.directory)?);
        if self.read_at == Some(before) {
            return Ok(Standing::Current);
        }
        if !self.has_our_words()? {
            return Ok(Standing::Replaced);
        }
        let highest = self.highest()?;
        // A name that appears in the same tick of the file system's clock as our reading would not show. So a stamp
        // is trusted only once it has aged, as version control does with files that were changed just now.
        let now = clock_gettime(ClockId::Realtime);
        self.read_at = (before.0.max(before.2).saturating_add(2) < now.tv_sec).then_some(before);
        Ok(if highest > self.fence { Standing::Above(highest) } else { Standing::Current })
    }

    fn has_our_words(&self) -> io::Result<bool> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = std::fs::File::from(openat(CWD, &*self.own, flags, Mode::empty())?);
        let mut found = Vec::with_capacity(self.record.len() + 1);
        file.take(self.record.len() as u64 + 1).read_to_end(&mut found)?;
        Ok(found == self.record)
    }

    fn highest(&self) -> io::Result<u64> {
        highest(&self.directory)
    }
}

/// The highest fence that a file in `directory` is named by; 0 if there is none.
///
/// # Errors
/// The directory cannot be read, or its last component is a link.
pub fn highest_fence(directory: &Path) -> io::Result<u64> {
    highest(&CString::new(directory.as_os_str().as_bytes())?)
}

fn highest(directory: &CString) -> io::Result<u64> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let directory = openat(CWD, &**directory, flags, Mode::empty())?;
    let mut highest = 0;
    each_name(&directory, |name| highest = highest.max(fence_of(name).unwrap_or(0)))?;
    Ok(highest)
}

/// Without an allocation for each name: a directory may hold the claims of years.
#[cfg(target_os = "linux")]
fn each_name(directory: &OwnedFd, mut see: impl FnMut(&[u8])) -> io::Result<()> {
    let mut buffer = [MaybeUninit::uninit(); 32 * 1024];
    let mut entries = rustix::fs::RawDir::new(directory, &mut buffer);
    while let Some(entry) = entries.next() {
        see(entry?.file_name().to_bytes());
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn each_name(directory: &OwnedFd, mut see: impl FnMut(&[u8])) -> io::Result<()> {
    for entry in rustix::fs::Dir::read_from(directory)? {
        see(entry?.file_name().to_bytes());
    }
    Ok(())
}

/// A claim is named by its fence in 20 digits, and by nothing else.
fn fence_of(name: &[u8]) -> Option<u64> {
    let digits = (name.len() == 20 && name.iter().all(u8::is_ascii_digit)).then_some(name)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    struct Scene {
        directory: std::path::PathBuf,
    }

    impl Scene {
        fn new(name: &str) -> Self {
            let directory = std::env::temp_dir().join(format!("tenure-standing-{}-{name}", std::process::id()));
            fs::create_dir_all(&directory).expect("a directory");
            Self { directory }
        }

        fn claim(&self, fence: u64) -> std::path::PathBuf {
            self.directory.join(format!("{fence:020}"))
        }

        fn claims(&self, fence: u64) -> Claims {
            fs::write(self.claim(fence), "ours").expect("written");
            Claims::new(&self.directory, &self.claim(fence), b"ours", &self.claim(fence + 1), fence).expect("there")
        }
    }

    impl Drop for Scene {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.directory);
        }
    }

    #[test]
    fn a_claim_alone_is_current_and_older_ones_do_not_matter() {
        let scene = Scene::new("alone");
        fs::write(scene.claim(6), "older").expect("written");
        let mut claims = scene.claims(7);
        assert_eq!(claims.standing().expect("asked"), Standing::Current);
        assert_eq!(claims.standing().expect("asked"), Standing::Current);
    }

    #[test]
    fn the_next_claim_and_one_beyond_a_gap_are_above() {
        let scene = Scene::new("above");
        let mut claims = scene.claims(7);
        fs::write(scene.claim(9), "later").expect("written");
        assert_eq!(claims.standing().expect("asked"), Standing::Above(9));
        fs::write(scene.claim(8), "next").expect("written");
        assert_eq!(claims.standing().expect("asked"), Standing::Above(8));
    }

    #[test]
    fn a_fresh_directory_is_read_again_until_its_stamp_has_aged() {
        let scene = Scene::new("aged");
        let mut claims = scene.claims(7);
        assert_eq!((claims.standing().expect("asked"), claims.read_at), (Standing::Current, None));
    }

    #[test]
    fn a_deleted_claim_is_missing_and_a_new_file_of_its_name_is_not_ours() {
        let scene = Scene::new("deleted");
        let mut claims = scene.claims(7);
        fs::rename(scene.claim(7), scene.directory.join("aside")).expect("moved");
        assert_eq!(claims.standing().expect("asked"), Standing::Missing);
        fs::write(scene.claim(7), "another").expect("written");
        assert_eq!(claims.standing().expect("asked"), Standing::Replaced);
    }

    #[test]
    fn a_new_file_is_not_ours_even_with_our_inode() {
        let scene = Scene::new("inode");
        let mut claims = scene.claims(7);
        // In place: the same inode, as a file that is deleted and made again gets it on ext4.
        fs::write(scene.claim(7), "another's").expect("written");
        assert_eq!(claims.standing().expect("asked"), Standing::Replaced);
    }

    #[test]
    fn only_twenty_digits_name_a_claim() {
        assert_eq!(fence_of(b"00000000000000000007"), Some(7));
        for other in [&b"beat"[..], b"7", b"0000000000000000000x", b"+0000000000000000007", b"99999999999999999999"] {
            assert_eq!(fence_of(other), None);
        }
    }
}
