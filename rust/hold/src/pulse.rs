//! The pulse: a thread that keeps the heartbeat of one hold and looks whether anybody has taken over.
//!
//! It knows no Python, so a thread that keeps the GIL for a minute does not delay it. Its loop allocates nothing and syncs
//! nothing: after a power cut the holder is dead anyway. It keeps no descriptor open: code that closes every descriptor
//! exists, and a kept number could be another file's by the time of the next beat. It does not survive a fork, and the
//! parent's locks are not touched in the child. It starts with the first beat; a hold that ends before has none.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use tenure_identity::{Capabilities, Identity, Observer};

use crate::alarm;
use crate::heartbeat::{Heartbeat, Record};
use crate::standing::{Claims, Standing};
use crate::system::{self, Descriptor, FileId};

/// How long `stop` waits for a beat that is under way. Only a file system that hangs takes longer, and then the thread
/// finishes by itself, later.
const PATIENCE: Duration = Duration::from_secs(5);

/// A hold on a directory: its pulse, and where it stands.
pub struct Hold {
    shared: Arc<Shared>,
    claims: Mutex<Claims>,
    holder: Identity,
    /// Its descriptor, and which file that is.
    lifeline: Option<(Descriptor, FileId)>,
    process: u32,
}

/// Of what a hold is made.
pub struct Parts<'a> {
    /// The directory of the claims.
    pub directory: &'a Path,
    /// Our own claim, which must be there.
    pub claim: &'a Path,
    /// What it says.
    pub claimed: &'a [u8],
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
    pub lifeline: Option<Descriptor>,
}

