//! What the image module promises, shown with images that are made here.
//!
//! As root most of it is shown for root and for an ordinary user, otherwise for this user.

#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod build;
mod export;
mod hostile;
mod layers;
mod registry;
mod server;
mod sharing;
mod sources;
mod support;
