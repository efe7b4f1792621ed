//! Which rows are the neighbours of a row, and in which order.
//!
//! A higher score comes first, equal scores (after rounding to float32) in the order of their row numbers.
//! The row itself is left out by its number, never by its place or score. With a threshold, a neighbour is a
//! row whose score, as it is written (rounded to float32), is at least the threshold: a threshold of 1 finds
//! copies, and whatever is found is not below the number that was asked for.

use crate::settings::Selection;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

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

/// The best neighbours of one row so far, no more than are asked for.
#[derive(Debug)]
pub struct Best {
    /// [`u32::MAX`] for any number: rows are numbered in 32 bits, so there are never so many.
    limit: u32,
    floor: f32,
    /// The last of them on top.
    kept: BinaryHeap<Ranked>,
}

/// A neighbour that is greater the later it is listed.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Ranked(Neighbour);

impl Eq for Ranked {}

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.rank(&other.0)
    }
}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Best {
    /// An empty list for what the selection asks.
    pub fn new(selection: &Selection) -> Self {
        let floor = selection.threshold.unwrap_or(f32::NEG_INFINITY);
        let limit = selection.top_k.and_then(|top_k| u32::try_from(top_k).ok()).unwrap_or(u32::MAX);
        Self { limit, floor, kept: BinaryHeap::new() }
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
        if !self.is_full() {
            self.make_room();
            self.kept.push(Ranked(neighbour));
        } else if let Some(mut last) = self.kept.peek_mut()
            && Ranked(neighbour) < *last
        {
            *last = Ranked(neighbour);
        }
        if self.is_full()
            && let Some(last) = self.kept.peek()
        {
            self.floor = last.0.similarity;
        }
    }

    /// Makes room for twice as many, but not for more than are asked for.
    fn make_room(&mut self) {
        let count = self.kept.len();
        if count == self.kept.capacity() {
            self.kept.reserve_exact(count.max(4).min(self.limit as usize - count));
        }
    }

    /// Whether as many are kept as are asked for.
    fn is_full(&self) -> bool {
        self.kept.len() >= self.limit as usize
    }

    /// The neighbours in their order.
    pub fn finish(self) -> Vec<Neighbour> {
        let mut kept: Vec<Neighbour> = self.kept.into_iter().map(|kept| kept.0).collect();
        kept.sort_unstable_by(Neighbour::rank);
        kept
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
