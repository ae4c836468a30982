//! `ProcessIdentity`.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use tenure_identity::{Capabilities, Identity, Malformed, Observer};

use crate::convert::{Asker, raise, raise_malformed};

/// Who a process is, in a form that still means something tomorrow.
#[pyclass(frozen, eq, module = "tenure")]
#[derive(PartialEq)]
pub(crate) struct ProcessIdentity(pub(crate) Identity);

#[pymethods]
impl ProcessIdentity {
    #[staticmethod]
    #[pyo3(signature = (*, host_id=None))]
    fn current(host_id: Option<&str>) -> PyResult<Self> {
        // The GIL is kept: the first call reads the environment, which another thread of Python may be changing.
        Ok(Self(Asker::new(host_id, None, None)?.observer()?.me()))
    }

    #[staticmethod]
    #[pyo3(signature = (pid, *, host_id=None))]
    fn of(py: Python<'_>, pid: i64, host_id: Option<&str>) -> PyResult<Self> {
        let pid = match u32::try_from(pid) {
            Ok(pid) if pid > 0 && i32::try_from(pid).is_ok() => pid,
            _ => return Err(PyValueError::new_err(format!("pid must be 1 to 2147483647, not {pid}"))),
        };
        let asker = Asker::new(host_id, None, None)?;
        let observer = asker.observer()?;
        py.detach(|| observer.identify(pid)).map(Self).map_err(|error| raise(&error))
    }

    #[staticmethod]
    fn from_json(text: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = text.py();
        let parsed = if let Ok(text) = text.cast::<PyString>() {
            match text.to_cow() {
                Ok(text) => Identity::from_json(text.as_bytes()),
                Err(_) => Err(Malformed::Damaged("not JSON: not UTF-8".to_owned())),
            }
        } else if let Ok(bytes) = text.cast::<PyBytes>() {
            Identity::from_json(bytes.as_bytes())
        } else {
            return Err(PyTypeError::new_err(format!("from_json takes str or bytes, not {}", text.get_type().name()?)));
        };
        parsed.map(Self).map_err(|error| raise_malformed(py, &error))
    }

    fn to_json(&self) -> String {
        self.0.to_json()
    }

    fn is_current(&self, py: Python<'_>) -> PyResult<bool> {
        let me = Observer::new(None, None, Capabilities::default()).map_err(|error| raise(&error))?;
        py.detach(|| me.is_me(&self.0)).map_err(|error| raise(&error))
    }

    #[getter]
    fn os(&self) -> &str {
        &self.0.os
    }

    #[getter]
    fn host(&self) -> Option<&str> {
        self.0.host.as_ref().map(|host| host.id.as_str())
    }

    #[getter]
    fn host_set_by_operator(&self) -> bool {
        self.0.host.as_ref().is_some_and(|host| host.set_by_operator)
    }

    #[getter]
    fn boot(&self) -> Option<&str> {
        self.0.boot.as_deref()
    }

    #[getter]
    fn ns(&self) -> Option<&str> {
        self.0.ns.as_deref()
    }

    #[getter]
    fn ns_id(&self) -> Option<u64> {
        self.0.ns_id
    }

    #[getter]
    fn pid(&self) -> u32 {
        self.0.pid
    }

    #[getter]
    fn start(&self) -> Option<u64> {
        self.0.start
    }

    #[getter]
    fn uniq(&self) -> Option<u64> {
        self.0.uniq
    }

    #[getter]
    fn nonce(&self) -> Option<String> {
        self.0.nonce.map(|nonce| nonce.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.0.pid, self.0.start, self.0.uniq, &self.0.boot).hash(&mut hasher);
        hasher.finish()
    }

    fn __repr__(&self) -> String {
        format!("ProcessIdentity.from_json({:?})", self.0.to_json())
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let py = slf.py();
        Ok((slf.get_type().getattr("from_json")?, PyTuple::new(py, [slf.get().0.to_json()])?))
    }
}
