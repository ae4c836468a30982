//! A hold on one very process, and on many.
//!
//! What pins a process is its unique id. A kqueue is for waking up: what it says is held against the id again.

use std::collections::HashMap;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use super::call::{System, errno};
use super::decide;
use crate::Error;
use crate::sys::Waited;

const LONGEST_SLEEP: Duration = Duration::from_millis(20);

/// Whatever happens to its number, this speaks of one process.
pub(crate) struct Pin {
    pid: u32,
    id: u64,
    /// Under which a set knows it.
    key: OnceLock<u64>,
    /// Made when it is first needed: a judgement needs none. `None` inside: the system gave none.
    alarm: OnceLock<Option<Kqueue>>,
}

impl Pin {
    pub(super) fn new(pid: u32, id: u64) -> Self {
        Self { pid, id, key: OnceLock::new(), alarm: OnceLock::new() }
    }

    pub(crate) fn alive(&self) -> bool {
        !decide::has_ended(self.pid, self.id, &System)
    }

    /// Waits, in one go where the kernel can wake us, else by looking every few milliseconds.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> Waited {
        if !self.alive() {
            return Waited::Ended;
        }
        let (answer, waited_for) = match self.alarm() {
            Some(alarm) => (alarm.wait(timeout), timeout),
            None => {
                let nap = timeout.map_or(LONGEST_SLEEP, |timeout| timeout.min(LONGEST_SLEEP));
                thread::sleep(nap);
                (Waited::TimedOut, Some(nap))
            }
        };
        match answer {
            _ if !self.alive() => Waited::Ended,
            Waited::TimedOut if waited_for == timeout => Waited::TimedOut,
            // A nap is over, or it was woken by a process that is on its way out.
            _ => Waited::Interrupted,
        }
    }

    pub(crate) fn descriptor(&self) -> Option<i32> {
        self.alarm().map(Kqueue::number)
    }

    fn alarm(&self) -> Option<&Kqueue> {
        let alarm = self.alarm.get_or_init(|| {
            let alarm = Kqueue::new().ok()?;
            let set = alarm.change(&exit_of(self.pid));
            // Not there any more: readable at once, as for whoever watched it end.
            if set.is_err() || !self.alive() {
                alarm.change(&ring()).ok()?;
            }
            Some(alarm)
        });
        alarm.as_ref().filter(|alarm| alarm.is_ours())
    }
}

/// A kqueue is not inherited over a fork, so in a child its number may be anybody's: never used there, nor closed.
struct Kqueue {
    fd: ManuallyDrop<OwnedFd>,
    process: u32,
}

