//! The judgement: first what the record says by itself, then what the kernel answers.
//!
//! docs/concepts/verdicts.md explains the table for users; the row numbers in the comments are its rows.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};

use crate::record::{Host, Identity};
use crate::sys::{self, Environment, Rules};
use crate::verdict::{Evidence, Judgement, Reason};
use crate::{Capabilities, Error};

/// To be called once, early, before the process forks: a fork in the middle of the first judgement of another thread would
/// leave the child with something half made.
pub fn prepare() {
    sys::prepare();
}

/// Who asks: this process, what it knows about its host, and which evidence it can get.
pub struct Observer<'a> {
    pub(crate) env: &'static Environment,
    pub(crate) has: Capabilities,
    host: Option<&'a Host>,
    host_is_unique: bool,
}

impl<'a> Observer<'a> {
    /// The calling process. Captured at the first call and after a fork, else a look at a cache.
    ///
    /// `host` and `host_is_unique` win over the operator's environment variables; `without` takes evidence away.
    ///
    /// # Errors
    /// When the process cannot be identified.
    pub fn new(host: Option<&'a Host>, host_is_unique: Option<bool>, without: Capabilities) -> Result<Self, Error> {
        let env = sys::environment()?;
        Ok(Self {
            env,
            has: env.has.without(without),
            host: host.or(env.me.host.as_ref()),
            host_is_unique: host_is_unique.unwrap_or(env.host_is_unique),
        })
    }

    /// Which evidence there is.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.has
    }

    /// The calling process's own identity.
    #[must_use]
    pub fn me(&self) -> Identity {
        Identity { host: self.host.cloned(), ..self.env.me.clone() }
    }

    /// Another process of this pid namespace.
    ///
    /// # Errors
    /// There is none of that number, or the system would not say.
    pub fn identify(&self, pid: u32) -> Result<Identity, Error> {
        let (start, uniq) = sys::identify(pid, self.env, self.has)?;
        Ok(Identity { pid, start, uniq, nonce: None, ..self.me() })
    }

    /// As `is_me`, for the hot path of a holder: one system call where the kernel gives unique ids.
    ///
    /// What it leaves out is the boot id, which differs only where a checkpoint was restored on another machine and
    /// the unique ids happen to be equal.
    ///
    /// # Errors
    /// When the process cannot be identified.
    pub fn is_still_me(&self, record: &Identity) -> Result<bool, Error> {
        let me = &self.env.me;
        let may_be_me = (record.nonce, record.pid, record.uniq) == (me.nonce, me.pid, me.uniq);
        if may_be_me && sys::is_unchanged(self.env) { Ok(true) } else { self.is_me(record) }
    }

    /// Whether `record` describes the calling process still, asking the kernel anew.
    ///
    /// # Errors
    /// When the process cannot be identified.
    pub fn is_me(&self, record: &Identity) -> Result<bool, Error> {
        let me = &self.env.me;
        // A nonce is drawn anew after a fork; a record made by another process has none.
        let may_be_me = record.nonce.is_none_or(|nonce| Some(nonce) == me.nonce)
            && (record.pid, &record.os, &record.boot, &record.ns) == (me.pid, &me.os, &me.boot, &me.ns);
        Ok(may_be_me && sys::is_current(record, self.env, self.has)?)
    }
}

/// What the record alone decides.
pub(crate) enum Asked {
    /// It is decided.
    Nobody(Judgement),
    /// The kernel must be asked, by unique id, since the number means nothing here.
    ByHandle,
    /// The kernel must be asked, by number.
    ByPid,
}

pub(crate) fn ask(record: &Identity, me: &Observer<'_>) -> Asked {
    ask_by(sys::RULES, record, &me.env.me, me.host, me.host_is_unique)
}

