//! What a hold on a directory is made of.
//!
//! - the **lifeline**, a lock that the kernel drops when the last process that carries the hold ends;
//! - the **heartbeat**, a small file written in place;
//! - the **standing**: is our claim still there, and is there none above it;
//! - the **pulse**, a thread that needs nobody, least of all the GIL.
//!
//! Besides, what its store asks of a directory: files below a root, a way to hear of changes, whether this machine's kernel
//! alone manages a file system, a rename that replaces nothing, and many new files in one call.

mod alarm;
#[cfg(unix)]
mod below;
mod changes;
#[cfg(unix)]
mod filesystem;
#[cfg(unix)]
mod glance;
mod heartbeat;
#[cfg(unix)]
mod lifeline;
#[cfg(unix)]
mod place;
mod pulse;
mod standing;
// Descriptors or handles: chosen here and nowhere else. What differs between systems with descriptors, in their files.
#[cfg_attr(unix, path = "posix.rs")]
#[cfg_attr(windows, path = "windows/mod.rs")]
mod system;

#[cfg(unix)]
pub use below::{open_below, read_below, unlink_below};
pub use changes::Changes;
#[cfg(unix)]
pub use filesystem::{filesystem_type, rename_noreplace, sync_filesystem};
#[cfg(unix)]
pub use glance::{Glance, glance};
pub use heartbeat::Record;
#[cfg(unix)]
pub use lifeline::{lifeline_held, lifeline_lock};
#[cfg(unix)]
pub use place::{Placed, place_new};
pub use pulse::{Hold, Parts};
pub use standing::{Standing, highest_fence};
pub use system::Descriptor;
#[cfg(windows)]
pub use system::{
    Opening, PinnedDirectory, filesystem_type, lifeline_held, lifeline_lock, lifeline_unlock, open_shared,
    rename_noreplace, rename_over,
};
