//! Against real processes; this very program is the child. Run under wine too, whose answers differ where it says so.

use std::os::windows::io::{AsRawHandle, OwnedHandle};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::call::{self, System};
use super::decide::Kernel;
use super::environment::environment;
use crate::{Capabilities, Identity, Judgement, Observer, Reason, Verdict, Waited, Watch, WatchSet, judge, judge_many};

/// What a child of this program runs: it waits until its standard input ends, and exits with the number that it reads.
#[test]
fn child() {
    if std::env::var_os("TENURE_TEST_CHILD").is_some() {
        let mut line = String::new();
        let _ = std::io::stdin().read_line(&mut line);
        std::process::exit(line.trim().parse().unwrap_or(0));
    }
}

fn start() -> Child {
    Command::new(std::env::current_exe().expect("a name"))
        .args(["sys::system::tests::child", "--exact", "--nocapture"])
        .env("TENURE_TEST_CHILD", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("started")
}

fn end(child: &mut Child, code: u32) {
    use std::io::Write;
    writeln!(child.stdin.take().expect("a pipe"), "{code}").expect("written");
    child.wait().expect("ours");
}

fn me() -> Observer<'static> {
    Observer::new(None, None, Capabilities::default()).expect("this process can be identified")
}

fn said(judgement: &Judgement) -> (Verdict, Reason) {
    (judgement.verdict, judgement.reason)
}

/// Alive by whatever this system tells.
const SAME: [Reason; 2] = [Reason::SameUniqueId, Reason::SameStartTime];

#[test]
fn this_machine_has_a_boot_id_and_is_no_container() {
    let me = me().me();
    assert!(me.boot.is_some() && me.host.is_some() && me.nonce.is_some());
    assert_eq!(me.ns.as_deref(), Some("host"));
}

#[test]
fn a_child_is_alive_and_gone_when_it_has_ended_even_with_259() {
    for code in [0, 259] {
        let mut child = start();
        let record = me().identify(child.id()).expect("it runs");
        let judgement = judge(&record, &me());
        assert!(judgement.verdict == Verdict::Alive && SAME.contains(&judgement.reason));
        // `child` holds a handle, so the object stays and can still be opened.
        end(&mut child, code);
        assert_eq!(said(&judge(&record, &me())), (Verdict::Gone, Reason::Exited), "exit code {code}");
        assert!(matches!(me().identify(record.pid), Err(crate::Error::NoSuchProcess)));
    }
}

#[test]
fn a_record_with_another_time_of_creation_is_of_another_process() {
    let mut child = start();
    let record = me().identify(child.id()).expect("it runs");
    let earlier = Identity { start: record.start.map(|start| start - 1), uniq: None, ..record };
    assert_eq!(said(&judge(&earlier, &me())), (Verdict::Gone, Reason::PidReused));
    end(&mut child, 0);
}

#[test]
fn a_number_that_was_never_given_out_is_nobodys() {
    let record = Identity { pid: 0x7FFF_FFFC, ..me().me() };
    assert_eq!(said(&judge(&record, &me())), (Verdict::Gone, Reason::NoSuchPid));
    let odd = Identity { pid: record.pid + 1, ..record };
    assert_eq!(said(&judge(&odd, &me())), (Verdict::Unknown, Reason::Malformed));
}

#[test]
fn the_list_of_all_processes_says_the_same_as_the_handle() {
    let mut child = start();
    let process = System.open(child.id()).expect("it runs");
    let created = System.created(&process).expect("asked");
    assert_eq!(System.listed(child.id()), Ok(Some(created)));
    assert_eq!(System.number(&process), Ok(child.id()));
    end(&mut child, 0);
    // Whoever merely holds it does not keep it in the list.
    assert_eq!(System.listed(child.id()), Ok(None));
    assert_eq!(System.created(&process), Ok(created));
}

#[test]
fn an_error_of_a_call_is_its_number() {
    let no_process = OwnedHandle::from(std::fs::File::open(std::env::current_exe().expect("a name")).expect("ours"));
    assert!(System.created(&no_process).is_err_and(|error| error != 0));
    assert!(call::waited(std::ptr::null_mut(), 0).is_err_and(|error| error != 0));
    assert!(!no_process.as_raw_handle().is_null());
}

#[test]
fn a_watch_waits_for_the_end() {
    let mut child = start();
    let record = me().identify(child.id()).expect("it runs");
    let watch = Watch::open(&record, &me()).expect("it lives");
    assert!(watch.alive());
    assert_eq!(watch.wait(Some(Duration::ZERO)), Waited::TimedOut);
    end(&mut child, 0);
    assert!(!watch.alive());
    assert_eq!(watch.wait(None), Waited::Ended);
}

#[test]
fn a_set_of_more_than_one_wait_takes_names_each_death_once() {
    let mut children: Vec<Child> = (0..70).map(|_| start()).collect();
    let mut set = WatchSet::new(None).expect("a set");
    let records: Vec<Identity> = children.iter().map(|child| me().identify(child.id()).expect("it runs")).collect();
    let keys: Vec<u64> = records.iter().map(|record| set.add(record, &me()).1.expect("watched")).collect();
    assert_eq!(set.ended().expect("asked"), Vec::<u64>::new());
    for at in [3, 69, 4] {
        end(&mut children[at], 0);
    }
    assert_eq!(set.waiter().wait(None), Waited::Ended);
    assert_eq!(set.ended().expect("asked"), [keys[3], keys[4], keys[69]]);
    assert_eq!((set.ended().expect("asked"), set.len()), (vec![], 67));
    let verdicts: Vec<Verdict> = judge_many(&records, &me()).iter().map(|judgement| judgement.verdict).collect();
    assert_eq!(verdicts.iter().filter(|&&verdict| verdict == Verdict::Alive).count(), 67);
    children.iter_mut().filter(|child| child.stdin.is_some()).for_each(|child| end(child, 0));
}

#[test]
fn we_are_ourselves_and_the_clocks_run() {
    let record = me().me();
    assert!(me().is_me(&record).expect("asked") && me().is_still_me(&record).expect("asked"));
    assert_eq!(said(&judge(&record, &me())), (Verdict::Alive, Reason::Itself));
    assert!(!me().is_me(&Identity { start: Some(1), uniq: None, ..record }).expect("asked"));
    let env = environment().expect("captured");
    assert!(std::ptr::eq(env, environment().expect("captured")));
    let (awake, boot) = (super::awake_ns(), super::boottime_ns());
    std::thread::sleep(Duration::from_millis(60));
    assert!(super::awake_ns() > awake && super::boottime_ns() > boot);
}
