//! The Windows rows of the decision table, each on forged answers: also those that no machine at hand gives.

use std::cell::RefCell;

use super::{ERROR_ACCESS_DENIED, ERROR_INVALID_PARAMETER, Kernel, Machine, by_pid, identify, plausible_pid};
use crate::record::Identity;
use crate::verdict::{Evidence, Reason, Verdict};
use crate::{Capabilities, Error};

const BORN: u64 = 133_000_000_000_000_001;

/// A kernel that says what it was told to, and keeps count.
struct Forged {
    open: Result<(), u32>,
    number: u32,
    created: Result<u64, u32>,
    unique_id: Result<u64, u32>,
    has_exited: Result<bool, u32>,
    listed: Result<Option<u64>, u32>,
    asked: RefCell<Vec<&'static str>>,
}

impl Forged {
    /// A process that runs, and that may be opened.
    fn running() -> Self {
        Self {
            open: Ok(()),
            number: 4000,
            created: Ok(BORN),
            unique_id: Ok(77),
            has_exited: Ok(false),
            listed: Ok(Some(BORN)),
            asked: RefCell::default(),
        }
    }

    fn denied(listed: Result<Option<u64>, u32>) -> Self {
        Self { open: Err(ERROR_ACCESS_DENIED), listed, ..Self::running() }
    }
}

impl Kernel for Forged {
    type Handle = ();

    fn open(&self, _pid: u32) -> Result<(), u32> {
        self.asked.borrow_mut().push("open");
        self.open
    }
    fn number(&self, (): &()) -> Result<u32, u32> {
        self.asked.borrow_mut().push("number");
        Ok(self.number)
    }
    fn created(&self, (): &()) -> Result<u64, u32> {
        self.asked.borrow_mut().push("created");
        self.created
    }
    fn unique_id(&self, (): &()) -> Result<u64, u32> {
        self.asked.borrow_mut().push("unique_id");
        self.unique_id
    }
    fn has_exited(&self, (): &()) -> Result<bool, u32> {
        self.asked.borrow_mut().push("has_exited");
        self.has_exited
    }
    fn listed(&self, _pid: u32) -> Result<Option<u64>, u32> {
        self.asked.borrow_mut().push("listed");
        self.listed
    }
}

const WITH_IDS: Capabilities = Capabilities { handle: false, pidfs: false, pidfd: false, proc: false, unique_id: true };

fn record(start: Option<u64>, uniq: Option<u64>) -> Identity {
    let text = r#"{"v":1,"os":"windows","pid":4000}"#;
    Identity { start, uniq, ..Identity::from_json(text.as_bytes()).expect("well formed") }
}

/// By the time of creation alone, as on a system that tells no unique ids.
fn judged(kernel: &Forged) -> (Verdict, Reason, Evidence) {
    let (judgement, pinned) = by_pid(&record(Some(BORN), None), Capabilities::default(), kernel);
    assert_eq!(pinned.is_some(), judgement.verdict == Verdict::Alive && judgement.evidence != Evidence::ProcessTable);
    (judgement.verdict, judgement.reason, judgement.evidence)
}

#[test]
fn a_process_that_the_wait_finds_running_is_alive() {
    let answer = (Verdict::Alive, Reason::SameStartTime, Evidence::ProcessHandle);
    assert_eq!(judged(&Forged::running()), answer);
}

#[test]
fn one_that_merely_opens_is_gone_if_the_wait_says_so() {
    let kernel = Forged { has_exited: Ok(true), ..Forged::running() };
    assert_eq!(judged(&kernel), (Verdict::Gone, Reason::Exited, Evidence::ProcessHandle));
}

#[test]
fn another_time_of_creation_is_another_process_by_a_tenth_of_a_microsecond() {
    let kernel = Forged { created: Ok(BORN + 1), ..Forged::running() };
    assert_eq!(judged(&kernel), (Verdict::Gone, Reason::PidReused, Evidence::ProcessHandle));
}

