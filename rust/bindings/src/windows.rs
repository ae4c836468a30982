//! What a store needs where there are no descriptors of directories: `PinnedDirectory`, `open_shared`, two renames, and the
//! third call of a lock. And what is one call elsewhere and refuses here, so that whoever asks goes step by step.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use std::os::windows::io::IntoRawHandle;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use tenure_hold::{Descriptor, Opening};

use crate::convert::raise_os;

/// A directory that nobody can rename or replace while it is open.
#[pyclass(frozen, module = "tenure._core")]
pub(crate) struct PinnedDirectory {
    path: PathBuf,
    open: Mutex<Option<tenure_hold::PinnedDirectory>>,
}

#[pymethods]
impl PinnedDirectory {
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let open = py.detach(|| tenure_hold::PinnedDirectory::open(&path)).map_err(|error| raise_os(&error))?;
        Ok(Self { path, open: Mutex::new(Some(open)) })
    }

    #[getter]
    fn path(&self) -> String {
        self.path.to_string_lossy().into_owned()
    }

    #[getter]
    fn handle(&self) -> PyResult<Descriptor> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.as_ref().map(tenure_hold::PinnedDirectory::handle).ok_or_else(|| PyValueError::new_err("it is closed"))
    }

    fn close(&self) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// Open a file that others may rename and remove meanwhile; its handle, which is the caller's.
#[pyfunction]
#[pyo3(signature = (path, *, write, create, create_new, truncate))]
pub(crate) fn open_shared(
    py: Python<'_>,
    path: PathBuf,
    write: bool,
    create: bool,
    create_new: bool,
    truncate: bool,
) -> PyResult<Descriptor> {
    let opening = Opening { write, create, create_new, truncate };
    let handle = py.detach(|| tenure_hold::open_shared(&path, opening)).map_err(|error| raise_os(&error))?;
    Ok(handle.into_raw_handle() as Descriptor)
}

/// Rename, failing if the target exists.
#[pyfunction]
pub(crate) fn rename_noreplace(py: Python<'_>, source: PathBuf, target: PathBuf) -> PyResult<()> {
    py.detach(|| tenure_hold::rename_noreplace(&source, &target)).map_err(|error| raise_os(&error))
}

/// Rename over the target.
#[pyfunction]
pub(crate) fn rename_over(py: Python<'_>, source: PathBuf, target: PathBuf) -> PyResult<()> {
    py.detach(|| tenure_hold::rename_over(&source, &target)).map_err(|error| raise_os(&error))
}

/// Give the lock of `lifeline_lock` back.
#[pyfunction]
pub(crate) fn lifeline_unlock(py: Python<'_>, handle: Descriptor) -> PyResult<()> {
    py.detach(|| tenure_hold::lifeline_unlock(handle)).map_err(|error| raise_os(&error))
}

/// Refuses.
#[pyfunction]
#[pyo3(signature = (root, name, flags, mode=0))]
#[allow(unused_variables, reason = "as elsewhere")]
pub(crate) fn open_below(root: PathBuf, name: &str, flags: u32, mode: u32) -> PyResult<i32> {
    refuse()
}

/// Refuses.
#[pyfunction]
#[allow(unused_variables, reason = "as elsewhere")]
pub(crate) fn read_below(root: PathBuf, name: &str, most: usize) -> PyResult<()> {
    refuse()
}

/// Refuses.
#[pyfunction]
#[allow(unused_variables, reason = "as elsewhere")]
pub(crate) fn unlink_below(root: PathBuf, name: &str) -> PyResult<()> {
    refuse()
}

/// Refuses.
#[pyfunction]
#[allow(unused_variables, reason = "as elsewhere")]
pub(crate) fn glance(root: PathBuf, claims: &str, beats: &str, most: usize) -> PyResult<()> {
    refuse()
}

/// Refuses.
#[pyfunction]
#[allow(unused_variables, reason = "as elsewhere")]
pub(crate) fn sync_filesystem(fd: Descriptor) -> PyResult<()> {
    refuse()
}

fn refuse<T>() -> PyResult<T> {
    Err(raise_os(&std::io::ErrorKind::Unsupported.into()))
}
