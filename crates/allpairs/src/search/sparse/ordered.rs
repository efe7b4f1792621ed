//! Rows as the search walks through them: columns numbered from rare to frequent, each row in that order.
//!
//! Whatever is left out of a row because many rows have it is then its end, and what it is looked for by its front.

use crate::sparse::SparseRows;
use rayon::prelude::*;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// Rows that a thread takes at a time.
const ROWS_OF_PIECE: usize = 1024;

/// Entries of all rows, each over the norm of its row.
#[derive(Debug)]
pub(super) struct Ordered<'a> {
    pub(super) matrix: &'a SparseRows,
    columns: Vec<u32>,
    weights: Vec<f32>,
    /// How many rows have each column, ascending.
    pub(super) counts: Vec<u32>,
}

impl<'a> Ordered<'a> {
    /// Is left unfinished once the flag is set; then nobody looks at it any more.
    pub(super) fn new(matrix: &'a SparseRows, stop: &AtomicBool) -> Self {
        let of_columns = counts(matrix);
        let mut order: Vec<u32> = (0..of_columns.len() as u32).collect();
        order.par_sort_unstable_by_key(|column| (of_columns[*column as usize], *column));
        let mut ranks = vec![0; order.len()];
        (0..).zip(&order).for_each(|(rank, column)| ranks[*column as usize] = rank);
        let entries = matrix.offset(matrix.rows());
        let (mut columns, mut weights) = (vec![0; entries], vec![0.0; entries]);
        let pieces = pieces(matrix, &mut columns).into_par_iter().zip(pieces(matrix, &mut weights));
        pieces.for_each(|((rows, columns), (_, weights))| {
            if !stop.load(Ordering::Relaxed) {
                put_in_order(matrix, rows, (&ranks, columns, weights));
            }
        });
        let counts = order.iter().map(|column| of_columns[*column as usize]).collect();
        Self { matrix, columns, weights, counts }
    }

    /// Columns of a row by their new numbers, ascending, and its weights there.
    pub(super) fn row(&self, row: usize) -> (&[u32], &[f32]) {
        let range = self.matrix.offset(row)..self.matrix.offset(row + 1);
        (&self.columns[range.clone()], &self.weights[range])
    }

    /// The first entries of a row, as many as asked for.
    pub(super) fn front(&self, row: usize, length: u32) -> impl Iterator<Item = (usize, f32)> {
        let (columns, weights) = self.row(row);
        let length = length as usize;
        columns[..length].iter().map(|column| *column as usize).zip(weights[..length].iter().copied())
    }

    pub(super) fn rows(&self) -> usize {
        self.matrix.rows()
    }

    /// Entries of a row on average.
    pub(super) fn entries_of_row(&self) -> f64 {
        self.columns.len() as f64 / self.rows() as f64
    }

    /// About so many rows, from all over the matrix.
    pub(super) fn sample(&self, wanted: usize) -> Vec<usize> {
        (0..self.rows()).step_by(self.rows().div_ceil(wanted).max(1)).collect()
    }
}

/// How many rows have each column.
fn counts(matrix: &SparseRows) -> Vec<u32> {
    let mut counts = vec![0; matrix.used_columns()];
    let entries = (0..matrix.rows()).flat_map(|row| matrix.row(row));
    entries.for_each(|entry| counts[entry.column as usize] += 1);
    counts
}

/// Entries of some rows at a time, to be written by several threads.
fn pieces<'a, T>(matrix: &SparseRows, mut all: &'a mut [T]) -> Vec<(Range<usize>, &'a mut [T])> {
    let cut = |first: usize| {
        let last = matrix.rows().min(first + ROWS_OF_PIECE);
        let (piece, rest) = std::mem::take(&mut all).split_at_mut(matrix.offset(last) - matrix.offset(first));
        all = rest;
        (first..last, piece)
    };
    (0..matrix.rows()).step_by(ROWS_OF_PIECE).map(cut).collect()
}

fn put_in_order(
    matrix: &SparseRows,
    rows: Range<usize>,
    (ranks, columns, weights): (&[u32], &mut [u32], &mut [f32]),
) {
    let mut keys: Vec<u64> = Vec::new();
    let mut at = 0;
    for row in rows {
        let weight = |value: f64| ((value / matrix.norms[row]) as f32).to_bits();
        keys.clear();
        // No column comes twice in a row, so that weights never decide on the order.
        let key = |rank: u32, weight: u32| u64::from(rank) << 32 | u64::from(weight);
        keys.extend(matrix.row(row).iter().map(|e| key(ranks[e.column as usize], weight(e.value))));
        keys.sort_unstable();
        for key in &keys {
            columns[at] = (key >> 32) as u32;
            weights[at] = f32::from_bits(*key as u32);
            at += 1;
        }
    }
}
