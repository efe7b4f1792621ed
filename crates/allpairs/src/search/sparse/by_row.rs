//! Sparse rows one after the other, each against all its partners: the way that needs no threshold, no `top_k` and
//! little memory, and the only one that sees scores of zero.
//!
//! An inverted index yields, for one row, the dot products with all rows that share a column. These are sums
//! in another order than that of the definition, so they only choose candidates: a bound on the difference
//! turns each into an interval of scores, and whoever may belong to the result is scored as defined.
//!
//! With a threshold, the columns of a row that most rows share are left out of these sums, as long as what they
//! can add to a score is at most half of the threshold (by Cauchy and Schwarz: the norm of that part of the row
//! over the norm of the row). A row that shares no other column can not reach the threshold; for all others the
//! interval is widened by that much.

use crate::neighbours::{Best, Neighbour};
use crate::score::score;
use crate::search::Search;
use crate::search::share::Share;
use crate::settings::Selection;
use crate::sparse::SparseRows;
use std::ops::Range;

/// A row that may be a neighbour, with the least and the greatest score that it may have.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    row: u32,
    least: f32,
    greatest: f32,
}

/// One entry of a row.
#[derive(Debug, Clone, Copy)]
struct Entry {
    column: u32,
    value: f64,
}

/// Sums of one row after the other, reused.
struct Sums {
    dots: Vec<f32>,
    /// Which rows have a sum for the row at hand.
    seen: Vec<bool>,
    touched: Vec<u32>,
}

/// Neighbours of each row of the block; `None` once the search is stopped.
pub(in crate::search) fn neighbours(
    matrix: &SparseRows,
    rows: Range<usize>,
    (search, share): (&Search, &Share),
) -> Option<Vec<Vec<Neighbour>>> {
    let mut by_row = ByRow::new(matrix);
    let mut lists = Vec::with_capacity(rows.len());
    for row in rows {
        if search.stopped() {
            return None;
        }
        lists.push(by_row.neighbours(row, &share.partners_in_order(row), &search.selection));
    }
    Some(lists)
}

/// Room for one row after the other.
pub(super) struct ByRow<'a> {
    matrix: &'a SparseRows,
    sums: Sums,
    /// The row at hand, spread out over all used columns.
    spread: Vec<f64>,
}

impl<'a> ByRow<'a> {
    pub(super) fn new(matrix: &'a SparseRows) -> Self {
        let all = matrix.rows();
        let sums = Sums { dots: vec![0.0; all], seen: vec![false; all], touched: Vec::new() };
        Self { matrix, sums, spread: vec![0.0; matrix.used_columns()] }
    }

    /// The neighbours of a row among its partners, which are ranges that ascend.
    pub(super) fn neighbours(
        &mut self,
        row: usize,
        partners: &[Range<usize>],
        selection: &Selection,
    ) -> Vec<Neighbour> {
        self.matrix.spread(row, &mut self.spread);
        let list = row_neighbours(self.matrix, (row, &self.spread), &mut self.sums, (partners, selection));
        self.matrix.clear(row, &mut self.spread);
        list
    }
}

fn row_neighbours(
    matrix: &SparseRows,
    (row, spread): (usize, &[f64]),
    sums: &mut Sums,
    (partners, selection): (&[Range<usize>], &Selection),
) -> Vec<Neighbour> {
    let threshold = selection.threshold.unwrap_or(f32::NEG_INFINITY);
    let (summed, left_out) = split_columns(matrix, row, f64::from(threshold) / 2.0);
    sums.add_up(matrix, &summed, (matrix.norms[row], partners));
    // Sums of n products of float32 numbers, themselves rounded, are off by less than (n + 3)·2⁻²⁴ of the
    // product of the norms; twice that covers all that is off in float64.
    let bound = left_out + (summed.len() + 8) as f64 * 2f64.powi(-23);
    let mut candidates = sums.candidates(row, bound, threshold);
    if threshold <= 0.0 {
        let wanted = selection.top_k.unwrap_or(usize::MAX);
        let above_zero = candidates.iter().filter(|candidate| candidate.least > 0.0).count();
        candidates.extend(sums.untouched(row, partners).take(wanted.saturating_sub(above_zero)));
    }
    sums.clear();
    if let Some(top_k) = selection.top_k {
        keep_possible(&mut candidates, top_k);
    }
    let mut list = Best::new(selection);
    for Candidate { row: other, .. } in candidates {
        let other_row = other as usize;
        let dot = matrix.dot(other_row, spread);
        let similarity = score(dot, matrix.norms[row], matrix.norms[other_row]);
        list.offer(Neighbour { column: other, similarity });
    }
    list.finish()
}

