//! `Pulse`.

use pyo3::prelude::*;
use std::path::PathBuf;
use std::time::Duration;

use crate::convert;

#[pyclass(frozen, module = "tenure._core")]
pub(crate) struct Pulse(tenure_pulse::Pulse);

#[pymethods]
impl Pulse {
    #[new]
    #[pyo3(signature = (file, successor, *, held, released, digits_at, interval))]
    fn new(
        file: PathBuf,
        successor: PathBuf,
        held: &[u8],
        released: &[u8],
        digits_at: usize,
        interval: f64,
    ) -> PyResult<Self> {
        let record = tenure_pulse::Record::new(held, released, digits_at)?;
        let interval = convert::seconds(Some(interval))?.unwrap_or(Duration::MAX);
        Ok(Self(tenure_pulse::Pulse::new(&file, &successor, record, interval)?))
    }

    fn start(&self) -> PyResult<()> {
        Ok(self.0.start()?)
    }

    fn beat(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(py.detach(|| self.0.beat())?)
    }

    #[getter]
    fn renewed_at_ns(&self) -> u64 {
        self.0.renewed_at()
    }

    #[getter]
    fn lost(&self) -> bool {
        self.0.lost()
    }

    fn wait_lost(&self, py: Python<'_>, timeout: f64) -> PyResult<Option<bool>> {
        let timeout = convert::seconds(Some(timeout))?.unwrap_or(Duration::MAX);
        Ok(py.detach(|| self.0.wait_lost(timeout)))
    }

    #[pyo3(signature = (*, release))]
    fn stop(&self, py: Python<'_>, release: bool) -> bool {
        py.detach(|| self.0.stop(release))
    }
}
