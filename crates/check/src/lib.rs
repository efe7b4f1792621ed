//! Tells whether a training image keeps the contract.
//!
//! An image is looked at as it is stored ([`image`]), and run on small jobs by the ordinary engine
//! ([`run`]): once as it is, and then several times below a [`probe`], a process in the instance that
//! starts the image's own command, watches it, and interferes in one way: it sends SIGTERM, takes the
//! input away, and so on. What was seen are [`facts`]; what they mean are [`findings`], which is pure.
//! What can be told about an image that nobody has explained to us, and what can't, is argued in
//! `docs/design/check.md`.

pub mod facts;
pub mod findings;
pub mod image;
pub mod probe;
pub mod run;
