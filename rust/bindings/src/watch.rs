//! `Watch` and `WatchSet`.

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyIterator};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tenure_identity::{Capabilities, Observer, Waited};

use crate::convert::{self, Asker, Record, raise, raise_unwatchable};
use crate::identity::ProcessIdentity;
use crate::judge::Judgement;

/// Never held while waiting or while asking for the GIL, so that nobody waits for it long.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn closed() -> PyErr {
    PyValueError::new_err("the watch is closed")
}

/// One process, pinned: that very one, whatever happens to its number.
#[pyclass(frozen, module = "tenure")]
pub(crate) struct Watch(Mutex<Option<Arc<tenure_identity::Watch>>>);

impl Watch {
    fn open(&self) -> PyResult<Arc<tenure_identity::Watch>> {
        lock(&self.0).clone().ok_or_else(closed)
    }
}

#[pymethods]
impl Watch {
    #[new]
    #[pyo3(signature = (record, *, host_id=None, host_id_is_unique=None, without=None))]
    fn new(
        py: Python<'_>,
        record: Record<'_>,
        host_id: Option<&str>,
        host_id_is_unique: Option<bool>,
        without: Option<Vec<String>>,
    ) -> PyResult<Self> {
        let asker = Asker::new(host_id, host_id_is_unique, without)?;
        let identity = record.identity().map_err(|judgement| raise_unwatchable(py, judgement))?;
        let observer = asker.observer()?;
        let opened = py.detach(|| tenure_identity::Watch::open(identity, &observer));
        match opened {
            Ok(watch) => Ok(Self(Mutex::new(Some(Arc::new(watch))))),
            Err(judgement) => Err(raise_unwatchable(py, &judgement)),
        }
    }

    #[getter]
    fn judgement(&self) -> PyResult<Judgement> {
        Ok(self.open()?.judgement().clone().into())
    }

    fn alive(&self) -> PyResult<bool> {
        // Not through `open`, which would count a reference up and down: this is the call of hot loops.
        lock(&self.0).as_ref().map(|watch| watch.alive()).ok_or_else(closed)
    }

    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let watch = self.open()?;
        convert::wait(py, convert::seconds(timeout)?, |py, left| Ok(py.detach(|| watch.wait(left))))
    }

    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        let watch = self.open()?;
        watch.descriptor().ok_or_else(|| raise_unwatchable(py, watch.judgement()))
    }

    fn close(&self) {
        lock(&self.0).take();
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyResult<PyRef<'_, Self>> {
        if lock(&slf.0).is_none() {
            return Err(closed());
        }
        Ok(slf)
    }

    fn __exit__(&self, _kind: &Bound<'_, PyAny>, _error: &Bound<'_, PyAny>, _trace: &Bound<'_, PyAny>) {
        self.close();
    }
}

/// Many processes, watched at a cost that follows the deaths and not the size.
#[pyclass(frozen, module = "tenure")]
pub(crate) struct WatchSet(Mutex<Option<Members>>);

struct Members {
    set: tenure_identity::WatchSet,
    /// The set's keys by member, and back.
    keys: Py<PyDict>,
    records: HashMap<u64, Py<ProcessIdentity>>,
}

impl WatchSet {
    fn with<T>(&self, act: impl FnOnce(&mut Members) -> PyResult<T>) -> PyResult<T> {
        act(lock(&self.0).as_mut().ok_or_else(closed)?)
    }
}

#[pymethods]
impl WatchSet {
    #[new]
    #[pyo3(signature = (records=None, *, limit=None))]
    fn new(py: Python<'_>, records: Option<&Bound<'_, PyAny>>, limit: Option<usize>) -> PyResult<Self> {
        let set = tenure_identity::WatchSet::new(limit).map_err(|error| raise(&error))?;
        let members = Members { set, keys: PyDict::new(py).unbind(), records: HashMap::new() };
        let watches = Self(Mutex::new(Some(members)));
        if let Some(records) = records {
            for record in PyIterator::from_object(records)? {
                watches.add(&record?.extract()?)?;
            }
        }
        Ok(watches)
    }

    #[pyo3(signature = (record, /))]
    fn add(&self, record: &Bound<'_, ProcessIdentity>) -> PyResult<Judgement> {
        let py = record.py();
        let me = Observer::new(None, None, Capabilities::default()).map_err(|error| raise(&error))?;
        self.with(|members| {
            if members.keys.bind(py).contains(record)? {
                return Ok(tenure_identity::judge(&record.get().0, &me).into());
            }
            let (judgement, key) = members.set.add(&record.get().0, &me);
            if let Some(key) = key {
                members.keys.bind(py).set_item(record, key)?;
                members.records.insert(key, record.clone().unbind());
            }
            Ok(judgement.into())
        })
    }

    #[pyo3(signature = (record, /))]
    fn discard(&self, record: &Bound<'_, ProcessIdentity>) -> PyResult<()> {
        let keys = |members: &Members| members.keys.bind(record.py()).clone();
        self.with(|members| {
            if let Some(key) = keys(members).get_item(record)? {
                let key = key.extract()?;
                keys(members).del_item(record)?;
                members.records.remove(&key);
                members.set.discard(key);
            }
            Ok(())
        })
    }

    #[pyo3(signature = (timeout=Some(0.0)))]
    fn ended(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Vec<Py<ProcessIdentity>>> {
        let timeout = convert::seconds(timeout)?;
        let mut ended = self.collect(py)?;
        if !ended.is_empty() || timeout == Some(Duration::ZERO) {
            return Ok(ended);
        }
        convert::wait(py, timeout, |py, left| {
            let waiter = self.with(|members| Ok(members.set.waiter()))?;
            let waited = py.detach(|| waiter.wait(left));
            ended = self.collect(py)?;
            Ok(match waited {
                _ if !ended.is_empty() => Waited::Ended,
                // Somebody else has collected it meanwhile.
                Waited::Ended => Waited::Interrupted,
                other => other,
            })
        })?;
        Ok(ended)
    }

    fn fileno(&self) -> PyResult<i32> {
        self.with(|members| match members.set.descriptor() {
            fd if fd >= 0 => Ok(fd),
            _ => Err(PyOSError::new_err("this system has no descriptor that turns readable at an end")),
        })
    }

    fn close(&self) {
        lock(&self.0).take();
    }

    fn __len__(&self) -> PyResult<usize> {
        self.with(|members| Ok(members.set.len()))
    }

    fn __contains__(&self, record: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.with(|members| members.keys.bind(record.py()).contains(record))
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyResult<PyRef<'_, Self>> {
        if lock(&slf.0).is_none() {
            return Err(closed());
        }
        Ok(slf)
    }

    fn __exit__(&self, _kind: &Bound<'_, PyAny>, _error: &Bound<'_, PyAny>, _trace: &Bound<'_, PyAny>) {
        self.close();
    }
}

impl WatchSet {
    fn collect(&self, py: Python<'_>) -> PyResult<Vec<Py<ProcessIdentity>>> {
        self.with(|members| {
            let keys = members.set.ended().map_err(|error| raise(&error))?;
            let mut ended = Vec::with_capacity(keys.len());
            for key in keys {
                if let Some(record) = members.records.remove(&key) {
                    members.keys.bind(py).del_item(&record)?;
                    ended.push(record);
                }
            }
            Ok(ended)
        })
    }
}
