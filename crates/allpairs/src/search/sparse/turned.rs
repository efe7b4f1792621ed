//! The rows of a block by columns.

use crate::machine::ShortRows;
use std::ops::Range;

/// Rows of a block by the columns of their fronts.
#[derive(Debug, Default)]
pub(super) struct Turned {
    /// Rows of the block by their place in it; in what follows they are known by their place in this list.
    pub(super) order: Vec<u16>,
    /// Where each column begins in the others, and their length at the end.
    offsets: Vec<usize>,
    /// Where the rows end in each column that are shown.
    ends: Vec<usize>,
    /// Rows that are shown, the first in their order: all of them, but for a block that meets itself.
    shown: usize,
    /// One less than the power of two of which each column takes a multiple.
    mask: usize,
    places: Vec<u16>,
    /// Empty if they are not asked for.
    weights: Vec<f32>,
}

/// What is kept of a row for each column of its front.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    /// Its place; the rows of each column are filled up to a multiple of this, a power of two, with [`ShortRows::NONE`].
    Places(usize),
    /// Its place and its weight.
    Weights,
}

impl Turned {
    /// Turns rows by that many columns. `front` hands over column and weight of each entry in the front of a row.
    pub(super) fn turn(
        &mut self,
        columns: usize,
        rows: Range<usize>,
        (front, kept): (impl Fn(usize, &mut dyn FnMut(usize, f32)), Kept),
    ) {
        let step = if let Kept::Places(step) = kept { step } else { 1 };
        self.mask = step - 1;
        // The place of a column is where the next row of it goes; in the end the next column begins there.
        self.offsets.clear();
        self.offsets.resize(columns + 1, 0);
        for row in rows.clone() {
            front(row, &mut |column, _| self.offsets[column] += 1);
        }
        let mut all = 0;
        for offset in &mut self.offsets {
            all += std::mem::replace(offset, all).next_multiple_of(step);
        }
        self.places.clear();
        self.places.resize(all, ShortRows::NONE);
        if kept == Kept::Weights {
            self.weights.resize(all, 0.0);
        }
        for (place, row) in (0..).zip(&self.order) {
            let row = rows.start + usize::from(*row);
            front(row, &mut |column, weight| {
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
        self.show_all();
    }

    pub(super) fn show_all(&mut self) {
        self.ends.clear();
        self.ends.extend_from_slice(&self.offsets[1..]);
        self.shown = self.order.len();
    }

    pub(super) fn hide_all(&mut self) {
        self.ends.copy_from_slice(&self.offsets[..self.offsets.len() - 1]);
        self.shown = 0;
    }

    /// Shows the next row, given its front.
    pub(super) fn show_next(&mut self, front: impl FnOnce(&mut dyn FnMut(usize, f32))) {
        front(&mut |column, _| self.ends[column] += 1);
        self.shown += 1;
    }

    /// Rows that are shown.
    pub(super) fn shown(&self) -> usize {
        self.shown
    }

    #[inline]
    fn range(&self, column: usize) -> Range<usize> {
        self.offsets[column]..(self.ends[column] + self.mask) & !self.mask
    }

    /// The rows that have a column, those that are shown and some more of which the places are not below
    /// [`Self::shown`].
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
