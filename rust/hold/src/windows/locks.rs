//! The lock that the kernel drops when its process ends, and whose file system it is.

use std::io;
use std::mem::zeroed;
use std::os::windows::io::AsRawHandle;

use windows_sys::Wdk::Storage::FileSystem::{FileFsDeviceInformation, NtQueryVolumeInformationFile};
use windows_sys::Wdk::System::SystemServices::FILE_REMOTE_DEVICE;
use windows_sys::Win32::Foundation::{ERROR_IO_PENDING, ERROR_LOCK_VIOLATION, HANDLE, RtlNtStatusToDosError};
use windows_sys::Win32::Storage::FileSystem::{
    GetVolumeInformationByHandleW, LOCKFILE_EXCLUSIVE_LOCK, LOCKFILE_FAIL_IMMEDIATELY, LockFileEx, UnlockFileEx,
};
use windows_sys::Win32::System::IO::{IO_STATUS_BLOCK, OVERLAPPED};

use super::{Descriptor, borrow};

/// Far beyond the end of any file: a lock here is in nobody's way, while one on the content would keep readers out.
const BEYOND: u64 = 1 << 62;

fn region() -> OVERLAPPED {
    // SAFETY: all-zero bytes are a valid `OVERLAPPED`.
    let mut region: OVERLAPPED = unsafe { zeroed() };
    region.Anonymous.Anonymous.OffsetHigh = (BEYOND >> 32) as u32;
    region
}

fn lock(handle: HANDLE, how: u32) -> io::Result<bool> {
    let mut region = region();
    // SAFETY: the region outlives the call, which does not wait; a handle that is not open is an error.
    if unsafe { LockFileEx(handle, how | LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &raw mut region) } != 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error().map(|code| code as u32) {
        Some(ERROR_LOCK_VIOLATION | ERROR_IO_PENDING) => Ok(false),
        _ => Err(error),
    }
}

/// Takes the lock; `false` when another open file has it. It belongs to this process: a child that inherits the handle
/// does not carry it on.
///
/// # Errors
/// The handle is not open, or the file system has no locks.
pub fn lifeline_lock(handle: Descriptor) -> io::Result<bool> {
    lock(borrow(handle).as_raw_handle(), LOCKFILE_EXCLUSIVE_LOCK)
}

/// Gives it back, at once: after a close the system takes its time.
///
/// # Errors
/// It was not held.
pub fn lifeline_unlock(handle: Descriptor) -> io::Result<()> {
    let mut region = region();
    // SAFETY: the region outlives the call; a handle that is not open is an error.
    match unsafe { UnlockFileEx(borrow(handle).as_raw_handle(), 0, 1, 0, &raw mut region) } {
        0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Whether anybody has the lock. Nothing can be asked without taking, so for a moment the asker has a shared one, which
/// refuses no other asker.
///
/// # Errors
/// As of `lifeline_lock`.
pub fn lifeline_held(handle: Descriptor) -> io::Result<bool> {
    if !lock(borrow(handle).as_raw_handle(), 0)? {
        return Ok(true);
    }
    lifeline_unlock(handle)?;
    Ok(false)
}

/// The name of a file system that this machine's kernel alone manages, so that its locks and file numbers are the truth;
/// `None` for every other. NTFS alone: the file numbers of ReFS have more digits than we compare.
///
/// # Errors
/// The handle is not open.
pub fn filesystem_type(handle: Descriptor) -> io::Result<Option<&'static str>> {
    let handle = borrow(handle).as_raw_handle();
    let mut name = [0u16; 32];
    let (mut serial, mut longest, mut flags) = (0, 0, 0);
    // SAFETY: pointers to what is announced, or to nothing, which outlive the call.
    let done = unsafe {
        GetVolumeInformationByHandleW(
            handle,
            std::ptr::null_mut(),
            0,
            &raw mut serial,
            &raw mut longest,
            &raw mut flags,
            name.as_mut_ptr(),
            name.len() as u32,
        )
    };
    if done == 0 {
        return Err(io::Error::last_os_error());
    }
    let is_ntfs = name.iter().copied().take_while(|&letter| letter != 0).eq("NTFS".encode_utf16());
    Ok((is_ntfs && !is_remote(handle)?).then_some("ntfs"))
}

/// A file server says NTFS too.
fn is_remote(handle: HANDLE) -> io::Result<bool> {
    // The device's type and its characteristics. Source: wdm.h, FILE_FS_DEVICE_INFORMATION.
    let mut answer = [0u32; 2];
    // SAFETY: all-zero bytes are a valid `IO_STATUS_BLOCK`.
    let mut done: IO_STATUS_BLOCK = unsafe { zeroed() };
    let (at, size) = (answer.as_mut_ptr().cast(), size_of_val(&answer) as u32);
    // SAFETY: pointers to as many bytes as are announced, which outlive the call.
    let status = unsafe { NtQueryVolumeInformationFile(handle, &raw mut done, at, size, FileFsDeviceInformation) };
    if status != 0 {
        // SAFETY: no pointers.
        return Err(io::Error::from_raw_os_error(unsafe { RtlNtStatusToDosError(status) } as i32));
    }
    Ok(answer[1] & FILE_REMOTE_DEVICE != 0)
}
