//! One set of functions, one file a system, chosen here and nowhere else.
//!
//! | name | what a system's file must give |
//! |---|---|
//! | `RULES` | what decides about a record before the kernel is asked |
//! | `Environment` | `me`, `has`, `host_is_unique`, and whatever its own functions need |
//! | `environment()` | the calling process's, captured once, anew after a fork |
//! | `prepare()` | what must be done before a process forks, once |
//! | `identify(pid, ..)` | start time and unique id of another process |
//! | `is_current(record, ..)` | whether the calling process still is the one of `record`, asked anew |
//! | `is_unchanged(..)` | a quick yes to the same about the environment's own identity, or "ask in full" |
//! | `by_pid(record, ..)` | the judgement by number, and what can pin the process if it is alive |
//! | `by_pid_many(records, ..)` | the same for many |
//! | `by_handle(record, ..)` | the judgement by unique id, for a number that means nothing here |
//! | `Pin` | a hold on one very process: `alive`, `wait`, `descriptor` |
//! | `PinSet` | many of them: `add`, `discard`, `ended`, `wait`, `descriptor`, `default_limit` |
//! | `awake_ns`, `boottime_ns` | clocks: one that stands still in suspend, one that does not |
//!
//! A system that nobody has taught answers "can't tell": `unsupported.rs`.

use crate::Error;
use crate::record::Host;

#[cfg_attr(target_os = "linux", path = "linux/mod.rs")]
#[cfg_attr(target_os = "macos", path = "macos/mod.rs")]
#[cfg_attr(windows, path = "windows/mod.rs")]
#[cfg_attr(not(any(target_os = "linux", target_os = "macos", windows)), path = "unsupported.rs")]
mod system;

// What a system's answers mean is pure, and tested everywhere on forged ones: few people have every system at hand.
#[cfg(all(test, not(target_os = "macos")))]
#[path = "macos/decide.rs"]
mod macos;
#[cfg(all(test, not(windows)))]
#[path = "windows/decide.rs"]
mod windows;

pub(crate) use system::{
    Environment, Pin, PinSet, RULES, by_handle, by_pid, by_pid_many, environment, identify, is_current, is_unchanged,
    prepare,
};
pub use system::{awake_ns, boottime_ns};

/// What differs between systems before the kernel is asked.
#[derive(Clone, Copy)]
pub(crate) struct Rules {
    /// Whether anything can be told on this system.
    pub(crate) known: bool,
    /// Whether a number means something only inside a namespace.
    pub(crate) has_pid_namespaces: bool,
    /// Whether the system could have given out this number.
    pub(crate) plausible_pid: fn(u32) -> bool,
}

/// What the operator says about this host in the environment: `TENURE_HOST_ID`, and `TENURE_HOST_ID_IS_UNIQUE` (`1`).
///
/// Read once per process, with the rest of its environment: a holder must not change its host half-way.
fn operator() -> Result<(Option<Host>, bool), Error> {
    let host = match std::env::var("TENURE_HOST_ID") {
        Ok(id) if !id.is_empty() => Some(Host::operator(&id)?),
        Ok(_) | Err(std::env::VarError::NotPresent) => None,
        Err(error) => return Err(Error::BadHost(format!("TENURE_HOST_ID: {error}"))),
    };
    let is_unique = match std::env::var("TENURE_HOST_ID_IS_UNIQUE").as_deref() {
        Err(std::env::VarError::NotPresent) | Ok("" | "0") => false,
        Ok("1") => true,
        // Never guessed: "1" makes another boot id a proof of death.
        _ => return Err(Error::BadHost("TENURE_HOST_ID_IS_UNIQUE must be 0 or 1".to_owned())),
    };
    Ok((host, is_unique))
}

/// Whether a wait ended because the process did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// It has ended.
    Ended,
    /// The time is over.
    TimedOut,
    /// A signal handler ran; the caller may want to look at it and wait again.
    Interrupted,
}
