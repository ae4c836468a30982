//! What the answers of macOS mean. Pure: every row is tested on forged answers, on any system.
//!
//! Source: XNU, bsd/kern/proc_info.c, bsd/sys/proc_info_private.h, bsd/kern/kern_prot.c, bsd/kern/kern_sysctl.c.

use crate::Error;
use crate::parse;
use crate::record::Identity;
use crate::sys::Rules;
use crate::verdict::{Evidence, Judgement, Reason};

pub(super) const RULES: Rules = Rules { known: true, has_pid_namespaces: false, plausible_pid: |_pid| true };

const EPERM: i32 = 1;
const ESRCH: i32 = 3;
/// Source: sys/proc.h, SZOMB. Here it means the whole process: a main thread that left others behind is no zombie.
const ZOMBIE: i8 = 5;

/// `struct proc_uniqidentifierinfo`: private by its header, "This structure is API" by the comment in it.
#[repr(C)]
#[derive(Default)]
pub(super) struct UniqueInfo {
    _executable: [u8; 16],
    /// Counted up at each fork, kept over exec, never given out twice in a boot.
    unique_id: u64,
    _parent: u64,
    _rest: [u64; 3],
}

/// `struct kinfo_proc`, as far as it matters.
#[repr(C)]
pub(super) struct Entry {
    start_s: i64,
    start_us: i32,
    _pointers: [u64; 2],
    _flags: i32,
    state: i8,
    pid: i32,
    _rest: [u64; 75],
}

impl Default for Entry {
    fn default() -> Self {
        Self { start_s: 0, start_us: 0, _pointers: [0; 2], _flags: 0, state: 0, pid: 0, _rest: [0; 75] }
    }
}

/// A process as the table of processes lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    /// Wall time at the fork in microseconds, stored then: a clock that is set later does not move it.
    pub(super) start: u64,
    /// Whether it has ended and waits to be reaped.
    pub(super) ended: bool,
}

/// Why the kernel would not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// It knows no such process, or only a dead one.
    NoSuchProcess,
    /// A sandbox forbids the question.
    NotPermitted,
    /// Anything else; the error number, or 0.
    Failed(i32),
}

/// What is asked. The tests answer in the kernel's place.
pub(super) trait Kernel {
    /// `proc_pidinfo`, with an argument of 0: of zombies and of processes on their way out it knows nothing.
    fn unique_id(&self, pid: u32) -> Result<u64, Refused>;
    /// The table of processes, which lists zombies too, for any user.
    fn listed(&self, pid: u32) -> Result<Option<Listed>, Refused>;
    /// Whether `getpgid`, which no sandbox guards, denies that there is such a process.
    fn denies(&self, pid: u32) -> bool;
}

fn refused(errno: i32) -> Refused {
    match errno {
        ESRCH => Refused::NoSuchProcess,
        EPERM => Refused::NotPermitted,
        other => Refused::Failed(other),
    }
}

/// The answer of `proc_pidinfo`, which returns how many bytes it wrote, and 0 instead of -1. Source: XNU, libproc.c.
pub(super) fn read_unique_id(written: i32, errno: i32, info: &UniqueInfo) -> Result<u64, Refused> {
    match usize::try_from(written) {
        Ok(size) if size == size_of::<UniqueInfo>() => Ok(info.unique_id),
        Ok(0) | Err(_) => Err(refused(errno)),
        // Half an answer is none.
        Ok(_) => Err(Refused::Failed(0)),
    }
}

/// The answer of the `KERN_PROC_PID` sysctl: success with no bytes means that there is no such process.
pub(super) fn read_entry(
    pid: u32,
    returned: i32,
    errno: i32,
    size: usize,
    entry: &Entry,
) -> Result<Option<Listed>, Refused> {
    if returned != 0 {
        return match refused(errno) {
            Refused::NoSuchProcess => Ok(None),
            other => Err(other),
        };
    }
    if size == 0 {
        return Ok(None);
    }
    let start = u64::try_from(entry.start_s)
        .ok()
        .zip(u64::try_from(entry.start_us).ok())
        .and_then(|(seconds, microseconds)| seconds.checked_mul(1_000_000)?.checked_add(microseconds));
    match start {
        Some(start) if size == size_of::<Entry>() && u32::try_from(entry.pid) == Ok(pid) => {
            Ok(Some(Listed { start, ended: entry.state == ZOMBIE }))
        }
        _ => Err(Refused::Failed(0)),
    }
}

/// `kern.bootsessionuuid`, drawn anew at each boot. Not `kern.boottime`, which moves whenever the clock is set.
pub(super) fn read_boot(text: &[u8]) -> Option<String> {
    let text = text.split(|&byte| byte == 0).next()?.to_ascii_lowercase();
    parse::boot_id(&text).filter(|id| id.bytes().any(|byte| byte != b'0' && byte != b'-')).map(str::to_owned)
}

