//! Rows that may be neighbours of one row: first by their sums in integers, then by their scores.

use crate::neighbours::{Best, Neighbour};
use crate::quantised::Margin;
use crate::settings::Selection;

/// Candidates that are scored together.
pub(super) const TOGETHER: usize = 4;

/// Scores a candidate as defined.
pub(super) trait Scorer {
    /// The score of two rows. Calls with the same first row come together.
    fn score(&mut self, row: usize, other: usize) -> f32;

    /// The scores of a row with several others.
    fn score_together(&mut self, row: usize, others: [usize; TOGETHER]) -> [f32; TOGETHER] {
        others.map(|other| self.score(row, other))
    }

    /// Is told which rows come next.
    fn expect(&self, _other: usize) {}

    /// How far sums may be from scores.
    fn margin(&self) -> Margin;

    /// Adds to the best ones of a row those that no search finds.
    fn complete(&mut self, row: usize, best: Best) -> Vec<Neighbour>;
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

/// Bytes that all lists may take without anybody having to look at them.
const FEW_BYTES: usize = 64 << 20;

/// Candidates that one of so many lists has room for. Long lists are shortened less often; short ones take less memory,
/// and the more rows there are, the less it matters how often lists are shortened.
pub(super) fn room(top_k: Option<usize>, lists: usize) -> usize {
    let Some(top_k) = top_k else { return 16 };
    let long = 2 * top_k + 12;
    let bytes = long.saturating_mul(size_of::<Pending>()).saturating_mul(lists);
    if bytes <= FEW_BYTES { long } else { top_k + top_k / 4 + 4 }
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
        (selection, room): (&Selection, usize),
        scorer: &mut impl Scorer,
    ) -> Option<i32> {
        if !self.best.is_open_to(column) {
            return None;
        }
        if self.pending.capacity() == 0 {
            self.pending.reserve_exact(room);
        }
        self.pending.push(Pending { sum, column });
        (self.pending.len() >= room).then(|| self.shorten(row, room, selection, scorer))
    }

    /// Takes in a candidate that is scored already; what is returned is as with [`Self::offer`].
    pub(super) fn offer_scored(&mut self, neighbour: Neighbour, margin: Margin) -> Option<i32> {
        if !self.best.is_open_to(neighbour.column) {
            return None;
        }
        self.best.offer(neighbour);
        self.best.is_full().then(|| margin.below(self.best.floor()))
    }

    fn shorten(&mut self, row: usize, room: usize, selection: &Selection, scorer: &mut impl Scorer) -> i32 {
        let mut floor = i32::MIN;
        if let Some(top_k) = selection.top_k {
            floor = self.drop_certainly_behind(top_k, scorer.margin());
        }
        if self.pending.len() > room * 3 / 4 || selection.top_k.is_none() {
            self.score_pending(row, scorer);
        }
        floor.max(scorer.margin().below(self.best.floor()))
    }

    fn score_pending(&mut self, row: usize, scorer: &mut impl Scorer) {
        let (together, rest) = self.pending.as_chunks::<TOGETHER>();
        for (at, candidates) in together.iter().enumerate() {
            let next = self.pending[TOGETHER * (at + 1)..].iter().take(TOGETHER);
            next.for_each(|candidate| scorer.expect(candidate.column as usize));
            let columns = candidates.map(|candidate| candidate.column);
            let scores = scorer.score_together(row, columns.map(|column| column as usize));
            let scored = columns.into_iter().zip(scores);
            scored.for_each(|(column, similarity)| self.best.offer(Neighbour { column, similarity }));
        }
        for Pending { column, .. } in rest {
            let similarity = scorer.score(row, *column as usize);
            self.best.offer(Neighbour { column: *column, similarity });
        }
        self.pending.clear();
    }

    fn drop_certainly_behind(&mut self, top_k: usize, margin: Margin) -> i32 {
        let (_, last, _) = self.pending.select_nth_unstable_by(top_k - 1, |a, b| b.sum.cmp(&a.sum));
        let floor = margin.certainly_behind(last.sum);
        self.pending.retain(|candidate| candidate.sum > floor);
        floor
    }

    /// The neighbours of the row in their order.
    pub(super) fn finish(
        mut self,
        row: usize,
        selection: &Selection,
        scorer: &mut impl Scorer,
    ) -> Vec<Neighbour> {
        if let Some(top_k) = selection.top_k
            && self.pending.len() > top_k
        {
            self.drop_certainly_behind(top_k, scorer.margin());
        }
        self.score_pending(row, scorer);
        scorer.complete(row, self.best)
    }
}
