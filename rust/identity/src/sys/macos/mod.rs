//! macOS: the kernel's never-reused id of a process, and its table of processes where there is none to compare.

mod call;
mod decide;
mod environment;
mod pin;

pub(crate) use environment::{Environment, environment, is_current, is_unchanged, prepare};
pub(crate) use pin::{Pin, PinSet};

use crate::record::Identity;
use crate::sys::Rules;
use crate::verdict::{Evidence, Judgement, Reason};
use crate::{Capabilities, Error};
use call::System;

pub(crate) const RULES: Rules = decide::RULES;

pub(crate) fn by_pid(record: &Identity, _env: &Environment, has: Capabilities) -> (Judgement, Option<Pin>) {
    let (judgement, id) = decide::by_pid(record, has.unique_id, &System);
    (judgement, id.map(|id| Pin::new(record.pid, id)))
}

/// One call each: there is nothing to share.
pub(crate) fn by_pid_many(records: &[&Identity], _env: &Environment, has: Capabilities) -> Vec<Judgement> {
    records.iter().map(|record| decide::by_pid(record, has.unique_id, &System).0).collect()
}

/// Not reached: there are no pid namespaces here.
pub(crate) fn by_handle(_record: &Identity, _env: &Environment, _has: Capabilities) -> (Judgement, Option<Pin>) {
    (Judgement::unknown(Reason::OtherPidNamespace, Evidence::None), None)
}

pub(crate) fn identify(pid: u32, _env: &Environment, _has: Capabilities) -> Result<(Option<u64>, Option<u64>), Error> {
    decide::identify(pid, &System)
}

/// Nanoseconds on a clock that stands still while the machine sleeps. Source: clock_gettime(3), CLOCK_UPTIME_RAW.
#[must_use]
pub fn awake_ns() -> u64 {
    call::nanoseconds(libc::CLOCK_UPTIME_RAW)
}

/// Nanoseconds on a clock that counts while the machine sleeps. Source: clock_gettime(3), CLOCK_MONOTONIC_RAW.
#[must_use]
pub fn boottime_ns() -> u64 {
    call::nanoseconds(libc::CLOCK_MONOTONIC_RAW)
}
