//! The one thread that starts the pulses of all holds of this process, each when its first beat is due.
//!
//! Most holds end before that, and a thread of its own would cost such a hold as much as all of its system calls. Road not
//! taken: to let one thread beat for everybody. A file system that hangs would then end the holds on all others.

use std::collections::BTreeMap;
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::pulse::{Shared, lock};
use crate::system;

/// When a pulse is to start, and a number that no other one has.
pub(crate) type Due = (Instant, u64);

struct Alarm {
    process: u32,
    calendar: Mutex<Calendar>,
    changed: Condvar,
}

#[derive(Default)]
struct Calendar {
    holds: BTreeMap<Due, Arc<Shared>>,
    number: u64,
    runs: bool,
    /// Until when the thread sleeps; `None` is for ever.
    sleeps_until: Option<Instant>,
}

/// Has the pulse of `hold` started after `pause`.
///
/// # Errors
/// The system gives no thread.
pub(crate) fn set(hold: Arc<Shared>, pause: Duration) -> io::Result<Option<Due>> {
    // A pause without an end needs no alarm.
    let Some(at) = Instant::now().checked_add(pause) else { return Ok(None) };
    let alarm = Alarm::of_this_process();
    let mut calendar = lock(&alarm.calendar);
    if !calendar.runs {
        let thread = thread::Builder::new().name("tenure-alarm".to_owned()).stack_size(128 * 1024);
        thread.spawn(|| {
            system::block_signals();
            alarm.run();
        })?;
        calendar.runs = true;
    }
    calendar.number += 1;
    let due = (at, calendar.number);
    calendar.holds.insert(due, hold);
    // Woken only by who cannot wait: a hold that comes and goes costs the thread nothing.
    if calendar.sleeps_until.is_none_or(|until| at < until) {
        alarm.changed.notify_one();
    }
    Ok(Some(due))
}

/// Has it not started, if it has not been yet.
pub(crate) fn cancel(due: Due) {
    lock(&Alarm::of_this_process().calendar).holds.remove(&due);
}

impl Alarm {
    /// Another one after each fork: the child has no such thread, and its copy of the lock may be taken for ever.
    fn of_this_process() -> &'static Self {
        static CURRENT: AtomicPtr<Alarm> = AtomicPtr::new(ptr::null_mut());
        let process = std::process::id();
        let found = CURRENT.load(Ordering::Acquire);
        // SAFETY: null, or from `Box::leak` below: never freed.
        if let Some(alarm) = unsafe { found.as_ref() }
            && alarm.process == process
        {
            return alarm;
        }
        let fresh =
            ptr::from_mut(Box::leak(Box::new(Self { process, calendar: Mutex::default(), changed: Condvar::new() })));
        let current = match CURRENT.compare_exchange(found, fresh, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => fresh,
            Err(another) => another,
        };
        // SAFETY: as above; not null.
        unsafe { &*current }
    }

    fn run(&self) {
        let mut calendar = lock(&self.calendar);
        loop {
            let now = Instant::now();
            while let Some(first) = calendar.holds.first_entry()
                && first.key().0 <= now
            {
                let hold = first.remove();
                drop(calendar);
                let started = hold.start_thread();
                calendar = lock(&self.calendar);
                if started.is_err() && !hold.is_over() {
                    // No thread to be had just now. The hold stays good until its ttl is over.
                    calendar.number += 1;
                    let again = (now + hold.soon(), calendar.number);
                    calendar.holds.insert(again, hold);
                }
            }
            calendar.sleeps_until = calendar.holds.keys().next().map(|due| due.0);
            calendar = match calendar.sleeps_until {
                None => self.changed.wait(calendar).unwrap_or_else(PoisonError::into_inner),
                Some(until) => {
                    self.changed.wait_timeout(calendar, until - now).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}
