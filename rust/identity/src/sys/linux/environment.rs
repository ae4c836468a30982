//! Who we are and which evidence this kernel gives us: captured once, by trying.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use rustix::fs::{CWD, fstat, fstatfs, stat};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
use rustix::rand::{GetRandomFlags, getrandom};

use super::call::{self, or_absent};
use super::probe;
use super::procfs::{self, Proc, Unread};
use crate::parse::{self, TimeOffset};
use crate::record::{Host, Identity};
use crate::{Capabilities, Error};

/// The inode of the first pid namespace of every Linux kernel. Source: linux/proc_ns.h, PROC_PID_INIT_INO.
const INITIAL_PID_NAMESPACE: &str = "4026531836";

pub(crate) struct Environment {
    pub(crate) me: Identity,
    pub(crate) has: Capabilities,
    pub(crate) host_is_unique: bool,
    /// The handle type of pidfs, where `has.handle`.
    pub(super) handle_kind: i32,
    /// Where `has.proc`.
    pub(super) proc: Option<Proc>,
    /// `None`: cannot be known, or no /proc.
    pub(super) time_offset: Option<TimeOffset>,
    /// The device of pidfs and a pidfd of our own, where `has.pidfs`. Believed only while it shows our inode.
    own: Option<(u64, OwnedFd)>,
}

impl Environment {
    /// Whether every process of this kernel is visible from here.
    pub(super) fn is_initial_namespace(&self) -> bool {
        self.me.ns.as_deref() == Some(INITIAL_PID_NAMESPACE)
    }
}

/// Makes ready what a forked child must not find half made by another thread of its parent.
pub(crate) fn prepare() {
    cell();
}

/// The calling process's environment, captured at the first call and again after a fork.
pub(crate) fn environment() -> Result<&'static Environment, Error> {
    let cell = cell();
    let known = cell.load(Ordering::Acquire);
    if !known.is_null() {
        // SAFETY: a non-null pointer in the cell came from `Box::into_raw` below and is never freed.
        let environment = unsafe { &*known };
        if CELL_IS_WIPED.get() == Some(&true) || environment.me.pid == std::process::id() {
            return Ok(environment);
        }
    }
    // Leaked on purpose: others may be using the old one, and it is one per process image and fork.
    let fresh = Box::into_raw(Box::new(capture()?));
    match cell.compare_exchange(known, fresh, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: as above; we have just made it.
        Ok(_) => Ok(unsafe { &*fresh }),
        Err(winner) => {
            // SAFETY: nobody but us has seen `fresh`.
            drop(unsafe { Box::from_raw(fresh) });
            // SAFETY: as above. Another thread was first; all threads must agree on one nonce.
            Ok(unsafe { &*winner })
        }
    }
}

static CELL_IS_WIPED: OnceLock<bool> = OnceLock::new();

/// Where the pointer to the environment lives: in a page that the kernel wipes in a forked child.
///
/// What was captured is void after a fork: another pid, maybe another namespace. Comparing `getpid()` at each judgement
/// would cost a system call, and `pthread_atfork` misses a raw `clone`; MADV_WIPEONFORK (madvise(2), Linux 4.14) costs
/// nothing and sees both. A kernel without it gets the comparison.
fn cell() -> &'static AtomicPtr<Environment> {
    static PAGE: OnceLock<usize> = OnceLock::new();
    static ORDINARY: AtomicPtr<Environment> = AtomicPtr::new(std::ptr::null_mut());
    const SIZE: usize = 4096;
    let address = *PAGE.get_or_init(|| {
        // SAFETY: a fresh private mapping; nothing else refers to it.
        let page = unsafe {
            mmap_anonymous(std::ptr::null_mut(), SIZE, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        };
        // SAFETY: the mapping was just made, has that size, and holds nothing yet.
        let page = page.ok().filter(|&page| unsafe { madvise(page, SIZE, Advice::LinuxWipeOnFork) }.is_ok());
        let _ = CELL_IS_WIPED.set(page.is_some());
        page.map_or(0, |page| page as usize)
    });
    if address == 0 {
        return &ORDINARY;
    }
    // SAFETY: the page is mapped for the life of the process, is aligned, and zero bytes are a null `AtomicPtr`.
    unsafe { &*(address as *const AtomicPtr<Environment>) }
}

fn capture() -> Result<Environment, Error> {
    let (operator_host, host_is_unique) = crate::sys::operator()?;
    self_test(operator_host, host_is_unique).map_err(|error| Error::System("identifying this process", error.into()))
}

