//! The crate on its own against real children; the whole matrix of scenes and levels is in tests/identity.
#![cfg(target_os = "linux")]

use std::process::{Child, Command};
use std::time::Duration;
use tenure_identity::{
    Capabilities, Error, Judgement, Observer, Reason, Verdict, Waited, Watch, WatchSet, judge, judge_many,
};

/// The levels of evidence, from this kernel's own down to /proc alone.
const LEVELS: [Capabilities; 4] = [
    Capabilities { handle: false, pidfs: false, pidfd: false, proc: false, unique_id: false },
    Capabilities { handle: true, pidfs: false, pidfd: false, proc: false, unique_id: false },
    Capabilities { handle: true, pidfs: true, pidfd: false, proc: false, unique_id: false },
    Capabilities { handle: true, pidfs: true, pidfd: true, proc: false, unique_id: false },
];

fn sleeper() -> Child {
    Command::new("sleep").arg("1000").spawn().expect("sleep(1)")
}

fn observer<'a>(without: Capabilities) -> Observer<'a> {
    Observer::new(None, None, without).expect("this process can be identified")
}

fn said(judgement: &Judgement) -> (Verdict, Reason) {
    (judgement.verdict, judgement.reason)
}

#[test]
fn a_child_is_alive_then_a_zombie_then_gone_at_every_level() {
    let mut child = sleeper();
    let record = observer(LEVELS[0]).identify(child.id()).expect("it runs");
    for without in LEVELS {
        assert_eq!(judge(&record, &observer(without)).verdict, Verdict::Alive, "{without:?}");
    }
    child.kill().expect("ours");
    Watch::open(&record, &observer(LEVELS[0])).map(|watch| watch.wait(None)).expect("known");
    for without in LEVELS {
        assert_eq!(said(&judge(&record, &observer(without))), (Verdict::Gone, Reason::Exited), "{without:?}");
    }
    child.wait().expect("ours");
    for without in LEVELS {
        assert_eq!(said(&judge(&record, &observer(without))), (Verdict::Gone, Reason::NoSuchPid), "{without:?}");
    }
    assert!(matches!(observer(LEVELS[0]).identify(record.pid), Err(Error::NoSuchProcess)));
}

#[test]
fn many_are_judged_as_one_by_one() {
    let mut children: Vec<Child> = (0..20).map(|_| sleeper()).collect();
    let me = observer(LEVELS[0]);
    let records: Vec<_> = children.iter().map(|child| me.identify(child.id()).expect("it runs")).collect();
    for child in children.iter_mut().step_by(3) {
        child.kill().and_then(|()| child.wait()).expect("ours");
    }
    let twice: Vec<_> = records.iter().chain(&records).collect();
    for without in LEVELS {
        let me = observer(without);
        let one_by_one: Vec<_> = twice.iter().map(|record| judge(record, &me)).collect();
        assert_eq!(judge_many(twice.iter().copied(), &me), one_by_one, "{without:?}");
    }
    children.iter_mut().for_each(|child| drop(child.kill().and_then(|()| child.wait())));
}

#[test]
fn a_set_names_each_death_once() {
    let mut children: Vec<Child> = (0..3).map(|_| sleeper()).collect();
    let me = observer(LEVELS[0]);
    // One descriptor only, so that the others are judged.
    let mut set = WatchSet::new(Some(1)).expect("an epoll");
    let keys: Vec<_> = children
        .iter()
        .map(|child| set.add(&me.identify(child.id()).expect("it runs"), &me).1.expect("watched"))
        .collect();
    assert_eq!((set.ended().expect("asked"), set.len()), (vec![], 3));
    for (child, key) in children.iter_mut().zip(keys) {
        child.kill().and_then(|()| child.wait()).expect("ours");
        let mut ended = set.ended().expect("asked");
        while ended.is_empty() && set.waiter().wait(Some(Duration::from_secs(10))) != Waited::TimedOut {
            ended = set.ended().expect("asked");
        }
        assert_eq!(ended, vec![key]);
    }
    assert!(set.is_empty());
}

#[test]
fn we_are_ourselves() {
    let me = observer(LEVELS[0]);
    let record = me.me();
    assert!(me.is_me(&record).expect("asked"));
    assert_eq!(said(&judge(&record, &me)), (Verdict::Alive, Reason::Itself));
    assert!(Watch::open(&record, &me).is_ok_and(|watch| watch.alive()));
}
