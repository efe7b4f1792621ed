//! The rows of a block by columns.

use super::weights::Weights;
use crate::machine::ShortRows;
use std::ops::Range;

/// Rows of a block by the columns of their fronts.
#[derive(Debug, Default)]
pub(super) struct Turned {
    /// Rows of the block by their place in it; in what follows they are known by their place in this list.
    pub(super) order: Vec<u16>,
    /// Where each column begins in the others, and their length at the end.
    offsets: Vec<usize>,
    places: Vec<u16>,
    /// Empty if they are not asked for.
    weights: Vec<f32>,
}

/// What is kept of a row for each column of its front.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    /// Its place; the rows of each column are filled up to a multiple of this with [`ShortRows::ZERO`].
    Places(usize),
    /// Its place and its weight.
    Weights,
}

impl Turned {
    /// Turns the fronts of rows, which end before the column that `end` says of a row.
    pub(super) fn turn(
        &mut self,
        weights: Weights,
        rows: Range<usize>,
        (end, kept): (impl Fn(usize) -> u32, Kept),
    ) {
        let step = if let Kept::Places(step) = kept { step } else { 1 };
        // The place of a column is where the next row of it goes; in the end the next column begins there.
        self.offsets.clear();
        self.offsets.resize(weights.columns() + 1, 0);
        for row in rows.clone() {
            weights.front(row, end(row), |column, _| self.offsets[column] += 1);
        }
        let mut all = 0;
        for offset in &mut self.offsets {
            all += std::mem::replace(offset, all).next_multiple_of(step);
        }
        self.places.clear();
        self.places.resize(all, ShortRows::ZERO);
        if kept == Kept::Weights {
            self.weights.resize(all, 0.0);
        }
        for (place, row) in (0..).zip(&self.order) {
            let row = rows.start + usize::from(*row);
            weights.front(row, end(row), |column, weight| {
                let at = self.offsets[column];
                self.offsets[column] += 1;
                self.places[at] = place;
                if kept == Kept::Weights {
                    self.weights[at] = weight;
                }
            });
        }
        self.offsets.rotate_right(1);
        self.offsets.iter_mut().for_each(|offset| *offset = offset.next_multiple_of(step));
        self.offsets[0] = 0;
    }

    fn range(&self, column: usize) -> Range<usize> {
        self.offsets[column]..self.offsets[column + 1]
    }

    /// The rows that have a column.
    #[inline]
    pub(super) fn places(&self, column: usize) -> &[u16] {
        &self.places[self.range(column)]
    }

    /// Adds the products of a weight with all rows of a column to their sums.
    #[inline]
    pub(super) fn add(&self, column: usize, weight: f32, sums: &mut [f32; 1 << 16]) {
        let range = self.range(column);
        for (place, other) in self.places[range.clone()].iter().zip(&self.weights[range]) {
            sums[usize::from(*place)] += weight * other;
        }
    }
}
