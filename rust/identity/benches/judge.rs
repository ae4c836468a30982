//! Judgements beside the bare system calls that they cannot do without, in one run: only the ratio means something.
//!
//! `benchmarks/bench_judge.py` holds the same against promises, from Python.

mod raw;

use std::hint::black_box;
use std::process::{Child, Command, Stdio};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use tenure_identity::{Capabilities, Identity, Observer, Verdict, Watch, WatchSet, judge, judge_many};

/// Idle processes, ended when dropped.
struct Crowd(Vec<Child>);

impl Crowd {
    fn new(count: usize) -> Self {
        let child = || Command::new("sleep").arg("86400").stdin(Stdio::null()).spawn().expect("a sleep(1)");
        Self((0..count).map(|_| child()).collect())
    }

    fn pids(&self) -> Vec<u32> {
        self.0.iter().map(Child::id).collect()
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

const NOTHING: Capabilities = Capabilities { handle: false, pidfs: false, pidfd: false, proc: false, unique_id: false };

fn observer(without: Capabilities) -> Observer<'static> {
    Observer::new(None, None, without).expect("this process can be identified")
}

fn one(c: &mut Criterion) {
    let crowd = Crowd::new(1);
    let pid = crowd.pids()[0];
    let me = observer(NOTHING);
    let record = me.identify(pid).expect("it was just started");
    assert_eq!(judge(&record, &me).verdict, Verdict::Alive);
    let by_start = observer(Capabilities { pidfs: true, ..NOTHING });
    let by_proc = observer(Capabilities { pidfs: true, pidfd: true, ..NOTHING });

    // Nobody else holds a pidfd to it, so its inode is made and freed each time: what a waiter meets.
    let mut group = c.benchmark_group("cold");
    group.bench_function("four system calls", |b| b.iter(|| raw::verdict(black_box(pid))));
    group.bench_function("judge", |b| b.iter(|| judge(black_box(&record), &me)));
    group.bench_function("judge with its observer", |b| b.iter(|| judge(black_box(&record), &observer(NOTHING))));
    group.finish();

    let mut group = c.benchmark_group("warm");
    let held = raw::open(pid);
    group.bench_function("four system calls", |b| b.iter(|| raw::verdict(black_box(pid))));
    group.bench_function("judge", |b| b.iter(|| judge(black_box(&record), &me)));
    drop(held);
    group.finish();

    let mut group = c.benchmark_group("by start time");
    let (proc, path) = (raw::proc(), format!("{pid}/stat"));
    group.bench_function("open, read, close PID/stat", |b| b.iter(|| raw::read_stat(&proc, black_box(&path))));
    group.bench_function("judge, /proc alone", |b| b.iter(|| judge(black_box(&record), &by_proc)));
    group.bench_function("judge, with a pidfd", |b| b.iter(|| judge(black_box(&record), &by_start)));
    group.finish();

    let mut group = c.benchmark_group("watch");
    let held = raw::open(pid);
    let watch = Watch::open(&record, &me).expect("it lives");
    group.bench_function("poll", |b| b.iter(|| raw::poll_one(black_box(&held))));
    group.bench_function("Watch::alive", |b| b.iter(|| black_box(&watch).alive()));
    group.finish();
}

fn dead(c: &mut Criterion) {
    let me = observer(NOTHING);
    let record = {
        let crowd = Crowd::new(1);
        me.identify(crowd.pids()[0]).expect("it was just started")
    };
    assert_eq!(judge(&record, &me).verdict, Verdict::Gone);
    let mut group = c.benchmark_group("dead");
    group.bench_function("getppid", |b| b.iter(raw::trivial));
    group.bench_function("pidfd_open in vain", |b| b.iter(|| raw::open_in_vain(black_box(record.pid))));
    group.bench_function("judge", |b| b.iter(|| judge(black_box(&record), &me)));
    group.finish();
}

fn many(c: &mut Criterion) {
    const COUNT: usize = 2000;
    let crowd = Crowd::new(COUNT);
    let pids = crowd.pids();
    let me = observer(NOTHING);
    let records: Vec<Identity> = pids.iter().map(|&pid| me.identify(pid).expect("it was just started")).collect();

    let mut group = c.benchmark_group("many");
    group.throughput(Throughput::Elements(COUNT as u64));
    group.bench_function(BenchmarkId::new("system calls in chunks", COUNT), |b| b.iter(|| raw::verdicts(&pids)));
    group.bench_function(BenchmarkId::new("judge_many", COUNT), |b| b.iter(|| judge_many(&records, &me)));
    group.bench_function(BenchmarkId::new("judge, one by one", COUNT), |b| {
        b.iter(|| records.iter().map(|record| judge(record, &me)).collect::<Vec<_>>())
    });
    group.finish();

    // Fewer: each is a descriptor, twice, and 1024 is the usual limit.
    let (pids, records) = (&pids[..400], &records[..400]);
    let (epoll, _held) = raw::watched(pids);
    let mut watched = WatchSet::new(Some(records.len())).expect("a descriptor is left");
    for record in records {
        watched.add(record, &me);
    }
    let mut group = c.benchmark_group("watch set");
    group.bench_function("epoll_wait", |b| b.iter(|| raw::wait_none(&epoll)));
    group.bench_function("WatchSet::ended", |b| b.iter(|| watched.ended()));
    group.finish();
}

criterion_group!(benches, one, dead, many);
criterion_main!(benches);
