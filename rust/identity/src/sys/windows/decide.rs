//! What Windows' answers mean. Pure, so that the answers of machines that nobody has at hand are tested too.
//!
//! A process object outlives its process for as long as anybody holds a handle of it, so that it opens says nothing about
//! life, and neither does the exit code, since a process may exit with 259, STILL_ACTIVE, as well. Only the wait tells.
//! Sources: OpenProcess, GetProcessTimes and WaitForSingleObject on learn.microsoft.com; phnt for what ntdll is asked.

use crate::record::{Host, Identity};
use crate::verdict::{Evidence, Judgement, Reason};
use crate::{Capabilities, Error};

/// Source: winerror.h.
pub(super) const ERROR_ACCESS_DENIED: u32 = 5;
pub(super) const ERROR_INVALID_PARAMETER: u32 = 87;
/// Out of handles, of memory, of pool, of address space for it.
const OUT_OF_RESOURCES: [u32; 5] = [4, 8, 14, 1450, 1455];

/// The questions that a judgement asks, each one system call; an `Err` is the system's error code.
pub(super) trait Kernel {
    /// Pins a process object. Given back when dropped.
    type Handle;

    fn open(&self, pid: u32) -> Result<Self::Handle, u32>;
    fn number(&self, process: &Self::Handle) -> Result<u32, u32>;
    /// In units of 100 ns since 1601, as it was stored then: no setting of the clock moves it.
    fn created(&self, process: &Self::Handle) -> Result<u64, u32>;
    /// Never given out twice in a boot.
    fn unique_id(&self, process: &Self::Handle) -> Result<u64, u32>;
    fn has_exited(&self, process: &Self::Handle) -> Result<bool, u32>;
    /// When the process of that number was created, by the list of those that live; `None` if it is not in it.
    fn listed(&self, pid: u32) -> Result<Option<u64>, u32>;
}

/// OpenProcess ignores the two lowest bits, so that a number one off would open another's process. No real pid has them.
pub(super) fn plausible_pid(pid: u32) -> bool {
    pid % 4 == 0
}

/// The judgement by number, on the boot and in the container that gave it out. Three questions, and the handle is closed.
pub(super) fn by_pid<K: Kernel>(record: &Identity, has: Capabilities, kernel: &K) -> (Judgement, Option<K::Handle>) {
    // Row 1 has let through plausible numbers only. So this opens that very number, and nobody need ask for it again.
    let process = match kernel.open(record.pid) {
        Ok(process) => process,
        Err(ERROR_INVALID_PARAMETER) => return (Judgement::gone(Reason::NoSuchPid, Evidence::ProcessHandle), None),
        // It exists, and is protected, or another logon's.
        Err(ERROR_ACCESS_DENIED) => return (by_list(record, kernel), None),
        Err(error) => return (failed(error, Evidence::ProcessHandle), None),
    };
    let (same, alive, evidence) = match (record.uniq.filter(|_| has.unique_id), record.start) {
        (Some(recorded), _) => {
            let same = kernel.unique_id(&process).map(|found| found == recorded);
            (same, Reason::SameUniqueId, Evidence::UniqueId)
        }
        (None, Some(recorded)) => {
            let same = kernel.created(&process).map(|found| found == recorded);
            (same, Reason::SameStartTime, Evidence::ProcessHandle)
        }
        (None, None) => return (Judgement::unknown(Reason::NoStartTime, Evidence::ProcessHandle), None),
    };
    let judgement = match same.and_then(|same| if same { kernel.has_exited(&process).map(Some) } else { Ok(None) }) {
        Ok(None) => Judgement::gone(Reason::PidReused, evidence),
        Ok(Some(true)) => Judgement::gone(Reason::Exited, evidence),
        Ok(Some(false)) => return (Judgement::alive(alive, evidence), Some(process)),
        Err(error) => failed(error, evidence),
    };
    (judgement, None)
}

