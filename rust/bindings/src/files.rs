//! `Changes`, `filesystem_type`, `rename_noreplace`, and the lifeline's two calls.

use pyo3::prelude::*;

use std::path::PathBuf;

use crate::convert::raise_os;

/// Turns readable when something changes in one of its directories.
#[pyclass(frozen, module = "tenure._core")]
pub(crate) struct Changes(tenure_hold::Changes);

#[pymethods]
impl Changes {
    #[new]
    fn new(directories: Vec<PathBuf>) -> PyResult<Self> {
        let changes = tenure_hold::Changes::new().map_err(|error| raise_os(&error))?;
        for directory in &directories {
            changes.add(directory).map_err(|error| raise_os(&error))?;
        }
        Ok(Self(changes))
    }

    fn drain(&self) {
        self.0.drain();
    }

    fn fileno(&self) -> i32 {
        self.0.descriptor()
    }
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
