//! The rows of each column.

use super::SparseRows;
use std::ops::Range;

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
    pub(super) fn new(rows: &SparseRows) -> Self {
        let mut end = 0;
        let begins = rows.counts().iter().map(|count| {
            end += *count as usize;
            end - *count as usize
        });
        let mut next: Vec<usize> = begins.collect();
        let offsets = next.iter().copied().chain([end]).collect();
        let mut postings = vec![Posting { row: 0, value: 0.0 }; end];
        for row in 0..rows.rows() {
            rows.row(row).for_each(|column, value| {
                let at = &mut next[column];
                postings[*at] = Posting { row: row as u32, value: (value / rows.norms[row]) as f32 };
                *at += 1;
            });
        }
        Self { offsets, postings }
    }

    /// Those rows of a column that lie in a range.
    pub(crate) fn within(&self, column: u32, rows: &Range<usize>) -> &[Posting] {
        let all = &self.postings[self.offsets[column as usize]..self.offsets[column as usize + 1]];
        let before = |row: usize| all.partition_point(|posting| (posting.row as usize) < row);
        &all[before(rows.start)..before(rows.end)]
    }
}
