//! A hold on one very process, and on many: its handle, which becomes ready when it ends.

use std::os::windows::io::{AsRawHandle, OwnedHandle};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use windows_sys::Win32::Foundation::{HANDLE, WAIT_OBJECT_0};
use windows_sys::Win32::System::Threading::{Sleep, WaitForMultipleObjects};

use super::call::waited;
use crate::Error;
use crate::sys::Waited;

/// Nothing ends a wait here when somebody presses Ctrl-C, so the caller is let look in between.
const LONGEST_SLEEP: Duration = Duration::from_millis(20);
/// How many handles one wait takes. Source: winnt.h, MAXIMUM_WAIT_OBJECTS.
const AT_ONCE: usize = 64;

/// Shared with a set that others may be waiting on: a closed handle's number could be another's.
pub(crate) struct Pin(Arc<OwnedHandle>);

impl Pin {
    pub(super) fn new(process: OwnedHandle) -> Self {
        Self(Arc::new(process))
    }

    pub(crate) fn alive(&self) -> bool {
        // An error of the wait proves nothing, so it must not end anybody's life.
        !waited(self.0.as_raw_handle(), 0).unwrap_or(false)
    }

    pub(crate) fn wait(&self, timeout: Option<Duration>) -> Waited {
        let (nap, is_last) = nap(timeout);
        match waited(self.0.as_raw_handle(), milliseconds(nap)) {
            Ok(true) => Waited::Ended,
            _ if is_last => Waited::TimedOut,
            _ => Waited::Interrupted,
        }
    }

    /// There are no descriptors here that one could wait on.
    pub(crate) fn descriptor(&self) -> Option<i32> {
        None
    }
}

/// How long to sleep at a time, and whether the time is over then.
fn nap(timeout: Option<Duration>) -> (Duration, bool) {
    timeout.map_or((LONGEST_SLEEP, false), |left| (left.min(LONGEST_SLEEP), left <= LONGEST_SLEEP))
}

fn milliseconds(nap: Duration) -> u32 {
    // Rounded up, or the last millisecond would be waited for in circles.
    nap.as_micros().div_ceil(1000) as u32
}

/// Many pins. Asking costs a call for each 64 of them, and one for each that has ended.
pub(crate) struct PinSet {
    pins: Mutex<Vec<(u64, Arc<OwnedHandle>)>>,
}

impl PinSet {
    pub(crate) fn new() -> Result<Self, Error> {
        Ok(Self { pins: Mutex::default() })
    }

    /// A process may have millions of handles; this is where looking at all of them would begin to take long.
    pub(crate) fn default_limit() -> usize {
        10_000
    }

    fn pins(&self) -> MutexGuard<'_, Vec<(u64, Arc<OwnedHandle>)>> {
        self.pins.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, key: u64, pin: &Pin) -> bool {
        self.pins().push((key, Arc::clone(&pin.0)));
        true
    }

    pub(crate) fn discard(&self, pin: &Pin) {
        self.pins().retain(|(_, process)| !Arc::ptr_eq(process, &pin.0));
    }

    /// Those that have ended by now. The caller discards them, or they are said again.
    pub(crate) fn ended(&self, _members: usize) -> Vec<u64> {
        let pins = self.pins();
        let mut keys = Vec::new();
        for some in pins.chunks(AT_ONCE) {
            let mut rest = some;
            // The lowest that is ready is told, so the others are asked for behind it.
            while let Some(at) = first_ended(rest, Duration::ZERO) {
                keys.push(rest[at].0);
                rest = &rest[at + 1..];
            }
        }
        keys
    }

    /// Waits for the first to end.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> Waited {
        let pins = self.pins().clone();
        let (nap, is_last) = nap(timeout);
        let (asleep_on, others) = pins.split_at(pins.len().min(AT_ONCE));
        let mut ended = others.chunks(AT_ONCE).any(|some| first_ended(some, Duration::ZERO).is_some());
        ended = ended || first_ended(asleep_on, nap).is_some();
        match ended {
            true => Waited::Ended,
            false if is_last => Waited::TimedOut,
            false => Waited::Interrupted,
        }
    }

    /// There is no descriptor here that one could wait on.
    pub(crate) fn descriptor(&self) -> i32 {
        -1
    }
}

/// The lowest of at most 64 that ends within `time`.
fn first_ended(pins: &[(u64, Arc<OwnedHandle>)], time: Duration) -> Option<usize> {
    if pins.is_empty() {
        // SAFETY: nothing can go wrong. The wait below takes no empty list.
        unsafe { Sleep(milliseconds(time)) };
        return None;
    }
    let handles: Vec<HANDLE> = pins.iter().map(|(_, process)| process.as_raw_handle()).collect();
    // SAFETY: the list has that many handles, at most 64, which the pins keep open.
    let ready = unsafe { WaitForMultipleObjects(handles.len() as u32, handles.as_ptr(), 0, milliseconds(time)) };
    // An error proves nothing, and is asked again with the next call.
    let at = ready.checked_sub(WAIT_OBJECT_0)? as usize;
    (at < handles.len()).then_some(at)
}