#[test]
fn a_number_that_names_no_object_is_gone() {
    let kernel = Forged { open: Err(ERROR_INVALID_PARAMETER), ..Forged::running() };
    assert_eq!(judged(&kernel), (Verdict::Gone, Reason::NoSuchPid, Evidence::ProcessHandle));
}

#[test]
fn a_protected_process_is_looked_up_in_the_list_of_all() {
    for (listed, verdict, reason) in [
        (Ok(Some(BORN)), Verdict::Alive, Reason::SameStartTime),
        (Ok(Some(BORN + 1)), Verdict::Gone, Reason::PidReused),
        // Denied, so there is an object; not listed, so its process is over.
        (Ok(None), Verdict::Gone, Reason::Exited),
        (Err(5), Verdict::Unknown, Reason::Hidden),
    ] {
        assert_eq!(judged(&Forged::denied(listed)), (verdict, reason, Evidence::ProcessTable), "{listed:?}");
    }
}

#[test]
fn an_error_that_proves_nothing_is_unknown_and_says_which() {
    for (error, reason) in [(31, Reason::ProbeFailed), (1450, Reason::NoFds), (8, Reason::NoFds)] {
        for kernel in [
            Forged { open: Err(error), ..Forged::running() },
            Forged { created: Err(error), ..Forged::running() },
            Forged { has_exited: Err(error), ..Forged::running() },
        ] {
            let (judgement, _) = by_pid(&record(Some(BORN), None), Capabilities::default(), &kernel);
            assert_eq!((judgement.verdict, judgement.reason), (Verdict::Unknown, reason));
            assert!(judgement.detail.is_some_and(|detail| detail.contains(&error.to_string())));
        }
    }
}

#[test]
fn a_record_without_a_start_time_is_unknown_unless_there_is_nobody() {
    let nobody = Forged { open: Err(ERROR_INVALID_PARAMETER), ..Forged::running() };
    for (kernel, verdict, reason) in [
        (Forged::running(), Verdict::Unknown, Reason::NoStartTime),
        (Forged::denied(Ok(Some(BORN))), Verdict::Unknown, Reason::NoStartTime),
        (Forged::denied(Ok(None)), Verdict::Gone, Reason::Exited),
        (nobody, Verdict::Gone, Reason::NoSuchPid),
    ] {
        let (judgement, _) = by_pid(&record(None, None), Capabilities::default(), &kernel);
        assert_eq!((judgement.verdict, judgement.reason), (verdict, reason));
    }
}

#[test]
fn a_unique_id_decides_where_both_sides_have_one() {
    let judged = |kernel: &Forged, uniq, has| {
        let (judgement, _) = by_pid(&record(Some(BORN), uniq), has, kernel);
        (judgement.verdict, judgement.reason, judgement.evidence)
    };
    let ends = Forged { has_exited: Ok(true), ..Forged::running() };
    let fails = Forged { unique_id: Err(31), ..Forged::running() };
    let same = (Verdict::Alive, Reason::SameUniqueId, Evidence::UniqueId);
    assert_eq!(judged(&Forged::running(), Some(77), WITH_IDS), same);
    assert_eq!(judged(&Forged::running(), Some(76), WITH_IDS), (Verdict::Gone, Reason::PidReused, Evidence::UniqueId));
    assert_eq!(judged(&ends, Some(77), WITH_IDS), (Verdict::Gone, Reason::Exited, Evidence::UniqueId));
    assert_eq!(judged(&fails, Some(77), WITH_IDS).0, Verdict::Unknown);
    // One side has none: by the time of creation.
    let by_time = (Verdict::Alive, Reason::SameStartTime, Evidence::ProcessHandle);
    assert_eq!(judged(&Forged::running(), None, WITH_IDS), by_time);
    assert_eq!(judged(&Forged::running(), Some(76), Capabilities::default()), by_time);
}

