//! Every row is looked at once: whether its numbers are finite, its norm, and what a report says of all rows.

use crate::dense::{DenseMatrix, DenseRows};
use crate::problem::{MatrixError, NonFinite};
use crate::quantised;
use crate::score::{self, dot};
use crate::sparse::SparseFile;
use rayon::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

/// Rows that are inspected at a time.
const INSPECTED_ROWS: usize = 64;

/// A row whose norm is that close to 1 counts as normalised: as close as float32 gets one with a thousand columns.
const UNIT: f64 = 1e-6;

/// What is known of the rows of a matrix beside their numbers.
#[derive(Debug, Default)]
pub(crate) struct RowFacts {
    /// Rows that equal an earlier one.
    pub(crate) duplicates: u64,
    /// Rows whose norm, as they are stored, is 1.
    pub(crate) unit_rows: u64,
    /// A hash of the whole matrix, to tell whether it is the same as before.
    pub(crate) content: u128,
}

/// What is found out row by row.
#[derive(Debug, Default)]
pub(crate) struct FactsByRow {
    /// For each row a hash of its numbers (as float64; −0 is 0), by which equal rows are told.
    fingerprints: Vec<u128>,
    unit_rows: u64,
}

impl FactsByRow {
    /// Sums it up; what is kept of each row is let go of.
    pub(crate) fn finish(mut self) -> RowFacts {
        let mut hash = Xxh3::new();
        self.fingerprints.iter().for_each(|row| hash.update(&row.to_le_bytes()));
        self.fingerprints.par_sort_unstable();
        let duplicates = self.fingerprints.par_windows(2).filter(|pair| pair[0] == pair[1]).count() as u64;
        RowFacts { duplicates, unit_rows: self.unit_rows, content: hash.digest128() }
    }

    /// Takes in the rows of a sparse file.
    pub(crate) fn push_sparse(&mut self, file: &SparseFile) {
        let of_rows = |bytes: &mut Vec<u8>, (piece, fingerprints): (usize, &mut [u128])| {
            let mut unit_rows = 0;
            for (row, fingerprint) in (piece * INSPECTED_ROWS..).zip(fingerprints) {
                let (entries, mut squares) = (file.row(row), 0.0);
                bytes.clear();
                bytes.reserve(entries.len() * 12);
                entries.for_each(|column, value| {
                    // Columns have 32 bits.
                    bytes.extend_from_slice(&(column as u32).to_le_bytes());
                    bytes.extend_from_slice(&value.to_le_bytes());
                    squares += value * value;
                });
                *fingerprint = xxh3_128(bytes);
                unit_rows += u64::from(is_unit(squares.sqrt()));
            }
            unit_rows
        };
        let before = self.fingerprints.len();
        self.fingerprints.resize(before + file.rows(), 0);
        let pieces = self.fingerprints[before..].par_chunks_mut(INSPECTED_ROWS).enumerate();
        self.unit_rows += pieces.map_init(Vec::new, of_rows).sum::<u64>();
    }
}

fn is_unit(norm: f64) -> bool {
    (norm - 1.0).abs() <= UNIT
}

/// Looks at every row once: all numbers finite, its exponent, its norm, its error in 16-bit integers.
pub(crate) fn inspect(matrix: DenseMatrix, stop: &AtomicBool) -> Result<(DenseRows, RowFacts), MatrixError> {
    let rows = matrix.rows();
    let (mut norms, mut exponents, mut fingerprints) = (vec![0.0; rows], vec![0i16; rows], vec![0u128; rows]);
    let blocks = norms
        .par_chunks_mut(INSPECTED_ROWS)
        .zip(exponents.par_chunks_mut(INSPECTED_ROWS))
        .zip(fingerprints.par_chunks_mut(INSPECTED_ROWS));
    let outcomes: Vec<Result<f64, MatrixError>> = blocks
        .enumerate()
        .map(|(block, ((norms, exponents), fingerprints))| {
            if stop.load(Ordering::Relaxed) {
                return Err(MatrixError::Stopped);
            }
            let first = block * INSPECTED_ROWS;
            inspect_block(&matrix, first, &mut Block { norms, exponents, fingerprints })
        })
        .collect();
    // In order of rows, so that the row named is the same however many threads there are.
    let errors = outcomes.into_iter().collect::<Result<Vec<f64>, _>>()?;
    let quantisation_error = errors.into_iter().fold(0.0, f64::max);
    let stored = norms.iter().zip(&exponents).map(|(norm, exponent)| norm * 2f64.powi(i32::from(*exponent)));
    let unit_rows = stored.filter(|norm| is_unit(*norm)).count() as u64;
    let facts = FactsByRow { unit_rows, fingerprints }.finish();
    Ok((DenseRows { matrix, norms, exponents, quantisation_error }, facts))
}

/// A hash of a row's numbers, the same on every machine.
fn fingerprint(row: &[f64]) -> u128 {
    #[cfg(target_endian = "little")]
    return xxh3_128(bytemuck::cast_slice(row));
    #[cfg(not(target_endian = "little"))]
    return xxh3_128(&row.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>());
}

/// What is found out about some rows.
struct Block<'a> {
    norms: &'a mut [f64],
    exponents: &'a mut [i16],
    fingerprints: &'a mut [u128],
}

fn inspect_block(matrix: &DenseMatrix, first: usize, block: &mut Block) -> Result<f64, MatrixError> {
    let count = block.norms.len();
    let mut rows = vec![0.0; count * matrix.stride()];
    matrix.read(first..first + count, &mut rows);
    let mut largest_error = 0.0f64;
    for (at, row) in rows.chunks_exact_mut(matrix.stride()).enumerate() {
        // All of them first, which takes vectors.
        if !row.iter().fold(true, |all, value| all & value.is_finite())
            && let Some(column) = row.iter().position(|value| !value.is_finite())
        {
            let (file, file_row) = matrix.place(first + at);
            return Err(MatrixError::NonFinite {
                whose: "matrix",
                row: (first + at) as u64,
                column: column as u64,
                value: NonFinite::of(row[column]),
                file: file.to_owned(),
                file_row: file_row as u64,
            });
        }
        // Turns −0 into 0, which no score tells apart.
        row.iter_mut().for_each(|value| *value += 0.0);
        block.fingerprints[at] = fingerprint(row);
        if matrix.needs_scaling(first + at) {
            let largest = row.iter().fold(0.0f64, |largest, value| largest.max(value.abs()));
            // Exponents of float64 lie between -1074 and 1023.
            block.exponents[at] = score::exponent(largest) as i16;
            score::scale(row, i32::from(block.exponents[at]));
        }
        block.norms[at] = dot(row, row).sqrt();
        largest_error = largest_error.max(quantised::error(row, block.norms[at]));
    }
    Ok(largest_error)
}
