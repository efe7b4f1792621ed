//! Sparse matrices in CSR form, as SciPy understands it.
//!
//! Entries of a row may come in any order; several of one column are added up in the order in which they
//! are stored; entries that are zero are as good as absent; a row may be empty.

use crate::element::Element;
use crate::problem::{FileProblem, MatrixError, NonFinite};
use crate::score::{self, LANES};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Columns must fit the 32 bits in which they are kept.
const MOST_COLUMNS: u64 = u32::MAX as u64;

/// The rows of one file, columns ascending in each row, each column once.
#[derive(Debug)]
pub(crate) struct SparseFile {
    pub(crate) path: PathBuf,
    pub(crate) columns: u64,
    /// Where each row begins in `entries`, and their number at the end.
    offsets: Vec<usize>,
    entries: Vec<Entry>,
    element: Element,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Entry {
    pub(crate) column: u32,
    pub(crate) value: f64,
}

/// The arrays of a CSR matrix as they are stored.
#[derive(Debug)]
pub(crate) struct StoredCsr {
    pub(crate) columns: u64,
    pub(crate) indptr: Vec<i64>,
    pub(crate) indices: Vec<i64>,
    pub(crate) values: Vec<f64>,
    pub(crate) element: Element,
}

impl SparseFile {
    /// Checks the stored arrays and brings every row into order.
    pub(crate) fn new(path: &Path, stored: &StoredCsr) -> Result<Self, FileProblem> {
        if stored.columns == 0 {
            return Err(FileProblem::NoColumns);
        }
        if stored.columns > MOST_COLUMNS {
            return Err(FileProblem::TooManyColumns { columns: stored.columns, most: MOST_COLUMNS });
        }
        let mut file = Self {
            path: path.to_owned(),
            columns: stored.columns,
            offsets: vec![0],
            entries: Vec::with_capacity(stored.values.len()),
            element: stored.element,
        };
        for (row, bounds) in stored.indptr.windows(2).enumerate() {
            file.push_row(stored, row, offsets(stored, row as u64, bounds[0], bounds[1])?)?;
        }
        Ok(file)
    }

    fn push_row(&mut self, stored: &StoredCsr, row: usize, range: Range<usize>) -> Result<(), FileProblem> {
        let begin = self.entries.len();
        for (&column, &value) in stored.indices[range.clone()].iter().zip(&stored.values[range]) {
            let number = u32::try_from(column).ok().filter(|c| u64::from(*c) < self.columns);
            let Some(column) = number else {
                return Err(FileProblem::ColumnNumber { row: row as u64, column, columns: self.columns });
            };
            self.entries.push(Entry { column, value });
        }
        let rest = &mut self.entries[begin..];
        if !rest.is_sorted_by(|a, b| a.column < b.column) {
            rest.sort_by_key(|entry| entry.column);
            let kept = add_up(rest, self.element);
            self.entries.truncate(begin + kept);
        }
        self.drop_zeros(begin);
        self.offsets.push(self.entries.len());
        Ok(())
    }

    fn drop_zeros(&mut self, begin: usize) {
        let mut kept = begin;
        for at in begin..self.entries.len() {
            if self.entries[at].value != 0.0 {
                self.entries[kept] = self.entries[at];
                kept += 1;
            }
        }
        self.entries.truncate(kept);
    }

    pub(crate) fn rows(&self) -> usize {
        self.offsets.len() - 1
    }

