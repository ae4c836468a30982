//! A hold on one very process, and on many.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::call;
use super::procfs::{self, Unread};
use crate::Error;
use crate::sys::Waited;

/// What pins a process: whatever happens to its number, this speaks of that process.
pub(crate) enum Pin {
    /// Turns readable when the process ends.
    Pidfd(OwnedFd),
    /// An open /proc/PID/stat, where there are no pidfds: answers ESRCH after the end, also once the number is reused.
    Stat {
        /// The open file.
        file: OwnedFd,
        /// Whose it is; to look at its threads once the leader has exited.
        pid: u32,
    },
}

impl Pin {
    pub(crate) fn alive(&self) -> bool {
        match self {
            // An error of poll(2) proves nothing, so it must not end anybody's life.
            Self::Pidfd(pidfd) => !call::has_exited(pidfd.as_fd()).unwrap_or(false),
            Self::Stat { file, pid } => match procfs::read_stat(file) {
                Err(Unread::Ended) => false,
                Ok(stat) if stat.exited() && stat.num_threads <= 1 => false,
                Ok(stat) if stat.exited() => !threads_all_exited(*pid),
                _ => true,
            },
        }
    }

    /// Waits, in one go where the kernel can wake us, else by looking every few milliseconds.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> Waited {
        match self {
            Self::Pidfd(pidfd) => wait_readable(pidfd, timeout),
            Self::Stat { .. } => {
                const LONGEST_SLEEP: Duration = Duration::from_millis(20);
                if !self.alive() {
                    return Waited::Ended;
                }
                let nap = timeout.map_or(LONGEST_SLEEP, |timeout| timeout.min(LONGEST_SLEEP));
                match poll(&mut [], Some(&timespec(nap))) {
                    Err(Errno::INTR) => Waited::Interrupted,
                    _ if !self.alive() => Waited::Ended,
                    _ if timeout.is_some_and(|timeout| timeout <= nap) => Waited::TimedOut,
                    // Not over: the caller subtracts what has passed and comes back.
                    _ => Waited::Interrupted,
                }
            }
        }
    }

    pub(crate) fn descriptor(&self) -> Option<i32> {
        match self {
            Self::Pidfd(pidfd) => Some(pidfd.as_raw_fd()),
            Self::Stat { .. } => None,
        }
    }
}

/// /proc is verified anew: this is rare, and a stale descriptor here could end a life.
fn threads_all_exited(pid: u32) -> bool {
    procfs::Proc::verified()
        .ok()
        .flatten()
        .as_ref()
        .and_then(procfs::Proc::directory)
        .is_some_and(|directory| procfs::all_threads_exited(directory, pid).unwrap_or(false))
}

fn wait_readable(fd: &OwnedFd, timeout: Option<Duration>) -> Waited {
    let timeout = timeout.map(timespec);
    match poll(&mut [PollFd::new(fd, PollFlags::IN)], timeout.as_ref()) {
        Ok(0) => Waited::TimedOut,
        Ok(_) => Waited::Ended,
        // ENOMEM, the only other error that can happen here, is worth another try.
        Err(_) => Waited::Interrupted,
    }
}

fn timespec(duration: Duration) -> Timespec {
    // Beyond what the kernel can count is "for ever" to everybody.
    Timespec::try_from(duration).unwrap_or(Timespec { tv_sec: i64::from(i32::MAX), tv_nsec: 0 })
}

/// Many pins under one epoll: asking costs by what ended, not by how many there are.
pub(crate) struct PinSet {
    epoll: OwnedFd,
}

impl PinSet {
    pub(crate) fn new() -> Result<Self, Error> {
        let epoll =
            epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|error| Error::System("epoll_create1", error.into()))?;
        Ok(Self { epoll })
    }

    /// A quarter of what this process may open; the rest belongs to the application.
    pub(crate) fn default_limit() -> usize {
        let files = getrlimit(Resource::Nofile).current.unwrap_or(4096);
        usize::try_from(files / 4).unwrap_or(usize::MAX)
    }

    /// Whether the pin could be added; one without a pidfd cannot.
    pub(crate) fn add(&self, key: u64, pin: &Pin) -> bool {
        match pin {
            Pin::Pidfd(pidfd) => {
                epoll::add(&self.epoll, pidfd, epoll::EventData::new_u64(key), epoll::EventFlags::IN).is_ok()
            }
            Pin::Stat { .. } => false,
        }
    }

    pub(crate) fn discard(&self, pin: &Pin) {
        if let Pin::Pidfd(pidfd) = pin {
            // Closing alone would not do while a forked child still has the descriptor open: epoll(7).
            let _ = epoll::delete(&self.epoll, pidfd);
        }
    }

    /// Those that have ended by now, of at most `members`. The caller discards them, or they are said again.
    pub(crate) fn ended(&self, members: usize) -> Vec<u64> {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(members);
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        if members > 0 {
            // EINTR is the only error here; nothing is lost by it, since nothing was discarded.
            let _ = epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&now));
        }
        events.iter().map(|event| event.data.u64()).collect()
    }

    /// Waits for the first to end.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> Waited {
        wait_readable(&self.epoll, timeout)
    }

    pub(crate) fn descriptor(&self) -> i32 {
        self.epoll.as_raw_fd()
    }
}