pub(crate) struct Shared {
    interval: Duration,
    /// Nanoseconds of boot time, taken *before* the last good beat was written.
    renewed_at: AtomicU64,
    lost: AtomicBool,
    /// Asked for while a beat hangs: the thread writes it as its last act.
    release_later: AtomicBool,
    /// Held by whoever beats, so that after `over` nobody does.
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    heartbeat: Heartbeat,
    /// Of its own, since `check` may be reading a long directory with the other.
    successor: Claims,
    /// When the thread is to start, as long as nobody has asked it not to.
    alarm: Option<alarm::Due>,
    running: bool,
    /// Stopped or lost: nothing is written any more.
    over: bool,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hold {
    /// A hold whose pulse has not started.
    ///
    /// # Errors
    /// The claim or the heartbeat is not there, or a path holds a NUL.
    pub fn new(parts: Parts<'_>) -> io::Result<Self> {
        let claims = Claims::new(parts.directory, parts.claim, parts.claimed, parts.successor, parts.fence)?;
        let lifeline = parts.lifeline.map(|fd| system::id_of_open(fd).map(|id| (fd, id))).transpose()?;
        Ok(Self {
            shared: Arc::new(Shared {
                interval: parts.interval,
                renewed_at: AtomicU64::new(tenure_identity::boottime_ns()),
                lost: AtomicBool::new(false),
                release_later: AtomicBool::new(false),
                state: Mutex::new(State {
                    heartbeat: Heartbeat::new(parts.heartbeat, parts.record)?,
                    successor: claims.clone(),
                    alarm: None,
                    running: false,
                    over: false,
                }),
                changed: Condvar::new(),
            }),
            claims: Mutex::new(claims),
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
        if let Some((fd, id)) = self.lifeline
            && system::id_of_open(fd).ok() != Some(id)
        {
            return Ok(Standing::Replaced);
        }
        let me = Observer::new(None, None, Capabilities::default()).map_err(io::Error::other)?;
        let ours = me.is_still_me(&self.holder).map_err(io::Error::other)?;
        Ok(if ours { Standing::Current } else { Standing::Replaced })
    }

    /// Begins to beat, for the first time after one interval.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(&self) -> io::Result<()> {
        if !self.is_ours() {
            return Err(another_process());
        }
        let mut state = lock(&self.shared.state);
        state.alarm = alarm::set(Arc::clone(&self.shared), self.shared.interval)?;
        state.running = true;
        Ok(())
    }

    /// One beat now, in the calling thread. `false`: a successor's claim is there, and nothing was written.
    ///
    /// # Errors
    /// The heartbeat cannot be written.
    pub fn beat(&self) -> io::Result<bool> {
        if !self.is_ours() {
            return Err(another_process());
        }
        self.shared.beat(&mut lock(&self.shared.state))
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
        let (state, _) = self
            .shared
            .changed
            .wait_timeout_while(lock(&self.shared.state), timeout, |state| state.running && !state.over)
            .unwrap_or_else(PoisonError::into_inner);
        if self.lost() {
            Some(true)
        } else if state.running && !state.over {
            None
        } else {
            Some(false)
        }
    }

    /// Stops to beat; with `release`, writes last that the hold is over. The thread ends by itself.
    ///
    /// Returns whether that is done and nothing will be written any more. Where a beat hangs in its file system it is
    /// not; the thread then writes the release, and ends, when it comes back.
    #[must_use]
    pub fn stop(&self, release: bool) -> bool {
        if !self.is_ours() {
            return true;
        }
        let started = Instant::now();
        let mut state = loop {
            match self.shared.state.try_lock() {
                Ok(state) => break state,
                Err(TryLockError::Poisoned(poisoned)) => break poisoned.into_inner(),
                Err(TryLockError::WouldBlock) if started.elapsed() < PATIENCE => {
                    thread::sleep(Duration::from_micros(200));
                }
                Err(TryLockError::WouldBlock) => {
                    self.shared.release_later.store(release, Ordering::Release);
                    return false;
                }
            }
        };
        let written = !release || state.over || state.heartbeat.write_released().is_ok();
        state.over = true;
        let alarm = state.alarm.take();
        self.shared.changed.notify_all();
        drop(state);
        // Without our lock: the thread of the alarm takes none of ours, and shall not wait for one either.
        if let Some(due) = alarm {
            alarm::cancel(due);
        }
        written
    }

    /// In a forked child there is no thread, and a lock may be held for ever by one of the parent's.
    fn is_ours(&self) -> bool {
        self.process == std::process::id()
    }
}

impl Shared {
    /// Starts the thread, whose first beat is due.
    pub(crate) fn start_thread(self: &Arc<Self>) -> io::Result<()> {
        let shared = Arc::clone(self);
        let thread = thread::Builder::new().name("tenure-pulse".to_owned()).stack_size(128 * 1024);
        thread.spawn(move || {
            system::block_signals();
            shared.run();
        })?;
        Ok(())
    }

    /// Whether nothing will be written any more. `false` also while a beat hangs, which nobody shall wait for.
    pub(crate) fn is_over(&self) -> bool {
        self.state.try_lock().is_ok_and(|state| state.over)
    }

    /// Until the next try after a failure: the hold stays good until its ttl is over.
    pub(crate) fn soon(&self) -> Duration {
        self.interval / 4
    }

    fn run(&self) {
        let mut state = lock(&self.state);
        let mut pause = Duration::ZERO;
        loop {
            state = self
                .changed
                .wait_timeout_while(state, pause, |state| !state.over)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
            if state.over {
                break;
            }
            pause = if self.beat(&mut state).is_ok() { self.interval } else { self.soon() };
            if self.release_later.load(Ordering::Acquire) {
                let _ = state.heartbeat.write_released();
                state.over = true;
            }
        }
        state.running = false;
        self.changed.notify_all();
    }

    fn beat(&self, state: &mut State) -> io::Result<bool> {
        if state.over {
            return Ok(!self.lost.load(Ordering::Acquire));
        }
        // Before anything is written: nobody can have seen this beat earlier than we believe in it.
        let now = tenure_identity::boottime_ns();
        if !state.successor.successor_exists()? {
            match state.heartbeat.write_next() {
                // Collected, as it may be below a thousand later claims, the next one among them.
                Err(error) if error.kind() == io::ErrorKind::NotFound && state.successor.is_below_another()? => {}
                written => {
                    written?;
                    self.renewed_at.fetch_max(now, Ordering::AcqRel);
                    return Ok(true);
                }
            }
        }
        self.lost.store(true, Ordering::Release);
        state.over = true;
        self.changed.notify_all();
        Ok(false)
    }
}

fn another_process() -> io::Error {
    io::Error::other("the hold belongs to the process that took it")
}
