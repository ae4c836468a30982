//! What a lease asks of a file system: a lock that ends with its holder, a rename that replaces nothing, and whether
//! this machine's kernel alone manages it.
//!
//! Every function takes an open descriptor, so that nobody can be led elsewhere by a path; a plain number, as Python has
//! it, since what may be behind one differs between systems.

mod filesystem;
mod lifeline;

pub use filesystem::{filesystem_type, rename_noreplace};
pub use lifeline::{lifeline_held, lifeline_lock};
