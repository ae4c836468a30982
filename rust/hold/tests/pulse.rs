//! The pulse, on every system that is known: nobody but its own thread beats here.
#![cfg(any(target_os = "linux", target_os = "macos", windows))]

use std::fs;
use std::io;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use tenure_hold::{Hold, Parts, Record, Standing};
use tenure_identity::{Capabilities, Observer};

const FENCE: u64 = 7;

/// A directory with a claim of ours and its heartbeat.
struct Scene(PathBuf);

impl Scene {
    fn new(name: &str) -> io::Result<Self> {
        let directory = std::env::temp_dir().join(format!("tenure-pulse-{}-{name}", std::process::id()));
        fs::create_dir_all(&directory)?;
        let scene = Self(directory);
        fs::write(scene.claim(FENCE), "ours")?;
        fs::write(scene.heartbeat(), text('h'))?;
        Ok(scene)
    }

    fn claim(&self, fence: u64) -> PathBuf {
        self.0.join(format!("{fence:020}"))
    }

    fn heartbeat(&self) -> PathBuf {
        self.0.join("beat")
    }

    fn hold(&self) -> io::Result<Hold> {
        let me = Observer::new(None, None, Capabilities::default()).map_err(io::Error::other)?;
        Hold::new(Parts {
            directory: &self.0,
            claim: &self.claim(FENCE),
            claimed: b"ours",
            successor: &self.claim(FENCE + 1),
            fence: FENCE,
            heartbeat: &self.heartbeat(),
            record: Record::new(text('h').as_bytes(), text('r').as_bytes(), 1)?,
            interval: Duration::from_millis(10),
            holder: me.me(),
            lifeline: None,
        })
    }

    fn wait_for_beats(&self, number: u64) -> io::Result<()> {
        for _ in 0..60_000 {
            if fs::read_to_string(self.heartbeat())?[1..].parse::<u64>().map_err(io::Error::other)? >= number {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(1));
        }
        Err(io::Error::other("no beat comes"))
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn text(state: char) -> String {
    format!("{state}{:020}", 0)
}

#[test]
fn it_beats_by_itself_and_writes_the_release_last() -> io::Result<()> {
    let scene = Scene::new("release")?;
    let hold = scene.hold()?;
    hold.start()?;
    scene.wait_for_beats(3)?;
    assert_eq!((hold.check()?, hold.lost()), (Standing::Current, false));

    assert!(hold.stop(true));

    assert_eq!(hold.wait_lost(Duration::from_secs(60)), Some(false));
    assert!(fs::read_to_string(scene.heartbeat())?.starts_with('r'));
    Ok(())
}

#[test]
fn it_finds_a_successor_and_writes_no_more() -> io::Result<()> {
    let scene = Scene::new("successor")?;
    let hold = scene.hold()?;
    hold.start()?;
    scene.wait_for_beats(1)?;

    fs::write(scene.claim(FENCE + 1), "theirs")?;

    assert_eq!(hold.wait_lost(Duration::from_secs(60)), Some(true));
    let last = fs::read_to_string(scene.heartbeat())?;
    assert!(!hold.beat()? && hold.stop(true));
    assert_eq!(fs::read_to_string(scene.heartbeat())?, last);
    Ok(())
}
