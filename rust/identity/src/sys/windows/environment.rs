//! Who we are, and what this Windows tells: captured once, by asking.

use std::sync::OnceLock;

use windows_sys::Wdk::System::SystemInformation::{NtQuerySystemInformation, SystemTimeOfDayInformation};
use windows_sys::Win32::Security::Cryptography::{BCRYPT_USE_SYSTEM_PREFERRED_RNG, BCryptGenRandom};
use windows_sys::Win32::System::LibraryLoader::{GetModuleHandleW, GetProcAddress};
use windows_sys::Win32::System::Registry::{
    HKEY_LOCAL_MACHINE, REG_ROUTINE_FLAGS, RRF_RT_REG_DWORD, RRF_RT_REG_SZ, RRF_SUBKEY_WOW6464KEY, RegGetValueW,
};
use windows_sys::Win32::System::SystemInformation::{ComputerNamePhysicalNetBIOS, GetComputerNameExW};
use windows_sys::core::{PCWSTR, s, w};

use super::call::{self, System};
use super::decide::{self, Kernel, Machine};
use crate::record::Identity;
use crate::{Capabilities, Error};

pub(crate) struct Environment {
    pub(crate) me: Identity,
    pub(crate) has: Capabilities,
    pub(crate) host_is_unique: bool,
}

/// The calling process's environment, captured at the first call.
pub(crate) fn environment() -> Result<&'static Environment, Error> {
    static CAPTURED: OnceLock<Environment> = OnceLock::new();
    if let Some(environment) = CAPTURED.get() {
        return Ok(environment);
    }
    // Not within get_or_init: a failure must not be remembered. Of two threads the first wins, so that all agree on one
    // nonce.
    let captured = capture()?;
    Ok(CAPTURED.get_or_init(|| captured))
}

fn capture() -> Result<Environment, Error> {
    let (operator_host, host_is_unique) = crate::sys::operator()?;
    let pid = std::process::id();
    let failed = |call| move |error: u32| Error::System(call, std::io::Error::from_raw_os_error(error as i32));
    let this = System.open(pid).map_err(failed("OpenProcess"))?;
    // Before it was numbered, every process had 0.
    let uniq = System.unique_id(&this).ok().filter(|&id| id != 0);
    let machine = machine().map_err(failed("asking about the container"))?;
    let me = Identity {
        os: "windows".to_owned(),
        host: operator_host.or_else(|| machine.host()),
        boot: machine.boot(),
        ns: machine.namespace(),
        ns_id: None,
        pid,
        start: Some(System.created(&this).map_err(failed("GetProcessTimes"))?),
        uniq,
        nonce: Some(nonce()?),
        unknown: serde_json::Map::new(),
    };
    let has = Capabilities { unique_id: uniq.is_some(), ..Capabilities::default() };
    Ok(Environment { me, has, host_is_unique })
}

/// Whether the calling process is the one of `record`. What an image of a virtual machine brings elsewhere stays equal in
/// all of this: only an operator's host id, which is not asked here, could tell.
pub(crate) fn is_current(record: &Identity, env: &Environment, has: Capabilities) -> Result<bool, Error> {
    if record.pid != env.me.pid || record.boot != env.me.boot {
        return Ok(false);
    }
    let (start, uniq) = decide::identify(env.me.pid, has, &System)?;
    Ok(match (record.uniq, uniq) {
        (Some(recorded), Some(now)) => recorded == now,
        _ => record.start.is_none() || record.start == start,
    })
}

fn machine() -> Result<Machine, u32> {
    const CONTROL: PCWSTR = w!(r"SYSTEM\CurrentControlSet\Control");
    let in_container = registry(CONTROL, w!("ContainerType"), RRF_RT_REG_DWORD).is_some();
    Ok(Machine {
        guid: registry(w!(r"SOFTWARE\Microsoft\Cryptography"), w!("MachineGuid"), RRF_RT_REG_SZ),
        name: computer_name(),
        boots: boots(),
        wine_server: wine_server(),
        container: if in_container { Some(first_process()?) } else { None },
    })
}

