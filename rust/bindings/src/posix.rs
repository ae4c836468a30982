//! `rename_noreplace`, below a directory's descriptor.

use pyo3::prelude::*;

use crate::convert::raise_os;

/// Rename within a directory, failing if the target exists.
#[pyfunction]
#[pyo3(signature = (source, target, *, dir_fd))]
pub(crate) fn rename_noreplace(py: Python<'_>, source: &str, target: &str, dir_fd: i32) -> PyResult<()> {
    py.detach(|| tenure_hold::rename_noreplace(dir_fd, source, target)).map_err(|error| raise_os(&error))
}
