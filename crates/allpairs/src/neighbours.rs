//! Which rows are the neighbours of a row, and in which order.
//!
//! A higher score comes first, equal scores (after rounding to float32) in the order of their row numbers.
//! The row itself is left out by its number, never by its place or score. With a threshold, a neighbour is a
//! row whose score, as it is written (rounded to float32), is at least the threshold: a threshold of 1 finds
//! copies, and whatever is found is not below the number that was asked for.

use crate::settings::Selection;
use std::cmp::Ordering;

/// One neighbour of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Neighbour {
    /// Number of the neighbour's row in the whole matrix.
    pub column: u32,
    /// The score.
    pub similarity: f32,
}

impl Neighbour {
    /// The order in which neighbours of one row are listed.
    pub fn rank(&self, other: &Self) -> Ordering {
        other.similarity.total_cmp(&self.similarity).then(self.column.cmp(&other.column))
    }
}

/// The best neighbours of one row so far, in at most twice the room of those that are asked for.
#[derive(Debug)]
pub struct Best {
    limit: Option<usize>,
    floor: f32,
    kept: Vec<Neighbour>,
    /// The last of a full list when it was last cut.
    last: Option<Neighbour>,
}

impl Best {
    /// An empty list for what the selection asks.
    pub fn new(selection: &Selection) -> Self {
        let floor = selection.threshold.unwrap_or(f32::NEG_INFINITY);
        Self { limit: selection.top_k, floor, kept: Vec::new(), last: None }
    }

    /// Takes the neighbour in if it may belong to the result.
    #[inline]
    pub fn offer(&mut self, neighbour: Neighbour) {
        // Not "≤": of equal scores the lower row number wins, and it may come later.
        if neighbour.similarity >= self.floor {
            self.keep(neighbour);
        }
    }

    fn keep(&mut self, neighbour: Neighbour) {
        self.kept.push(neighbour);
        if let Some(limit) = self.limit
            && self.kept.len() >= limit.saturating_mul(2)
        {
            self.cut(limit);
        }
    }

    fn cut(&mut self, limit: usize) {
        if limit > 0 && self.kept.len() >= limit {
            let (_, last, _) = self.kept.select_nth_unstable_by(limit - 1, Neighbour::rank);
            self.last = Some(*last);
            self.floor = last.similarity;
        }
        self.kept.truncate(limit);
    }

    /// Whether as many are kept as are asked for.
    pub(crate) fn is_full(&self) -> bool {
        self.limit.is_some_and(|limit| self.kept.len() >= limit)
    }

    /// How many of those kept have a score above this.
    pub(crate) fn count_above(&self, score: f32) -> usize {
        self.kept.iter().filter(|kept| kept.similarity > score).count()
    }

    /// The score below which no neighbour is taken in any more.
    pub(crate) fn floor(&mut self) -> f32 {
        if let Some(limit) = self.limit {
            self.cut(limit);
        }
        self.floor
    }

    /// Whether a row of this number may still be taken in, whatever its score: a full list of ones is closed
    /// to all rows behind its last.
    pub(crate) fn is_open_to(&self, column: u32) -> bool {
        self.last.is_none_or(|last| last.similarity < 1.0 || column < last.column)
    }

    /// The neighbours in their order.
    pub fn finish(mut self) -> Vec<Neighbour> {
        if let Some(limit) = self.limit {
            self.cut(limit);
        }
        self.kept.sort_unstable_by(Neighbour::rank);
        self.kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_order_of_offers_yields_the_sorted_prefix(
            scores in prop::collection::vec(-3i8..=3, 0..60),
            limit in prop::option::of(0usize..70),
            threshold in prop::option::of(-3i8..=3),
            seed in any::<u64>(),
        ) {
            let all: Vec<_> = scores.iter().enumerate()
                .map(|(column, s)| Neighbour { column: column as u32, similarity: f32::from(*s) / 3.0 })
                .collect();
            let threshold = threshold.map(|t| f32::from(t) / 3.0);
            let mut offered = all.clone();
            offered.sort_by_key(|n| (u64::from(n.column) + 1).wrapping_mul(seed | 1));
            let mut best = Best::new(&Selection { top_k: limit, threshold });
            offered.into_iter().for_each(|n| best.offer(n));
            let mut expected: Vec<_> = all.into_iter()
                .filter(|n| threshold.is_none_or(|t| n.similarity >= t)).collect();
            expected.sort_by(|a, b| b.similarity.partial_cmp(&a.similarity).unwrap().then(a.column.cmp(&b.column)));
            expected.truncate(limit.unwrap_or(usize::MAX));
            prop_assert_eq!(best.finish(), expected);
        }
    }
}
