//! Arguments in, errors out.

use pyo3::exceptions::{PyOSError, PyProcessLookupError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyString};
use std::time::{Duration, Instant};
use tenure_identity::{Capabilities, Error, Evidence, Host, Identity, Judgement, Malformed, Observer, Reason, Waited};

use crate::identity::ProcessIdentity;

/// The keyword arguments that every question has.
pub(crate) struct Asker {
    host: Option<Host>,
    host_is_unique: Option<bool>,
    without: Capabilities,
}

impl Asker {
    // Inlined, because the usual answer is "nothing was said": as a call it handed a hundred bytes about, which took a
    // third of a system call's time.
    #[inline(always)]
    pub(crate) fn new(
        host_id: Option<&str>,
        host_is_unique: Option<bool>,
        without: Option<Vec<String>>,
    ) -> PyResult<Self> {
        let host = match host_id {
            Some(id) => Some(Host::operator(id).map_err(|error| raise(&error))?),
            None => None,
        };
        let without = match without {
            Some(names) => capabilities(&names)?,
            None => Capabilities::default(),
        };
        Ok(Self { host, host_is_unique, without })
    }

    #[inline(always)]
    /// An observer, or the judgement of one who cannot even tell about himself; the error is for bad arguments alone.
    pub(crate) fn judging(&self) -> PyResult<Result<Observer<'_>, Judgement>> {
        match Observer::new(self.host.as_ref(), self.host_is_unique, self.without) {
            Ok(observer) => Ok(Ok(observer)),
            Err(error) => error.as_judgement().map(Err).ok_or_else(|| raise(&error)),
        }
    }

    pub(crate) fn observer(&self) -> PyResult<Observer<'_>> {
        Observer::new(self.host.as_ref(), self.host_is_unique, self.without).map_err(|error| raise(&error))
    }
}

#[cold]
fn capabilities(names: &[String]) -> PyResult<Capabilities> {
    let mut named = Capabilities::default();
    for name in names {
        match name.as_str() {
            "handle" => named.handle = true,
            "pidfs" => named.pidfs = true,
            "pidfd" => named.pidfd = true,
            "proc" => named.proc = true,
            "unique_id" => named.unique_id = true,
            other => {
                return Err(PyValueError::new_err(format!(
                    "not a capability: {other:?}. They are 'handle', 'pidfs', 'pidfd', 'proc' and 'unique_id'"
                )));
            }
        }
    }
    Ok(named)
}

/// What can be judged, or the judgement that needs no judge.
pub(crate) enum Record<'py> {
    Known(Bound<'py, ProcessIdentity>),
    Parsed(Box<Identity>),
    Answered(Judgement),
}

impl<'py> Record<'py> {
    pub(crate) fn identity(&self) -> Result<&Identity, &Judgement> {
        match self {
            Self::Known(identity) => Ok(&identity.get().0),
            Self::Parsed(identity) => Ok(identity),
            Self::Answered(judgement) => Err(judgement),
        }
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for Record<'py> {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(identity) = object.cast_exact::<ProcessIdentity>() {
            return Ok(Self::Known(identity.to_owned()));
        }
        let unreadable = |reason, detail: String| {
            Ok(Self::Answered(Judgement::unknown(reason, Evidence::Record).with_detail(detail)))
        };
        if object.is_none() {
            return Ok(Self::Answered(Judgement::unknown(Reason::NoIdentity, Evidence::Record)));
        }
        let parsed = if let Ok(text) = object.cast::<PyString>() {
            match text.to_cow() {
                Ok(text) => Identity::from_json(text.as_bytes()),
                // A lone surrogate. What cannot be written as UTF-8 was never a record.
                Err(_) => return unreadable(Reason::Malformed, "not JSON: not UTF-8".to_owned()),
            }
        } else {
            Identity::from_json(object.cast::<PyBytes>()?.as_bytes())
        };
        match parsed {
            Ok(identity) => Ok(Self::Parsed(Box::new(identity))),
            Err(error @ Malformed::Version(_)) => unreadable(Reason::Version, error.to_string()),
            Err(error @ Malformed::Damaged(_)) => unreadable(Reason::Malformed, error.to_string()),
        }
    }
}

