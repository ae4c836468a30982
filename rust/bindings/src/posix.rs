//! What needs descriptors of directories: `open_below` and its kin, `glance`, `rename_noreplace`, `place_new`; and
//! `sync_filesystem`.

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use std::ffi::CString;
use std::os::fd::IntoRawFd;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use crate::convert::raise_os;

/// A file or directory below a root as a descriptor, following no link.
#[pyfunction]
#[pyo3(signature = (root, name, flags, mode=0))]
pub(crate) fn open_below(py: Python<'_>, root: PathBuf, name: &str, flags: u32, mode: u32) -> PyResult<i32> {
    let root = c_string(root)?;
    let opened = py.detach(|| tenure_hold::open_below(&root, name, flags, mode));
    opened.map(IntoRawFd::into_raw_fd).map_err(|error| raise_os(&error))
}

/// The content of a file below a root.
#[pyfunction]
pub(crate) fn read_below<'py>(
    py: Python<'py>,
    root: PathBuf,
    name: &str,
    most: usize,
) -> PyResult<Bound<'py, PyBytes>> {
    let root = c_string(root)?;
    let read = py.detach(|| tenure_hold::read_below(&root, name, most));
    read.map(|data| PyBytes::new(py, &data)).map_err(|error| raise_os(&error))
}

/// Remove a file below a root.
#[pyfunction]
pub(crate) fn unlink_below(py: Python<'_>, root: PathBuf, name: &str) -> PyResult<()> {
    let root = c_string(root)?;
    py.detach(|| tenure_hold::unlink_below(&root, name)).map_err(|error| raise_os(&error))
}

/// The highest claim and its heartbeat.
#[pyfunction]
pub(crate) fn glance<'py>(
    py: Python<'py>,
    root: PathBuf,
    claims: &str,
    beats: &str,
    most: usize,
) -> PyResult<(u64, Bound<'py, PyBytes>, Bound<'py, PyBytes>, i64)> {
    let root = c_string(root)?;
    let seen = py.detach(|| tenure_hold::glance(&root, claims, beats, most)).map_err(|error| raise_os(&error))?;
    Ok((seen.fence, PyBytes::new(py, &seen.claim), PyBytes::new(py, &seen.beat), seen.stamp))
}

/// Rename within a directory, failing if the target exists.
#[pyfunction]
#[pyo3(signature = (source, target, *, dir_fd))]
pub(crate) fn rename_noreplace(py: Python<'_>, source: &str, target: &str, dir_fd: i32) -> PyResult<()> {
    py.detach(|| tenure_hold::rename_noreplace(dir_fd, source, dir_fd, target)).map_err(|error| raise_os(&error))
}

/// Put new files into a directory, replacing nothing.
#[pyfunction]
#[pyo3(signature = (files, *, temporary, src_dir_fd, dst_dir_fd))]
pub(crate) fn place_new(
    py: Python<'_>,
    files: Vec<(String, PyBackedBytes)>,
    temporary: &str,
    src_dir_fd: i32,
    dst_dir_fd: i32,
) -> PyResult<Vec<Option<(i64, u64)>>> {
    let placed = py.detach(|| {
        let files: Vec<(&str, &[u8])> = files.iter().map(|(name, data)| (name.as_str(), &**data)).collect();
        tenure_hold::place_new(src_dir_fd, temporary, dst_dir_fd, &files)
    });
    match placed {
        Ok(placed) => Ok(placed.into_iter().map(|one| one.map(|one| (one.mtime_ns, one.inode))).collect()),
        Err((index, error)) => {
            let failure = raise_os(&error);
            failure.value(py).setattr("filename", &files[index].0)?;
            Err(failure)
        }
    }
}

/// Make durable what was written to the file system of a descriptor.
#[pyfunction]
pub(crate) fn sync_filesystem(py: Python<'_>, fd: i32) -> PyResult<()> {
    py.detach(|| tenure_hold::sync_filesystem(fd)).map_err(|error| raise_os(&error))
}

/// A path as system calls take it.
fn c_string(path: PathBuf) -> PyResult<CString> {
    Ok(CString::new(path.into_os_string().into_vec())?)
}
