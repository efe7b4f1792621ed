//! Sparse rows against sparse rows.

mod by_row;
mod frequent;
mod ordered;
mod prefix;
mod screen;
mod signature;
mod turned;

pub(super) use by_row::neighbours;
pub(super) use screen::SparseScreen;