/// For a process that may not be opened. The list has the living alone: an object that somebody merely holds is not in it.
fn by_list<K: Kernel>(record: &Identity, kernel: &K) -> Judgement {
    let evidence = Evidence::ProcessTable;
    match (kernel.listed(record.pid), record.start) {
        (Err(_), _) => Judgement::unknown(Reason::Hidden, evidence),
        (Ok(None), _) => Judgement::gone(Reason::Exited, evidence),
        (Ok(Some(_)), None) => Judgement::unknown(Reason::NoStartTime, evidence),
        (Ok(Some(found)), Some(recorded)) if found == recorded => Judgement::alive(Reason::SameStartTime, evidence),
        (Ok(Some(_)), Some(_)) => Judgement::gone(Reason::PidReused, evidence),
    }
}

fn failed(error: u32, evidence: Evidence) -> Judgement {
    let reason = if OUT_OF_RESOURCES.contains(&error) { Reason::NoFds } else { Reason::ProbeFailed };
    Judgement::unknown(reason, evidence).with_detail(format!("Windows error {error}"))
}

/// The time of creation and unique id of another process; the handle pins it, and it must still run afterwards.
pub(super) fn identify<K: Kernel>(
    pid: u32,
    has: Capabilities,
    kernel: &K,
) -> Result<(Option<u64>, Option<u64>), Error> {
    let failed = |call| move |error: u32| Error::System(call, std::io::Error::from_raw_os_error(error as i32));
    let process = match kernel.open(pid) {
        Ok(process) => process,
        Err(ERROR_INVALID_PARAMETER) => return Err(Error::NoSuchProcess),
        Err(ERROR_ACCESS_DENIED) => {
            let found = kernel.listed(pid).map_err(failed("listing processes"))?;
            return Ok((Some(found.ok_or(Error::NoSuchProcess)?), None));
        }
        Err(error) => return Err(failed("OpenProcess")(error)),
    };
    // Anybody's number comes here, also one that was rounded.
    if kernel.number(&process).map_err(failed("GetProcessId"))? != pid {
        return Err(Error::NoSuchProcess);
    }
    let start = kernel.created(&process).map_err(failed("GetProcessTimes"))?;
    let uniq = has.unique_id.then(|| kernel.unique_id(&process)).transpose();
    let uniq = uniq.map_err(failed("NtQueryInformationProcess"))?;
    if kernel.has_exited(&process).map_err(failed("WaitForSingleObject"))? {
        return Err(Error::NoSuchProcess);
    }
    Ok((Some(start), uniq))
}

/// What a machine tells about itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Machine {
    /// Drawn at installation; copied with an image.
    pub(super) guid: Option<String>,
    /// The computer's name as it is in force.
    pub(super) name: Option<String>,
    /// How often the loader has tried to boot; 0 where it does not count.
    pub(super) boots: u32,
    /// When wine's server started, where that is the kernel. It is never set again.
    pub(super) wine_server: Option<u64>,
    /// When the container's first process was created, if this is one.
    pub(super) container: Option<u64>,
}

impl Machine {
    pub(super) fn host(&self) -> Option<Host> {
        Some(Host::machine(&format!("{}\n{}", self.guid.as_ref()?, self.name.as_ref()?)))
    }

    /// A count of boots alone would equal that of many another machine, so the machine is part of it, also where an
    /// operator names the host. Not the time of the boot: Windows moves it whenever the clock is set.
    pub(super) fn boot(&self) -> Option<String> {
        let host = self.host()?.id;
        match (self.wine_server, self.boots) {
            (Some(started), _) => Some(format!("{host}-wine-{started}")),
            (None, 0) => None,
            (None, boots) => Some(format!("{host}-{boots}")),
        }
    }

    /// A container has numbers of its own, which look dead from outside. Its name can be an operator's choice, and two
    /// may have one; the birth of its first process sets them apart.
    pub(super) fn namespace(&self) -> Option<String> {
        match self.container {
            None => Some("host".to_owned()),
            Some(born) => Some(format!("container-{}-{born}", self.name.as_ref()?)),
        }
    }
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
