//! Where our claim stands among all claims.

use std::io;
use std::path::Path;

use crate::system::{self, FileId, Name, Stamp};

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

#[derive(Clone)]
pub(crate) struct Claims {
    directory: Name,
    own: Name,
    id: FileId,
    /// What our claim says. An inode is given out again as soon as its file is deleted.
    record: Vec<u8>,
    successor: Name,
    fence: u64,
    /// The directory's time stamps when it was last read whole, where they can be trusted.
    read_at: Option<Stamp>,
}

impl Claims {
    /// `own` is our claim, which must be there, in `directory`, and says `record`; `successor` is the name of the next
    /// fence's claim.
    pub(crate) fn new(directory: &Path, own: &Path, record: &[u8], successor: &Path, fence: u64) -> io::Result<Self> {
        let own = system::name(own)?;
        Ok(Self {
            directory: system::name(directory)?,
            id: system::id_of(&own)?,
            own,
            record: record.to_vec(),
            successor: system::name(successor)?,
            fence,
            read_at: None,
        })
    }

    /// Whether the next higher claim is there. One call, for the pulse; `standing` asks for every higher one.
    pub(crate) fn successor_exists(&self) -> io::Result<bool> {
        system::exists(&self.successor)
    }

    /// Whether any higher claim is there.
    pub(crate) fn is_below_another(&self) -> io::Result<bool> {
        Ok(self.highest()? > self.fence)
    }

    /// Asks anew. Three calls of stat(2), as long as nobody changes the directory.
    pub(crate) fn standing(&mut self) -> io::Result<Standing> {
        match system::id_of(&self.own) {
            Ok(id) if id == self.id => {}
            Ok(_) => return Ok(Standing::Replaced),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // Collected, or deleted. A higher one is proof of loss in either case.
                let highest = self.highest()?;
                return Ok(if highest > self.fence { Standing::Above(highest) } else { Standing::Missing });
            }
            Err(error) => return Err(error),
        }
        if self.successor_exists()? {
            return Ok(Standing::Above(self.fence + 1));
        }
        // A gap above us is possible: people delete lock files, and the counter has other witnesses than the claims.
        let before = Stamp::of(&self.directory)?;
        if self.read_at == Some(before) {
            return Ok(Standing::Current);
        }
        if system::read(&self.own, self.record.len() + 1)? != self.record {
            return Ok(Standing::Replaced);
        }
        let highest = self.highest()?;
        self.read_at = before.has_aged().then_some(before);
        Ok(if highest > self.fence { Standing::Above(highest) } else { Standing::Current })
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
    highest(&system::name(directory)?)
}

fn highest(directory: &Name) -> io::Result<u64> {
    highest_of(|see| system::each_name(directory, see))
}

/// The highest fence among the names that `names` has seen.
pub(crate) fn highest_of(names: impl FnOnce(&mut dyn FnMut(&[u8])) -> io::Result<()>) -> io::Result<u64> {
    let mut highest = 0;
    names(&mut |name| highest = highest.max(fence_of(name).unwrap_or(0)))?;
    Ok(highest)
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
