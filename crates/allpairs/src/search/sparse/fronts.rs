//! What rows are looked for by where most of what they have in common is left out.

use super::weights::{Weights, share};
use crate::sparse::Columns;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Rows that a thread takes at a time.
const ROWS_OF_PIECE: usize = 2048;

/// Groups of columns that follow one another: more than most rows have entries.
const GROUPS: usize = 64;

/// The columns of the fronts of all rows.
#[derive(Debug)]
pub(super) struct Fronts {
    /// Where each row begins in `columns`, and their number at the end.
    offsets: Vec<u32>,
    columns: Columns,
    /// Rows that each row meets in each of its columns, over the number of rows.
    pub(super) visits: f64,
}

impl Fronts {
    /// For each row the columns up to the last one that is needed for the norm of all from there on to reach the bound;
    /// `None` if there are more than 32 bits count. And what [`Weights::shares`] says.
    pub(super) fn new(weights: Weights, bound: f64) -> Option<(Self, Vec<u64>)> {
        let (groups, next) = (Groups::new(weights), AtomicUsize::new(0));
        let of_threads = rayon::broadcast(|_| {
            let mut of_thread = OfThread::new(weights.columns());
            loop {
                let first = next.fetch_add(ROWS_OF_PIECE, Ordering::Relaxed);
                if first >= weights.rows() {
                    return of_thread;
                }
                let rows = first..weights.rows().min(first + ROWS_OF_PIECE);
                of_thread.add(weights, rows, (bound, &groups));
            }
        });
        let mut all = OfThread::new(weights.columns());
        for of_thread in of_threads {
            all.counts.iter_mut().zip(of_thread.counts).for_each(|(all, count)| *all += count);
            all.shares.iter_mut().zip(of_thread.shares).for_each(|(all, share)| *all += share);
            all.pieces.extend(of_thread.pieces);
        }
        all.pieces.sort_unstable_by_key(|piece| piece.first);
        let mut offsets = Vec::with_capacity(weights.rows() + 1);
        let mut end = 0u32;
        offsets.push(end);
        for length in all.pieces.iter().flat_map(|piece| &piece.lengths) {
            end = end.checked_add(*length)?;
            offsets.push(end);
        }
        let columns: Vec<Vec<u32>> = all.pieces.into_iter().map(|piece| piece.columns).collect();
        let visits: f64 = all.counts.iter().map(|count| f64::from(*count).powi(2)).sum();
        let visits = visits / (weights.rows() as f64).powi(2);
        Some((Self { offsets, columns: Columns::new(&columns, weights.columns()), visits }, all.shares))
    }

    #[inline]
    pub(super) fn for_each(&self, row: usize, take: impl FnMut(usize)) {
        self.columns.for_each(self.offsets[row] as usize..self.offsets[row + 1] as usize, take);
    }
}

/// What a thread found.
struct OfThread {
    pieces: Vec<Piece>,
    /// Rows that have each column in their front.
    counts: Vec<u32>,
    shares: Vec<u64>,
    /// Entries of a row that are of one group.
    near: Vec<(u32, f64)>,
}

/// Rows that follow one another.
struct Piece {
    first: usize,
    columns: Vec<u32>,
    lengths: Vec<u32>,
}

impl OfThread {
    fn new(columns: usize) -> Self {
        Self { pieces: Vec::new(), counts: vec![0; columns], shares: vec![0; columns], near: Vec::new() }
    }

    fn add(&mut self, weights: Weights, rows: std::ops::Range<usize>, (bound, groups): (f64, &Groups)) {
        let (first, mut columns, mut lengths) = (rows.start, Vec::new(), Vec::with_capacity(rows.len()));
        for row in rows {
            let before = columns.len();
            self.front(weights, row, (bound * bound, groups), &mut columns);
            // Columns have 32 bits, and so has their number.
            lengths.push((columns.len() - before) as u32);
        }
        columns.iter().for_each(|column| self.counts[*column as usize] += 1);
        self.pieces.push(Piece { first, columns, lengths });
    }

