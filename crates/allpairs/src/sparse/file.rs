//! The rows of one file, checked and in order.

use super::row::{Column, Columns, Row, Values, with_columns};
use crate::element::{Element, decode};
use crate::npy::Encoding;
use crate::problem::FileProblem;
use rayon::prelude::*;
use std::ops::{Add, Range};
use std::path::{Path, PathBuf};

/// Rows that a thread takes at a time.
const ROWS_OF_PIECE: usize = 1024;

/// Entries of a row that are sorted by numbers of 64 bits.
const SHORT_ROW: usize = 64;

/// Columns must fit the 32 bits in which they are kept.
const MOST_COLUMNS: u64 = u32::MAX as u64;

/// The rows of one file, columns ascending in each row, each column once.
#[derive(Debug)]
pub(crate) struct SparseFile {
    pub(crate) path: PathBuf,
    pub(crate) columns: u64,
    /// Where each row begins in what follows, and the length of that at the end.
    pub(super) offsets: Vec<usize>,
    /// The columns of all entries.
    pub(super) indices: Columns,
    pub(super) values: Values,
    pub(super) element: Element,
}

/// The arrays of a CSR matrix as they are stored.
#[derive(Debug)]
pub(crate) struct StoredCsr {
    pub(crate) columns: u64,
    pub(crate) indptr: Vec<i64>,
    pub(crate) indices: Indices,
    pub(crate) values: Values,
    /// The type that the values are stored in.
    pub(crate) element: Element,
}

/// Columns of entries as they are stored.
#[derive(Debug)]
pub(crate) struct Indices {
    pub(crate) columns: Columns,
    /// Place and number of the first column that there is not, among the entries of the rows.
    pub(crate) wrong: Option<(usize, i64)>,
}

impl Indices {
    /// Columns, and the first place from `begin` on where one is not below `width`.
    pub(crate) fn new(numbers: &[i64], (width, begin): (u64, usize)) -> Self {
        let mut columns = if Columns::are_short(width) {
            Columns::Short(vec![0; numbers.len()])
        } else {
            Columns::Long(vec![0; numbers.len()])
        };
        let counts = |at: usize| at >= begin;
        let wrong = with_columns!(&mut columns, out => narrow(numbers.iter().copied(), out, width, counts));
        Self { columns, wrong }
    }
}

/// Puts columns into as few bits as they are kept in. Tells place and number of the first one that is not below `width`
/// and of which the place counts.
pub(crate) fn narrow<C: Column>(
    numbers: impl Iterator<Item = i64> + Clone,
    columns: &mut [C],
    width: u64,
    counts: impl Fn(usize) -> bool,
) -> Option<(usize, i64)> {
    // Below zero it is greater than any width as a number without a sign.
    let is_wrong = |number: i64| number.cast_unsigned() >= width;
    let mut any_wrong = false;
    for (number, column) in numbers.clone().zip(columns) {
        *column = C::cut(number as u32);
        any_wrong |= is_wrong(number);
    }
    let mut wrong = numbers.enumerate().filter(|(at, number)| is_wrong(*number) && counts(*at));
    if any_wrong { wrong.next() } else { None }
}

impl Values {
    /// Stored numbers in the type in which they are kept.
    pub(crate) fn decoded(bytes: &[u8], encoding: Encoding) -> Self {
        let Encoding { element, big_endian } = encoding;
        let count = bytes.len() / element.size();
        if Self::are_short(element) {
            let mut values = vec![0.0; count];
            decode_short(bytes, big_endian, &mut values);
            return Self::Short(values);
        }
        let mut values = vec![0.0; count];
        decode(bytes, element, big_endian, &mut values);
        Self::Long(values)
    }
}

/// Numbers that are stored as float32.
pub(crate) fn decode_short(bytes: &[u8], big_endian: bool, out: &mut [f32]) {
    let stored = bytes.as_chunks().0.iter().zip(out);
    if big_endian {
        stored.for_each(|(bytes, out)| *out = f32::from_be_bytes(*bytes));
    } else {
        stored.for_each(|(bytes, out)| *out = f32::from_le_bytes(*bytes));
    }
}