/// By number; and, of one that lives, the unique id that pins it. Without `by_id`, by the start time alone.
pub(super) fn by_pid(record: &Identity, by_id: bool, kernel: &impl Kernel) -> (Judgement, Option<u64>) {
    match (record.uniq.filter(|_| by_id), kernel.unique_id(record.pid)) {
        (Some(recorded), Ok(found)) if recorded == found => {
            (Judgement::alive(Reason::SameUniqueId, Evidence::ProcInfo), Some(found))
        }
        (Some(_), Ok(_)) => (Judgement::gone(Reason::PidReused, Evidence::ProcInfo), None),
        // Also of a process whose last thread has entered exit: none of its code will run again. Its files may be open
        // for a moment still; the lifeline, which is asked first, shows those.
        (_, Err(Refused::NoSuchProcess)) => (Judgement::gone(Reason::NoSuchPid, Evidence::ProcInfo), None),
        (Some(_), Err(refused)) => (withheld(record.pid, refused, Evidence::ProcInfo, kernel), None),
        (None, told) => by_start_time(record, told.ok(), kernel),
    }
}

/// For a record without a unique id. `pinned` was asked before the table is read.
fn by_start_time(record: &Identity, pinned: Option<u64>, kernel: &impl Kernel) -> (Judgement, Option<u64>) {
    let evidence = Evidence::ProcessTable;
    let Some(recorded) = record.start else {
        return (Judgement::unknown(Reason::NoStartTime, evidence), None);
    };
    let judgement = match kernel.listed(record.pid) {
        Err(refused) => withheld(record.pid, refused, evidence, kernel),
        Ok(None) => withheld(record.pid, Refused::NotPermitted, evidence, kernel),
        Ok(Some(listed)) if listed.start != recorded => Judgement::gone(Reason::PidReused, evidence),
        Ok(Some(listed)) if listed.ended => Judgement::gone(Reason::Exited, evidence),
        Ok(Some(_)) => {
            // Both answers are of one process only if it still has the number.
            let pinned = pinned.filter(|&id| kernel.unique_id(record.pid) == Ok(id));
            return (Judgement::alive(Reason::SameStartTime, evidence), pinned);
        }
    };
    (judgement, None)
}

/// What may not be asked, or is not shown, is not dead for that. One call is free to all, and only its denial counts.
fn withheld(pid: u32, refused: Refused, evidence: Evidence, kernel: &impl Kernel) -> Judgement {
    match refused {
        _ if kernel.denies(pid) => Judgement::gone(Reason::NoSuchPid, Evidence::Getpgid),
        Refused::NotPermitted | Refused::NoSuchProcess => Judgement::unknown(Reason::Hidden, evidence),
        Refused::Failed(errno) => Judgement::unknown(Reason::ProbeFailed, evidence)
            .with_detail(std::io::Error::from_raw_os_error(errno).to_string()),
    }
}

/// Start time and unique id of one living process.
pub(super) fn identify(pid: u32, kernel: &impl Kernel) -> Result<(Option<u64>, Option<u64>), Error> {
    let told = kernel.unique_id(pid);
    if told == Err(Refused::NoSuchProcess) {
        return Err(Error::NoSuchProcess);
    }
    let listed = kernel.listed(pid);
    match (told, listed) {
        (_, Ok(Some(listed))) if listed.ended => Err(Error::NoSuchProcess),
        // Ended, or ended and replaced, while it was being looked at.
        (Ok(id), _) if kernel.unique_id(pid) != Ok(id) => Err(Error::NoSuchProcess),
        (Ok(id), listed) => Ok((listed.ok().flatten().map(|listed| listed.start), Some(id))),
        (Err(_), Ok(Some(listed))) => Ok((Some(listed.start), None)),
        (Err(_), Ok(None) | Err(_)) if kernel.denies(pid) => Err(Error::NoSuchProcess),
        (Err(refused), _) => Err(Error::System("proc_pidinfo", cause(refused))),
    }
}

/// Whether the process of that number is the one of `record`, on this boot.
pub(super) fn is_current(record: &Identity, boot: Option<&str>, kernel: &impl Kernel) -> Result<bool, Error> {
    if boot.is_none() && record.boot.is_some() {
        // We have entered a sandbox since. Not knowing who we are is no proof that we are somebody else.
        return Err(Error::System("sysctl kern.bootsessionuuid", cause(Refused::NotPermitted)));
    }
    if record.boot.as_deref() != boot {
        return Ok(false);
    }
    let (start, id) = identify(record.pid, kernel)?;
    Ok(match (record.uniq, id) {
        (Some(recorded), Some(found)) => recorded == found,
        _ => record.start.is_some() && record.start == start,
    })
}

/// Whether the pinned process has ended. An answer that proves nothing must not end anybody's life.
pub(super) fn has_ended(pid: u32, id: u64, kernel: &impl Kernel) -> bool {
    match kernel.unique_id(pid) {
        Ok(found) => found != id,
        Err(Refused::NoSuchProcess) => true,
        Err(_) => kernel.denies(pid),
    }
}

fn cause(refused: Refused) -> std::io::Error {
    match refused {
        Refused::NoSuchProcess => std::io::Error::from_raw_os_error(ESRCH),
        Refused::NotPermitted => std::io::Error::from_raw_os_error(EPERM),
        Refused::Failed(errno) => std::io::Error::from_raw_os_error(errno),
    }
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
