//! Sparse matrices in CSR form, as SciPy understands it.
//!
//! Entries of a row may come in any order; several of one column are added up in the order in which they
//! are stored; entries that are zero are as good as absent; a row may be empty.

mod columns;
mod file;
mod index;
mod row;

use crate::problem::{MatrixError, NonFinite};
use crate::score::{self, LANES};
use columns::Numbered;
use file::pieces;
use rayon::prelude::*;
use std::ops::Range;
use std::sync::OnceLock;

pub(crate) use file::{Indices, SparseFile, StoredCsr, decode_short, narrow};
pub(crate) use index::InvertedIndex;
pub(crate) use row::{Column, Columns, Row, Values};

/// Values that a thread looks at at a time.
const VALUES_OF_PIECE: usize = 1 << 12;

/// All rows of a sparse matrix, scaled, with what was found out about each.
///
/// Columns are numbered anew, from rare to frequent, leaving out those without an entry. The entries of a row stay in
/// the order of the file's own numbers, in which scores are added up.
#[derive(Debug)]
pub(crate) struct SparseRows {
    offsets: Vec<usize>,
    values: Values,
    numbered: Numbered,
    pub(crate) norms: Vec<f64>,
    /// As many as the files say.
    pub(crate) columns: u64,
    /// Entries of the row that has most of them.
    longest: usize,
    index: OnceLock<InvertedIndex>,
}

impl SparseRows {
    /// Joins files of equal columns.
    pub(crate) fn join(files: Vec<SparseFile>) -> Result<Self, MatrixError> {
        let width = files.first().map_or(0, |file| file.columns);
        let mut offsets = Vec::new();
        let (mut columns, mut values) = (Columns::Short(Vec::new()), Values::Short(Vec::new()));
        for mut file in files {
            check_finite(&file, offsets.len().saturating_sub(1))?;
            scale(&mut file);
            let begin = columns.len();
            // Of the first file they are taken as they are.
            if offsets.is_empty() {
                offsets = file.offsets;
            } else {
                offsets.extend(file.offsets[1..].iter().map(|offset| begin + offset));
            }
            columns.append(file.indices);
            values.append(file.values);
        }
        let longest = offsets.windows(2).map(|ends| ends[1] - ends[0]).max().unwrap_or(0);
        let numbered = columns::number(columns, width);
        let (norms, index) = (Vec::new(), OnceLock::new());
        let mut joined = Self { offsets, values, numbered, norms, columns: width, longest, index };
        joined.norms = (0..joined.rows()).into_par_iter().map(|row| joined.norm(row)).collect();
        Ok(joined)
    }

    fn norm(&self, row: usize) -> f64 {
        let mut sums = [0.0; LANES];
        self.row(row).for_each(|column, value| sums[self.lane(column)] += value * value);
        score::combine(&sums).sqrt()
    }

    /// Dot product of a row with a row that is spread out over all used columns.
    #[inline]
    pub(crate) fn dot(&self, row: usize, spread: &[f64]) -> f64 {
        let mut sums = [0.0; LANES];
        self.row(row).for_each(|column, value| sums[self.lane(column)] += value * spread[column]);
        score::combine(&sums)
    }

    /// About the same, faster: the products are added up in some order.
    #[inline]
    pub(crate) fn dot_in_any_order(&self, row: usize, spread: &[f64]) -> f64 {
        self.row(row).dot_in_any_order(spread)
    }

    #[inline]
    fn lane(&self, column: usize) -> usize {
        usize::from(self.numbered.lanes[column]) % LANES
    }

    #[inline]
    pub(crate) fn row(&self, row: usize) -> Row<'_> {
        self.numbered.columns.of(self.offsets[row]..self.offsets[row + 1], &self.values)
    }

    /// Spreads a row out over all used columns, which are zero.
    pub(crate) fn spread(&self, row: usize, out: &mut [f64]) {
        self.row(row).for_each(|column, value| out[column] = value);
    }

    /// Makes the columns of a row zero again.
    pub(crate) fn clear(&self, row: usize, out: &mut [f64]) {
        self.row(row).for_each(|column, _| out[column] = 0.0);
    }

    pub(crate) fn rows(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Entries of all rows.
    pub(crate) fn entries(&self) -> usize {
        self.numbered.columns.len()
    }

    /// Entries of the row that has most of them.
    pub(crate) fn longest_row(&self) -> usize {
        self.longest
    }

    /// Entries of so many rows that follow one another, of those that have most of them.
    pub(crate) fn most_entries(&self, rows: usize) -> usize {
        let ends = self.offsets.iter().skip(rows.min(self.rows()));
        ends.zip(&self.offsets).map(|(end, begin)| end - begin).max().unwrap_or(0)
    }

    /// The rows of each column; made when it is first asked for.
    pub(crate) fn index(&self) -> &InvertedIndex {
        self.index.get_or_init(|| InvertedIndex::new(self))
    }

    /// Columns that have an entry.
    pub(crate) fn used_columns(&self) -> usize {
        self.numbered.counts.len()
    }

    /// How many rows have each of them, ascending.
    pub(crate) fn counts(&self) -> &[u32] {
        &self.numbered.counts
    }
}

