//! engine

pub mod spec;
pub mod wire;
