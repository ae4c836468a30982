//! Rows 8 to 30 of the table: what the kernel answers about one process.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::call;
use super::environment::Environment;
use super::pin::Pin;
use super::procfs::{self, Proc, Unread};
use crate::parse::TimeOffset;
use crate::record::Identity;
use crate::verdict::{Evidence, Judgement, Reason, Verdict};
use crate::{Capabilities, Error};

/// How many pidfds share one poll. More would gain little and come near the usual limit of 1024 open files.
const CHUNK: usize = 256;

/// A start time without the shift of our own time namespace, or `None` where that would not be exact.
///
/// An offset with a part below a tick moves some start times by one, so nothing exact can be recorded under it; the
/// unique id does not depend on time, and without one the record is judged by time alone.
pub(super) fn recordable_start(shown: u64, offset: TimeOffset) -> Option<u64> {
    if offset.has_remainder { None } else { shown.checked_add_signed(offset.ticks.checked_neg()?) }
}

/// Rows 13 to 30: by number, in the namespace that gave it out.
#[inline(always)]
pub(crate) fn by_pid(record: &Identity, env: &Environment, has: Capabilities) -> (Judgement, Option<Pin>) {
    if !has.pidfd {
        return by_start_time(record, env, has, None);
    }
    match call::open_pid(record.pid) {
        Ok(pidfd) => match compare(record, env, has, &pidfd) {
            Some(answer) => {
                let pin = (answer.verdict == Verdict::Alive).then_some(Pin::Pidfd(pidfd));
                (answer, pin)
            }
            None => {
                let answer = by_exit(call::has_exited(pidfd.as_fd()), Reason::SameUniqueId, Evidence::Pidfs);
                (answer, Some(Pin::Pidfd(pidfd)))
            }
        },
        Err(error) => match unopened(record, error) {
            Some(answer) => (answer, None),
            None => by_start_time(record, env, has, None),
        },
    }
}

/// Rows 13 to 15, or `None` for an error that says nothing about the process.
fn unopened(record: &Identity, error: Errno) -> Option<Judgement> {
    match error {
        Errno::SRCH => Some(Judgement::gone(Reason::NoSuchPid, Evidence::Pidfd)),
        // The number belongs to a thread that leads no process. Older kernels say EINVAL, which can mean other things.
        Errno::NOENT => Some(Judgement::gone(Reason::PidIsNowAThread, Evidence::Pidfd)),
        Errno::MFILE | Errno::NFILE | Errno::NOMEM => Some(no_fds(record)),
        // EPERM and ENOSYS: seccomp or an old kernel. EINVAL: not a leader, or a race with the reap.
        _ => None,
    }
}

fn no_fds(record: &Identity) -> Judgement {
    if call::no_such_pid(record.pid) {
        Judgement::gone(Reason::NoSuchPid, Evidence::Getpgid)
    } else {
        Judgement::unknown(Reason::NoFds, Evidence::Getpgid)
    }
}

/// Row 16, and the start-time rows where there is no unique id to compare. `None`: it is the very process (row 17, 18).
#[inline(always)]
fn compare(record: &Identity, env: &Environment, has: Capabilities, pidfd: &OwnedFd) -> Option<Judgement> {
    let Some(recorded) = record.uniq.filter(|_| has.pidfs) else {
        return Some(by_start_time(record, env, has, Some(pidfd)).0);
    };
    match call::unique_id(pidfd.as_fd()) {
        Ok(found) if found == recorded => None,
        Ok(_) => Some(Judgement::gone(Reason::PidReused, Evidence::Pidfs)),
        Err(error) => Some(failed(error, Evidence::Pidfs)),
    }
}

/// Rows 17 to 19 and 27: it is that process; is it over?
fn by_exit(exited: Result<bool, Errno>, alive: Reason, evidence: Evidence) -> Judgement {
    match exited {
        Ok(false) => Judgement::alive(alive, evidence),
        Ok(true) => Judgement::gone(Reason::Exited, evidence),
        Err(error) => failed(error, evidence),
    }
}

fn failed(error: Errno, evidence: Evidence) -> Judgement {
    Judgement::unknown(Reason::ProbeFailed, evidence).with_detail(error.to_string())
}

