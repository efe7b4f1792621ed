//! engine
pub mod artifact;
