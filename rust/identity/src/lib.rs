//! Who a process is, in a form that still means something tomorrow, and whether it still lives.
//!
//! - [`Identity`] is the record: written by a process about itself, read by anyone later.
//! - [`judge`] and [`judge_many`] hold it against the kernel and answer [`Verdict::Alive`], [`Verdict::Gone`] or
//!   [`Verdict::Unknown`], always with a [`Reason`] and the [`Evidence`] used.
//! - [`Watch`] pins one living process, [`WatchSet`] many.
//!
//! Three rules hold everywhere. No signal is sent, not even number 0. A record is input from a stranger: bounded,
//! range-checked, never part of a path. And "gone" is said only when the kernel that issued the number denies it, names a
//! never-reused id that differs, or reports the exit; whatever else happens is "unknown", which is an answer.
//!
//! The crate knows no Python and starts no thread. What differs between systems is in `sys`.

mod judge;
mod parse;
mod record;
mod sys;
mod verdict;
mod watch;

pub use judge::{Observer, judge, judge_many, prepare};
pub use record::{Host, Identity, Malformed};
pub use sys::{awake_ns, boottime_ns};
pub use verdict::{Evidence, Judgement, Reason, Verdict};
pub use watch::{Waited, Waiter, Watch, WatchSet};

use std::fmt;
use std::io;

/// What evidence a process can get from its kernel, found out by trying.
///
/// Also the set of what *not* to use, for tests of how older kernels are judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// A process can be opened by the never-reused inode of its pidfd, across pid namespaces.
    pub handle: bool,
    /// A pidfd has an inode of its own, never reused within a boot.
    pub pidfs: bool,
    /// `pidfd_open` works.
    pub pidfd: bool,
    /// There is a /proc, and it shows our own pid namespace.
    pub proc: bool,
    /// The kernel tells a never-reused number of each process that is no pidfs inode (Windows, macOS).
    pub unique_id: bool,
}

impl Capabilities {
    /// These, less those in `off`.
    #[must_use]
    pub fn without(self, off: Self) -> Self {
        Self {
            handle: self.handle && !off.handle,
            pidfs: self.pidfs && !off.pidfs,
            pidfd: self.pidfd && !off.pidfd,
            proc: self.proc && !off.proc,
            unique_id: self.unique_id && !off.unique_id,
        }
    }
}

/// Why no identity could be given. (A *judgement* never fails: it is unknown.)
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// There is no such process, or it has exited.
    NoSuchProcess,
    /// The operator's host id cannot be used; says why.
    BadHost(String),
    /// The system refused; says which call.
    System(&'static str, io::Error),
    /// Nothing is known about this platform.
    Unsupported,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchProcess => write!(f, "no such process"),
            Self::BadHost(why) => write!(f, "the host id cannot be used: {why}"),
            Self::System(call, error) => write!(f, "{call}: {error}"),
            Self::Unsupported => write!(f, "this platform is not known: no process can be identified on it"),
        }
    }
}

impl Error {
    /// What a judge says who could not find out about himself: nothing is known of the other either.
    #[must_use]
    pub fn as_judgement(&self) -> Option<Judgement> {
        match self {
            Self::System(_, error) => {
                Some(Judgement::unknown(Reason::ProbeFailed, Evidence::None).with_detail(error.to_string()))
            }
            _ => None,
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::System(_, error) => Some(error),
            _ => None,
        }
    }
}

/// Parsers of foreign text, exposed to fuzzers and to tests on captured text.
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::parse::{boot_id, machine_id, namespace_pids, stat, time_offset};
}
