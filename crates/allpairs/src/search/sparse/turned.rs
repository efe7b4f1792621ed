//! The rows of a block by columns.

use super::ordered::Ordered;
use crate::machine::ShortRows;
use std::ops::Range;

/// Rows of a block by the columns of their fronts.
#[derive(Debug, Default)]
pub(super) struct Turned {
    /// Rows of the block by their place in it; in what follows they are known by their place in this list.
    pub(super) order: Vec<u16>,
    /// Where each column begins in the others, and their length at the end.
    offsets: Vec<usize>,
    /// Where the next row of each column goes.
    next: Vec<usize>,
    places: Vec<u16>,
    weights: Vec<f32>,
}

impl Turned {
    /// Turns the fronts of rows, which have these lengths. The rows of each column are filled up to a multiple of
    /// `step` with [`ShortRows::ZERO`].
    pub(super) fn turn(&mut self, ordered: &Ordered, rows: Range<usize>, (lengths, step): (&[u32], usize)) {
        self.next.clear();
        self.next.resize(ordered.counts.len(), 0);
        for row in rows.clone() {
            ordered.front(row, lengths[row]).for_each(|(column, _)| self.next[column] += 1);
        }
        self.offsets.clear();
        let mut end = 0;
        for next in &mut self.next {
            self.offsets.push(end);
            end += std::mem::replace(next, end).next_multiple_of(step);
        }
        self.offsets.push(end);
        self.places.clear();
        self.places.resize(end, ShortRows::ZERO);
        self.weights.resize(end, 0.0);
        for (place, row) in (0..).zip(&self.order) {
            let row = rows.start + usize::from(*row);
            for (column, weight) in ordered.front(row, lengths[row]) {
                let at = self.next[column];
                self.next[column] += 1;
                self.places[at] = place;
                self.weights[at] = weight;
            }
        }
    }

    /// The rows that have a column.
    #[inline]
    pub(super) fn places(&self, column: usize) -> &[u16] {
        &self.places[self.offsets[column]..self.offsets[column + 1]]
    }

    /// Adds the products of a weight with all rows of a column to their sums.
    #[inline]
    pub(super) fn add(&self, column: usize, weight: f32, sums: &mut [f32; 1 << 16]) {
        let range = self.offsets[column]..self.offsets[column + 1];
        for (place, other) in self.places[range.clone()].iter().zip(&self.weights[range]) {
            sums[usize::from(*place)] += weight * other;
        }
    }
}
