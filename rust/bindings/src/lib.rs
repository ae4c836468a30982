//! `tenure._core`: converts between Python and the pure crates, and decides nothing. Its manual is `_core.pyi`.

mod convert;
mod files;
mod hold;
mod identity;
mod judge;
#[cfg(unix)]
mod posix;
mod watch;
#[cfg(windows)]
mod windows;

/// The module, as a table of contents.
#[pyo3::pymodule(gil_used = false)]
mod _core {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::files::{Changes, filesystem_type, lifeline_held, lifeline_lock};
    #[pymodule_export]
    use super::hold::{LocalHold, highest_fence};
    #[pymodule_export]
    use super::identity::ProcessIdentity;
    #[pymodule_export]
    use super::judge::{Judgement, awake_ns, boottime_ns, capabilities, judge, judge_many};
    #[cfg(unix)]
    #[pymodule_export]
    use super::posix::{glance, open_below, place_new, read_below, rename_noreplace, sync_filesystem, unlink_below};
    #[pymodule_export]
    use super::watch::{Watch, WatchSet};
    #[cfg(windows)]
    #[pymodule_export]
    use super::windows::{
        PinnedDirectory, glance, lifeline_unlock, open_below, open_shared, read_below, rename_noreplace, rename_over,
        sync_filesystem, unlink_below,
    };

    #[pymodule_export]
    #[allow(non_upper_case_globals, reason = "Python's own name for it")]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    #[pymodule_init]
    fn init(_module: &Bound<'_, PyModule>) -> PyResult<()> {
        tenure_identity::prepare();
        Ok(())
    }
}
