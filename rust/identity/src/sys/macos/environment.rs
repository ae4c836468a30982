//! Who we are: captured once, and again after a fork.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::call::{self, System};
use super::decide::{self, Kernel};
use crate::record::{Host, Identity};
use crate::{Capabilities, Error};

pub(crate) struct Environment {
    pub(crate) me: Identity,
    pub(crate) has: Capabilities,
    pub(crate) host_is_unique: bool,
}

/// Nothing is half made here by a thread that a fork leaves behind: the cell is filled in one step.
pub(crate) fn prepare() {}

/// The calling process's environment.
pub(crate) fn environment() -> Result<&'static Environment, Error> {
    static CELL: AtomicPtr<Environment> = AtomicPtr::new(std::ptr::null_mut());
    let known = CELL.load(Ordering::Acquire);
    if !known.is_null() {
        // SAFETY: a non-null pointer in the cell came from `Box::into_raw` below and is never freed.
        let environment = unsafe { &*known };
        // There is no page that a fork wipes, as on Linux. But the number is asked of the C library, which keeps it.
        if environment.me.pid == std::process::id() {
            return Ok(environment);
        }
    }
    // Leaked on purpose: others may be using the old one, and it is one per process image and fork.
    let fresh = Box::into_raw(Box::new(capture()?));
    match CELL.compare_exchange(known, fresh, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: as above; we have just made it.
        Ok(_) => Ok(unsafe { &*fresh }),
        Err(winner) => {
            // SAFETY: nobody but us has seen `fresh`.
            drop(unsafe { Box::from_raw(fresh) });
            // SAFETY: as above. Another thread was first; all threads must agree on one nonce.
            Ok(unsafe { &*winner })
        }
    }
}

fn capture() -> Result<Environment, Error> {
    let (operator_host, host_is_unique) = crate::sys::operator()?;
    let pid = std::process::id();
    let (start, uniq) = match decide::identify(pid, &System) {
        // A sandbox may hide us from ourselves. Time and the fence need no identity.
        Err(Error::System(_, error)) if error.kind() == ErrorKind::PermissionDenied => (None, None),
        told => told?,
    };
    let me = Identity {
        os: "macos".to_owned(),
        host: operator_host.or_else(machine),
        boot: boot()?,
        ns: None,
        ns_id: None,
        pid,
        start,
        uniq,
        nonce: Some(call::random().map_err(|error| Error::System("getentropy", error))?),
        unknown: serde_json::Map::new(),
    };
    let has = Capabilities { unique_id: uniq.is_some(), ..Capabilities::default() };
    Ok(Environment { me, has, host_is_unique })
}

fn machine() -> Option<Host> {
    call::host_uuid().map(|id| {
        let digits: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        Host::machine(&digits)
    })
}

/// `None` where a sandbox forbids the question.
fn boot() -> Result<Option<String>, Error> {
    match call::text(c"kern.bootsessionuuid") {
        Ok(text) => Ok(decide::read_boot(&text)),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(None),
        Err(error) => Err(Error::System("sysctl kern.bootsessionuuid", error)),
    }
}

/// Whether the kernel still knows us by the id that was captured: one call.
pub(crate) fn is_unchanged(env: &Environment) -> bool {
    env.me.uniq.is_some_and(|id| System.unique_id(std::process::id()) == Ok(id))
}

/// Whether the calling process is still the one of `record`.
pub(crate) fn is_current(record: &Identity, _env: &Environment, _has: Capabilities) -> Result<bool, Error> {
    Ok(record.pid == std::process::id() && decide::is_current(record, boot()?.as_deref(), &System)?)
}
