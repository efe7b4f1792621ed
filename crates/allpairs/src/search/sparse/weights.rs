//! Rows as the search walks through them: each entry over the norm of its row, columns numbered from rare to frequent.
//!
//! Whatever is left out of a row because many rows have it are its columns from a number on; what it is looked for by,
//! its *front*, are those below.

use crate::sparse::SparseRows;
use rayon::prelude::*;

/// The rows of a matrix with their weights, which are found on the way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Weights<'a> {
    pub(super) matrix: &'a SparseRows,
}

impl Weights<'_> {
    /// Hands over column and weight of each entry of a row.
    #[inline]
    pub(super) fn row(self, row: usize, mut take: impl FnMut(usize, f32)) {
        let factor = 1.0 / self.matrix.norms[row];
        self.matrix.row(row).for_each(|column, value| take(column, (value * factor) as f32));
    }

    /// The same for columns below `end` only.
    #[inline]
    pub(super) fn front(self, row: usize, end: u32, mut take: impl FnMut(usize, f32)) {
        self.row(row, |column, weight| {
            if column < end as usize {
                take(column, weight);
            }
        });
    }

    pub(super) fn rows(self) -> usize {
        self.matrix.rows()
    }

    /// How many rows have each column, ascending.
    pub(super) fn counts(&self) -> &[u32] {
        self.matrix.counts()
    }

    pub(super) fn columns(self) -> usize {
        self.matrix.used_columns()
    }

    /// Entries of a row on average.
    pub(super) fn entries_of_row(self) -> f64 {
        self.matrix.entries() as f64 / self.rows() as f64
    }

    /// About so many rows, from all over the matrix.
    pub(super) fn sample(self, wanted: usize) -> Vec<usize> {
        (0..self.rows()).step_by(self.rows().div_ceil(wanted).max(1)).collect()
    }

    /// For each column its share in all rows. Whole numbers, since their sum is the same however many threads there are.
    pub(super) fn shares(self) -> Vec<u64> {
        let piece = self.rows().div_ceil(rayon::current_num_threads()).max(1);
        let of_piece = |first: usize| {
            let mut shares = vec![0; self.columns()];
            for row in first..self.rows().min(first + piece) {
                self.row(row, |column, weight| shares[column] += share(weight));
            }
            shares
        };
        let pieces: Vec<usize> = (0..self.rows()).step_by(piece).collect();
        let shares = pieces.into_par_iter().map(of_piece).reduce_with(|mut one: Vec<u64>, other| {
            one.iter_mut().zip(other).for_each(|(one, other)| *one += other);
            one
        });
        shares.unwrap_or_default()
    }
}

/// What a weight adds to the share of its column.
#[inline]
pub(super) fn share(weight: f32) -> u64 {
    /// What a square of 1 adds: 2³² rows of them fit 64 bits.
    const ONE: f32 = (1u32 << 31) as f32;
    // By way of a number with a sign, which machines convert faster.
    ((weight * weight * ONE) as i64).cast_unsigned()
}
