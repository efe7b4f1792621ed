//! Every row is looked at once: whether its numbers are finite, its norm, and what a report says of all rows.

use crate::dense::{DenseMatrix, DenseRows};
use crate::machine::{Vectors, prefer_large_pages};
use crate::problem::{MatrixError, NonFinite};
use crate::quantised;
use crate::score::{self, combine, dot};
use crate::sparse::SparseFile;
use rayon::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

/// Rows that are inspected at a time.
const INSPECTED_ROWS: usize = 64;

/// Rows whose files are let go of at a time.
const LET_GO_ROWS: usize = 16 * INSPECTED_ROWS;

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
    /// For each row a hash of its numbers (as float32 if all rows are stored so, else as float64; −0 is 0), by which equal
    /// rows are told.
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

/// Looks at every row once: all numbers finite, its exponent, its norm, its error in 16-bit integers. These are held if
/// that is asked for; what was read of the files is let go of then.
pub(crate) fn inspect(
    matrix: DenseMatrix,
    hold: bool,
    stop: &AtomicBool,
) -> Result<(DenseRows, RowFacts), MatrixError> {
    let (rows, stride) = (matrix.rows(), matrix.stride());
    let (mut norms, mut exponents, mut fingerprints) = (vec![0.0; rows], vec![0i16; rows], vec![0u128; rows]);
    let mut held = hold.then(|| vec![0i16; rows * stride]);
    if let Some(held) = &mut held {
        prefer_large_pages(held);
    }
    let words: Vec<Option<&mut [i16]>> = match &mut held {
        Some(held) => held.chunks_mut(INSPECTED_ROWS * stride).map(Some).collect(),
        None => (0..rows.div_ceil(INSPECTED_ROWS)).map(|_| None).collect(),
    };
    let blocks = norms
        .par_chunks_mut(INSPECTED_ROWS)
        .zip(exponents.par_chunks_mut(INSPECTED_ROWS))
        .zip(fingerprints.par_chunks_mut(INSPECTED_ROWS))
        .zip(words);
    let outcomes: Vec<Result<f64, MatrixError>> = blocks
        .enumerate()
        .map(|(block, (((norms, exponents), fingerprints), words))| {
            if stop.load(Ordering::Relaxed) {
                return Err(MatrixError::Stopped);
            }
            let first = block * INSPECTED_ROWS;
            inspect_block(&matrix, first, &mut Block { norms, exponents, fingerprints, words })
        })
        .collect();
    // In order of rows, so that the row named is the same however many threads there are.
    let errors = outcomes.into_iter().collect::<Result<Vec<f64>, _>>()?;
    let quantisation_error = errors.into_iter().fold(0.0, f64::max);
    let stored = norms.iter().zip(&exponents).map(|(norm, exponent)| norm * 2f64.powi(i32::from(*exponent)));
    let unit_rows = stored.filter(|norm| is_unit(*norm)).count() as u64;
    let facts = FactsByRow { unit_rows, fingerprints }.finish();
    if hold {
        matrix.let_go();
    }
    Ok((DenseRows { matrix, norms, exponents, quantisation_error, held }, facts))
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
    /// Where the rows go in 16-bit integers, if they are held.
    words: Option<&'a mut [i16]>,
}

/// Returns the largest error of these rows.
fn inspect_block(matrix: &DenseMatrix, first: usize, block: &mut Block) -> Result<f64, MatrixError> {
    let (rows, stride) = (first..first + block.norms.len(), matrix.stride());
    let (mut largest_error, vectors) = (0.0f64, Vectors::best());
    let mut note = |at: usize, looked: Looked, quantise: &dyn Fn(f64, &mut [i16])| {
        (block.norms[at], block.exponents[at]) = (looked.norm, looked.exponent);
        block.fingerprints[at] = looked.fingerprint;
        largest_error = largest_error.max(looked.error);
        if let Some(words) = &mut block.words {
            quantise(quantised::factor(looked.norm), &mut words[at * stride..][..stride]);
        }
    };
    let not_finite = |at: usize, column: usize, value: f64| {
        let (file, file_row) = matrix.place(first + at);
        let (file, file_row) = (file.to_owned(), file_row as u64);
        let (row, column, value) = ((first + at) as u64, column as u64, NonFinite::of(value));
        MatrixError::NonFinite { whose: "matrix", row, column, value, file, file_row }
    };
    if matrix.is_float32() {
        for (at, stored) in rows.clone().filter_map(|row| matrix.stored_row(row)).enumerate() {
            let looked = look_at_stored(stored, vectors);
            let looked = looked.map_err(|(column, value)| not_finite(at, column, value))?;
            note(at, looked, &|factor, words| vectors.quantise_stored(stored, factor, words));
        }
    } else {
        let mut values = vec![0.0; rows.len() * stride];
        matrix.read(rows.clone(), &mut values);
        for (at, row) in values.chunks_exact_mut(stride).enumerate() {
            let looked = look_at(row, matrix.needs_scaling(first + at));
            let looked = looked.map_err(|column| not_finite(at, column, row[column]))?;
            note(at, looked, &|factor, words| vectors.quantise(row, factor, words));
        }
    }
    // A few blocks at a time, since each time takes the system a while.
    if block.words.is_some() && rows.end.is_multiple_of(LET_GO_ROWS) {
        matrix.let_go_rows(rows.end - LET_GO_ROWS..rows.end);
    }
    Ok(largest_error)
}