    /// Adds the columns of the front of a row, such that the squares of the others stay below a bound.
    fn front(&mut self, weights: Weights, row: usize, (bound, groups): (f64, &Groups), front: &mut Vec<u32>) {
        let mut squares = [0.0; GROUPS];
        weights.row(row, |column, weight| {
            self.shares[column] += share(weight);
            squares[groups.of(column)] += f64::from(weight).powi(2);
        });
        // From frequent to rare, as one sorted them all.
        let mut left_out = 0.0;
        let Some(last) = squares.iter().rposition(|square| {
            let all = left_out + square;
            left_out = if all >= bound { left_out } else { all };
            all >= bound
        }) else {
            return;
        };
        self.near.clear();
        weights.row(row, |column, weight| {
            let group = groups.of(column);
            if group < last {
                front.push(column as u32);
            } else if group == last {
                self.near.push((column as u32, f64::from(weight).powi(2)));
            }
        });
        self.near.sort_unstable_by_key(|entry| entry.0);
        let needed = self.near.iter().rposition(|(_, square)| {
            left_out += square;
            left_out >= bound
        });
        // Where roundings say that none is needed, the first one is.
        front.extend(self.near[..=needed.unwrap_or(0)].iter().map(|entry| entry.0));
    }
}

/// Columns in groups that have about the same number of entries.
struct Groups(Vec<u8>);

impl Groups {
    fn new(weights: Weights) -> Self {
        let all: u64 = weights.counts().iter().map(|count| u64::from(*count)).sum();
        let mut before = 0;
        let group = |count: &u32| {
            let group = before * GROUPS as u64 / all.max(1);
            before += u64::from(*count);
            // Below the number of groups, which 8 bits count.
            group as u8
        };
        Self(weights.counts().iter().map(group).collect())
    }

    #[inline]
    fn of(&self, column: usize) -> usize {
        usize::from(self.0[column]) % GROUPS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::Element;
    use crate::sparse::{Indices, SparseFile, SparseRows, StoredCsr, Values};

    /// Rows of many and of few columns.
    fn rows(count: usize) -> SparseRows {
        let (mut indptr, mut indices, mut values) = (vec![0], Vec::new(), Vec::new());
        for row in 0..count {
            let columns = (0..count).filter(|column| column % (row + 1) <= row / 2);
            columns.for_each(|column| {
                indices.push(column as i64);
                values.push(1.0 + ((row * 7 + column * 3) % 5) as f32);
            });
            indptr.push(indices.len() as i64);
        }
        let indices = Indices::new(&indices, (count as u64, 0));
        let stored = StoredCsr {
            columns: count as u64,
            indptr,
            indices,
            values: Values::Short(values),
            element: Element::F32,
        };
        SparseRows::join(vec![SparseFile::new("x".as_ref(), stored).unwrap()]).unwrap()
    }

    #[test]
    fn a_front_is_a_row_without_its_most_frequent_columns_as_many_as_stay_below_the_bound() {
        let matrix = rows(200);
        let weights = Weights { matrix: &matrix };
        for bound in [0.5, 0.8, 0.99] {
            let (fronts, shares) = Fronts::new(weights, bound).unwrap();
            assert_eq!(shares, weights.shares());
            for row in 0..weights.rows() {
                let (mut found, mut entries) = (Vec::new(), Vec::new());
                fronts.for_each(row, |column| found.push(column));
                weights.row(row, |column, weight| entries.push((column, f64::from(weight).powi(2))));
                found.sort_unstable();
                entries.sort_unstable_by_key(|entry| entry.0);
                let mut squares = 0.0;
                let needed = entries.iter().rposition(|entry| {
                    squares += entry.1;
                    squares >= bound * bound
                });
                let expected: Vec<usize> =
                    entries[..needed.map_or(0, |at| at + 1)].iter().map(|entry| entry.0).collect();
                assert_eq!(found, expected, "{row}");
            }
        }
    }
}
