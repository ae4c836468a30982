//! `filesystem_type`, `rename_noreplace`, and the lifeline's two calls.

use pyo3::prelude::*;

/// The kind of file system, if this machine's kernel alone manages it.
#[pyfunction]
pub(crate) fn filesystem_type(py: Python<'_>, fd: i32) -> PyResult<Option<&'static str>> {
    Ok(py.detach(|| tenure_files::filesystem_type(fd))?)
}

/// Rename within a directory, failing if the target exists.
#[pyfunction]
#[pyo3(signature = (source, target, *, dir_fd))]
pub(crate) fn rename_noreplace(py: Python<'_>, source: &str, target: &str, dir_fd: i32) -> PyResult<()> {
    Ok(py.detach(|| tenure_files::rename_noreplace(dir_fd, source, target))?)
}

/// Take the lock that ends with the last process that carries the descriptor.
#[pyfunction]
pub(crate) fn lifeline_lock(py: Python<'_>, fd: i32) -> PyResult<bool> {
    Ok(py.detach(|| tenure_files::lifeline_lock(fd))?)
}

/// Whether anybody holds that lock; takes nothing.
#[pyfunction]
pub(crate) fn lifeline_held(py: Python<'_>, fd: i32) -> PyResult<bool> {
    Ok(py.detach(|| tenure_files::lifeline_held(fd))?)
}
