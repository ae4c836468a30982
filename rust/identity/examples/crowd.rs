//! Processes to ask about, for the benchmarks.
//!
//! `crowd COUNT THREADS` makes that many idle processes and one that is dead, says `{"pids": [...], "dead": ...}`, and
//! ends them when its input ends, which also happens when its caller is killed.

use std::io::{self, Read, Write};
use std::process::exit;
use std::time::Duration;

fn main() {
    let numbers: Vec<usize> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let [count, threads] = numbers[..] else {
        say("usage: crowd COUNT THREADS");
        exit(2);
    };
    crowd(count, threads);
}

fn say(line: &str) {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).expect("the caller reads");
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
