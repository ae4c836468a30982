//! The pulse: a thread that keeps the heartbeat of one hold and looks whether anybody has taken over.
//!
//! It knows no Python, so a thread that keeps the GIL for a minute does not delay it. Its loop allocates nothing and syncs
//! nothing: after a power cut the holder is dead anyway. It keeps no descriptor open: code that closes every descriptor
//! exists, and a kept number could be another file's by the time of the next beat. It does not survive a fork, and the
//! parent's locks are not touched in the child.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::fstat;
use tenure_identity::{Capabilities, Identity, Observer};

use crate::heartbeat::{Heartbeat, Record};
use crate::standing::{Claims, Standing};

/// How long `stop` waits for a beat that is under way. Only a file system that hangs takes longer, and then the thread
/// finishes by itself, later.
const PATIENCE: Duration = Duration::from_secs(5);

/// A hold on a directory: its pulse, and where it stands.
pub struct Hold {
    shared: Arc<Shared>,
    claims: Mutex<Claims>,
    holder: Identity,
    /// Descriptor, device and inode.
    lifeline: Option<(i32, u64, u64)>,
    process: u32,
}

/// Of what a hold is made.
pub struct Parts<'a> {
    /// The directory of the claims.
    pub directory: &'a Path,
    /// Our own claim, which must be there.
    pub claim: &'a Path,
    /// Where the claim of the next fence would appear.
    pub successor: &'a Path,
    /// Our fence.
    pub fence: u64,
    /// The heartbeat's file, which must be there.
    pub heartbeat: &'a Path,
    /// What the heartbeat can say.
    pub record: Record,
    /// From beat to beat.
    pub interval: Duration,
    /// Who we are, by our claim.
    pub holder: Identity,
    /// The lifeline's descriptor, if there is one; it stays its owner's.
    pub lifeline: Option<i32>,
}

struct Shared {
    interval: Duration,
    /// Also the order of beats: whoever writes holds it.
    heartbeat: Mutex<Heartbeat>,
    /// Of its own, since `check` may be reading a long directory with the other.
    successor: Claims,
    /// Nanoseconds of boot time, taken *before* the last good beat was written.
    renewed_at: AtomicU64,
    lost: AtomicBool,
    life: Mutex<Life>,
    changed: Condvar,
}