/// Rows 20 to 30: by number and start time. `pinned` was opened *before* the read, so both speak of one process.
fn by_start_time(
    record: &Identity,
    env: &Environment,
    has: Capabilities,
    pinned: Option<&OwnedFd>,
) -> (Judgement, Option<Pin>) {
    let evidence = if pinned.is_some() { Evidence::Pidfd } else { Evidence::Proc };
    let unknown = |reason| (Judgement::unknown(reason, evidence), None);
    let Some(recorded) = record.start else { return unknown(Reason::NoStartTime) };
    let Some(directory) = env.proc.as_ref().filter(|_| has.proc).and_then(Proc::directory) else {
        return unknown(Reason::ForeignOrMissingProc);
    };
    let Some(offset) = env.time_offset else { return unknown(Reason::TimeNamespace) };
    let opened = procfs::open_stat(directory, record.pid).and_then(|file| Ok((procfs::read_stat(&file)?, file)));
    let (stat, file) = match opened {
        Ok(found) => found,
        Err(unread) => return (unreadable(record, unread, evidence), None),
    };
    if !same_start(recorded, stat.start, offset) {
        // setns(2) can have moved us into another time namespace since the capture, and then a mismatch is our own
        // doing. Asked again only here: a false "gone" is the one mistake that must not happen.
        return match procfs::time_offset(directory) {
            Err(_) => (no_fds(record), None),
            Ok(None) => unknown(Reason::TimeNamespace),
            Ok(Some(now)) if now == offset => (Judgement::gone(Reason::PidReused, evidence), None),
            Ok(Some(now)) if same_start(recorded, stat.start, now) => unknown(Reason::TimeNamespace),
            Ok(Some(_)) => (Judgement::gone(Reason::PidReused, evidence), None),
        };
    }
    if let Some(pidfd) = pinned {
        return (by_exit(call::has_exited(pidfd.as_fd()), Reason::SameStartTime, evidence), None);
    }
    let judgement = if !stat.exited() {
        Judgement::alive(Reason::SameStartTime, evidence)
    } else if stat.num_threads <= 1 {
        Judgement::gone(Reason::Exited, evidence)
    } else {
        // The leader has exited. The process has only if every thread has.
        match procfs::all_threads_exited(directory, record.pid) {
            Ok(true) => Judgement::gone(Reason::Exited, evidence),
            _ => Judgement::alive(Reason::LeaderExited, evidence),
        }
    };
    (judgement, Some(Pin::Stat { file, pid: record.pid }))
}

/// Rows 23 to 25.
fn unreadable(record: &Identity, unread: Unread, evidence: Evidence) -> Judgement {
    match unread {
        // hidepid=2 shows no entry for a live process of another user. Only the kernel's own "no such process" counts.
        Unread::NoEntry if call::no_such_pid(record.pid) => Judgement::gone(Reason::NoSuchPid, Evidence::Getpgid),
        Unread::NoEntry | Unread::Denied => Judgement::unknown(Reason::Hidden, evidence),
        Unread::Ended => Judgement::gone(Reason::NoSuchPid, evidence),
        Unread::NoFds => no_fds(record),
        Unread::Failed(error) => failed(error, evidence),
    }
}

/// Row 26. No tolerance but the one that an offset below a tick forces.
fn same_start(recorded: u64, shown: u64, offset: TimeOffset) -> bool {
    let difference = i128::from(shown) - i128::from(offset.ticks) - i128::from(recorded);
    difference.abs() <= i128::from(offset.has_remainder)
}

/// Rows 8 to 11: by unique id, for a number of another pid namespace.
pub(crate) fn by_handle(record: &Identity, env: &Environment, has: Capabilities) -> (Judgement, Option<Pin>) {
    let other = |evidence| (Judgement::unknown(Reason::OtherPidNamespace, evidence), None);
    let Some(recorded) = record.uniq.filter(|_| has.handle) else { return other(Evidence::None) };
    let pidfd = match call::open_unique_id(recorded, env.handle_kind) {
        Ok(pidfd) => pidfd,
        // From the first namespace every process is visible, so what is not there is gone. From any other, ESTALE
        // also means "not below you".
        Err(Errno::STALE) if env.is_initial_namespace() => {
            return (Judgement::gone(Reason::HandleStale, Evidence::Handle), None);
        }
        Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => {
            return (Judgement::unknown(Reason::NoFds, Evidence::Handle), None);
        }
        Err(_) => return other(Evidence::Handle),
    };
    match call::unique_id(pidfd.as_fd()) {
        Ok(found) if found == recorded => {}
        Ok(_) => return other(Evidence::Handle),
        Err(error) => return (failed(error, Evidence::Handle), None),
    }
    let judgement = by_exit(call::has_exited(pidfd.as_fd()), Reason::HandleOpens, Evidence::Handle);
    (judgement, Some(Pin::Pidfd(pidfd)))
}

