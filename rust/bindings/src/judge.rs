//! `Judgement`, `judge`, `judge_many`, and the clocks.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyFrozenSet, PyIterator, PyString, PyTuple};
use std::borrow::Cow;
use tenure_identity::{Capabilities, Observer, Verdict};

use crate::convert::{Asker, Record, raise};

/// A verdict and why. The slugs are text, since rooms above the core have reasons of their own.
#[pyclass(frozen, eq, hash, module = "tenure")]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct Judgement {
    verdict: Verdict,
    reason: Cow<'static, str>,
    evidence: Cow<'static, str>,
    detail: Option<Box<str>>,
}

impl From<tenure_identity::Judgement> for Judgement {
    fn from(judgement: tenure_identity::Judgement) -> Self {
        Self {
            verdict: judgement.verdict,
            reason: Cow::Borrowed(judgement.reason.slug()),
            evidence: Cow::Borrowed(judgement.evidence.slug()),
            detail: judgement.detail,
        }
    }
}

/// The members of the Python enum, which lives in Python so that it is a real one.
fn members(py: Python<'_>) -> PyResult<&[(Verdict, Py<PyAny>); 3]> {
    static MEMBERS: PyOnceLock<[(Verdict, Py<PyAny>); 3]> = PyOnceLock::new();
    MEMBERS.get_or_try_init(py, || {
        let class = py.import("tenure._verdict")?.getattr("Verdict")?;
        let member = |verdict, name| Ok::<_, PyErr>((verdict, class.getattr(name)?.unbind()));
        Ok([member(Verdict::Alive, "ALIVE")?, member(Verdict::Gone, "GONE")?, member(Verdict::Unknown, "UNKNOWN")?])
    })
}

#[pymethods]
impl Judgement {
    #[new]
    #[pyo3(signature = (verdict, reason, evidence=Cow::Borrowed("none"), detail=""))]
    fn new(verdict: &Bound<'_, PyAny>, reason: Cow<'_, str>, evidence: Cow<'_, str>, detail: &str) -> PyResult<Self> {
        let known = members(verdict.py())?.iter().find(|(_, member)| member.is(verdict));
        let Some((verdict, _)) = known else {
            return Err(PyTypeError::new_err("verdict must be a tenure.Verdict"));
        };
        Ok(Self {
            verdict: *verdict,
            reason: Cow::Owned(reason.into_owned()),
            evidence: Cow::Owned(evidence.into_owned()),
            detail: (!detail.is_empty()).then(|| detail.into()),
        })
    }

    #[getter]
    fn verdict<'py>(&self, py: Python<'py>) -> PyResult<&Bound<'py, PyAny>> {
        let at = match self.verdict {
            Verdict::Alive => 0,
            Verdict::Gone => 1,
            Verdict::Unknown => 2,
        };
        Ok(members(py)?[at].1.bind(py))
    }

    #[getter]
    fn reason<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        PyString::intern(py, &self.reason)
    }

    #[getter]
    fn evidence<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        PyString::intern(py, &self.evidence)
    }

    #[getter]
    fn detail(&self) -> &str {
        self.detail.as_deref().unwrap_or_default()
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let verdict = self.verdict(py)?.getattr("name")?;
        let detail = self.detail.as_deref().map_or_else(String::new, |detail| format!(" ({detail})"));
        Ok(format!("<Judgement {verdict}: {} by {}{detail}>", self.reason, self.evidence))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let (py, this) = (slf.py(), slf.get());
        let state = (this.verdict(py)?, &*this.reason, &*this.evidence, this.detail());
        Ok((slf.get_type().into_any(), state.into_pyobject(py)?))
    }
}

/// Whether the very process that a record describes still lives.
#[pyfunction]
#[pyo3(signature = (record, *, host_id=None, host_id_is_unique=None, without=None))]
pub(crate) fn judge(
    py: Python<'_>,
    record: Record<'_>,
    host_id: Option<&str>,
    host_id_is_unique: Option<bool>,
    without: Option<Vec<String>>,
) -> PyResult<Judgement> {
    let asker = Asker::new(host_id, host_id_is_unique, without)?;
    let identity = match record.identity() {
        Ok(identity) => identity,
        Err(judgement) => return Ok(judgement.clone().into()),
    };
    match asker.judging()? {
        // By unique id it is four calls that never wait for anything. The GIL is kept for them: beside a thread that
        // computes, getting it back takes ten times as long as they do.
        Ok(observer) if observer.capabilities().pidfs && identity.uniq.is_some() => {
            Ok(tenure_identity::judge(identity, &observer).into())
        }
        Ok(observer) => Ok(py.detach(|| tenure_identity::judge(identity, &observer)).into()),
        Err(judgement) => Ok(judgement.into()),
    }
}

/// `judge` for many, in their order: one probe per distinct process.
#[pyfunction]
#[pyo3(signature = (records, *, host_id=None, host_id_is_unique=None, without=None))]
pub(crate) fn judge_many(
    py: Python<'_>,
    records: &Bound<'_, PyAny>,
    host_id: Option<&str>,
    host_id_is_unique: Option<bool>,
    without: Option<Vec<String>>,
) -> PyResult<Vec<Judgement>> {
    let asker = Asker::new(host_id, host_id_is_unique, without)?;
    let records: Vec<Record<'_>> =
        PyIterator::from_object(records)?.map(|record| record?.extract()).collect::<PyResult<_>>()?;
    let asked: Vec<_> = records.iter().filter_map(|record| record.identity().ok()).collect();
    let answers = match asker.judging()? {
        Ok(observer) => py.detach(|| tenure_identity::judge_many(asked, &observer)),
        Err(judgement) => vec![judgement; asked.len()],
    };
    let mut answers = answers.into_iter();
    Ok(records
        .iter()
        .map(|record| match record.identity() {
            Ok(_) => answers.next().expect("one answer per question").into(),
            Err(judgement) => judgement.clone().into(),
        })
        .collect())
}

/// The evidence this process can get, found out by trying.
#[pyfunction]
pub(crate) fn capabilities(py: Python<'_>) -> PyResult<Bound<'_, PyFrozenSet>> {
    let has = Observer::new(None, None, Capabilities::default()).map_err(|error| raise(&error))?.capabilities();
    let named = [
        ("handle", has.handle),
        ("pidfs", has.pidfs),
        ("pidfd", has.pidfd),
        ("proc", has.proc),
        ("unique_id", has.unique_id),
    ];
    PyFrozenSet::new(py, named.iter().filter(|(_, has)| *has).map(|(name, _)| *name))
}

/// Nanoseconds on a clock that stands still while the machine sleeps.
#[pyfunction]
// The GIL is kept: the call takes less time than giving it up.
pub(crate) fn awake_ns() -> u64 {
    tenure_identity::awake_ns()
}

/// Nanoseconds on a clock that counts while the machine sleeps.
#[pyfunction]
pub(crate) fn boottime_ns() -> u64 {
    tenure_identity::boottime_ns()
}