impl SparseFile {
    /// Checks the stored arrays and brings every row into order.
    pub(crate) fn new(path: &Path, stored: StoredCsr) -> Result<Self, FileProblem> {
        let StoredCsr { columns, indptr, indices, values, element } = stored;
        if columns == 0 {
            return Err(FileProblem::NoColumns);
        }
        if columns > MOST_COLUMNS {
            return Err(FileProblem::TooManyColumns { columns, most: MOST_COLUMNS });
        }
        let offsets = checked_offsets(indptr, values.len())?;
        let end = offsets.last().copied().unwrap_or(0);
        if let Some((at, column)) = indices.wrong.filter(|(at, _)| *at < end) {
            let row = offsets[1..].partition_point(|end| *end <= at) as u64;
            return Err(FileProblem::ColumnNumber { row, column, columns });
        }
        let mut file =
            Self { path: path.to_owned(), columns, offsets, indices: indices.columns, values, element };
        let offsets = &mut file.offsets;
        with_columns!(&mut file.indices, columns => match &mut file.values {
            Values::Short(values) => put_in_order(offsets, columns, values),
            Values::Long(values) => put_in_order(offsets, columns, values),
        });
        Ok(file)
    }

    pub(crate) fn rows(&self) -> usize {
        self.offsets.len() - 1
    }

    pub(crate) fn row(&self, row: usize) -> Row<'_> {
        self.indices.of(self.offsets[row]..self.offsets[row + 1], &self.values)
    }
}

fn checked_offsets(indptr: Vec<i64>, entries: usize) -> Result<Vec<usize>, FileProblem> {
    let entries = entries as u64;
    let fits = |offset: i64| u64::try_from(offset).is_ok_and(|offset| offset <= entries);
    let wrong = |ends: &[i64]| !(fits(ends[0]) && fits(ends[1]) && ends[0] <= ends[1]);
    if let Some(row) = indptr.windows(2).position(wrong) {
        return Err(FileProblem::Offsets {
            row: row as u64,
            from: indptr[row],
            to: indptr[row + 1],
            entries,
        });
    }
    // Without rows, nothing was looked at.
    if indptr.len() < 2 {
        return Ok(vec![0]);
    }
    Ok(indptr.into_iter().map(|offset| offset as usize).collect())
}

/// A value as it is kept.
trait Value: Copy + Default + PartialEq + Send + Sync + Add<Output = Self> {}

impl Value for f32 {}

impl Value for f64 {}

/// Brings the entries of every row into order, and rows together of which fewer are left than were stored.
fn put_in_order<C: Column, T: Value>(offsets: &mut [usize], indices: &mut Vec<C>, values: &mut Vec<T>) {
    let mut kept = vec![0; offsets.len() - 1];
    let pieces = pieces(indices, offsets).into_par_iter().zip(pieces(values, offsets));
    pieces.zip(kept.par_chunks_mut(ROWS_OF_PIECE)).for_each(|(((rows, indices), (_, values)), kept)| {
        let (first, mut room) = (offsets[rows.start], Vec::new());
        for (row, kept) in rows.zip(kept) {
            let of_row = offsets[row] - first..offsets[row + 1] - first;
            *kept = put_row_in_order(&mut indices[of_row.clone()], &mut values[of_row], &mut room);
        }
    });
    close_gaps(offsets, &kept, (indices, values));
}

fn close_gaps<C: Column, T: Value>(
    offsets: &mut [usize],
    kept: &[usize],
    (indices, values): (&mut Vec<C>, &mut Vec<T>),
) {
    let whole = offsets.windows(2).zip(kept).all(|(ends, kept)| ends[1] - ends[0] == *kept);
    if !whole || offsets[0] > 0 {
        let mut next = 0;
        for (row, kept) in kept.iter().enumerate() {
            let begin = std::mem::replace(&mut offsets[row], next);
            indices.copy_within(begin..begin + kept, next);
            values.copy_within(begin..begin + kept, next);
            next += kept;
        }
        offsets[kept.len()] = next;
    }
    indices.truncate(offsets[kept.len()]);
    values.truncate(offsets[kept.len()]);
}

