//! What an instance promises, shown with a real supervisor: the example `supervise`.
//!
//! As root every promise is checked for root and for an ordinary user, otherwise for this user.

#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod backend;
mod case;
mod jail;
mod layers;
mod limits;
mod logs;
mod program;
mod staging;
mod stopping;
