//! Linux: pidfds where there are any, /proc where there are none.
//!
//! Nothing here asks for a kernel version. What works is found out by trying, once per process (`environment`).

mod call;
mod environment;
mod pin;
mod probe;
mod procfs;

pub(crate) use environment::{Environment, environment, is_current, is_unchanged, prepare};
pub(crate) use pin::{Pin, PinSet};
pub(crate) use probe::{by_handle, by_pid, by_pid_many, identify};

use rustix::time::{ClockId, clock_gettime};

use super::Rules;

pub(crate) const RULES: Rules = Rules {
    known: true,
    has_pid_namespaces: true,
    // Every positive number can be a pid: the limit is a setting, and per namespace since Linux 6.14.
    plausible_pid: |_pid| true,
};

/// Nanoseconds on a clock that stands still while the machine sleeps. Source: clock_getres(2).
#[must_use]
pub fn awake_ns() -> u64 {
    nanoseconds(ClockId::Monotonic)
}

/// Nanoseconds on a clock that counts while the machine sleeps. Source: clock_getres(2).
#[must_use]
pub fn boottime_ns() -> u64 {
    nanoseconds(ClockId::Boottime)
}

fn nanoseconds(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    // Both clocks start at boot, and a time namespace may not set them below zero: time_namespaces(7).
    u64::try_from(now.tv_sec).unwrap_or_default() * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or_default()
}