/// Entries of some rows at a time, to be changed by several threads.
pub(super) fn pieces<'a, T>(all: &'a mut [T], offsets: &[usize]) -> Vec<(Range<usize>, &'a mut [T])> {
    let rows = offsets.len() - 1;
    let mut all = &mut all[offsets[0]..];
    let cut = |first: usize| {
        let last = rows.min(first + ROWS_OF_PIECE);
        let (piece, rest) = std::mem::take(&mut all).split_at_mut(offsets[last] - offsets[first]);
        all = rest;
        (first..last, piece)
    };
    (0..rows).step_by(ROWS_OF_PIECE).map(cut).collect()
}

/// Returns how many entries are left, at the front; `room` is for what takes place.
fn put_row_in_order<C: Column, T: Value>(
    indices: &mut [C],
    values: &mut [T],
    room: &mut Vec<(C, T)>,
) -> usize {
    let zero = T::default();
    let has_zero = values.iter().fold(false, |any, value| any | (*value == zero));
    if indices.is_sorted_by(|a, b| a < b) && !has_zero {
        return indices.len();
    }
    sort(indices, values, room);
    let mut kept = 0;
    for of_column in room.chunk_by(|a, b| a.0 == b.0) {
        // Added up in the precision in which they are stored, in the order in which they are.
        let sum = of_column[1..].iter().fold(of_column[0].1, |sum, entry| sum + entry.1);
        if sum != zero {
            (indices[kept], values[kept]) = (of_column[0].0, sum);
            kept += 1;
        }
    }
    kept
}

/// Puts entries into the order of their columns; those of one column stay in the order in which they are.
fn sort<C: Column, T: Value>(indices: &[C], values: &[T], room: &mut Vec<(C, T)>) {
    room.clear();
    if indices.len() <= SHORT_ROW {
        let mut order = [0u64; SHORT_ROW];
        let order = &mut order[..indices.len()];
        for (at, (order, column)) in order.iter_mut().zip(indices).enumerate() {
            *order = u64::from((*column).into()) << 32 | at as u64;
        }
        // Whole numbers are sorted faster, by networks.
        order.sort_unstable();
        room.extend(order.iter().map(|at| *at as u32 as usize).map(|at| (indices[at], values[at])));
        return;
    }
    room.extend(indices.iter().copied().zip(values.iter().copied()));
    room.sort_by_key(|entry| entry.0);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(indptr: &[i64], indices: &[i64], values: &[f32]) -> StoredCsr {
        StoredCsr {
            columns: 20,
            indptr: indptr.into(),
            indices: Indices::new(indices, (20, indptr[0].max(0) as usize)),
            values: Values::Short(values.to_vec()),
            element: Element::F32,
        }
    }

    #[test]
    fn rows_are_sorted_added_up_and_freed_of_zeros() {
        let values = [9.0, 1.0, 5.0, 2.0, 0.0, 4.0, -4.0, 9.0];
        // What lies before and behind the rows is of nobody.
        let stored = stored(&[1, 5, 5, 7], &[99, 7, 2, 7, 3, 1, 1, -1], &values);
        let file = SparseFile::new(Path::new("x"), stored).unwrap();
        assert_eq!(file.offsets, [0, 2, 2, 2]);
        let (Columns::Short(columns), Values::Short(values)) = (file.indices, file.values) else {
            panic!("few columns take 16 bits, and float32 stays as it is")
        };
        assert_eq!(columns, [2, 7]);
        assert_eq!(values, [5.0, 3.0]);
    }

    #[test]
    fn short_and_long_rows_are_sorted_with_equal_columns_in_the_order_in_which_they_are_stored() {
        for count in [2, SHORT_ROW, SHORT_ROW + 1, 3 * SHORT_ROW] {
            let columns: Vec<u16> = (0..count).map(|at| (at * 7919 % (count / 2 + 1)) as u16).collect();
            let places: Vec<f32> = (0..count).map(|at| at as f32).collect();
            let mut expected: Vec<(u16, f32)> = columns.iter().copied().zip(places.clone()).collect();
            let mut sorted = Vec::new();
            sort(&columns, &places, &mut sorted);
            expected.sort_by_key(|entry| entry.0);
            assert_eq!(sorted, expected, "{count}");
        }
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
