//! The floor under `benchmarks/bench_judge.py`: the bare system calls, without Python around them and yet in its process.
//!
//! In its process, so that both sides of a ratio have the same descriptors, memory and place in the scheduler.

#[path = "../benches/raw/mod.rs"]
mod raw;

use std::ffi::{CStr, c_char};
use std::time::{Duration, Instant};

/// How many nanoseconds one operation takes (for one process, where it is about many). Not a number if there is none of
/// that name.
///
/// # Safety
/// `name` is a C string, and `pids` points to `count` numbers, at least one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn floor(name: *const c_char, loops: u32, pids: *const u32, count: usize) -> f64 {
    // SAFETY: the caller's promise.
    let (name, pids) = unsafe { (CStr::from_ptr(name), std::slice::from_raw_parts(pids, count)) };
    let taken = match name.to_bytes() {
        b"trivial" => time(loops, raw::trivial),
        b"open_in_vain" => time(loops, || raw::open_in_vain(pids[0])),
        b"verdict" => time(loops, || raw::verdict(pids[0])),
        b"verdicts" => time(loops, || raw::verdicts(pids)) / u32::try_from(count).expect("few"),
        b"poll" => {
            let pidfd = raw::open(pids[0]);
            time(loops, || raw::poll_one(&pidfd))
        }
        b"stat" => {
            let (proc, path) = (raw::proc(), format!("{}/stat", pids[0]));
            time(loops, || raw::read_stat(&proc, &path))
        }
        b"epoll" => {
            let (set, _pidfds) = raw::watched(pids);
            time(loops, || raw::wait_none(&set))
        }
        _ => return f64::NAN,
    };
    taken.as_secs_f64() * 1e9 / f64::from(loops)
}

fn time(loops: u32, mut operation: impl FnMut()) -> Duration {
    let started = Instant::now();
    for _ in 0..loops {
        operation();
    }
    started.elapsed()
}