#[test]
fn a_judgement_asks_three_questions_at_most() {
    let asks = |kernel: Forged, uniq, has| {
        let _ = by_pid(&record(Some(BORN), uniq), has, &kernel);
        kernel.asked.into_inner()
    };
    let nobody = || Forged { open: Err(ERROR_INVALID_PARAMETER), ..Forged::running() };
    assert_eq!(asks(Forged::running(), None, Capabilities::default()), ["open", "created", "has_exited"]);
    assert_eq!(asks(Forged::running(), Some(77), WITH_IDS), ["open", "unique_id", "has_exited"]);
    assert_eq!(asks(nobody(), None, Capabilities::default()), ["open"]);
    assert_eq!(asks(Forged::denied(Ok(None)), None, Capabilities::default()), ["open", "listed"]);
}

#[test]
fn numbers_that_would_be_rounded_are_no_pids() {
    assert!(plausible_pid(4) && plausible_pid(4000));
    assert!(!plausible_pid(4001) && !plausible_pid(4002) && !plausible_pid(4003));
    // Whoever asks with such a number all the same gets the process that it was rounded to.
    let rounded = identify(4003, Capabilities::default(), &Forged::running());
    assert!(matches!(rounded, Err(Error::NoSuchProcess)));
}

#[test]
fn identifying_takes_what_the_system_tells() {
    let id = |kernel: &Forged, has| identify(4000, has, kernel);
    assert!(matches!(id(&Forged::running(), WITH_IDS), Ok((Some(BORN), Some(77)))));
    assert!(matches!(id(&Forged::running(), Capabilities::default()), Ok((Some(BORN), None))));
    assert!(matches!(id(&Forged::denied(Ok(Some(BORN))), WITH_IDS), Ok((Some(BORN), None))));
    let over = Forged { has_exited: Ok(true), ..Forged::running() };
    for gone in [over, Forged::denied(Ok(None)), Forged { open: Err(ERROR_INVALID_PARAMETER), ..Forged::running() }] {
        assert!(matches!(id(&gone, WITH_IDS), Err(Error::NoSuchProcess)));
    }
    assert!(matches!(id(&Forged { open: Err(8), ..Forged::running() }, WITH_IDS), Err(Error::System(..))));
}

fn machine() -> Machine {
    Machine { guid: Some("guid".to_owned()), name: Some("NAME".to_owned()), boots: 17, ..Machine::default() }
}

#[test]
fn no_count_of_boots_is_no_boot_id() {
    assert_eq!(Machine { boots: 0, ..machine() }.boot(), None);
}

#[test]
fn equal_counts_of_two_machines_are_two_boot_ids_and_no_machine_is_none() {
    let other = Machine { guid: Some("other".to_owned()), ..machine() };
    let renamed = Machine { name: Some("OTHER".to_owned()), ..machine() };
    assert!(machine().boot().is_some_and(|boot| boot.ends_with("-17")));
    assert!(machine().boot() != other.boot() && machine().boot() != renamed.boot());
    assert_ne!(machine().boot(), Machine { boots: 18, ..machine() }.boot());
    for unnamed in [Machine { guid: None, ..machine() }, Machine { name: None, ..machine() }] {
        assert_eq!((unnamed.host(), unnamed.boot()), (None, None));
    }
}

#[test]
fn under_wine_the_server_is_what_has_booted() {
    let at = |started| Machine { boots: 0, wine_server: Some(started), ..machine() }.boot();
    assert!(at(1).is_some() && at(1) != at(2));
}

#[test]
fn a_container_is_a_namespace_even_beside_one_of_its_name() {
    let container = |born| Machine { container: Some(born), ..machine() }.namespace();
    assert_ne!(container(1), machine().namespace());
    assert_ne!(container(1), container(2));
    assert_eq!(Machine { container: Some(1), name: None, ..machine() }.namespace(), None);
}