/// What the thread is told and tells.
#[derive(Default)]
struct Life {
    running: bool,
    asked_to_stop: bool,
    /// Whether the last act is to write that the hold is over.
    release: bool,
    lost: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hold {
    /// A hold whose pulse has not started.
    ///
    /// # Errors
    /// The claim or the heartbeat is not there, or a path holds a NUL.
    pub fn new(parts: Parts<'_>) -> io::Result<Self> {
        let claims = || Claims::new(parts.directory, parts.claim, parts.successor, parts.fence);
        let lifeline = parts.lifeline.map(|fd| status(fd).map(|(device, inode)| (fd, device, inode))).transpose()?;
        Ok(Self {
            shared: Arc::new(Shared {
                interval: parts.interval,
                heartbeat: Mutex::new(Heartbeat::new(parts.heartbeat, parts.record)?),
                successor: claims()?,
                renewed_at: AtomicU64::new(tenure_identity::boottime_ns()),
                lost: AtomicBool::new(false),
                life: Mutex::new(Life::default()),
                changed: Condvar::new(),
            }),
            claims: Mutex::new(claims()?),
            holder: parts.holder,
            lifeline,
            process: std::process::id(),
        })
    }

    /// Where the hold stands now: asks the directory, this process about itself, and whether the lifeline is still ours.
    ///
    /// `Replaced` also where we are no longer who our claim says: restored from a checkpoint, or with our descriptors
    /// closed, so that everybody else finds us gone.
    ///
    /// # Errors
    /// The directory cannot be read, or the system would not say who we are; then nothing is known.
    pub fn check(&self) -> io::Result<Standing> {
        let standing = lock(&self.claims).standing()?;
        if standing != Standing::Current {
            return Ok(standing);
        }
        if let Some((fd, device, inode)) = self.lifeline
            && status(fd).ok() != Some((device, inode))
        {
            return Ok(Standing::Replaced);
        }
        let me = Observer::new(None, None, Capabilities::default()).map_err(io::Error::other)?;
        let ours = me.is_still_me(&self.holder).map_err(io::Error::other)?;
        Ok(if ours { Standing::Current } else { Standing::Replaced })
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(&self) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        lock(&self.shared.life).running = true;
        let spawned = thread::Builder::new().name("tenure-pulse".to_owned()).stack_size(128 * 1024).spawn(move || {
            block_signals();
            shared.run();
        });
        if spawned.is_err() {
            lock(&self.shared.life).running = false;
        }
        spawned.map(drop)
    }

    /// One beat now, in the calling thread. `false`: a successor's claim is there, and nothing was written.
    ///
    /// # Errors
    /// The heartbeat cannot be written.
    pub fn beat(&self) -> io::Result<bool> {
        if !self.is_ours() {
            return Err(io::Error::other("the pulse belongs to the process that started it"));
        }
        self.shared.beat()
    }

    /// Boot time in nanoseconds, taken before the last good beat was written.
    #[must_use]
    pub fn renewed_at(&self) -> u64 {
        self.shared.renewed_at.load(Ordering::Acquire)
    }

    /// Whether a successor's claim has been seen.
    #[must_use]
    pub fn lost(&self) -> bool {
        self.shared.lost.load(Ordering::Acquire)
    }

    /// Waits until the hold is lost (`Some(true)`), the pulse has ended (`Some(false)`) or the time is over (`None`).
    #[must_use]
    pub fn wait_lost(&self, timeout: Duration) -> Option<bool> {
        if !self.is_ours() {
            return Some(false);
        }
        let (life, _) = self
            .shared
            .changed
            .wait_timeout_while(lock(&self.shared.life), timeout, |life| life.running && !life.lost)
            .unwrap_or_else(PoisonError::into_inner);
        if life.lost {
            Some(true)
        } else if life.running {
            None
        } else {
            Some(false)
        }
    }

    /// Stops the thread; with `release`, its last act is to write that the hold is over.
    ///
    /// Returns whether it has ended. It has not only where a file system hangs; then it ends by itself, later.
    #[must_use]
    pub fn stop(&self, release: bool) -> bool {
        if !self.is_ours() {
            return true;
        }
        let mut life = lock(&self.shared.life);
        if !life.running {
            let first = !life.asked_to_stop;
            life.asked_to_stop = true;
            drop(life);
            if release && first {
                self.shared.release();
            }
            return true;
        }
        life.asked_to_stop = true;
        life.release = release;
        self.shared.changed.notify_all();
        let deadline = Instant::now() + PATIENCE;
        while life.running {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            life = self.shared.changed.wait_timeout(life, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// In a forked child there is no thread, and a lock may be held for ever by one of the parent's.
    fn is_ours(&self) -> bool {
        self.process == std::process::id()
    }
}

impl Shared {
    fn run(&self) {
        let mut pause = self.interval;
        let mut release = false;
        while !self.lost.load(Ordering::Acquire) {
            {
                let life = lock(&self.life);
                let (life, _) = self
                    .changed
                    .wait_timeout_while(life, pause, |life| !life.asked_to_stop)
                    .unwrap_or_else(PoisonError::into_inner);
                if life.asked_to_stop {
                    release = life.release;
                    break;
                }
            }
            // After a failure sooner: the hold stays good until its ttl is over.
            pause = if self.beat().is_ok() { self.interval } else { self.interval / 4 };
        }
        if release {
            self.release();
        }
        lock(&self.life).running = false;
        self.changed.notify_all();
    }

    fn beat(&self) -> io::Result<bool> {
        let mut heartbeat = lock(&self.heartbeat);
        // Before anything is written: nobody can have seen this beat earlier than we believe in it.
        let now = tenure_identity::boottime_ns();
        if self.successor.successor_exists()? {
            drop(heartbeat);
            self.lost.store(true, Ordering::Release);
            lock(&self.life).lost = true;
            self.changed.notify_all();
            return Ok(false);
        }
        heartbeat.write_next()?;
        self.renewed_at.fetch_max(now, Ordering::AcqRel);
        Ok(true)
    }

    fn release(&self) {
        // Nobody hears of a failure, and nobody needs to: the lifeline goes down with the hold.
        let _ = lock(&self.heartbeat).write_released();
    }
}

fn status(fd: i32) -> io::Result<(u64, u64)> {
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: not -1, and used for one call, to which a descriptor that is not open is an EBADF.
    let status = fstat(unsafe { BorrowedFd::borrow_raw(fd) })?;
    Ok((status.st_dev, status.st_ino))
}

/// Keeps the process's signals away from this thread, or the handlers of the program would run on its small stack.
fn block_signals() {
    #[cfg(unix)]
    // SAFETY: both calls write to and read from a set that outlives them.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
    }
}