/// When the first process to be seen was created. The idle process and the system itself, 0 and 4, are the host's.
fn first_process() -> Result<u64, u32> {
    Ok(call::processes()?.into_iter().filter(|&(pid, _)| pid > 4).map(|(_, born)| born).min().unwrap_or_default())
}

/// How often the loader has tried to boot. Source: KUSER_SHARED_DATA in ntddk.h, BootId.
///
/// Read from the page that the kernel shows to every process; at the same place on every processor that Windows runs on.
fn boots() -> u32 {
    const BOOT_ID: *const u32 = (0x7FFE_0000 + 0x2C4) as *const u32;
    // SAFETY: the page is mapped, readable, in every process, and the field is aligned. Older systems have zeroes there.
    unsafe { BOOT_ID.read_volatile() }
}

/// When wine's server started, which there is the kernel: it gives out the numbers, and starts with the first program.
///
/// The same question on Windows itself has another answer whenever somebody sets the clock.
fn wine_server() -> Option<u64> {
    // SAFETY: literal names; the library is in every process and is not given back.
    unsafe { GetProcAddress(GetModuleHandleW(w!("ntdll.dll")), s!("wine_get_version")) }?;
    // BootTime, and then what does not matter here. Source: phnt, ntexapi.h, SYSTEM_TIMEOFDAY_INFORMATION.
    let mut answer = [0u64; 6];
    let (at, size) = (answer.as_mut_ptr().cast(), size_of_val(&answer) as u32);
    // SAFETY: a pointer to as many bytes as are announced, which outlives the call.
    let status = unsafe { NtQuerySystemInformation(SystemTimeOfDayInformation, at, size, std::ptr::null_mut()) };
    (status == 0 && answer[0] != 0).then_some(answer[0])
}

fn computer_name() -> Option<String> {
    let mut name = [0u16; 256];
    let mut length = name.len() as u32;
    // SAFETY: a pointer to as many characters as are announced, which outlives the call.
    let done = unsafe { GetComputerNameExW(ComputerNamePhysicalNetBIOS, name.as_mut_ptr(), &raw mut length) };
    (done != 0 && length > 0).then(|| String::from_utf16_lossy(&name[..length as usize]))
}

/// A text of the machine's registry, or the bytes of a number as one; `None` where it cannot be had.
fn registry(key: PCWSTR, value: PCWSTR, kind: REG_ROUTINE_FLAGS) -> Option<String> {
    let mut text = [0u16; 128];
    let mut size = size_of_val(&text) as u32;
    // The same for programs of 32 and of 64 bits: each kind would see a registry of its own.
    let how = kind | RRF_SUBKEY_WOW6464KEY;
    let at = text.as_mut_ptr().cast();
    // SAFETY: names that end with a zero, and a pointer to as many bytes as are announced, which outlives the call.
    let error = unsafe { RegGetValueW(HKEY_LOCAL_MACHINE, key, value, how, std::ptr::null_mut(), at, &raw mut size) };
    let text = text.get(..size as usize / 2).filter(|_| error == 0)?;
    Some(String::from_utf16_lossy(text).trim_end_matches('\0').to_owned())
}

fn nonce() -> Result<[u8; 16], Error> {
    let mut nonce = [0; 16];
    let (at, size) = (nonce.as_mut_ptr(), nonce.len() as u32);
    // SAFETY: a pointer to as many bytes as are announced, which outlives the call.
    let status = unsafe { BCryptGenRandom(std::ptr::null_mut(), at, size, BCRYPT_USE_SYSTEM_PREFERRED_RNG) };
    if status == 0 { Ok(nonce) } else { Err(Error::System("BCryptGenRandom", std::io::ErrorKind::Other.into())) }
}
