//! What any judgement must pay at least: the bare system calls, one after the other, without a look at their answers
//! beyond what keeps the next call possible.
//!
//! Each goes the cheapest way there is. rustix enters the kernel without the C library, except where it has only the
//! younger call with a precise timeout: `ppoll` and `epoll_pwait2` read that timeout, and `ppoll` writes it back.
//!
//! That they are inlined matters: through the C library's wrappers a process of many took 7 to 12 % longer, since what
//! the processor knows of return addresses does not survive the kernel.

use std::hint::black_box;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::event::{PollFlags, epoll};
use rustix::fs::{Mode, OFlags, fstat, openat};
use rustix::process::{Pid, PidfdFlags, getppid, pidfd_open};

/// As many as `judge_many` opens before it polls.
const CHUNK: usize = 256;

fn number(pid: u32) -> Pid {
    i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a pid is 1 to 2^31 - 1")
}

/// The cheapest call into the kernel that does something.
pub fn trivial() {
    black_box(getppid());
}

/// A pidfd to keep.
pub fn open(pid: u32) -> OwnedFd {
    pidfd_open(number(pid), PidfdFlags::empty()).expect("the target lives and descriptors are left")
}

/// For a number that nobody has.
pub fn open_in_vain(pid: u32) {
    black_box(pidfd_open(number(pid), PidfdFlags::empty()).is_err());
}

/// Whether any of them is over.
pub fn poll_all(polled: &mut [libc::pollfd]) -> i32 {
    let count = libc::nfds_t::try_from(polled.len()).expect("few");
    // SAFETY: the pointer and the length are those of one slice, which outlives the call.
    unsafe { libc::poll(polled.as_mut_ptr(), count, 0) }
}

/// One `poll` of one descriptor.
pub fn poll_one(pidfd: &OwnedFd) {
    black_box(poll_all(&mut [entry(pidfd)]));
}

fn entry(pidfd: &OwnedFd) -> libc::pollfd {
    let events = i16::try_from(PollFlags::IN.bits()).expect("POLLIN is 1");
    libc::pollfd { fd: pidfd.as_raw_fd(), events, revents: 0 }
}

/// `pidfd_open`, `fstat`, `poll`, `close`: everything there is to know about one process.
pub fn verdict(pid: u32) {
    let pidfd = open(pid);
    black_box(fstat(&pidfd).expect("an open descriptor").st_ino);
    poll_one(&pidfd);
}

/// The same for many: open and stat a chunk, poll it once, close it.
pub fn verdicts(pids: &[u32]) {
    let mut opened = Vec::with_capacity(CHUNK);
    let mut polled = Vec::with_capacity(CHUNK);
    for chunk in pids.chunks(CHUNK) {
        for &pid in chunk {
            let pidfd = open(pid);
            black_box(fstat(&pidfd).expect("an open descriptor").st_ino);
            polled.push(entry(&pidfd));
            opened.push(pidfd);
        }
        black_box(poll_all(&mut polled));
        polled.clear();
        opened.clear();
    }
}

/// `openat`, `read`, `close` of PID/stat below a /proc that was opened before.
pub fn read_stat(proc: &OwnedFd, path: &str) {
    let file = openat(proc, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).expect("the target lives");
    let mut line = [0; 2048];
    black_box(rustix::io::read(&file, &mut line).expect("the target lives"));
}

/// A /proc to keep.
pub fn proc() -> OwnedFd {
    openat(rustix::fs::CWD, "/proc", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .expect("a /proc is mounted")
}

/// An epoll over all of them, and what it watches.
pub fn watched(pids: &[u32]) -> (OwnedFd, Vec<OwnedFd>) {
    let set = epoll::create(epoll::CreateFlags::CLOEXEC).expect("a descriptor is left");
    let pidfds: Vec<_> = pids.iter().map(|&pid| open(pid)).collect();
    for (at, pidfd) in (0..).zip(&pidfds) {
        epoll::add(&set, pidfd, epoll::EventData::new_u64(at), epoll::EventFlags::IN).expect("not yet a member");
    }
    (set, pidfds)
}

/// One `epoll_wait` that returns at once.
pub fn wait_none(set: &OwnedFd) {
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 256];
    // SAFETY: the pointer is to 256 events, which outlive the call.
    black_box(unsafe { libc::epoll_wait(set.as_raw_fd(), events.as_mut_ptr(), 256, 0) });
}
