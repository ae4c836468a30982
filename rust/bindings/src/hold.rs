//! `LocalHold`.

use pyo3::exceptions::PyFileNotFoundError;
use pyo3::prelude::*;
use std::path::PathBuf;
use std::time::Duration;
use tenure_hold::{Descriptor, Hold, Parts, Record, Standing};

use crate::convert::{self, raise_os};
use crate::identity::ProcessIdentity;

/// A hold on a directory: its pulse, and where it stands.
#[pyclass(frozen, module = "tenure._core")]
pub(crate) struct LocalHold {
    hold: Hold,
    fence: u64,
}

#[pymethods]
impl LocalHold {
    #[new]
    #[pyo3(signature = (*, directory, claim, claimed, successor, fence, heartbeat, held, released, digits_at, interval, holder, lifeline))]
    #[allow(clippy::too_many_arguments, reason = "each has its name at the call, which Python insists on")]
    fn new(
        directory: PathBuf,
        claim: PathBuf,
        claimed: &[u8],
        successor: PathBuf,
        fence: u64,
        heartbeat: PathBuf,
        held: &[u8],
        released: &[u8],
        digits_at: usize,
        interval: f64,
        holder: &Bound<'_, ProcessIdentity>,
        lifeline: Option<Descriptor>,
    ) -> PyResult<Self> {
        let hold = Hold::new(Parts {
            directory: &directory,
            claim: &claim,
            claimed,
            successor: &successor,
            fence,
            heartbeat: &heartbeat,
            record: Record::new(held, released, digits_at).map_err(|error| raise_os(&error))?,
            interval: convert::seconds(Some(interval))?.unwrap_or(Duration::MAX),
            holder: holder.get().0.clone(),
            lifeline,
        })
        .map_err(|error| raise_os(&error))?;
        Ok(Self { hold, fence })
    }

    fn start(&self) -> PyResult<()> {
        self.hold.start().map_err(|error| raise_os(&error))
    }

    fn beat(&self, py: Python<'_>) -> PyResult<bool> {
        py.detach(|| self.hold.beat()).map_err(|error| raise_os(&error))
    }

    fn check(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        match py.detach(|| self.hold.check()).map_err(|error| raise_os(&error))? {
            Standing::Current => Ok(None),
            Standing::Above(fence) => Ok(Some(fence)),
            Standing::Replaced => Ok(Some(self.fence)),
            Standing::Missing => Err(PyFileNotFoundError::new_err("our own claim is gone")),
        }
    }

    #[getter]
    fn renewed_at_ns(&self) -> u64 {
        self.hold.renewed_at()
    }

    #[getter]
    fn lost(&self) -> bool {
        self.hold.lost()
    }

    fn wait_lost(&self, py: Python<'_>, timeout: f64) -> PyResult<Option<bool>> {
        let timeout = convert::seconds(Some(timeout))?.unwrap_or(Duration::MAX);
        Ok(py.detach(|| self.hold.wait_lost(timeout)))
    }

    #[pyo3(signature = (*, release))]
    fn stop(&self, py: Python<'_>, release: bool) -> bool {
        py.detach(|| self.hold.stop(release))
    }
}

/// The highest fence that a file in a directory is named by; 0 if there is none.
#[pyfunction]
pub(crate) fn highest_fence(py: Python<'_>, directory: PathBuf) -> PyResult<u64> {
    py.detach(|| tenure_hold::highest_fence(&directory)).map_err(|error| raise_os(&error))
}
