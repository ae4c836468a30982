//! The floor under `benchmarks/bench_judge.py`: bare system calls without an interpreter around them, and processes to
//! ask about.
//!
//! - `floor measure` answers each line `NAME LOOPS PID...` on its input with one line of JSON, `{"ns": ...}`: the time
//!   of one operation (of one process, where the operation is about many). It stays, so that the caller can take turns
//!   with it within milliseconds.
//! - `floor crowd COUNT THREADS` makes that many idle processes and one that is dead, says `{"pids": [...], "dead":
//!   ...}`, and ends them when its input ends, which also happens when its caller is killed.

#[path = "../benches/raw/mod.rs"]
mod raw;

use std::io::{self, BufRead, Read, Write};
use std::process::exit;
use std::time::{Duration, Instant};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["measure"] => measure(),
        ["crowd", count, threads] => crowd(parse(count), parse(threads)),
        _ => {
            say("usage: floor measure | floor crowd COUNT THREADS");
            exit(2);
        }
    }
}

fn parse<T: std::str::FromStr>(text: &str) -> T {
    text.parse().ok().expect("a number")
}

fn say(line: &str) {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).expect("the caller reads");
}

fn measure() {
    for line in io::stdin().lock().lines() {
        let line = line.expect("the caller writes text");
        let mut words = line.split_ascii_whitespace();
        let name = words.next().expect("a name");
        let loops: u32 = parse(words.next().expect("a number of loops"));
        let pids: Vec<u32> = words.map(parse).collect();
        let ns = run(name, loops, &pids);
        say(&serde_json::json!({ "ns": ns }).to_string());
    }
}

#[allow(clippy::cast_precision_loss, reason = "nanoseconds, for people")]
fn run(name: &str, loops: u32, pids: &[u32]) -> f64 {
    let one = || *pids.first().expect("a pid");
    let each = match name {
        "verdicts" => f64::from(u32::try_from(pids.len()).expect("few")),
        _ => 1.0,
    };
    let taken = match name {
        "trivial" => time(loops, raw::trivial),
        "open_in_vain" => time(loops, || raw::open_in_vain(one())),
        "verdict" => time(loops, || raw::verdict(one())),
        "verdicts" => time(loops, || raw::verdicts(pids)),
        "poll" => {
            let pidfd = raw::open(one());
            time(loops, || raw::poll_one(&pidfd))
        }
        "stat" => {
            let (proc, path) = (raw::proc(), format!("{}/stat", one()));
            time(loops, || raw::read_stat(&proc, &path))
        }
        "epoll" => {
            let (set, _pidfds) = raw::watched(pids);
            time(loops, || raw::wait_none(&set))
        }
        other => panic!("no such operation: {other}"),
    };
    taken.as_nanos() as f64 / f64::from(loops) / each
}

fn time(loops: u32, mut operation: impl FnMut()) -> Duration {
    let started = Instant::now();
    for _ in 0..loops {
        operation();
    }
    started.elapsed()
}

fn crowd(count: usize, threads: usize) {
    let pids: Vec<i32> = (0..count).map(|_| fork(|| idle(threads))).collect();
    let dead = fork(|| exit(0));
    reap(dead);
    // The threads of the members start after the fork: wait until they are all there.
    for pid in &pids {
        let tasks = format!("/proc/{pid}/task");
        while std::fs::read_dir(&tasks).is_ok_and(|tasks| tasks.count() < threads) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    say(&serde_json::json!({ "pids": pids, "dead": dead }).to_string());
    let mut nothing = Vec::new();
    io::stdin().read_to_end(&mut nothing).expect("the caller closes it");
    for &pid in &pids {
        // SAFETY: no pointers; these are our own children, not yet reaped, so the numbers are still theirs.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
    pids.into_iter().for_each(reap);
}

fn fork(child: impl FnOnce()) -> i32 {
    // SAFETY: this program has one thread, so the child may do whatever the parent could.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: this option takes a signal number and no pointer. The crowd must not outlive its maker.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            child();
            exit(0)
        }
        pid if pid > 0 => pid,
        _ => panic!("fork: {}", io::Error::last_os_error()),
    }
}

fn reap(pid: i32) {
    // SAFETY: a null status pointer means that nobody wants it.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
}

fn idle(threads: usize) {
    for _ in 1..threads {
        std::thread::Builder::new().stack_size(64 << 10).spawn(sleep).expect("threads are left");
    }
    sleep();
}

fn sleep() {
    loop {
        std::thread::park();
    }
}