/// What is found out about a row.
struct Looked {
    norm: f64,
    exponent: i16,
    fingerprint: u128,
    error: f64,
}

/// Looks at a row that is stored in float32, little-endian. Where all rows are, equal numbers are equal bytes. A column
/// that is not finite is the error.
fn look_at_stored(row: &[[u8; 4]], vectors: Vectors) -> Result<Looked, (usize, f64)> {
    let looked = vectors.look(row);
    if !looked.finite {
        let value = |stored: &[u8; 4]| f32::from_le_bytes(*stored);
        let found = row.iter().map(value).enumerate().find(|(_, value)| !value.is_finite());
        return Err(found.map_or((0, f64::NAN), |(column, value)| (column, f64::from(value))));
    }
    let fingerprint = if looked.negative_zero {
        let numbers = row.iter().map(|stored| f32::from_le_bytes(*stored) + 0.0);
        xxh3_128(&numbers.flat_map(f32::to_le_bytes).collect::<Vec<u8>>())
    } else {
        xxh3_128(row.as_flattened())
    };
    let norm = combine(&looked.squares).sqrt();
    Ok(Looked { norm, exponent: 0, fingerprint, error: quantised::error_of_stored(row, norm, vectors) })
}

/// Looks at a row and scales it if it needs that. A column that is not finite is the error.
fn look_at(row: &mut [f64], needs_scaling: bool) -> Result<Looked, usize> {
    // All of them first, which takes vectors.
    if !row.iter().fold(true, |all, value| all & value.is_finite())
        && let Some(column) = row.iter().position(|value| !value.is_finite())
    {
        return Err(column);
    }
    // Turns −0 into 0, which no score tells apart.
    row.iter_mut().for_each(|value| *value += 0.0);
    let (fingerprint, mut exponent) = (fingerprint(row), 0);
    if needs_scaling {
        let largest = row.iter().fold(0.0f64, |largest, value| largest.max(value.abs()));
        // Exponents of float64 lie between -1074 and 1023.
        exponent = score::exponent(largest) as i16;
        score::scale(row, i32::from(exponent));
    }
    let norm = dot(row, row).sqrt();
    Ok(Looked { norm, exponent, fingerprint, error: quantised::error(row, norm) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dense::{Bytes, DenseFile};
    use crate::element::Element;

    fn inspected(rows: &[[f32; 11]], element: Element) -> (DenseRows, RowFacts) {
        let numbers = rows.as_flattened().iter();
        let bytes: Vec<u8> = match element {
            Element::F32 => numbers.flat_map(|value| value.to_le_bytes()).collect(),
            _ => numbers.flat_map(|value| f64::from(*value).to_le_bytes()).collect(),
        };
        let mut file = DenseFile::empty("rows".as_ref(), rows.len(), 11);
        (file.bytes, file.encoding) = (Bytes::Owned(bytes), element.little_endian());
        inspect(DenseMatrix::join(vec![file]), false, &AtomicBool::new(false)).unwrap()
    }

    #[test]
    fn rows_of_float32_are_known_by_the_same_facts_as_in_float64() {
        let row = |shift: f32| std::array::from_fn(|column| (column as f32 - shift).sin() / 3.0);
        let mut rows = vec![row(0.1), row(7.5), [0.0; 11], row(0.1), [-0.0; 11], [0.0; 11]];
        rows[1][10] = -0.0;
        rows.push([0.0, 0.0, 0.0, 0.6, 0.0, 0.0, 0.0, 0.0, 0.0, 0.8, -0.0]);
        let ((short, short_facts), (wide, wide_facts)) =
            (inspected(&rows, Element::F32), inspected(&rows, Element::F64));
        assert_eq!((short_facts.duplicates, short_facts.unit_rows), (3, 1));
        assert_eq!((wide_facts.duplicates, wide_facts.unit_rows), (3, 1));
        for (row, (short, wide)) in short.norms.iter().zip(&wide.norms).enumerate() {
            // Rows of float64 are scaled by a power of two, which changes no other bit.
            assert_eq!(short.to_bits() << 12, wide.to_bits() << 12, "row {row}");
        }
        let error = short.quantisation_error;
        assert!(error > 1e-5 && (error / wide.quantisation_error - 1.0).abs() < 1e-12, "{error}");
    }
}
