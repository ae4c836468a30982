//! What a hold on a directory is made of.
//!
//! - the **lifeline**, a lock that the kernel drops when the last process that carries the hold ends;
//! - the **heartbeat**, a small file written in place;
//! - the **standing**: is our claim still there, and is there none above it;
//! - the **pulse**, a thread that needs nobody, least of all the GIL.
//!
//! Besides, what its store asks of a directory: files below a root, a way to hear of changes, whether this machine's kernel
//! alone manages a file system, and a rename that replaces nothing.

mod alarm;
mod below;
mod changes;
mod filesystem;
mod glance;
mod heartbeat;
mod lifeline;
mod pulse;
mod standing;

pub use below::{open_below, read_below, unlink_below};
pub use changes::Changes;
pub use filesystem::{filesystem_type, rename_noreplace, sync_filesystem};
pub use glance::{Glance, glance};
pub use heartbeat::Record;
pub use lifeline::{lifeline_held, lifeline_lock};
pub use pulse::{Hold, Parts};
pub use standing::{Standing, highest_fence};
