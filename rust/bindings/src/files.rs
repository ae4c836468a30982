//! `Changes`, `filesystem_type`, and the lifeline's two calls.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use tenure_hold::Descriptor;

use crate::convert::raise_os;

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
        py.detach(move || {
            let _closing = changes;
        });
    }
}

impl Changes {
    fn open<T>(&self, ask: impl FnOnce(&tenure_hold::Changes) -> T) -> PyResult<T> {
        let changes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        changes.as_ref().map(ask).ok_or_else(|| PyValueError::new_err("it is closed"))
    }
}

/// The kind of file system, if this machine's kernel alone manages it.
#[pyfunction]
pub(crate) fn filesystem_type(py: Python<'_>, fd: Descriptor) -> PyResult<Option<&'static str>> {
    py.detach(|| tenure_hold::filesystem_type(fd)).map_err(|error| raise_os(&error))
}

/// Take the lock that ends with the last process that carries the descriptor.
#[pyfunction]
pub(crate) fn lifeline_lock(py: Python<'_>, fd: Descriptor) -> PyResult<bool> {
    py.detach(|| tenure_hold::lifeline_lock(fd)).map_err(|error| raise_os(&error))
}

/// Whether anybody holds that lock; takes nothing.
#[pyfunction]
pub(crate) fn lifeline_held(py: Python<'_>, fd: Descriptor) -> PyResult<bool> {
    py.detach(|| tenure_hold::lifeline_held(fd)).map_err(|error| raise_os(&error))
}
