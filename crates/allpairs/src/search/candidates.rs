//! Rows that may be neighbours of one row: first by their sums in integers, then by their scores.

use super::Search;
use crate::dense::DenseRows;
use crate::neighbours::{Best, Neighbour};
use crate::quantised::Margin;
use crate::score::{dot, score};
use crate::settings::Selection;
use std::ops::Range;

/// What is needed to score a candidate as defined.
pub(super) struct Scorer<'a> {
    matrix: &'a DenseRows,
    pub(super) margin: Margin,
    own: Vec<f64>,
    other: Vec<f64>,
}

impl<'a> Scorer<'a> {
    pub(super) fn new(matrix: &'a DenseRows, margin: Margin) -> Self {
        let stride = matrix.matrix.stride();
        Self { matrix, margin, own: vec![0.0; stride], other: vec![0.0; stride] }
    }

    fn score_into(&mut self, row: usize, pending: &[Pending], best: &mut Best) {
        self.matrix.read(row..row + 1, &mut self.own);
        for candidate in pending {
            let other = candidate.column as usize;
            self.matrix.read(other..other + 1, &mut self.other);
            let norms = &self.matrix.norms;
            let similarity = score(dot(&self.own, &self.other), norms[row], norms[other]);
            best.offer(Neighbour { column: candidate.column, similarity });
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Pending {
    sum: i32,
    column: u32,
}

/// The candidates of one row.
///
/// However many rows tie within the margin, a list stays short: once the sums can not tell candidates apart, they
/// are scored, and the scores tell.
#[derive(Debug)]
pub(super) struct Candidates {
    pending: Vec<Pending>,
    best: Best,
}

impl Candidates {
    pub(super) fn new(selection: &Selection) -> Self {
        Self { pending: Vec::new(), best: Best::new(selection) }
    }

    /// Takes in a candidate of the row. When the list is full, it is shortened; then the greatest sum that is
    /// not worth offering from now on is returned.
    pub(super) fn offer(
        &mut self,
        row: usize,
        (column, sum): (u32, i32),
        selection: &Selection,
        scorer: &mut Scorer,
    ) -> Option<i32> {
        if !self.best.is_open_to(column) {
            return None;
        }
        let room = selection.top_k.map_or(16, |top_k| 2 * top_k + 12);
        if self.pending.capacity() == 0 {
            self.pending.reserve_exact(room);
        }
        self.pending.push(Pending { sum, column });
        (self.pending.len() >= room).then(|| self.shorten(row, room, selection, scorer))
    }

    fn shorten(&mut self, row: usize, room: usize, selection: &Selection, scorer: &mut Scorer) -> i32 {
        let mut floor = i32::MIN;
        if let Some(top_k) = selection.top_k {
            floor = self.drop_certainly_behind(top_k, scorer.margin);
        }
        if self.pending.len() > room * 3 / 4 || selection.top_k.is_none() {
            scorer.score_into(row, &self.pending, &mut self.best);
            self.pending.clear();
        }
        floor.max(scorer.margin.below(self.best.floor()))
    }

    fn drop_certainly_behind(&mut self, top_k: usize, margin: Margin) -> i32 {
        let (_, last, _) = self.pending.select_nth_unstable_by(top_k - 1, |a, b| b.sum.cmp(&a.sum));
        let floor = margin.certainly_behind(last.sum);
        self.pending.retain(|candidate| candidate.sum > floor);
        floor
    }

    /// The neighbours of a zero row: it scores 0 with all rows, so the lowest numbers come first.
    fn take_lowest(&mut self, row: usize, selection: &Selection, others: Range<usize>) {
        let most = selection.top_k.unwrap_or(others.len());
        let others = others.filter(|other| *other != row).take(most);
        others.for_each(|other| self.best.offer(Neighbour { column: other as u32, similarity: 0.0 }));
    }

    /// The neighbours of the row in their order.
    pub(super) fn finish(mut self, row: usize, search: &Search, scorer: &mut Scorer) -> Vec<Neighbour> {
        let selection = &search.selection;
        if let Some(top_k) = selection.top_k
            && self.pending.len() > top_k
        {
            self.drop_certainly_behind(top_k, scorer.margin);
        }
        scorer.score_into(row, &self.pending, &mut self.best);
        if scorer.matrix.norms[row] == 0.0 && selection.threshold.is_none_or(|threshold| threshold <= 0.0) {
            self.take_lowest(row, selection, search.others.clone());
        }
        self.best.finish()
    }
}