/// By the rules of any system, so that those of others are tested too.
#[inline(always)]
pub(crate) fn ask_by(
    rules: Rules,
    record: &Identity,
    own: &Identity,
    host: Option<&Host>,
    host_is_unique: bool,
) -> Asked {
    use Evidence::Record;
    let nobody = |judgement| Asked::Nobody(judgement);
    // Row 1: a number that this system never gives out.
    if !(rules.plausible_pid)(record.pid) {
        return nobody(Judgement::unknown(Reason::Malformed, Record).with_detail("pid: not one of this system's"));
    }
    if !rules.known {
        return nobody(Judgement::unknown(Reason::UnsupportedPlatform, Evidence::None));
    }
    // Row 2.
    if record.os != own.os {
        return nobody(Judgement::unknown(Reason::OtherOs, Record));
    }
    // Row 3. An absent host is no evidence either way: containers often have no machine id.
    let same_host = match (&record.host, host) {
        (Some(theirs), Some(ours)) if theirs != ours => return nobody(Judgement::unknown(Reason::OtherHost, Record)),
        (Some(theirs), Some(_)) => Some(theirs),
        _ => None,
    };
    // Rows 4 and 5. A different boot id is a reboot or another machine, and containers fake it: only an operator who
    // vouches for the host id can tell.
    match (&record.boot, &own.boot) {
        (Some(theirs), Some(ours)) if theirs != ours => {
            let vouched = host_is_unique && same_host.is_some_and(|host| host.set_by_operator);
            return nobody(if vouched {
                Judgement::gone(Reason::Rebooted, Record)
            } else {
                Judgement::unknown(Reason::OtherBoot, Record)
            });
        }
        (Some(_), Some(_)) => {}
        _ => return nobody(Judgement::unknown(Reason::NoBootId, Record)),
    }
    // Row 6. The number alone would not do: two containers may both be pid 1.
    if record.nonce.is_some() && record.nonce == own.nonce && record.pid == own.pid {
        return nobody(Judgement::alive(Reason::Itself, Record));
    }
    if rules.has_pid_namespaces {
        // Rows 7 to 12.
        match (&record.ns, &own.ns) {
            (Some(theirs), Some(ours)) if theirs != ours => return Asked::ByHandle,
            (Some(_), Some(_)) => {}
            _ => return nobody(Judgement::unknown(Reason::NoPidNamespace, Record)),
        }
        if let (Some(theirs), Some(ours)) = (record.ns_id, own.ns_id)
            && theirs != ours
        {
            return nobody(Judgement::gone(Reason::NamespaceGone, Record));
        }
    }
    Asked::ByPid
}

/// Judges one record.
#[inline(always)]
#[must_use]
pub fn judge(record: &Identity, me: &Observer<'_>) -> Judgement {
    match ask(record, me) {
        Asked::Nobody(judgement) => judgement,
        Asked::ByHandle => sys::by_handle(record, me.env, me.has).0,
        Asked::ByPid => sys::by_pid(record, me.env, me.has).0,
    }
}

/// Judges many, in their order, with one probe per distinct process.
#[must_use]
pub fn judge_many<'r>(records: impl IntoIterator<Item = &'r Identity>, me: &Observer<'_>) -> Vec<Judgement> {
    let mut seen: HashMap<Question<'r>, usize> = HashMap::new();
    let mut distinct: Vec<&Identity> = Vec::new();
    let which: Vec<usize> = records
        .into_iter()
        .map(|record| {
            *seen.entry(Question(record)).or_insert_with(|| {
                distinct.push(record);
                distinct.len() - 1
            })
        })
        .collect();
    let mut by_pid = Vec::new();
    let mut answers: Vec<Option<Judgement>> = Vec::with_capacity(distinct.len());
    for record in &distinct {
        answers.push(match ask(record, me) {
            Asked::Nobody(judgement) => Some(judgement),
            Asked::ByHandle => Some(sys::by_handle(record, me.env, me.has).0),
            Asked::ByPid => {
                by_pid.push(*record);
                None
            }
        });
    }
    let mut probed = sys::by_pid_many(&by_pid, me.env, me.has).into_iter();
    let answers: Vec<Judgement> = answers
        .into_iter()
        .map(|known| known.unwrap_or_else(|| probed.next().expect("one answer per question")))
        .collect();
    which.into_iter().map(|at| answers[at].clone()).collect()
}

/// A record as a question to the kernel: what a later writer added makes no other question.
struct Question<'r>(&'r Identity);

impl Hash for Question<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // These tell almost all records apart; hashing the long texts too would cost more than the rare collision.
        // Written in one go: a write for each field and its discriminant took three times as long.
        let mut bytes = [0; 20];
        bytes[..4].copy_from_slice(&self.0.pid.to_ne_bytes());
        bytes[4..12].copy_from_slice(&self.0.uniq.unwrap_or_default().to_ne_bytes());
        bytes[12..].copy_from_slice(&self.0.start.unwrap_or_default().to_ne_bytes());
        state.write(&bytes);
    }
}

impl PartialEq for Question<'_> {
    fn eq(&self, other: &Self) -> bool {
        let (a, b) = (self.0, other.0);
        (a.pid, a.uniq, a.start, a.ns_id, a.nonce) == (b.pid, b.uniq, b.start, b.ns_id, b.nonce)
            && (&a.os, &a.host, &a.boot, &a.ns) == (&b.os, &b.host, &b.boot, &b.ns)
    }
}

impl Eq for Question<'_> {}
