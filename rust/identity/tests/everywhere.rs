//! What holds on every system that is known: against real children.
#![cfg(any(target_os = "linux", target_os = "macos", windows))]

use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tenure_identity::{
    Capabilities, Error, Identity, Observer, Reason, Verdict, Waited, Watch, WatchSet, judge, judge_many,
};

/// Whatever ends when its input does. Where there is no cat, this very program, started again.
fn idler() -> Command {
    if cfg!(unix) {
        return Command::new("cat");
    }
    let mut again = Command::new(std::env::current_exe().expect("this program"));
    again.args(["--exact", "child", "--ignored"]);
    again
}

#[test]
#[ignore = "started by the other tests"]
fn child() {
    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
}

fn start() -> Child {
    idler().stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("started")
}

fn end(mut child: Child) {
    child.kill().and_then(|()| child.wait()).expect("ours");
}

fn observer<'a>() -> Observer<'a> {
    Observer::new(None, None, Capabilities::default()).expect("this process can be identified")
}

fn wait_for_end(watch: &Watch) {
    while watch.wait(Some(Duration::from_secs(10))) != Waited::Ended {}
}

#[test]
fn a_child_is_alive_and_after_its_end_it_is_gone_reaped_or_not() {
    let me = observer();
    let mut child = start();
    let record = me.identify(child.id()).expect("it runs");
    assert!(record.start.is_some() || record.uniq.is_some());
    assert_eq!(judge(&record, &me).verdict, Verdict::Alive);
    let watch = Watch::open(&record, &me).expect("it runs");
    assert_eq!((watch.alive(), watch.wait(Some(Duration::ZERO))), (true, Waited::TimedOut));
    child.kill().expect("ours");
    wait_for_end(&watch);
    assert_eq!((judge(&record, &me).verdict, watch.alive()), (Verdict::Gone, false));
    child.wait().expect("ours");
    assert_eq!((judge(&record, &me).verdict, watch.alive()), (Verdict::Gone, false));
    drop(watch);
    assert!(Watch::open(&record, &me).is_ok_and(|watch| !watch.alive() && watch.wait(None) == Waited::Ended));
}

#[test]
fn the_number_alone_is_not_the_process() {
    let me = observer();
    let child = start();
    let record = me.identify(child.id()).expect("it runs");
    let other_id = record.uniq.map(|id| Identity { uniq: Some(id + 1), ..record.clone() });
    let other_start =
        record.start.map(|start| Identity { start: Some(start + 60_000_000), uniq: None, ..record.clone() });
    for other in [other_id, other_start].into_iter().flatten() {
        let judgement = judge(&other, &me);
        assert_eq!((judgement.verdict, judgement.reason), (Verdict::Gone, Reason::PidReused), "{other:?}");
    }
    end(child);
}

#[test]
fn nobody_is_identified_by_a_number_that_is_not_given_out() {
    let child = start();
    let pid = child.id();
    end(child);
    let me = observer();
    assert!(matches!(me.identify(pid), Err(Error::NoSuchProcess)));
}

#[test]
fn we_are_ourselves_and_another_start_is_another_process() {
    let me = observer();
    let record = me.me();
    assert!(me.is_me(&record).expect("asked") && me.is_still_me(&record).expect("asked"));
    assert_eq!(judge(&record, &me).reason, Reason::Itself);
    assert!(Watch::open(&record, &me).is_ok_and(|watch| watch.alive()));
    // As another process would judge us.
    assert_eq!(judge(&Identity { nonce: None, ..record.clone() }, &me).verdict, Verdict::Alive);
    let other = Identity { uniq: record.uniq.map(|id| id + 1), start: record.start.map(|at| at + 1), ..record };
    assert!(!me.is_me(&other).expect("asked"));
}

#[test]
fn a_set_names_each_death_once_and_the_same_process_under_each_of_its_keys() {
    let me = observer();
    let children: Vec<Child> = (0..3).map(|_| start()).collect();
    let records: Vec<_> = children.iter().map(|child| me.identify(child.id()).expect("it runs")).collect();
    // Two descriptors, so that some are judged anew each time.
    let mut set = WatchSet::new(Some(2)).expect("a set");
    let mut keys: Vec<_> = records.iter().chain(&records).map(|it| set.add(it, &me).1.expect("watched")).collect();
    assert!(set.ended().expect("asked").is_empty());
    children.into_iter().for_each(end);
    let mut ended = Vec::new();
    while ended.len() < keys.len() {
        let _ = set.waiter().wait(Some(Duration::from_millis(50)));
        ended.extend(set.ended().expect("asked"));
    }
    ended.sort_unstable();
    keys.sort_unstable();
    assert_eq!((ended, set.is_empty()), (keys, true));
}

#[test]
fn many_are_judged_as_one_by_one() {
    let me = observer();
    let children: Vec<Child> = (0..4).map(|_| start()).collect();
    let records: Vec<_> = children.iter().map(|child| me.identify(child.id()).expect("it runs")).collect();
    let mut children = children.into_iter();
    end(children.next().expect("four"));
    let one_by_one: Vec<_> = records.iter().map(|record| judge(record, &me)).collect();
    assert_eq!(judge_many(&records, &me), one_by_one);
    children.for_each(end);
}

#[test]
fn neither_clock_goes_backwards() {
    for clock in [tenure_identity::awake_ns, tenure_identity::boottime_ns] {
        let (first, second) = (clock(), clock());
        assert!(0 < first && first <= second);
    }
}