    pub(crate) fn row(&self, row: usize) -> &[Entry] {
        &self.entries[self.offsets[row]..self.offsets[row + 1]]
    }
}

fn offsets(stored: &StoredCsr, row: u64, from: i64, to: i64) -> Result<Range<usize>, FileProblem> {
    let entries = stored.values.len() as u64;
    let refused = FileProblem::Offsets { row, from, to, entries };
    match (usize::try_from(from), usize::try_from(to)) {
        (Ok(begin), Ok(end)) if begin <= end && end as u64 <= entries => Ok(begin..end),
        _ => Err(refused),
    }
}

/// Adds up the entries of one column, in the precision in which they are stored. Returns how many are left.
fn add_up(entries: &mut [Entry], element: Element) -> usize {
    let mut kept = 0;
    for at in 0..entries.len() {
        let entry = entries[at];
        if kept > 0 && entries[kept - 1].column == entry.column {
            let sum = entries[kept - 1].value + entry.value;
            entries[kept - 1].value = if element == Element::F32 { f64::from(sum as f32) } else { sum };
        } else {
            entries[kept] = entry;
            kept += 1;
        }
    }
    kept
}

/// All rows of a sparse matrix, scaled, with what was found out about each.
///
/// Columns are numbered anew, in the same order, leaving out those without an entry: so memory depends on
/// the entries alone, whatever width the file claims.
#[derive(Debug)]
pub(crate) struct SparseRows {
    offsets: Vec<usize>,
    entries: Vec<Entry>,
    /// Accumulator of each column that has an entry (see [`crate::score`]).
    lanes: Vec<u8>,
    pub(crate) norms: Vec<f64>,
    pub(crate) columns: u64,
    /// Entries of the row that has most of them.
    longest: usize,
    index: OnceLock<InvertedIndex>,
}

impl SparseRows {
    /// Joins files of equal columns.
    pub(crate) fn join(files: Vec<SparseFile>) -> Result<Self, MatrixError> {
        let columns = files.first().map_or(0, |file| file.columns);
        let mut joined = Self {
            offsets: vec![0],
            entries: Vec::new(),
            lanes: Vec::new(),
            norms: Vec::new(),
            columns,
            longest: 0,
            index: OnceLock::new(),
        };
        for file in files {
            joined.push_file(file)?;
        }
        joined.number_columns();
        for row in 0..joined.rows() {
            let norm = joined.norm(row);
            joined.norms.push(norm);
        }
        joined.longest = joined.offsets.windows(2).map(|ends| ends[1] - ends[0]).max().unwrap_or(0);
        Ok(joined)
    }

    fn push_file(&mut self, mut file: SparseFile) -> Result<(), MatrixError> {
        let first_row = self.rows();
        for row in 0..file.rows() {
            let range = file.offsets[row]..file.offsets[row + 1];
            let entries = &mut file.entries[range];
            if let Some(entry) = entries.iter().find(|entry| !entry.value.is_finite()) {
                return Err(MatrixError::NonFinite {
                    whose: "matrix",
                    row: (first_row + row) as u64,
                    column: u64::from(entry.column),
                    value: NonFinite::of(entry.value),
                    file: file.path,
                    file_row: row as u64,
                });
            }
            if file.element.needs_scaling() {
                scale(entries);
            }
        }
        let begin = self.entries.len();
        self.offsets.extend(file.offsets[1..].iter().map(|offset| begin + offset));
        if begin == 0 {
            self.entries = file.entries;
        } else {
            self.entries.append(&mut file.entries);
        }
        Ok(())
    }

    fn number_columns(&mut self) {
        let mut used: Vec<u32> = self.entries.iter().map(|entry| entry.column).collect();
        used.sort_unstable();
        used.dedup();
        for entry in &mut self.entries {
            entry.column = used.partition_point(|column| *column < entry.column) as u32;
        }
        self.lanes = used.iter().map(|column| (*column as usize % LANES) as u8).collect();
    }

    fn norm(&self, row: usize) -> f64 {
        let mut sums = [0.0; LANES];
        for entry in self.row(row) {
            sums[self.lane(entry)] += entry.value * entry.value;
        }
        score::combine(&sums).sqrt()
    }

    /// Dot product of a row with a row that is spread out over all used columns.
    pub(crate) fn dot(&self, row: usize, spread: &[f64]) -> f64 {
        let mut sums = [0.0; LANES];
        for entry in self.row(row) {
            sums[self.lane(entry)] += entry.value * spread[entry.column as usize];
        }
        score::combine(&sums)
    }

    fn lane(&self, entry: &Entry) -> usize {
        usize::from(self.lanes[entry.column as usize])
    }

    pub(crate) fn row(&self, row: usize) -> &[Entry] {
        &self.entries[self.offsets[row]..self.offsets[row + 1]]
    }

