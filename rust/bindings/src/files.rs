//! `Changes`, `open_below` and its kin, `filesystem_type`, `rename_noreplace`, `sync_filesystem`, and the lifeline's two calls.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use std::os::fd::IntoRawFd;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use crate::convert::{c_string, raise_os};

/// Turns readable when something changes in one of its directories, or to one of its files.
#[pyclass(frozen, module = "tenure._core")]
pub(crate) struct Changes(Mutex<Option<tenure_hold::Changes>>);

#[pymethods]
impl Changes {
    #[new]
    fn new(paths: Vec<PathBuf>) -> PyResult<Self> {
        let changes = tenure_hold::Changes::new().map_err(|error| raise_os(&error))?;
        for path in &paths {
            changes.add(path).map_err(|error| raise_os(&error))?;
        }
        Ok(Self(Mutex::new(Some(changes))))
    }

    fn drain(&self) -> PyResult<()> {
        self.open(tenure_hold::Changes::drain)
    }

    fn fileno(&self) -> PyResult<i32> {
        self.open(tenure_hold::Changes::descriptor)
    }

    fn close(&self, py: Python<'_>) {
        let changes = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        // The kernel takes milliseconds over it, and others want the GIL meanwhile.
        py.detach(|| drop(changes));
    }
}

impl Changes {
    fn open<T>(&self, ask: impl FnOnce(&tenure_hold::Changes) -> T) -> PyResult<T> {
        let changes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        changes.as_ref().map(ask).ok_or_else(|| PyValueError::new_err("it is closed"))
    }
}

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

/// The kind of file system, if this machine's kernel alone manages it.
#[pyfunction]
pub(crate) fn filesystem_type(py: Python<'_>, fd: i32) -> PyResult<Option<&'static str>> {
    py.detach(|| tenure_hold::filesystem_type(fd)).map_err(|error| raise_os(&error))
}

/// Rename within a directory, failing if the target exists.
#[pyfunction]
#[pyo3(signature = (source, target, *, dir_fd))]
pub(crate) fn rename_noreplace(py: Python<'_>, source: &str, target: &str, dir_fd: i32) -> PyResult<()> {
    py.detach(|| tenure_hold::rename_noreplace(dir_fd, source, target)).map_err(|error| raise_os(&error))
}

/// Make durable what was written to the file system of a descriptor.
#[pyfunction]
pub(crate) fn sync_filesystem(py: Python<'_>, fd: i32) -> PyResult<()> {
    py.detach(|| tenure_hold::sync_filesystem(fd)).map_err(|error| raise_os(&error))
}

/// Take the lock that ends with the last process that carries the descriptor.
#[pyfunction]
pub(crate) fn lifeline_lock(py: Python<'_>, fd: i32) -> PyResult<bool> {
    py.detach(|| tenure_hold::lifeline_lock(fd)).map_err(|error| raise_os(&error))
}

/// Whether anybody holds that lock; takes nothing.
#[pyfunction]
pub(crate) fn lifeline_held(py: Python<'_>, fd: i32) -> PyResult<bool> {
    py.detach(|| tenure_hold::lifeline_held(fd)).map_err(|error| raise_os(&error))
}
