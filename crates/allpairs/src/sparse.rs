//! Sparse matrices in CSR form, as SciPy understands it.
//!
//! Entries of a row may come in any order; several of one column are added up in the order in which they
//! are stored; entries that are zero are as good as absent; a row may be empty.

use crate::element::{Element, decode};
use crate::npy::Encoding;
use crate::problem::{FileProblem, MatrixError, NonFinite};
use crate::score::{self, LANES};
use rayon::prelude::*;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Rows that a thread takes at a time.
const ROWS_OF_PIECE: usize = 1024;

/// Entries that a thread decodes at a time.
const ENTRIES_OF_PIECE: usize = 1 << 14;

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

/// Packed, since the four bytes that would fill it up are a quarter of all that is kept.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C, packed(4))]
pub(crate) struct Entry {
    pub(crate) column: u32,
    pub(crate) value: f64,
}

/// The arrays of a CSR matrix as they are stored.
#[derive(Debug)]
pub(crate) struct StoredCsr {
    pub(crate) columns: u64,
    pub(crate) indptr: Vec<i64>,
    pub(crate) indices: Numbers,
    pub(crate) values: Numbers,
}

/// Numbers as they are stored.
#[derive(Debug)]
pub(crate) struct Numbers {
    pub(crate) bytes: Vec<u8>,
    pub(crate) encoding: Encoding,
}

impl Numbers {
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() / self.encoding.element.size()
    }

    fn of(&self, range: Range<usize>) -> &[u8] {
        let size = self.encoding.element.size();
        &self.bytes[range.start * size..range.end * size]
    }

    fn floats(&self, range: Range<usize>) -> Vec<f64> {
        let mut out = vec![0.0; range.len()];
        decode(self.of(range), self.encoding.element, self.encoding.big_endian, &mut out);
        out
    }

    /// The numbers if they are of 32 bits with a sign, else as such of 64 bits.
    pub(crate) fn integers(&self, range: Range<usize>) -> Vec<i64> {
        let (bytes, big_endian) = (self.of(range), self.encoding.big_endian);
        match (self.encoding.element, big_endian) {
            (Element::I32, false) => {
                bytes.as_chunks().0.iter().map(|b| i64::from(i32::from_le_bytes(*b))).collect()
            }
            (Element::I32, true) => {
                bytes.as_chunks().0.iter().map(|b| i64::from(i32::from_be_bytes(*b))).collect()
            }
            (_, false) => bytes.as_chunks().0.iter().map(|b| i64::from_le_bytes(*b)).collect(),
            (_, true) => bytes.as_chunks().0.iter().map(|b| i64::from_be_bytes(*b)).collect(),
        }
    }
}

impl From<&[i64]> for Numbers {
    fn from(numbers: &[i64]) -> Self {
        let bytes = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        Self { bytes, encoding: Element::I64.little_endian() }
    }
}

impl SparseFile {
    /// Checks the stored arrays, which are let go of, and brings every row into order.
    pub(crate) fn new(path: &Path, stored: StoredCsr) -> Result<Self, FileProblem> {
        if stored.columns == 0 {
            return Err(FileProblem::NoColumns);
        }
        if stored.columns > MOST_COLUMNS {
            return Err(FileProblem::TooManyColumns { columns: stored.columns, most: MOST_COLUMNS });
        }
        let rows = stored.indptr.windows(2).enumerate();
        let ranges = rows.map(|(row, bounds)| offsets(&stored, row as u64, bounds[0], bounds[1]));
        let ranges: Vec<Range<usize>> = ranges.collect::<Result<_, _>>()?;
        let begin = ranges.first().map_or(0, |range| range.start);
        let end = ranges.last().map_or(0, |range| range.end);
        let mut entries = checked_entries(&stored, &ranges, begin..end)?;
        let (columns, element) = (stored.columns, stored.values.encoding.element);
        drop(stored);
        let offsets = ranges.iter().map(|range| range.start - begin).chain([end - begin]).collect::<Vec<_>>();
        let kept = put_in_order(&mut entries, &offsets, element);
        let mut file = Self { path: path.to_owned(), columns, offsets, entries, element };
        file.close_gaps(&kept);
        Ok(file)
    }

