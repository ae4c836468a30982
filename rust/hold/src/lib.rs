//! What a hold on a directory is made of.
//!
//! - the **lifeline**, a lock that the kernel drops when the last process that carries the hold ends;
//! - the **heartbeat**, a small file written in place;
//! - the **standing**: is our claim still there, and is there none above it;
//! - the **pulse**, a thread that needs nobody, least of all the GIL.
//!
//! Besides, a way to hear of changes in a directory, whether this machine's kernel alone manages a file system, and a rename that replaces nothing.

mod changes;
mod filesystem;
mod heartbeat;
mod lifeline;
mod pulse;
mod standing;

pub use changes::Changes;
pub use filesystem::{filesystem_type, rename_noreplace, sync_filesystem};
pub use heartbeat::Record;
pub use lifeline::{lifeline_held, lifeline_lock};
pub use pulse::{Hold, Parts};
pub use standing::{Standing, highest_fence};
