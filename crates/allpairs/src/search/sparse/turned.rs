//! The rows of a block by columns.

use crate::machine::{SIGNATURES_TOGETHER, ShortRows};
use std::ops::Range;

/// Rows of a block by the columns of their fronts.
#[derive(Debug, Default)]
pub(super) struct Turned {
    /// Rows of the block by their place in it; in what follows they are known by their place in this list.
    pub(super) order: Vec<u16>,
    /// Where each column begins in the others, and where the rows end in it that are shown.
    spans: Vec<Span>,
    /// Rows that are shown, the first in their order: all of them, but for a block that meets itself.
    shown: usize,
    /// One less than the power of two of which each column takes a multiple.
    mask: usize,
    places: Vec<u16>,
    /// Empty if they are not asked for.
    weights: Vec<f32>,
}

/// In 32 bits and side by side, since they are looked up for each column of each row.
#[derive(Debug, Clone, Copy, Default)]
struct Span {
    begin: u32,
    end: u32,
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
    /// Whether a block can be turned that has so many entries, given the number of columns: 32 bits must count all of
    /// them once the columns are filled up.
    pub(super) fn can_hold(entries: usize, columns: usize) -> bool {
        let filled = columns.saturating_mul(SIGNATURES_TOGETHER);
        u32::try_from(entries.saturating_add(filled)).is_ok()
    }

    /// Turns rows by that many columns. `front` hands over column and weight of each entry in the front of a row.
    pub(super) fn turn(
        &mut self,
        columns: usize,
        rows: Range<usize>,
        (front, kept): (impl Fn(usize, &mut dyn FnMut(usize, f32)), Kept),
    ) {
        let step = if let Kept::Places(step) = kept { step } else { 1 };
        self.mask = step - 1;
        self.spans.clear();
        self.spans.resize(columns, Span::default());
        for row in rows.clone() {
            front(row, &mut |column, _| self.spans[column].end += 1);
        }
        let mut all = 0;
        for span in &mut self.spans {
            let count = std::mem::replace(span, Span { begin: all, end: all }).end;
            all += count.next_multiple_of(step as u32);
        }
        let all = all as usize;
        self.places.clear();
        self.places.resize(all, ShortRows::NONE);
        if kept == Kept::Weights {
            self.weights.resize(all, 0.0);
        }
        for (place, row) in (0..).zip(&self.order) {
            let row = rows.start + usize::from(*row);
            front(row, &mut |column, weight| {
                let end = &mut self.spans[column].end;
                let at = *end as usize;
                *end += 1;
                self.places[at] = place;
                if kept == Kept::Weights {
                    self.weights[at] = weight;
                }
            });
        }
        self.shown = self.order.len();
    }

    pub(super) fn show_all(&mut self) {
        // Up to where the next one begins.
        let mut next = self.places.len() as u32;
        for span in self.spans.iter_mut().rev() {
            span.end = std::mem::replace(&mut next, span.begin);
        }
        self.shown = self.order.len();
    }

    pub(super) fn hide_all(&mut self) {
        self.spans.iter_mut().for_each(|span| span.end = span.begin);
        self.shown = 0;
    }

    /// Shows the next row, given its front.
    pub(super) fn show_next(&mut self, front: impl FnOnce(&mut dyn FnMut(usize, f32))) {
        front(&mut |column, _| self.spans[column].end += 1);
        self.shown += 1;
    }

    /// Rows that are shown.
    pub(super) fn shown(&self) -> usize {
        self.shown
    }

    #[inline]
    fn range(&self, column: usize) -> Range<usize> {
        let Span { begin, end } = self.spans[column];
        begin as usize..(end as usize + self.mask) & !self.mask
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_with_more_entries_than_32_bits_count_are_not_turned() {
        let most = u32::MAX as usize;
        for (entries, columns, expected) in
            [(most - 800, 100, true), (most - 799, 100, false), (0, 1 << 29, false), (usize::MAX, 1, false)]
        {
            assert_eq!(Turned::can_hold(entries, columns), expected, "{entries} {columns}");
        }
    }
}
