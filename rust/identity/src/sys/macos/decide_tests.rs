//! Each row of the table that concerns macOS, on forged answers.

use super::*;
use crate::judge::{Asked, ask_by};
use crate::record::Host;
use crate::verdict::Verdict;
use std::cell::Cell;
use std::mem::offset_of;

const BOOT: &str = "3f9c1a52-0d7e-4b61-9a3c-6e2f8b4d7c10";

/// A kernel that answers as it was told to, and counts.
struct Forged {
    unique_id: Vec<Result<u64, Refused>>,
    listed: Result<Option<Listed>, Refused>,
    denies: bool,
    asked: Cell<usize>,
    calls: Cell<usize>,
}

impl Kernel for Forged {
    fn unique_id(&self, _pid: u32) -> Result<u64, Refused> {
        self.calls.set(self.calls.get() + 1);
        let at = self.asked.replace(self.asked.get() + 1);
        self.unique_id[at.min(self.unique_id.len() - 1)]
    }

    fn listed(&self, _pid: u32) -> Result<Option<Listed>, Refused> {
        self.calls.set(self.calls.get() + 1);
        self.listed
    }

    fn denies(&self, _pid: u32) -> bool {
        self.calls.set(self.calls.get() + 1);
        self.denies
    }
}

/// A process with id 7 and start 1000 runs, and everything may be asked.
fn running() -> Forged {
    Forged {
        unique_id: vec![Ok(7)],
        listed: Ok(Some(Listed { start: 1000, ended: false })),
        denies: false,
        asked: Cell::new(0),
        calls: Cell::new(0),
    }
}

