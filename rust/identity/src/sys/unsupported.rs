//! A system that nobody has taught: every judgement is "can't tell", and time and the fence do the work.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::{Rules, Waited};
use crate::record::Identity;
use crate::verdict::{Evidence, Judgement, Reason};
use crate::{Capabilities, Error};

pub(crate) const RULES: Rules = Rules { known: false, has_pid_namespaces: false, plausible_pid: |_pid| true };

pub(crate) struct Environment {
    pub(crate) me: Identity,
    pub(crate) has: Capabilities,
    pub(crate) host_is_unique: bool,
}

/// An identity that names the system and the number and nothing else: without a boot id nobody judges it.
pub(crate) fn environment() -> Result<&'static Environment, Error> {
    static CAPTURED: OnceLock<Environment> = OnceLock::new();
    if let Some(environment) = CAPTURED.get() {
        return Ok(environment);
    }
    let (host, host_is_unique) = super::operator()?;
    let me = Identity {
        os: std::env::consts::OS.to_owned(),
        host,
        boot: None,
        ns: None,
        ns_id: None,
        pid: std::process::id(),
        start: None,
        uniq: None,
        nonce: None,
        unknown: serde_json::Map::new(),
    };
    Ok(CAPTURED.get_or_init(|| Environment { me, has: Capabilities::default(), host_is_unique }))
}

pub(crate) fn prepare() {}

pub(crate) fn identify(_pid: u32, _env: &Environment, _has: Capabilities) -> Result<(Option<u64>, Option<u64>), Error> {
    Err(Error::Unsupported)
}

pub(crate) fn is_current(record: &Identity, _env: &Environment, _has: Capabilities) -> Result<bool, Error> {
    Ok(record.pid == std::process::id())
}

pub(crate) fn is_unchanged(_env: &Environment) -> bool {
    false
}

fn cannot_tell() -> Judgement {
    Judgement::unknown(Reason::UnsupportedPlatform, Evidence::None)
}

pub(crate) fn by_pid(_record: &Identity, _env: &Environment, _has: Capabilities) -> (Judgement, Option<Pin>) {
    (cannot_tell(), None)
}

pub(crate) fn by_pid_many(records: &[&Identity], _env: &Environment, _has: Capabilities) -> Vec<Judgement> {
    records.iter().map(|_| cannot_tell()).collect()
}

pub(crate) fn by_handle(_record: &Identity, _env: &Environment, _has: Capabilities) -> (Judgement, Option<Pin>) {
    (cannot_tell(), None)
}

/// Nothing can be pinned: there is no value of this type.
pub(crate) enum Pin {}

impl Pin {
    pub(crate) fn alive(&self) -> bool {
        match *self {}
    }

    pub(crate) fn wait(&self, _timeout: Option<Duration>) -> Waited {
        match *self {}
    }

    pub(crate) fn descriptor(&self) -> Option<i32> {
        match *self {}
    }
}

pub(crate) struct PinSet;

impl PinSet {
    pub(crate) fn new() -> Result<Self, Error> {
        Ok(Self)
    }

    pub(crate) fn default_limit() -> usize {
        0
    }

    pub(crate) fn add(&self, _key: u64, pin: &Pin) -> bool {
        match *pin {}
    }

    pub(crate) fn discard(&self, pin: &Pin) {
        match *pin {}
    }

    pub(crate) fn ended(&self, _members: usize) -> Vec<u64> {
        Vec::new()
    }

    pub(crate) fn wait(&self, timeout: Option<Duration>) -> Waited {
        std::thread::sleep(timeout.unwrap_or(Duration::from_millis(20)));
        Waited::TimedOut
    }

    pub(crate) fn descriptor(&self) -> i32 {
        -1
    }
}

fn since_first_call() -> u64 {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    u64::try_from(FIRST.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Whether it counts in suspend is not known here; the two clocks are one.
#[must_use]
pub fn awake_ns() -> u64 {
    since_first_call()
}

/// See [`awake_ns`].
#[must_use]
pub fn boottime_ns() -> u64 {
    since_first_call()
}
