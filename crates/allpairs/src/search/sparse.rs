//! Sparse rows against sparse rows.

mod by_row;
mod frequent;
mod fronts;
mod prefix;
mod scorer;
mod screen;
mod signature;
mod turned;
mod weights;

pub(super) use by_row::neighbours;
pub(super) use screen::{SparseScreen, can_turn};