fn record(uniq: Option<u64>, start: Option<u64>) -> Identity {
    let mut record = Identity::from_json(br#"{"v":1,"os":"macos","pid":4242}"#).expect("well formed");
    (record.boot, record.uniq, record.start) = (Some(BOOT.to_owned()), uniq, start);
    record
}

fn whole() -> Identity {
    record(Some(7), Some(1000))
}

fn by_start() -> Identity {
    record(None, Some(1000))
}

const ALIVE: fn(Reason, Evidence) -> Judgement = Judgement::alive;
const GONE: fn(Reason, Evidence) -> Judgement = Judgement::gone;
const UNKNOWN: fn(Reason, Evidence) -> Judgement = Judgement::unknown;

#[test]
fn what_the_record_alone_decides_comes_first() {
    let host = |id| Host::operator(id).expect("short");
    let me = Identity { nonce: Some([1; 16]), host: Some(host("ours")), ..whole() };
    let said = |record: &Identity, is_unique| match ask_by(RULES, record, &me, me.host.as_ref(), is_unique) {
        Asked::Nobody(judgement) => Some((judgement.verdict, judgement.reason)),
        Asked::ByPid => None,
        Asked::ByHandle => panic!("there are no pid namespaces"),
    };
    let unknown = |reason| Some((Verdict::Unknown, reason));
    // No namespace on either side is no obstacle, nor is a host that nobody named.
    assert_eq!(said(&whole(), false), None);
    assert_eq!(said(&Identity { os: "linux".to_owned(), ..whole() }, false), unknown(Reason::OtherOs));
    assert_eq!(said(&Identity { host: Some(host("theirs")), ..whole() }, false), unknown(Reason::OtherHost));
    assert_eq!(said(&Identity { boot: None, ..whole() }, false), unknown(Reason::NoBootId));
    let other_boot = |host| Identity { boot: Some("another".to_owned()), host, ..whole() };
    assert_eq!(said(&other_boot(None), true), unknown(Reason::OtherBoot));
    assert_eq!(said(&other_boot(Some(host("ours"))), false), unknown(Reason::OtherBoot));
    assert_eq!(said(&other_boot(Some(host("ours"))), true), Some((Verdict::Gone, Reason::Rebooted)));
    assert_eq!(said(&Identity { nonce: Some([1; 16]), ..whole() }, false), Some((Verdict::Alive, Reason::Itself)));
    assert_eq!(said(&Identity { nonce: Some([2; 16]), ..whole() }, false), None);
}

#[test]
fn the_same_unique_id_is_alive_and_pins_the_process_by_one_call() {
    let kernel = running();
    assert_eq!(by_pid(&whole(), true, &kernel), (ALIVE(Reason::SameUniqueId, Evidence::ProcInfo), Some(7)));
    assert_eq!(kernel.calls.get(), 1);
}

#[test]
fn another_unique_id_is_another_process() {
    let kernel = Forged { unique_id: vec![Ok(8)], ..running() };
    assert_eq!(by_pid(&whole(), true, &kernel), (GONE(Reason::PidReused, Evidence::ProcInfo), None));
}

#[test]
fn no_such_process_is_gone_and_so_is_a_zombie_which_answers_alike() {
    for record in [whole(), by_start(), record(None, None)] {
        let kernel = Forged { unique_id: vec![Err(Refused::NoSuchProcess)], ..running() };
        assert_eq!(by_pid(&record, true, &kernel), (GONE(Reason::NoSuchPid, Evidence::ProcInfo), None));
    }
}

#[test]
fn what_a_sandbox_forbids_to_ask_is_unknown_unless_getpgid_denies_it() {
    let forbidden = || Forged { unique_id: vec![Err(Refused::NotPermitted)], ..running() };
    assert_eq!(by_pid(&whole(), true, &forbidden()), (UNKNOWN(Reason::Hidden, Evidence::ProcInfo), None));
    let kernel = Forged { denies: true, ..forbidden() };
    assert_eq!(by_pid(&whole(), true, &kernel), (GONE(Reason::NoSuchPid, Evidence::Getpgid), None));
}

#[test]
fn an_error_proves_nothing_and_is_named() {
    let kernel = Forged { unique_id: vec![Err(Refused::Failed(12))], ..running() };
    let (judgement, pin) = by_pid(&whole(), true, &kernel);
    assert_eq!((judgement.reason, pin), (Reason::ProbeFailed, None));
    assert!(judgement.detail.is_some_and(|detail| detail.contains("os error 12")));
}

#[test]
fn without_a_unique_id_the_start_time_decides() {
    assert_eq!(by_pid(&by_start(), true, &running()), (ALIVE(Reason::SameStartTime, Evidence::ProcessTable), Some(7)));
    for (listed, says) in [
        (Ok(Some(Listed { start: 1001, ended: false })), GONE(Reason::PidReused, Evidence::ProcessTable)),
        (Ok(Some(Listed { start: 1001, ended: true })), GONE(Reason::PidReused, Evidence::ProcessTable)),
        (Ok(Some(Listed { start: 1000, ended: true })), GONE(Reason::Exited, Evidence::ProcessTable)),
        (Ok(None), UNKNOWN(Reason::Hidden, Evidence::ProcessTable)),
        (Err(Refused::NotPermitted), UNKNOWN(Reason::Hidden, Evidence::ProcessTable)),
    ] {
        assert_eq!(by_pid(&by_start(), true, &Forged { listed, ..running() }), (says, None), "{listed:?}");
    }
    // Where the id may not be used, the id in the record does not matter.
    let (alive, _) = by_pid(&record(Some(8), Some(1000)), false, &running());
    assert_eq!(alive, ALIVE(Reason::SameStartTime, Evidence::ProcessTable));
    let kernel = Forged { listed: Ok(None), denies: true, ..running() };
    assert_eq!(by_pid(&by_start(), true, &kernel), (GONE(Reason::NoSuchPid, Evidence::Getpgid), None));
    assert_eq!(
        by_pid(&record(None, None), true, &running()),
        (UNKNOWN(Reason::NoStartTime, Evidence::ProcessTable), None)
    );
}

#[test]
fn a_process_judged_by_its_start_is_pinned_only_if_the_number_stayed_its_own() {
    for second in [Ok(8), Err(Refused::NoSuchProcess)] {
        let kernel = Forged { unique_id: vec![Ok(7), second], ..running() };
        assert_eq!(by_pid(&by_start(), true, &kernel).1, None, "{second:?}");
    }
    let kernel = Forged { unique_id: vec![Err(Refused::NotPermitted)], ..running() };
    assert_eq!(by_pid(&by_start(), true, &kernel), (ALIVE(Reason::SameStartTime, Evidence::ProcessTable), None));
}

#[test]
fn only_what_ran_all_the_while_is_identified() {
    let told = |kernel: Forged| identify(4242, &kernel).map_err(|error| error.to_string());
    let gone = Err("no such process".to_owned());
    assert_eq!(told(running()), Ok((Some(1000), Some(7))));
    assert_eq!(told(Forged { listed: Err(Refused::NotPermitted), ..running() }), Ok((None, Some(7))));
    assert_eq!(told(Forged { unique_id: vec![Err(Refused::NoSuchProcess)], ..running() }), gone);
    assert_eq!(told(Forged { unique_id: vec![Ok(7), Ok(8)], ..running() }), gone);
    assert_eq!(told(Forged { listed: Ok(Some(Listed { start: 1000, ended: true })), ..running() }), gone);
    let forbidden = || Forged { unique_id: vec![Err(Refused::NotPermitted)], ..running() };
    assert_eq!(told(forbidden()), Ok((Some(1000), None)));
    assert_eq!(told(Forged { listed: Ok(None), denies: true, ..forbidden() }), gone);
    assert!(told(Forged { listed: Ok(None), ..forbidden() }).is_err_and(|text| text.starts_with("proc_pidinfo: ")));
}

#[test]
fn a_holder_that_is_somebody_else_by_now_sees_it() {
    let current = |record: &Identity, boot, kernel: Forged| is_current(record, boot, &kernel).ok();
    assert_eq!(current(&whole(), Some(BOOT), running()), Some(true));
    assert_eq!(current(&whole(), Some("another"), running()), Some(false));
    assert_eq!(current(&record(Some(8), Some(1000)), Some(BOOT), running()), Some(false));
    assert_eq!(current(&by_start(), Some(BOOT), running()), Some(true));
    assert_eq!(current(&record(None, Some(1001)), Some(BOOT), running()), Some(false));
    assert_eq!(current(&record(None, None), Some(BOOT), running()), Some(false));
    // Not told is not different.
    assert_eq!(current(&whole(), None, running()), None);
}

#[test]
fn a_pinned_process_ends_by_proof_alone() {
    let ended = |answer, denies| has_ended(4242, 7, &Forged { unique_id: vec![answer], denies, ..running() });
    assert!(!ended(Ok(7), false));
    assert!(ended(Ok(8), false));
    assert!(ended(Err(Refused::NoSuchProcess), false));
    assert!(!ended(Err(Refused::NotPermitted), false) && ended(Err(Refused::NotPermitted), true));
    assert!(!ended(Err(Refused::Failed(12)), false));
}

#[test]
fn an_answer_counts_only_whole() {
    let info = UniqueInfo { unique_id: 7, ..UniqueInfo::default() };
    assert_eq!(read_unique_id(56, 0, &info), Ok(7));
    assert_eq!(read_unique_id(0, ESRCH, &info), Err(Refused::NoSuchProcess));
    assert_eq!(read_unique_id(-1, EPERM, &info), Err(Refused::NotPermitted));
    assert_eq!(read_unique_id(0, 22, &info), Err(Refused::Failed(22)));
    assert_eq!(read_unique_id(48, ESRCH, &info), Err(Refused::Failed(0)));
    let entry = |state| Entry { start_s: 2, start_us: 5, state, pid: 4242, ..Entry::default() };
    let read = |returned, errno, size, entry| read_entry(4242, returned, errno, size, &entry);
    assert_eq!(read(0, 0, 648, entry(2)), Ok(Some(Listed { start: 2_000_005, ended: false })));
    assert_eq!(read(0, 0, 648, entry(5)), Ok(Some(Listed { start: 2_000_005, ended: true })));
    assert_eq!(read(0, 0, 0, entry(2)), Ok(None));
    assert_eq!(read(-1, ESRCH, 0, entry(2)), Ok(None));
    assert_eq!(read(-1, EPERM, 0, entry(2)), Err(Refused::NotPermitted));
    assert_eq!(read(0, 0, 100, entry(2)), Err(Refused::Failed(0)));
    assert_eq!(read(0, 0, 648, Entry { pid: 4243, ..entry(2) }), Err(Refused::Failed(0)));
    assert_eq!(read(0, 0, 648, Entry { start_s: -1, ..entry(2) }), Err(Refused::Failed(0)));
}

#[test]
fn the_boot_id_is_a_uuid_in_lower_case_or_none() {
    assert_eq!(read_boot(b"3F9C1A52-0D7E-4B61-9A3C-6E2F8B4D7C10\0").as_deref(), Some(BOOT));
    for bad in [&b""[..], b"\0", b"00000000-0000-0000-0000-000000000000\0", b"1700000000.5\0"] {
        assert_eq!(read_boot(bad), None, "{bad:?}");
    }
}

/// layout.c holds the same numbers against Apple's headers.
#[test]
fn the_layouts_are_those_that_apples_headers_are_held_against() {
    let c = include_str!("layout.c");
    for (expression, number) in [
        ("EPERM", usize::try_from(EPERM).expect("positive")),
        ("ESRCH", usize::try_from(ESRCH).expect("positive")),
        ("SZOMB", usize::try_from(ZOMBIE).expect("positive")),
        ("sizeof(struct kinfo_proc)", size_of::<Entry>()),
        ("offsetof(struct kinfo_proc, kp_proc.p_un.__p_starttime.tv_sec)", offset_of!(Entry, start_s)),
        ("offsetof(struct kinfo_proc, kp_proc.p_un.__p_starttime.tv_usec)", offset_of!(Entry, start_us)),
        ("offsetof(struct kinfo_proc, kp_proc.p_stat)", offset_of!(Entry, state)),
        ("offsetof(struct kinfo_proc, kp_proc.p_pid)", offset_of!(Entry, pid)),
    ] {
        let line = format!("_Static_assert({expression} == {number}, ");
        assert!(c.contains(&line), "{line}");
    }
    // In no public header. Source: XNU, bsd/sys/proc_info_private.h.
    assert_eq!((size_of::<UniqueInfo>(), offset_of!(UniqueInfo, unique_id)), (56, 16));
}