/// The Python exception for a system error, with its number. PyO3's own conversion keeps the text alone.
pub(crate) fn raise_os(error: &std::io::Error) -> PyErr {
    match error.raw_os_error() {
        // Python takes the class from the number: FileExistsError, PermissionError …
        Some(number) => {
            let text = error.to_string();
            let words = text.split(" (os error").next().unwrap_or_default().to_owned();
            if cfg!(windows) {
                // Windows' numbers have a place of their own; Python finds the one of the C library that fits.
                PyOSError::new_err((0, words, None::<String>, number))
            } else {
                PyOSError::new_err((number, words))
            }
        }
        None => PyOSError::new_err(error.to_string()),
    }
}

/// The Python exception for a failure to identify.
pub(crate) fn raise(error: &Error) -> PyErr {
    match error {
        Error::NoSuchProcess => PyProcessLookupError::new_err(error.to_string()),
        Error::BadHost(_) => PyValueError::new_err(error.to_string()),
        _ => Python::attach(|py| ours(py, "IdentityError", &error.to_string(), |_| Ok(()))),
    }
}

/// The Python exception for a text that is no record.
pub(crate) fn raise_malformed(py: Python<'_>, error: &Malformed) -> PyErr {
    let reason = error.to_string();
    match error.newer_schema() {
        Some(schema) => {
            ours(py, "RecordTooNewError", "the identity record is newer than this version of tenure", |fields| {
                fields.set_item("reason", &reason)?;
                fields.set_item("key", py.None())?;
                fields.set_item("schema", schema)?;
                fields.set_item("understood", Identity::SCHEMA)?;
                fields.set_item("hint", "upgrade tenure on this machine")
            })
        }
        None => ours(py, "RecordError", &format!("the identity record is damaged. {reason}"), |fields| {
            fields.set_item("reason", &reason)?;
            fields.set_item("key", py.None())
        }),
    }
}

/// The Python exception for a record that cannot be watched.
pub(crate) fn raise_unwatchable(py: Python<'_>, judgement: &Judgement) -> PyErr {
    let reason = judgement.reason.slug();
    ours(
        py,
        "IdentityError",
        &format!("nobody can tell from here whether that process lives. reason=`{reason}`"),
        |fields| fields.set_item("reason", reason),
    )
}

/// Exceptions live in Python (`tenure.errors`), where users read them; the core only makes them.
fn ours(py: Python<'_>, class: &str, message: &str, fill: impl FnOnce(&Bound<'_, PyDict>) -> PyResult<()>) -> PyErr {
    static ERRORS: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let make = || {
        let errors = ERRORS.get_or_try_init(py, || py.import("tenure.errors").map(Bound::unbind))?;
        let fields = PyDict::new(py);
        fill(&fields)?;
        errors.bind(py).getattr(class)?.call((message,), Some(&fields))
    };
    make().map_or_else(|error| error, PyErr::from_value)
}

/// A time to wait, from Python's seconds. `None` waits without bound.
pub(crate) fn seconds(timeout: Option<f64>) -> PyResult<Option<Duration>> {
    match timeout {
        None => Ok(None),
        Some(seconds) if seconds.is_nan() || seconds < 0.0 => {
            Err(PyValueError::new_err(format!("timeout must be 0 or more seconds, or None, not {seconds}")))
        }
        // Infinity and what no Duration can hold are "without bound" too.
        Some(seconds) => Ok(Duration::try_from_secs_f64(seconds).ok()),
    }
}

/// Waits again and again until the event or the time is there, letting Python's signal handlers run in between.
pub(crate) fn wait(
    py: Python<'_>,
    timeout: Option<Duration>,
    mut once: impl FnMut(Python<'_>, Option<Duration>) -> PyResult<Waited>,
) -> PyResult<bool> {
    let started = Instant::now();
    loop {
        let left = timeout.map(|timeout| timeout.saturating_sub(started.elapsed()));
        match once(py, left)? {
            Waited::Ended => return Ok(true),
            Waited::TimedOut => return Ok(false),
            Waited::Interrupted if left == Some(Duration::ZERO) => return Ok(false),
            Waited::Interrupted => py.check_signals()?,
        }
    }
}