    /// Moves rows together of which fewer entries are left than there was room for.
    fn close_gaps(&mut self, kept: &[usize]) {
        if self.offsets.windows(2).zip(kept).all(|(ends, kept)| ends[1] - ends[0] == *kept) {
            return;
        }
        let mut next = 0;
        for (row, kept) in kept.iter().enumerate() {
            let begin = std::mem::replace(&mut self.offsets[row], next);
            self.entries.copy_within(begin..begin + kept, next);
            next += kept;
        }
        self.offsets[kept.len()] = next;
        self.entries.truncate(next);
    }

    pub(crate) fn rows(&self) -> usize {
        self.offsets.len() - 1
    }

    pub(crate) fn row(&self, row: usize) -> &[Entry] {
        &self.entries[self.offsets[row]..self.offsets[row + 1]]
    }
}

/// The entries of all rows as they are stored.
fn checked_entries(
    stored: &StoredCsr,
    ranges: &[Range<usize>],
    all: Range<usize>,
) -> Result<Vec<Entry>, FileProblem> {
    let within = |column: i64| u32::try_from(column).is_ok_and(|column| u64::from(column) < stored.columns);
    let mut entries = vec![Entry { column: 0, value: 0.0 }; all.len()];
    let fill = |(piece, entries): (usize, &mut [Entry])| {
        let first = all.start + piece * ENTRIES_OF_PIECE;
        let range = first..first + entries.len();
        let (columns, values) = (stored.indices.integers(range.clone()), stored.values.floats(range));
        let wrong = columns.iter().position(|column| !within(*column));
        for ((entry, column), value) in entries.iter_mut().zip(&columns).zip(values) {
            *entry = Entry { column: *column as u32, value };
        }
        wrong.map(|at| (first + at, columns[at]))
    };
    // The first one in the order of the file, however many threads there are.
    match entries.par_chunks_mut(ENTRIES_OF_PIECE).enumerate().filter_map(fill).min_by_key(|(at, _)| *at) {
        Some((at, column)) => {
            let row = ranges.partition_point(|range| range.end <= at) as u64;
            Err(FileProblem::ColumnNumber { row, column, columns: stored.columns })
        }
        None => Ok(entries),
    }
}

/// Brings the entries of every row into order, to the front of its place; returns how many are left of each.
fn put_in_order(entries: &mut [Entry], offsets: &[usize], element: Element) -> Vec<usize> {
    let mut kept = vec![0; offsets.len() - 1];
    let pieces = pieces(entries, offsets).into_par_iter().zip(kept.par_chunks_mut(ROWS_OF_PIECE));
    pieces.for_each(|((rows, entries), kept)| {
        let first = offsets[rows.start];
        for (row, kept) in rows.zip(kept) {
            *kept = put_row_in_order(&mut entries[offsets[row] - first..offsets[row + 1] - first], element);
        }
    });
    kept
}

/// Entries of some rows at a time, to be changed by several threads.
fn pieces<'a, T>(mut all: &'a mut [T], offsets: &[usize]) -> Vec<(Range<usize>, &'a mut [T])> {
    let rows = offsets.len() - 1;
    let cut = |first: usize| {
        let last = rows.min(first + ROWS_OF_PIECE);
        let (piece, rest) = std::mem::take(&mut all).split_at_mut(offsets[last] - offsets[first]);
        all = rest;
        (first..last, piece)
    };
    (0..rows).step_by(ROWS_OF_PIECE).map(cut).collect()
}

