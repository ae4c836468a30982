//! Windows: a handle of the process, when it was created, and the wait that tells whether it has ended.
//!
//! What the answers mean is in `decide`; who is asked is in `call`.

mod call;
mod decide;
mod environment;
mod pin;

pub(crate) use environment::{Environment, environment, is_current};
pub(crate) use pin::{Pin, PinSet};

use windows_sys::Win32::System::SystemInformation::GetTickCount64;
use windows_sys::Win32::System::WindowsProgramming::QueryUnbiasedInterruptTime;

use super::Rules;
use crate::record::Identity;
use crate::verdict::{Evidence, Judgement, Reason};
use crate::{Capabilities, Error};

pub(crate) const RULES: Rules = Rules { known: true, has_pid_namespaces: true, plausible_pid: decide::plausible_pid };

/// Nothing forks here.
pub(crate) fn prepare() {}

/// Nothing here restores a process elsewhere, or copies one.
pub(crate) fn is_unchanged(_env: &Environment) -> bool {
    true
}

pub(crate) fn identify(pid: u32, _env: &Environment, has: Capabilities) -> Result<(Option<u64>, Option<u64>), Error> {
    decide::identify(pid, has, &call::System)
}

pub(crate) fn by_pid(record: &Identity, _env: &Environment, has: Capabilities) -> (Judgement, Option<Pin>) {
    let (judgement, process) = decide::by_pid(record, has, &call::System);
    (judgement, process.map(Pin::new))
}

pub(crate) fn by_pid_many(records: &[&Identity], env: &Environment, has: Capabilities) -> Vec<Judgement> {
    records.iter().map(|record| by_pid(record, env, has).0).collect()
}

/// Nothing opens a process of another container by its id.
pub(crate) fn by_handle(_record: &Identity, _env: &Environment, _has: Capabilities) -> (Judgement, Option<Pin>) {
    (Judgement::unknown(Reason::OtherPidNamespace, Evidence::None), None)
}

/// Nanoseconds on a clock that stands still while the machine sleeps. Source: QueryUnbiasedInterruptTime.
#[must_use]
pub fn awake_ns() -> u64 {
    let mut now = 0;
    // SAFETY: a pointer to one u64, which outlives the call.
    unsafe { QueryUnbiasedInterruptTime(&raw mut now) };
    // It counts 100 ns, of which 5000 years fit.
    now * 100
}

/// Nanoseconds on a clock that counts while the machine sleeps; it moves every 10 to 16 ms. Source: GetTickCount64.
///
/// QueryInterruptTime has the same clock in finer units, and not every wine has it.
#[must_use]
pub fn boottime_ns() -> u64 {
    // SAFETY: nothing can go wrong.
    let milliseconds = unsafe { GetTickCount64() };
    milliseconds * 1_000_000
}

#[cfg(test)]
mod tests;