/// The entries of a row that are worth summing up, and what the others can add to a score, at most `most`.
fn split_columns(matrix: &SparseRows, row: usize, most: f64) -> (Vec<Entry>, f64) {
    let mut entries = Vec::new();
    // Columns have 32 bits.
    matrix.row(row).for_each(|column, value| entries.push(Entry { column: column as u32, value }));
    if most <= 0.0 {
        return (entries, 0.0);
    }
    // Columns are numbered from rare to frequent.
    entries.sort_unstable_by_key(|entry| entry.column);
    let (mut squares, mut left_out) = (0.0, 0.0);
    while let Some(entry) = entries.last() {
        squares += entry.value * entry.value;
        // A little more than the quotient, for its own rounding.
        let with_this = squares.sqrt() / matrix.norms[row] * (1.0 + 1e-9);
        if with_this > most {
            break;
        }
        left_out = with_this;
        entries.pop();
    }
    (entries, left_out)
}

/// Leaves out whoever is certainly behind `top_k` others. Equal scores stay, since row numbers decide on them.
fn keep_possible(candidates: &mut Vec<Candidate>, top_k: usize) {
    if candidates.len() > top_k {
        let (_, last, _) = candidates.select_nth_unstable_by(top_k - 1, |a, b| b.least.total_cmp(&a.least));
        let certain = last.least;
        candidates.retain(|candidate| candidate.greatest >= certain);
    }
}

impl Sums {
    fn add_up(&mut self, matrix: &SparseRows, entries: &[Entry], (norm, among): (f64, &[Range<usize>])) {
        let index = matrix.index();
        let parts = entries.iter().flat_map(|entry| among.iter().map(move |range| (entry, range)));
        for (entry, range) in parts {
            let value = (entry.value / norm) as f32;
            for posting in index.within(entry.column, range) {
                let other = posting.row as usize;
                if !self.seen[other] {
                    self.seen[other] = true;
                    self.touched.push(posting.row);
                }
                self.dots[other] += value * posting.value;
            }
        }
    }

    /// Rows with a sum whose score may reach the threshold.
    fn candidates(&self, row: usize, bound: f64, threshold: f32) -> Vec<Candidate> {
        let others = self.touched.iter().filter(|other| **other as usize != row);
        others
            .map(|&other| {
                let sum = f64::from(self.dots[other as usize]);
                let (least, greatest) = (score(sum - bound, 1.0, 1.0), score(sum + bound, 1.0, 1.0));
                Candidate { row: other, least, greatest }
            })
            .filter(|candidate| candidate.greatest >= threshold)
            .collect()
    }

    /// Rows without a common column, lowest first: their score is 0.
    fn untouched(&self, row: usize, among: &[Range<usize>]) -> impl Iterator<Item = Candidate> {
        let others = among.iter().cloned().flatten().filter(move |other| !self.seen[*other] && *other != row);
        others.map(|other| Candidate { row: other as u32, least: 0.0, greatest: 0.0 })
    }

    fn clear(&mut self) {
        for row in self.touched.drain(..) {
            self.dots[row as usize] = 0.0;
            self.seen[row as usize] = false;
        }
    }
}
