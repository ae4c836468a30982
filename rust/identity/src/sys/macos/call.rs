//! The system calls.

use std::ffi::{CStr, c_int, c_void};
use std::io;

use super::decide::{self, Entry, Kernel, Listed, Refused, UniqueInfo};

/// Source: XNU, bsd/sys/proc_info_private.h.
const PROC_PIDUNIQIDENTIFIERINFO: c_int = 17;

/// The kernel itself.
pub(super) struct System;

impl Kernel for System {
    fn unique_id(&self, pid: u32) -> Result<u64, Refused> {
        let mut info = UniqueInfo::default();
        // SAFETY: the pointer is to a struct of the size that is given, which outlives the call.
        let written = unsafe {
            libc::proc_pidinfo(
                number(pid),
                PROC_PIDUNIQIDENTIFIERINFO,
                0,
                (&raw mut info).cast::<c_void>(),
                size_of::<UniqueInfo>() as c_int,
            )
        };
        decide::read_unique_id(written, errno(), &info)
    }

    fn listed(&self, pid: u32) -> Result<Option<Listed>, Refused> {
        let mut name = [libc::CTL_KERN, libc::KERN_PROC, libc::KERN_PROC_PID, number(pid)];
        let mut entry = Entry::default();
        let mut size = size_of::<Entry>();
        // SAFETY: the name has the length that is given; `entry` has room for `size` bytes; both outlive the call.
        let returned = unsafe {
            libc::sysctl(
                name.as_mut_ptr(),
                4,
                (&raw mut entry).cast::<c_void>(),
                &raw mut size,
                std::ptr::null_mut(),
                0,
            )
        };
        decide::read_entry(pid, returned, errno(), size, &entry)
    }

    fn denies(&self, pid: u32) -> bool {
        // SAFETY: takes a number and no pointer. 0 would mean ourselves; a record's pid is at least 1.
        unsafe { libc::getpgid(number(pid)) == -1 && errno() == libc::ESRCH }
    }
}

/// A record's pid is 1 to 2^31 - 1; what is not becomes a number that nobody has.
fn number(pid: u32) -> c_int {
    c_int::try_from(pid).unwrap_or(c_int::MAX)
}

pub(super) fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or_default()
}

/// A sysctl that is text.
pub(super) fn text(name: &CStr) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; 128];
    let mut size = buffer.len();
    // SAFETY: the name ends with a NUL; the buffer has room for `size` bytes; both outlive the call.
    let returned = unsafe {
        libc::sysctlbyname(name.as_ptr(), buffer.as_mut_ptr().cast::<c_void>(), &raw mut size, std::ptr::null_mut(), 0)
    };
    if returned != 0 {
        return Err(io::Error::last_os_error());
    }
    buffer.truncate(size);
    Ok(buffer)
}

/// The machine's own id (IOPlatformUUID), or `None` where it would have to be waited for. Source: gethostuuid(2).
pub(super) fn host_uuid() -> Option<[u8; 16]> {
    let mut id = [0; 16];
    let patience = libc::timespec { tv_sec: 1, tv_nsec: 0 };
    // SAFETY: the call writes 16 bytes and reads a `timespec`; both outlive it.
    let returned = unsafe { libc::gethostuuid(id.as_mut_ptr(), &raw const patience) };
    (returned == 0 && id != [0; 16]).then_some(id)
}

pub(super) fn random() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    // SAFETY: the call writes as many bytes as are given.
    let returned = unsafe { libc::getentropy(bytes.as_mut_ptr().cast::<c_void>(), bytes.len()) };
    if returned == 0 { Ok(bytes) } else { Err(io::Error::last_os_error()) }
}

pub(super) fn nanoseconds(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one `timespec`, which outlives it. These clocks are always there, so it cannot fail.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    u64::try_from(now.tv_sec).unwrap_or_default() * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or_default()
}
