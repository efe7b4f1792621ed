//! Sparse rows against sparse rows.

mod by_row;
mod frequent;
mod prefix;
mod screen;

pub(super) use by_row::neighbours;
pub(super) use screen::SparseScreen;
