//! Pinned processes: judged once, then watched without a look at their numbers again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

pub use crate::sys::Waited;

use crate::judge::{Asked, Observer, ask, judge};
use crate::record::Identity;
use crate::sys::{self, Pin, PinSet};
use crate::verdict::{Judgement, Reason, Verdict};
use crate::{Capabilities, Error};

/// Judges and keeps hold of what was judged.
fn pin(record: &Identity, me: &Observer<'_>) -> (Judgement, Option<Pin>) {
    match ask(record, me) {
        // The record says it is we ourselves; to be watched we must be opened like anybody else.
        Asked::Nobody(judgement) if judgement.reason == Reason::Itself => sys::by_pid(record, me.env, me.has),
        Asked::Nobody(judgement) => (judgement, None),
        Asked::ByHandle => sys::by_handle(record, me.env, me.has),
        Asked::ByPid => sys::by_pid(record, me.env, me.has),
    }
}

/// One living process, pinned.
pub struct Watch {
    judgement: Judgement,
    pin: Option<Pin>,
}

impl Watch {
    /// Judges `record` and keeps hold of the process; of one that is gone there is nothing to keep.
    ///
    /// # Errors
    /// The judgement, if it is unknown.
    pub fn open(record: &Identity, me: &Observer<'_>) -> Result<Self, Judgement> {
        let (judgement, pin) = pin(record, me);
        match (judgement.verdict, pin) {
            (Verdict::Alive, Some(pin)) => Ok(Self { judgement, pin: Some(pin) }),
            (Verdict::Gone, _) => Ok(Self { judgement, pin: None }),
            _ => Err(judgement),
        }
    }

    /// How the process was judged when the watch was made.
    #[must_use]
    pub fn judgement(&self) -> &Judgement {
        &self.judgement
    }

    /// Whether it lives; does not wait.
    #[must_use]
    pub fn alive(&self) -> bool {
        self.pin.as_ref().is_some_and(Pin::alive)
    }

    /// Waits for its end. May come back early as [`Waited::Interrupted`]; the caller keeps the time.
    #[must_use]
    pub fn wait(&self, timeout: Option<Duration>) -> Waited {
        self.pin.as_ref().map_or(Waited::Ended, |pin| pin.wait(timeout))
    }

    /// What turns readable at its end, if there is such a thing.
    #[must_use]
    pub fn descriptor(&self) -> Option<i32> {
        self.pin.as_ref().and_then(Pin::descriptor)
    }
}

/// Many processes, watched at a cost that follows the deaths.
pub struct WatchSet {
    pins: Arc<PinSet>,
    limit: usize,
    members: HashMap<u64, Member>,
    next_key: u64,
    pinned: usize,
}

struct Member {
    record: Identity,
    /// Absent: beyond the limit, or gone from the start. Such a member is judged each time.
    pin: Option<Pin>,
}

impl WatchSet {
    /// An empty set that holds at most `limit` descriptors.
    ///
    /// # Errors
    /// When the system gives no epoll.
    pub fn new(limit: Option<usize>) -> Result<Self, Error> {
        let limit = limit.unwrap_or_else(PinSet::default_limit);
        Ok(Self { pins: Arc::new(PinSet::new()?), limit, members: HashMap::new(), next_key: 0, pinned: 0 })
    }

    /// Judges `record`, and watches it under the returned key unless it is unknown.
    pub fn add(&mut self, record: &Identity, me: &Observer<'_>) -> (Judgement, Option<u64>) {
        let (judgement, pin) = pin(record, me);
        if judgement.verdict == Verdict::Unknown {
            return (judgement, None);
        }
        let key = self.next_key;
        self.next_key += 1;
        let alive = judgement.verdict == Verdict::Alive;
        let pin = pin.filter(|pin| alive && self.pinned < self.limit && self.pins.add(key, pin));
        self.pinned += usize::from(pin.is_some());
        self.members.insert(key, Member { record: record.clone(), pin });
        (judgement, Some(key))
    }

    /// Stops watching.
    pub fn discard(&mut self, key: u64) {
        if let Some(Member { pin: Some(pin), .. }) = self.members.remove(&key) {
            self.pins.discard(&pin);
            self.pinned -= 1;
        }
    }

    /// The keys of members that have ended since the last call, each once. Does not wait.
    ///
    /// # Errors
    /// When the process cannot be identified, so that members without a pin cannot be judged.
    pub fn ended(&mut self) -> Result<Vec<u64>, Error> {
        let mut keys = self.pins.ended(self.pinned);
        if self.pinned < self.members.len() {
            let me = Observer::new(None, None, Capabilities::default())?;
            let unpinned = self.members.iter().filter(|(_, member)| member.pin.is_none());
            keys.extend(unpinned.filter(|(_, m)| judge(&m.record, &me).verdict == Verdict::Gone).map(|(&key, _)| key));
        }
        for &key in &keys {
            self.discard(key);
        }
        Ok(keys)
    }

    /// What to wait on between two calls of `ended`, without keeping the set itself.
    #[must_use]
    pub fn waiter(&self) -> Waiter {
        Waiter { pins: Arc::clone(&self.pins), wakes_for_all: self.pinned == self.members.len() }
    }

    /// How many are watched.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// What turns readable when a pinned member ends.
    #[must_use]
    pub fn descriptor(&self) -> i32 {
        self.pins.descriptor()
    }
}

/// Waits for a set's next death. Apart from the set, so that others may add to it meanwhile.
pub struct Waiter {
    pins: Arc<PinSet>,
    wakes_for_all: bool,
}

impl Waiter {
    /// Waits until a member may have ended. May come back early as [`Waited::Interrupted`]; the caller keeps the time.
    #[must_use]
    pub fn wait(&self, timeout: Option<Duration>) -> Waited {
        // Members that nothing wakes us for are to be looked at again after a nap.
        const LONGEST_SLEEP: Duration = Duration::from_millis(20);
        if self.wakes_for_all {
            return self.pins.wait(timeout);
        }
        let nap = timeout.map_or(LONGEST_SLEEP, |timeout| timeout.min(LONGEST_SLEEP));
        match self.pins.wait(Some(nap)) {
            Waited::TimedOut if timeout != Some(nap) => Waited::Interrupted,
            other => other,
        }
    }
}