fn put_row_in_order(row: &mut [Entry], element: Element) -> usize {
    let mut kept = row.len();
    if !row.is_sorted_by(|a, b| a.column < b.column) {
        row.sort_by_key(|entry| entry.column);
        kept = add_up(row, element);
    }
    if row[..kept].iter().all(|entry| entry.value != 0.0) {
        return kept;
    }
    let mut left = 0;
    for at in 0..kept {
        if row[at].value != 0.0 {
            row[left] = row[at];
            left += 1;
        }
    }
    left
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
        joined.norms = (0..joined.rows()).into_par_iter().map(|row| joined.norm(row)).collect();
        joined.longest = joined.offsets.windows(2).map(|ends| ends[1] - ends[0]).max().unwrap_or(0);
        Ok(joined)
    }

    fn push_file(&mut self, mut file: SparseFile) -> Result<(), MatrixError> {
        let first_row = self.rows();
        if let Some(at) = file.entries.par_iter().position_first(|entry| !entry.value.is_finite()) {
            let row = file.offsets.partition_point(|offset| *offset <= at) - 1;
            return Err(MatrixError::NonFinite {
                whose: "matrix",
                row: (first_row + row) as u64,
                column: u64::from(file.entries[at].column),
                value: NonFinite::of(file.entries[at].value),
                file: file.path,
                file_row: row as u64,
            });
        }
        if file.element.needs_scaling() {
            let offsets = &file.offsets;
            pieces(&mut file.entries, offsets).into_par_iter().for_each(|(rows, entries)| {
                let first = offsets[rows.start];
                rows.for_each(|row| scale(&mut entries[offsets[row] - first..offsets[row + 1] - first]));
            });
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
        let used = used_columns(&self.entries, self.columns);
        if used.last().is_some_and(|last| *last as usize + 1 > used.len()) {
            let numbers = Places::new(&used);
            self.entries.par_iter_mut().for_each(|entry| entry.column = numbers.of(entry.column));
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

/// Columns that have an entry, ascending.
fn used_columns(entries: &[Entry], columns: u64) -> Vec<u32> {
    // A table of all columns is faster, but a file may claim any number of them.
    if columns <= 1 << 16 || columns <= 4 * entries.len() as u64 {
        let mut used = vec![false; columns as usize];
        entries.iter().for_each(|entry| used[entry.column as usize] = true);
        return (0..).zip(used).filter(|(_, used)| *used).map(|(column, _)| column).collect();
    }
    let mut used: Vec<u32> = entries.par_iter().map(|entry| entry.column).collect();
    used.par_sort_unstable();
    used.dedup();
    used
}

/// The place of each used column among them.
enum Places<'a> {
    Table(Vec<u32>),
    Sorted(&'a [u32]),
}

impl<'a> Places<'a> {
    fn new(used: &'a [u32]) -> Self {
        let columns = used.last().map_or(0, |last| *last as usize + 1);
        if columns > 16 * used.len() {
            return Self::Sorted(used);
        }
        let mut table = vec![0; columns];
        (0..).zip(used).for_each(|(number, column)| table[*column as usize] = number);
        Self::Table(table)
    }

    fn of(&self, column: u32) -> u32 {
        match self {
            Self::Table(table) => table[column as usize],
            Self::Sorted(used) => used.partition_point(|other| *other < column) as u32,
        }
    }
}

fn scale(entries: &mut [Entry]) {
    let largest = entries.iter().fold(0.0f64, |largest, entry| largest.max(entry.value.abs()));
    let exponent = score::exponent(largest);
    for entry in entries {
        let mut value = [entry.value];
        score::scale(&mut value, exponent);
        entry.value = value[0];
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
            values: Numbers {
                bytes: values.iter().flat_map(|value| (*value as f32).to_le_bytes()).collect(),
                encoding: Element::F32.little_endian(),
            },
        }
    }

    #[test]
    fn rows_are_sorted_added_up_and_freed_of_zeros() {
        let stored = stored(&[0, 4, 4, 6], &[7, 2, 7, 3, 1, 1], &[1.0, 5.0, 2.0, 0.0, 4.0, -4.0]);
        let file = SparseFile::new(Path::new("x"), stored).unwrap();
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
            assert_eq!(SparseFile::new(Path::new("x"), stored).unwrap_err().to_string(), message);
        }
    }
}
