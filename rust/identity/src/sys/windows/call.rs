//! The system calls, in the form this crate needs. Every error is the system's own number.

use std::ffi::c_void;
use std::mem::{offset_of, size_of};
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};

use windows_sys::Wdk::System::SystemInformation::{NtQuerySystemInformation, SystemProcessInformation};
use windows_sys::Wdk::System::Threading::{NtQueryInformationProcess, PROCESSINFOCLASS};
use windows_sys::Win32::Foundation::{
    FILETIME, GetLastError, HANDLE, RtlNtStatusToDosError, STATUS_INFO_LENGTH_MISMATCH, WAIT_OBJECT_0, WAIT_TIMEOUT,
};
use windows_sys::Win32::System::Threading::{
    GetProcessId, GetProcessTimes, OpenProcess, PROCESS_QUERY_LIMITED_INFORMATION, PROCESS_SYNCHRONIZE,
    WaitForSingleObject,
};
use windows_sys::Win32::System::WindowsProgramming::SYSTEM_PROCESS_INFORMATION;

use super::decide::Kernel;

/// Source: phnt, ntpsapi.h; a number of 64 bits.
const PROCESS_SEQUENCE_NUMBER: PROCESSINFOCLASS = 92;
/// Where CreateTime stands, among what windows-sys calls reserved. Source: phnt, ntexapi.h.
const CREATE_TIME: usize = offset_of!(SYSTEM_PROCESS_INFORMATION, Reserved1) + 24;

/// The machine itself.
pub(super) struct System;

impl Kernel for System {
    type Handle = OwnedHandle;

    fn open(&self, pid: u32) -> Result<OwnedHandle, u32> {
        // The least that the questions below need. It is granted across users where more would not be.
        let rights = PROCESS_QUERY_LIMITED_INFORMATION | PROCESS_SYNCHRONIZE;
        // SAFETY: no pointers. Not inherited by our children.
        let process = unsafe { OpenProcess(rights, 0, pid) };
        if process.is_null() {
            return Err(last_error());
        }
        // SAFETY: the call has just made this handle and nobody else knows of it.
        Ok(unsafe { OwnedHandle::from_raw_handle(process) })
    }

    fn number(&self, process: &OwnedHandle) -> Result<u32, u32> {
        // SAFETY: an open handle.
        match unsafe { GetProcessId(process.as_raw_handle()) } {
            0 => Err(last_error()),
            pid => Ok(pid),
        }
    }

    fn created(&self, process: &OwnedHandle) -> Result<u64, u32> {
        let mut created = FILETIME { dwLowDateTime: 0, dwHighDateTime: 0 };
        let mut other = created;
        let others = &raw mut other;
        // SAFETY: an open handle, and pointers that outlive the call; nothing says that the last three must differ.
        if unsafe { GetProcessTimes(process.as_raw_handle(), &raw mut created, others, others, others) } == 0 {
            return Err(last_error());
        }
        Ok(u64::from(created.dwHighDateTime) << 32 | u64::from(created.dwLowDateTime))
    }

    fn unique_id(&self, process: &OwnedHandle) -> Result<u64, u32> {
        let mut id = 0u64;
        let (at, size) = ((&raw mut id).cast::<c_void>(), size_of::<u64>() as u32);
        // SAFETY: an open handle, and a pointer to as many bytes as are announced, which outlives the call.
        let status = unsafe {
            NtQueryInformationProcess(process.as_raw_handle(), PROCESS_SEQUENCE_NUMBER, at, size, std::ptr::null_mut())
        };
        if status == 0 { Ok(id) } else { Err(error_of(status)) }
    }

    fn has_exited(&self, process: &OwnedHandle) -> Result<bool, u32> {
        waited(process.as_raw_handle(), 0)
    }

    fn listed(&self, pid: u32) -> Result<Option<u64>, u32> {
        Ok(processes()?.into_iter().find(|&(listed, _)| listed == pid).map(|(_, created)| created))
    }
}

/// Whether a process has ended within that many milliseconds.
pub(super) fn waited(process: HANDLE, milliseconds: u32) -> Result<bool, u32> {
    // SAFETY: no pointers; a handle that is not open is an error.
    match unsafe { WaitForSingleObject(process, milliseconds) } {
        WAIT_OBJECT_0 => Ok(true),
        WAIT_TIMEOUT => Ok(false),
        _ => Err(last_error()),
    }
}

/// Number and time of creation of every process that lives, as far as it is to be seen from here.
pub(super) fn processes() -> Result<Vec<(u32, u64)>, u32> {
    // Of u64, since the entries are aligned as they are.
    let mut list: Vec<u64> = vec![0; 64 * 1024 / 8];
    loop {
        let mut needed = 0;
        let size = u32::try_from(list.len() * 8).map_err(|_| error_of(STATUS_INFO_LENGTH_MISMATCH))?;
        // SAFETY: a pointer to as many bytes as are announced, which outlives the call.
        let status = unsafe {
            NtQuerySystemInformation(SystemProcessInformation, list.as_mut_ptr().cast(), size, &raw mut needed)
        };
        match status {
            0 => return Ok(entries(&list)),
            // More than is needed now: by the next call there may be more processes.
            STATUS_INFO_LENGTH_MISMATCH => list.resize((needed.max(size) as usize + 16 * 1024) / 8, 0),
            status => return Err(error_of(status)),
        }
    }
}

fn entries(list: &[u64]) -> Vec<(u32, u64)> {
    let bytes: Vec<u8> = list.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let number = |at: usize| bytes.get(at..at + 8).map(|at| u64::from_ne_bytes(at.try_into().unwrap_or_default()));
    let mut found = Vec::new();
    let mut at = 0;
    // An entry that does not fit is no entry: nothing here trusts an offset.
    while let (Some(next), Some(created), Some(pid)) =
        (number(at), number(at + CREATE_TIME), number(at + offset_of!(SYSTEM_PROCESS_INFORMATION, UniqueProcessId)))
    {
        // A pid has 32 bits also where it stands in the place of a handle; so has the offset of the next entry.
        found.push((pid as u32, created));
        match next as u32 {
            0 => break,
            next => at += next as usize,
        }
    }
    found
}

pub(super) fn last_error() -> u32 {
    // SAFETY: nothing can go wrong.
    unsafe { GetLastError() }
}

fn error_of(status: i32) -> u32 {
    // SAFETY: no pointers.
    unsafe { RtlNtStatusToDosError(status) }
}