/// `by_pid` for many: all opened, one poll, all closed, in chunks.
///
/// Cheaper than one by one by the polls. Where descriptors run out, what is open so far is settled and closed first.
pub(crate) fn by_pid_many(records: &[&Identity], env: &Environment, has: Capabilities) -> Vec<Judgement> {
    if !has.pidfd || !has.pidfs {
        return records.iter().map(|record| by_pid(record, env, has).0).collect();
    }
    let mut answers: Vec<Option<Judgement>> = vec![None; records.len()];
    let mut open: Vec<(usize, OwnedFd)> = Vec::with_capacity(records.len().min(CHUNK));
    let mut at = 0;
    while let Some(record) = records.get(at) {
        let answer = match call::open_pid(record.pid) {
            Ok(pidfd) => {
                let answer = compare(record, env, has, &pidfd);
                if answer.is_none() {
                    open.push((at, pidfd));
                }
                answer
            }
            Err(error) => Some(unopened(record, error).unwrap_or_else(|| by_start_time(record, env, has, None).0)),
        };
        if !open.is_empty() && answer.as_ref().is_some_and(|answer| answer.reason == Reason::NoFds) {
            // It is we who have them open: settle, and ask again.
            settle(&mut open, &mut answers);
            continue;
        }
        answers[at] = answer;
        if open.len() == CHUNK {
            settle(&mut open, &mut answers);
        }
        at += 1;
    }
    settle(&mut open, &mut answers);
    answers.into_iter().map(|answer| answer.expect("every record was answered or settled")).collect()
}

/// One poll for all that are open; then they are closed.
fn settle(open: &mut Vec<(usize, OwnedFd)>, answers: &mut [Option<Judgement>]) {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut polled: Vec<PollFd<'_>> = open.iter().map(|(_, pidfd)| PollFd::new(pidfd, PollFlags::IN)).collect();
    let done = loop {
        match poll(&mut polled, Some(&now)) {
            Err(Errno::INTR) => {}
            answer => break answer,
        }
    };
    for ((at, _), polled) in open.iter().zip(&polled) {
        let exited = done.map(|_| !polled.revents().is_empty());
        answers[*at] = Some(by_exit(exited, Reason::SameUniqueId, Evidence::Pidfs));
    }
    open.clear();
}

/// The start time and unique id of another process, consistent: the number is pinned before they are read, and the
/// process must still run afterwards.
pub(crate) fn identify(pid: u32, env: &Environment, has: Capabilities) -> Result<(Option<u64>, Option<u64>), Error> {
    let pidfd = if has.pidfd {
        match call::open_pid(pid) {
            Ok(pidfd) => Some(pidfd),
            Err(Errno::SRCH | Errno::NOENT) => return Err(Error::NoSuchProcess),
            Err(Errno::PERM | Errno::NOSYS | Errno::INVAL) => None,
            Err(error) => return Err(Error::System("pidfd_open", error.into())),
        }
    } else {
        None
    };
    let uniq = match &pidfd {
        Some(pidfd) if has.pidfs => {
            Some(call::unique_id(pidfd.as_fd()).map_err(|error| Error::System("fstat of a pidfd", error.into()))?)
        }
        _ => None,
    };
    let stat = match env.proc.as_ref().filter(|_| has.proc).and_then(Proc::directory) {
        None => None,
        Some(directory) => match procfs::stat(directory, pid) {
            Ok(stat) => Some(stat),
            Err(Unread::Ended) => return Err(Error::NoSuchProcess),
            Err(Unread::NoEntry) if call::no_such_pid(pid) => return Err(Error::NoSuchProcess),
            Err(_) => None,
        },
    };
    let over = match (&pidfd, &stat) {
        (Some(pidfd), _) => {
            call::has_exited(pidfd.as_fd()).map_err(|error| Error::System("poll of a pidfd", error.into()))?
        }
        (None, Some(stat)) => stat.exited() && stat.num_threads <= 1,
        (None, None) => {
            return Err(if call::no_such_pid(pid) { Error::NoSuchProcess } else { Error::Unsupported });
        }
    };
    if over {
        return Err(Error::NoSuchProcess);
    }
    let start = stat.zip(env.time_offset).and_then(|(stat, offset)| recordable_start(stat.start, offset));
    Ok((start, uniq))
}
