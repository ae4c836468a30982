//! Whose file system it is, the rename that replaces nothing, and one sync for many files.

use std::io;

#[cfg(any(target_os = "linux", target_vendor = "apple"))]
use crate::system::borrow;

/// File systems that one kernel alone manages, so that its locks and inode numbers are the truth.
///
/// Left out on purpose: whatever another machine can reach too (NFS, SMB, 9p, virtiofs, Lustre, Ceph, GFS2, OCFS2), and
/// FUSE, where anything may be behind it. Overlay is in because device and inode are compared besides: a file of the
/// upper directory has another device number there. Source of the numbers: statfs(2), linux/magic.h.
#[cfg(target_os = "linux")]
const LOCAL: &[(i64, &str)] = &[
    (0xEF53, "ext4"), // ext2 and ext3 have the same number
    (0x5846_5342, "xfs"),
    (0x9123_683E, "btrfs"),
    (0x0102_1994, "tmpfs"),
    (0x794C_7630, "overlay"),
    (0xF2F5_2010, "f2fs"),
    (0x2FC1_2FC1, "zfs"),
    (0xCA45_1A4E, "bcachefs"),
    (0x8584_58F6, "ramfs"),
];

/// The name of a file system whose locks this kernel alone manages; `None` for every other and for the unknown.
///
/// # Errors
/// Those of fstatfs(2).
#[cfg(target_os = "linux")]
pub fn filesystem_type(fd: i32) -> io::Result<Option<&'static str>> {
    let found = rustix::fs::fstatfs(borrow(fd)?)?.f_type;
    Ok(LOCAL.iter().find(|&&(number, _)| number == found).map(|&(_, name)| name))
}

/// The name of a file system whose locks this kernel alone manages; `None` for every other and for the unknown.
///
/// # Errors
/// Those of fstatfs(2).
#[cfg(target_os = "macos")]
pub fn filesystem_type(fd: i32) -> io::Result<Option<&'static str>> {
    let found = rustix::fs::fstatfs(borrow(fd)?)?;
    let name: Vec<u8> = found.f_fstypename.iter().map(|&byte| byte as u8).collect();
    Ok(local_to_macos(&name, found.f_flags & libc::MNT_LOCAL as u32 != 0))
}

/// By name, and by the kernel's word that no network is behind it: a file system of users' own may take any name.
#[cfg(any(target_os = "macos", test))]
fn local_to_macos(name: &[u8], is_local: bool) -> Option<&'static str> {
    let name = name.split(|&byte| byte == 0).next()?;
    ["apfs", "hfs"].into_iter().find(|known| is_local && known.as_bytes() == name)
}

/// Not known on this system, so no lock is believed.
///
/// # Errors
/// Never.
#[cfg(not(any(target_os = "linux", target_os = "macos")))]
pub fn filesystem_type(_fd: i32) -> io::Result<Option<&'static str>> {
    Ok(None)
}

/// Renames from one directory into another, failing if the target exists. Source: rename(2), RENAME_NOREPLACE.
///
/// # Errors
/// `EEXIST`; `EINVAL` where the file system cannot do it, `ENOSYS` where the kernel cannot.
#[cfg(any(target_os = "linux", target_vendor = "apple"))]
pub fn rename_noreplace(from: i32, source: &str, into: i32, target: &str) -> io::Result<()> {
    let (from, into) = (borrow(from)?, borrow(into)?);
    Ok(rustix::fs::renameat_with(from, source, into, target, rustix::fs::RenameFlags::NOREPLACE)?)
}

/// There is no such call here.
///
/// # Errors
/// Always `Unsupported`.
#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
pub fn rename_noreplace(_from: i32, _source: &str, _into: i32, _target: &str) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Makes everything durable that was written to the file system of `fd`: one call, however many files. Source: syncfs(2).
///
/// # Errors
/// Those of the system; since Linux 5.8 also `EIO` for what could not be written back.
#[cfg(target_os = "linux")]
pub fn sync_filesystem(fd: i32) -> io::Result<()> {
    Ok(rustix::fs::syncfs(borrow(fd)?)?)
}

/// The same for every file system there is, where no call is narrower. Source: sync(2).
///
/// # Errors
/// Never: that call reports none.
#[cfg(not(target_os = "linux"))]
pub fn sync_filesystem(_fd: i32) -> io::Result<()> {
    rustix::fs::sync();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_macos_file_systems_only_the_local_ones_with_lasting_inodes_are_believed() {
        let padded = |name: &[u8]| [name, &[0; 12]].concat();
        assert_eq!(local_to_macos(&padded(b"apfs"), true), Some("apfs"));
        assert_eq!(local_to_macos(b"hfs", true), Some("hfs"));
        assert_eq!(local_to_macos(&padded(b"apfs"), false), None);
        for other in [&b""[..], b"apfs2", b"smbfs", b"nfs", b"macfuse", b"webdav", b"msdos"] {
            assert_eq!(local_to_macos(&padded(other), true), None);
        }
    }
}
