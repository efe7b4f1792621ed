//! Scores pairs of sparse rows as they are defined, and before that in any order.

use super::by_row::ByRow;
use crate::neighbours::Neighbour;
use crate::quantised::Margin;
use crate::score::score;
use crate::search::blocks::Board;
use crate::search::candidates::{Scorer, TOGETHER};
use crate::search::share::Share;
use crate::sparse::SparseRows;

/// Scores pairs of sparse rows.
pub(super) struct SparseScorer<'a> {
    board: &'a Board<'a>,
    share: &'a Share,
    matrix: &'a SparseRows,
    /// The row at hand, spread out over all used columns; empty before there is one.
    spread: Vec<f64>,
    held: Option<usize>,
    by_row: Option<ByRow<'a>>,
}

impl<'a> SparseScorer<'a> {
    pub(super) fn new((board, share, matrix): (&'a Board<'a>, &'a Share, &'a SparseRows)) -> Self {
        Self { board, share, matrix, spread: Vec::new(), held: None, by_row: None }
    }

    fn hold(&mut self, row: usize) {
        if self.held == Some(row) {
            return;
        }
        match self.held {
            Some(held) => self.matrix.clear(held, &mut self.spread),
            None => self.spread.resize(self.matrix.used_columns(), 0.0),
        }
        self.matrix.spread(row, &mut self.spread);
        self.held = Some(row);
    }
}

impl SparseScorer<'_> {
    /// Whether the score of two rows may be above a floor, by a sum that is faster but not in order. Calls with the same
    /// first row come together.
    pub(super) fn may_exceed(&mut self, floor: f32, (row, other): (usize, usize)) -> bool {
        /// Covers the rounding of scores to float32, and sums in float64 of up to 2²⁸ products in any order.
        const SLACK: f64 = 1e-6;
        self.hold(row);
        let matrix = self.matrix;
        let least = (f64::from(floor) - SLACK) * matrix.norms[row] * matrix.norms[other];
        matrix.dot_in_any_order(other, &self.spread) > least
    }
}

impl Scorer for SparseScorer<'_> {
    fn score(&mut self, row: usize, other: usize) -> f32 {
        self.hold(row);
        let matrix = self.matrix;
        score(matrix.dot(other, &self.spread), matrix.norms[row], matrix.norms[other])
    }

    /// The score, which is all there is to look at.
    fn look(&mut self, row: usize, others: [usize; TOGETHER]) -> [i32; TOGETHER] {
        others.map(|other| Margin::sum_above(self.score(row, other)))
    }

    fn margin(&self) -> Margin {
        self.board.margin
    }

    /// Of scores that may be zero or less, none was looked at: if some of them belong to the list, the row is done
    /// anew by itself.
    fn complete(&mut self, row: usize, neighbours: &mut Vec<Neighbour>) {
        let (search, share) = (self.board.search, self.share);
        let selection = &search.selection;
        let margin = self.board.margin;
        let sees_all = match (selection.threshold, selection.top_k) {
            (Some(threshold), _) if margin.is_positive(threshold) => true,
            // They are in the order of their scores.
            (_, Some(top_k)) => neighbours
                .get(top_k - 1)
                .is_some_and(|neighbour| neighbour.similarity > margin.surely_positive()),
            (_, None) => false,
        };
        if !sees_all {
            let by_row = self.by_row.get_or_insert_with(|| ByRow::new(self.matrix));
            *neighbours = by_row.neighbours(row, &share.partners(row), selection);
        }
    }
}