/// Every "no" here is remembered for the life of the process, so it must be the kernel's: see `or_absent`.
fn self_test(operator_host: Option<Host>, host_is_unique: bool) -> Result<Environment, Errno> {
    let pid = std::process::id();
    let mut has = Capabilities::default();

    let own_pidfd = or_absent(call::open_pid(pid))?;
    has.pidfd = own_pidfd.is_some();
    let mut own = None;
    let mut uniq = None;
    let mut handle_kind = 0;
    if let Some(pidfd) = &own_pidfd {
        // On 32 bits st_ino is only the lower half of the id.
        let is_pidfs = cfg!(target_pointer_width = "64")
            && fstatfs(pidfd).is_ok_and(|file_system| file_system.f_type == call::PID_FS_MAGIC);
        if is_pidfs {
            uniq = Some(call::unique_id(pidfd.as_fd())?);
            has.pidfs = true;
        }
        if let Some(inode) = uniq
            && let Some(kind) = or_absent(call::handle_kind(pidfd.as_fd()))?
            && let Some(opened) = or_absent(call::open_unique_id(inode, kind))?
        {
            has.handle = call::unique_id(opened.as_fd()) == Ok(inode);
            handle_kind = kind;
        }
    }

    let proc = Proc::verified()?;
    has.proc = proc.is_some();
    let mut time_offset = None;
    let mut start = None;
    if let Some(directory) = proc.as_ref().and_then(Proc::directory) {
        time_offset = procfs::time_offset(directory)?;
        let stat = match procfs::stat(directory, pid) {
            Ok(stat) => Some(stat),
            Err(Unread::NoFds) => return Err(Errno::MFILE),
            Err(_) => None,
        };
        start = stat.zip(time_offset).and_then(|(stat, offset)| probe::recordable_start(stat.start, offset));
    }

    let namespace = match &own_pidfd {
        Some(pidfd) => or_absent(call::pid_namespace(pidfd.as_fd()))?,
        None => None,
    };
    let (ns, ns_id) = match &namespace {
        Some(namespace) => (Some(fstat(namespace)?.st_ino), call::namespace_id(namespace.as_fd())),
        // Before Linux 6.11: by /proc/self, which needs to be ours as little as possible: "self" is resolved for us.
        None => (or_absent(stat("/proc/self/ns/pid"))?.map(|stat| stat.st_ino), None),
    };

    let machine_id = or_absent(procfs::read_whole(CWD, "/etc/machine-id"))?;
    let machine = machine_id.as_deref().and_then(parse::machine_id).map(Host::machine);
    if let Some(pidfd) = own_pidfd.filter(|_| has.pidfs) {
        own = Some((fstat(&pidfd)?.st_dev, pidfd));
    }
    let me = Identity {
        os: "linux".to_owned(),
        host: operator_host.or(machine),
        boot: boot_id()?,
        ns: ns.map(|inode| inode.to_string()),
        ns_id,
        pid,
        start,
        uniq,
        nonce: Some(nonce()?),
        unknown: serde_json::Map::new(),
    };
    Ok(Environment { me, has, host_is_unique, handle_kind, proc, time_offset, own })
}

/// Whether our own pidfd still shows the inode that was captured. A restored checkpoint has a new process behind it; a
/// descriptor that was closed and is another file's by now shows another device or inode.
pub(crate) fn is_unchanged(env: &Environment) -> bool {
    let Some((device, pidfd)) = &env.own else { return false };
    fstat(pidfd).is_ok_and(|stat| (stat.st_dev, Some(stat.st_ino)) == (*device, env.me.uniq))
}

/// Whether the calling process is still the one of `record`: CRIU restores a process under its old number with a new
/// start time and a new unique id, on another machine with another boot id.
pub(crate) fn is_current(record: &Identity, env: &Environment, has: Capabilities) -> Result<bool, Error> {
    let pid = std::process::id();
    let boot = boot_id().map_err(|error| Error::System("reading the boot id", error.into()))?;
    if boot.is_none() && record.boot.is_some() {
        // /proc has gone since. Not knowing who we are is no proof that we are somebody else.
        return Err(Error::System("reading the boot id", std::io::ErrorKind::NotFound.into()));
    }
    if record.pid != pid || boot != record.boot {
        return Ok(false);
    }
    let (start, uniq) = probe::identify(pid, env, has)?;
    Ok(match (record.uniq, uniq) {
        // A unique id is never given out twice in a boot, and a process never changes its pid namespace, so it
        // carries the rest.
        (Some(recorded), Some(now)) => recorded == now,
        _ => record.start.is_none() || record.start == start,
    })
}

/// Source: proc_sys_kernel(5).
fn boot_id() -> Result<Option<String>, Errno> {
    let text = or_absent(procfs::read_whole(CWD, "/proc/sys/kernel/random/boot_id"))?;
    Ok(text.as_deref().and_then(parse::boot_id).map(str::to_owned))
}

fn nonce() -> Result<[u8; 16], Errno> {
    let mut nonce = [0; 16];
    // Up to 256 bytes come whole or not at all: getrandom(2).
    getrandom(&mut nonce, GetRandomFlags::empty())?;
    Ok(nonce)
}