fn check_finite(file: &SparseFile, first_row: usize) -> Result<(), MatrixError> {
    let found = match &file.values {
        Values::Short(values) => first_place(values, |value| !value.is_finite()),
        Values::Long(values) => first_place(values, |value| !value.is_finite()),
    };
    let Some(at) = found else { return Ok(()) };
    let row = file.offsets.partition_point(|offset| *offset <= at) - 1;
    let value = match &file.values {
        Values::Short(values) => f64::from(values[at]),
        Values::Long(values) => values[at],
    };
    Err(MatrixError::NonFinite {
        whose: "matrix",
        row: (first_row + row) as u64,
        column: u64::from(file.indices.at(at)),
        value: NonFinite::of(value),
        file: file.path.clone(),
        file_row: row as u64,
    })
}

/// The place of the first one that is so. Looked for piece by piece: rarely is there any.
fn first_place<T: Copy + Sync>(all: &[T], is_so: impl Fn(T) -> bool + Sync) -> Option<usize> {
    let any = |piece: &[T]| piece.iter().fold(false, |any, one| any | is_so(*one));
    let piece = all.par_chunks(VALUES_OF_PIECE).position_first(any)?;
    let begin = piece * VALUES_OF_PIECE;
    all[begin..].iter().position(|one| is_so(*one)).map(|at| begin + at)
}

/// Scales the rows of a type that needs it.
fn scale(file: &mut SparseFile) {
    let offsets = &file.offsets;
    let Values::Long(values) = &mut file.values else { return };
    if !file.element.needs_scaling() {
        return;
    }
    pieces(values, offsets).into_par_iter().for_each(|(rows, values): (Range<usize>, &mut [f64])| {
        let first = offsets[rows.start];
        for row in rows {
            let values = &mut values[offsets[row] - first..offsets[row + 1] - first];
            let largest = values.iter().fold(0.0f64, |largest, value| largest.max(value.abs()));
            score::scale(values, score::exponent(largest));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::Element;

    fn file(values: Values, element: Element) -> SparseFile {
        let indices = Indices::new(&[0, 7, 9, 7, 19], (20, 0));
        let stored = StoredCsr { columns: 20, indptr: vec![0, 3, 5], indices, values, element };
        SparseFile::new("x".as_ref(), stored).unwrap()
    }

    #[test]
    fn files_that_keep_columns_in_16_and_in_32_bits_are_one_matrix() {
        let file = |width| {
            let indices = Indices::new(&[0, 7, 9, 7, 19], (width, 0));
            let values = Values::Short(vec![1.5, 0.1, 0.3, 0.7, 1.1]);
            let stored =
                StoredCsr { columns: width, indptr: vec![0, 3, 5], indices, values, element: Element::F32 };
            SparseFile { columns: 1 << 20, ..SparseFile::new("x".as_ref(), stored).unwrap() }
        };
        for widths in [[20, 1 << 20], [1 << 20, 20]] {
            let rows = SparseRows::join(widths.map(file).into()).unwrap();
            assert_eq!((rows.rows(), rows.entries(), rows.counts()), (4, 10, [2, 2, 2, 4].as_slice()));
            let entries = |row| {
                let mut entries = Vec::new();
                rows.row(row).for_each(|column, value| entries.push((column, value)));
                entries
            };
            assert_eq!([entries(0), entries(1)], [entries(2), entries(3)]);
            assert_eq!([1, 2, 3, 4, 9].map(|count| rows.most_entries(count)), [3, 5, 8, 10, 10]);
        }
    }

    #[test]
    fn files_of_float32_and_float64_are_one_matrix() {
        // The second file is of exact halves of the first: equal scores once it is scaled.
        let numbers = [1.5f32, 0.1, 0.3, 0.7, 1.1];
        let halves = || numbers.iter().map(|value| f64::from(*value) / 2.0).collect();
        let files = [
            file(Values::Short(numbers.to_vec()), Element::F32),
            file(Values::Long(halves()), Element::F64),
            file(Values::Short(numbers.to_vec()), Element::F32),
        ];
        let rows = SparseRows::join(files.into()).unwrap();
        assert_eq!((rows.rows(), rows.entries(), rows.used_columns()), (6, 15, 4));
        let mut spread = vec![0.0; rows.used_columns()];
        for row in 0..6 {
            rows.spread(row, &mut spread);
            let score =
                |other: usize| score::score(rows.dot(other, &spread), rows.norms[row], rows.norms[other]);
            assert_eq!([score(row % 2), score(2 + row % 2), score(4 + row % 2)], [1.0; 3]);
            assert_eq!(score(1 - row % 2).to_bits(), score(3 - row % 2).to_bits());
            rows.clear(row, &mut spread);
        }
    }
}