    pub(crate) fn rows(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Entries of all rows from the first to before this one.
    pub(crate) fn offset(&self, row: usize) -> usize {
        self.offsets[row]
    }

    /// Entries of the row that has most of them.
    pub(crate) fn longest_row(&self) -> usize {
        self.longest
    }

    /// The rows of each column; made when it is first asked for.
    pub(crate) fn index(&self) -> &InvertedIndex {
        self.index.get_or_init(|| InvertedIndex::new(self))
    }

    /// Columns that have an entry.
    pub(crate) fn used_columns(&self) -> usize {
        self.lanes.len()
    }
}

/// For each used column the rows that have an entry there, ascending.
#[derive(Debug, Default)]
pub(crate) struct InvertedIndex {
    /// Where each column begins in `postings`, and their number at the end.
    offsets: Vec<usize>,
    postings: Vec<Posting>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Posting {
    pub(crate) row: u32,
    /// The entry over the norm of its row: good enough to choose candidates.
    pub(crate) value: f32,
}

impl InvertedIndex {
    fn new(rows: &SparseRows) -> Self {
        let mut offsets = vec![0; rows.lanes.len() + 1];
        rows.entries.iter().for_each(|entry| offsets[entry.column as usize + 1] += 1);
        for column in 1..offsets.len() {
            offsets[column] += offsets[column - 1];
        }
        let mut next = offsets.clone();
        let mut postings = vec![Posting { row: 0, value: 0.0 }; rows.entries.len()];
        for row in 0..rows.rows() {
            for entry in rows.row(row) {
                let at = &mut next[entry.column as usize];
                postings[*at] = Posting { row: row as u32, value: (entry.value / rows.norms[row]) as f32 };
                *at += 1;
            }
        }
        Self { offsets, postings }
    }

    /// Those rows of a column that lie in a range.
    pub(crate) fn within(&self, column: u32, rows: &Range<usize>) -> &[Posting] {
        let all = self.column(column);
        let before = |row: usize| all.partition_point(|posting| (posting.row as usize) < row);
        &all[before(rows.start)..before(rows.end)]
    }

    pub(crate) fn column(&self, column: u32) -> &[Posting] {
        &self.postings[self.offsets[column as usize]..self.offsets[column as usize + 1]]
    }
}

fn scale(entries: &mut [Entry]) {
    let largest = entries.iter().fold(0.0f64, |largest, entry| largest.max(entry.value.abs()));
    let exponent = score::exponent(largest);
    for entry in entries {
        score::scale(std::slice::from_mut(&mut entry.value), exponent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(indptr: &[i64], indices: &[i64], values: &[f64]) -> StoredCsr {
        StoredCsr {
            columns: 20,
            indptr: indptr.into(),
            indices: indices.into(),
            values: values.into(),
            element: Element::F32,
        }
    }

    #[test]
    fn rows_are_sorted_added_up_and_freed_of_zeros() {
        let stored = stored(&[0, 4, 4, 6], &[7, 2, 7, 3, 1, 1], &[1.0, 5.0, 2.0, 0.0, 4.0, -4.0]);
        let file = SparseFile::new(Path::new("x"), &stored).unwrap();
        assert_eq!(file.offsets, [0, 2, 2, 2]);
        let entry = |column, value| Entry { column, value };
        assert_eq!(file.entries, [entry(2, 5.0), entry(7, 3.0)]);
    }

    #[test]
    fn offsets_and_columns_outside_of_the_matrix_are_named() {
        let table = [
            (
                stored(&[0, 3, 1], &[0, 1, 2], &[1.0; 3]),
                "the offsets `indptr` of row 1 are 3 and 1, of 3 entries: they must not fall",
            ),
            (
                stored(&[-1, 2], &[0, 1], &[1.0; 2]),
                "the offsets `indptr` of row 0 are -1 and 2, of 2 entries: they must not fall",
            ),
            (
                stored(&[0, 9], &[0, 1], &[1.0; 2]),
                "the offsets `indptr` of row 0 are 0 and 9, of 2 entries: they must not fall",
            ),
            (
                stored(&[0, 0, 2], &[0, 20], &[1.0; 2]),
                "row 1 has an entry in column 20; the matrix has 20 columns",
            ),
            (stored(&[0, 1], &[-3], &[1.0]), "row 0 has an entry in column -3; the matrix has 20 columns"),
        ];
        for (stored, message) in table {
            assert_eq!(SparseFile::new(Path::new("x"), &stored).unwrap_err().to_string(), message);
        }
    }
}
