//! Some rows against all others: a strip of the matrix of scores.

use crate::dense::DenseRows;
use crate::machine::FloatKernel;
use crate::score::{dot, score};
use crate::sparse::SparseRows;
use rayon::prelude::*;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of the other side's packed rows that are in use at a time, by all threads together.
const CHUNK_BYTES: usize = 2 << 20;

/// Packs rows and multiplies them.
pub(super) struct DenseStrips<'a> {
    matrix: &'a DenseRows,
    others: Range<usize>,
    kernel: FloatKernel,
    /// Scores that far from 1 or −1 are not told from it by sums in float32.
    doubt: f32,
}

impl<'a> DenseStrips<'a> {
    pub(super) fn new(matrix: &'a DenseRows, others: Range<usize>, kernel: FloatKernel) -> Self {
        // Each of the products and sums is off by at most half of 2⁻²³; so are the numbers that go in.
        let doubt = (matrix.matrix.columns() as f32 + 4.0) * 2f32.powi(-23);
        Self { matrix, others, kernel, doubt }
    }

    /// Computes the scores of the rows with all others, row by row.
    pub(super) fn fill(&self, rows: Range<usize>, scores: &mut [f32], stop: &AtomicBool) {
        let (high, wide) = (self.kernel.rows(), self.kernel.columns());
        let panel = |width: usize| width * self.matrix.matrix.columns();
        let own = self.pack(rows.clone(), high);
        let width = self.others.len();
        let chunk = (CHUNK_BYTES / (4 * panel(1))).next_multiple_of(wide).max(wide);
        for start in self.others.clone().step_by(chunk) {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let side = start..self.others.end.min(start + chunk);
            let packed = self.pack(side.clone(), wide);
            let first = side.start - self.others.start;
            let bands = scores.par_chunks_mut(high * width).zip(own.par_chunks(panel(high)));
            bands.enumerate().for_each_init(
                || vec![0.0; high * wide],
                |tile, (at, (band, left))| {
                    for (number, right) in packed.chunks_exact(panel(wide)).enumerate() {
                        self.kernel.dot_products(left, right, tile);
                        let column = first + number * wide;
                        store((tile, wide), band.chunks_exact_mut(width), column);
                    }
                    let row = rows.start + at * high;
                    band.chunks_exact_mut(width)
                        .zip(row..)
                        .for_each(|(scores, row)| self.settle(row, side.clone(), &mut scores[first..]));
                },
            );
        }
    }

    /// Unit rows side by side in panels of equal width, the last one filled up with zeros.
    fn pack(&self, rows: Range<usize>, width: usize) -> Vec<f32> {
        let (columns, stride) = (self.matrix.matrix.columns(), self.matrix.matrix.stride());
        let mut packed = vec![0.0f32; rows.len().div_ceil(width) * width * columns];
        packed.par_chunks_exact_mut(width * columns).enumerate().for_each_init(
            || vec![0.0; stride],
            |values, (at, panel)| {
                let first = rows.start + at * width;
                for row in first..rows.end.min(first + width) {
                    self.matrix.read(row..row + 1, values);
                    let norm = self.matrix.norms[row];
                    let factor = if norm > 0.0 { 1.0 / norm } else { 0.0 };
                    let places = panel[row - first..].iter_mut().step_by(width);
                    places.zip(&*values).for_each(|(place, value)| *place = (value * factor) as f32);
                }
            },
        );
        packed
    }

    /// Puts the scores of the definition where sums are too near to 1 or −1.
    fn settle(&self, row: usize, side: Range<usize>, scores: &mut [f32]) {
        let stride = self.matrix.matrix.stride();
        let mut both: Option<[Vec<f64>; 2]> = None;
        for (other, sum) in side.zip(scores) {
            if sum.abs() < 1.0 - self.doubt {
                // A negative zero becomes zero, as in every score.
                *sum += 0.0;
                continue;
            }
            let norms = &self.matrix.norms;
            let [x, y] = both.get_or_insert_with(|| {
                let mut own = vec![0.0; stride];
                self.matrix.read(row..row + 1, &mut own);
                [own, vec![0.0; stride]]
            });
            self.matrix.read(other..other + 1, y);
            *sum = score(dot(x, y), norms[row], norms[other]);
        }
    }
}

/// Puts the sums of a tile into rows of the strip, from a column on; what is beyond the last column is none.
fn store<'a>((tile, wide): (&[f32], usize), rows: impl Iterator<Item = &'a mut [f32]>, column: usize) {
    for (row, sums) in rows.zip(tile.chunks_exact(wide)) {
        let out = &mut row[column..];
        let count = out.len().min(wide);
        out[..count].copy_from_slice(&sums[..count]);
    }
}

/// Computes the scores of sparse rows with all others, as they are defined.
pub(super) fn fill_sparse(
    matrix: &SparseRows,
    (rows, others): (Range<usize>, &Range<usize>),
    scores: &mut [f32],
) {
    scores.par_chunks_exact_mut(others.len()).zip(rows.into_par_iter()).for_each_init(
        || vec![0.0; matrix.used_columns()],
        |spread, (scores, row)| {
            matrix.spread(row, spread);
            for (other, out) in others.clone().zip(scores) {
                *out = score(matrix.dot(other, spread), matrix.norms[row], matrix.norms[other]);
            }
            matrix.clear(row, spread);
        },
    );
}