impl Kqueue {
    fn new() -> io::Result<Self> {
        // SAFETY: takes nothing.
        let fd = unsafe { libc::kqueue() };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call has just made this descriptor and nobody else knows of it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: takes numbers only. Inherited over no fork, but over exec.
        if unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { fd: ManuallyDrop::new(fd), process: std::process::id() })
    }

    fn is_ours(&self) -> bool {
        self.process == std::process::id()
    }

    fn number(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    fn change(&self, change: &libc::kevent) -> io::Result<()> {
        // SAFETY: one change is read, no event is written; a null timeout does not matter where no event is asked for.
        let done = unsafe { libc::kevent(self.number(), change, 1, std::ptr::null_mut(), 0, std::ptr::null()) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Waits for an event without taking it, so that the next who looks sees it too.
    fn wait(&self, timeout: Option<Duration>) -> Waited {
        // Beyond what poll(2) can count, it comes back early and is asked again. Rounded up, or it would come too early.
        let milliseconds =
            timeout.map_or(-1, |timeout| i32::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX));
        let mut polled = libc::pollfd { fd: self.number(), events: libc::POLLIN, revents: 0 };
        // SAFETY: a pointer to one `pollfd`, which outlives the call.
        match unsafe { libc::poll(&raw mut polled, 1, milliseconds) } {
            0 if timeout.is_some_and(|timeout| timeout.as_millis() > i32::MAX as u128) => Waited::Interrupted,
            0 => Waited::TimedOut,
            ready if ready > 0 => Waited::Ended,
            _ => Waited::Interrupted,
        }
    }
}

impl Drop for Kqueue {
    fn drop(&mut self) {
        if self.is_ours() {
            // SAFETY: dropped here and nowhere else.
            unsafe { ManuallyDrop::drop(&mut self.fd) };
        }
    }
}

fn event(ident: usize, filter: i16, flags: u16, fflags: u32, key: u64) -> libc::kevent {
    // A key is data of our own that the kernel hands back; it points nowhere.
    let udata = std::ptr::without_provenance_mut(usize::try_from(key).unwrap_or(usize::MAX));
    libc::kevent { ident, filter, flags, fflags, data: 0, udata }
}

/// Once the process ends. Source: kqueue(2), EVFILT_PROC.
fn exit_of(pid: u32) -> libc::kevent {
    event(pid as usize, libc::EVFILT_PROC, libc::EV_ADD, libc::NOTE_EXIT, 0)
}

/// Now. Source: kqueue(2), EVFILT_USER.
fn ring() -> libc::kevent {
    event(0, libc::EVFILT_USER, libc::EV_ADD, libc::NOTE_TRIGGER, 0)
}

/// Many pins under one kqueue: asking costs by what ended, not by how many there are.
///
/// Each pin's own kqueue is its member, since one kqueue knows a number only once.
pub(crate) struct PinSet {
    kqueue: Kqueue,
    /// Who is in, for a forked child, which has no kqueue.
    members: Mutex<HashMap<u64, (u32, u64)>>,
}

impl PinSet {
    pub(crate) fn new() -> Result<Self, Error> {
        let kqueue = Kqueue::new().map_err(|error| Error::System("kqueue", error))?;
        Ok(Self { kqueue, members: Mutex::new(HashMap::new()) })
    }

    /// A quarter of what this process may open; the rest belongs to the application.
    pub(crate) fn default_limit() -> usize {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the call writes one `rlimit`, which outlives it.
        let asked = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
        if asked == 0 { usize::try_from(limit.rlim_cur / 4).unwrap_or(usize::MAX) } else { 64 }
    }

    /// Whether the pin could be added.
    pub(crate) fn add(&self, key: u64, pin: &Pin) -> bool {
        let Some(descriptor) = pin.descriptor().filter(|_| self.kqueue.is_ours()) else { return false };
        let added = event(descriptor as usize, libc::EVFILT_READ, libc::EV_ADD, 0, key);
        if self.kqueue.change(&added).is_err() {
            return false;
        }
        self.members().insert(key, (pin.pid, pin.id));
        pin.key.set(key).is_ok()
    }

    pub(crate) fn discard(&self, pin: &Pin) {
        if let Some(descriptor) = pin.descriptor().filter(|_| self.kqueue.is_ours()) {
            let _ = self.kqueue.change(&event(descriptor as usize, libc::EVFILT_READ, libc::EV_DELETE, 0, 0));
        }
        if let Some(key) = pin.key.get() {
            self.members().remove(key);
        }
    }

    /// Those that have ended by now, of at most `members`. The caller discards them, or they are said again.
    pub(crate) fn ended(&self, members: usize) -> Vec<u64> {
        if members == 0 {
            return Vec::new();
        }
        let known = self.members();
        let ended = |key: &u64| known.get(key).is_some_and(|&(pid, id)| decide::has_ended(pid, id, &System));
        match self.rung(members) {
            Some(keys) => keys.into_iter().filter(ended).collect(),
            None => known.keys().filter(|key| ended(key)).copied().collect(),
        }
    }

    /// The keys of the pins that woke us; `None` if the kqueue cannot be asked.
    fn rung(&self, members: usize) -> Option<Vec<u64>> {
        if !self.kqueue.is_ours() {
            return None;
        }
        let mut events = vec![event(0, 0, 0, 0, 0); members];
        let room = i32::try_from(members).unwrap_or(i32::MAX);
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `events` has room for that many; both pointers outlive the call.
        let found = unsafe {
            libc::kevent(self.kqueue.number(), std::ptr::null(), 0, events.as_mut_ptr(), room, &raw const now)
        };
        match usize::try_from(found) {
            Ok(found) => Some(events[..found].iter().map(|event| event.udata.addr() as u64).collect()),
            // Nothing is lost by an interruption.
            Err(_) if errno() == libc::EINTR => Some(Vec::new()),
            Err(_) => None,
        }
    }

    /// Waits for the first to end.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> Waited {
        if self.kqueue.is_ours() {
            return self.kqueue.wait(timeout);
        }
        let nap = timeout.map_or(LONGEST_SLEEP, |timeout| timeout.min(LONGEST_SLEEP));
        thread::sleep(nap);
        if timeout == Some(nap) { Waited::TimedOut } else { Waited::Interrupted }
    }

    pub(crate) fn descriptor(&self) -> i32 {
        if self.kqueue.is_ours() { self.kqueue.number() } else { -1 }
    }

    fn members(&self) -> MutexGuard<'_, HashMap<u64, (u32, u64)>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
