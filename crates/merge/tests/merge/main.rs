//! The promises of a merge, from the archive to the finished file.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod archives;
mod cuts;
mod faults;
mod formats;
mod hostile;
mod order;
