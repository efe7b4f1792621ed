//! The best others of each row that were found so far.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Another row with what its score is at least. A pair has the same one whenever it is found, so that equal ones are the
/// same row; the greater is the better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Found(u64);

impl Found {
    /// Less than any that is found.
    const NOTHING: Self = Self(0);

    pub(super) fn new(least: f32, row: u32) -> Self {
        Self(u64::from(key(least) as u32 ^ 1 << 31) << 32 | u64::from(row))
    }

    fn least(self) -> f32 {
        if self == Self::NOTHING {
            return f32::NEG_INFINITY;
        }
        score(((self.0 >> 32) as u32 ^ 1 << 31) as i32)
    }

    /// The row.
    pub(super) fn row(self) -> usize {
        (self.0 as u32) as usize
    }
}

/// A number that is greater for greater scores.
pub(super) fn key(score: f32) -> i32 {
    let bits = score.to_bits() as i32;
    // Negative numbers are in the opposite order of their bits.
    bits ^ (bits >> 31 & i32::MAX)
}

/// The score of a key.
pub(super) fn score(key: i32) -> f32 {
    f32::from_bits((key ^ (key >> 31 & i32::MAX)) as u32)
}

/// For each row of some ranges as many of the best as are wanted, in descending order.
pub(super) struct Best {
    /// The ranges in order, each with the number of rows before it.
    ranges: Vec<(Range<usize>, usize)>,
    found: Vec<AtomicU64>,
    top_k: usize,
}

impl Best {
    pub(super) fn new(rows: &[Range<usize>], top_k: usize) -> Self {
        let mut count = 0;
        let with_start = |range: &Range<usize>| {
            count += range.len();
            (range.clone(), count - range.len())
        };
        let ranges = rows.iter().map(with_start).collect();
        let nothing = || AtomicU64::new(Found::NOTHING.0);
        Self { ranges, found: (0..count * top_k).map(|_| nothing()).collect(), top_k }
    }

    /// What the last of as many as are wanted scores at least, negative infinity if there are not as many yet.
    pub(super) fn last(&self, row: usize) -> f32 {
        let last = self.places(row).last().map_or(Found::NOTHING, |last| Found(last.load(Ordering::Relaxed)));
        last.least()
    }

    /// The best of a row, as many as there are.
    pub(super) fn of(&self, row: usize) -> impl Iterator<Item = Found> {
        let found = self.places(row).iter().map(|found| Found(found.load(Ordering::Relaxed)));
        found.filter(|found| *found != Found::NOTHING)
    }

    /// None for a row that is in none of the ranges.
    fn places(&self, row: usize) -> &[AtomicU64] {
        let at = self.ranges.partition_point(|(range, _)| range.end <= row);
        match self.ranges.get(at) {
            Some((range, before)) if range.start <= row => {
                &self.found[(before + row - range.start) * self.top_k..][..self.top_k]
            }
            _ => &[],
        }
    }

    /// Takes in different rows that were found for a row; one thread at a time does so for one row.
    pub(super) fn join(&self, row: usize, new: &mut Vec<Found>) {
        self.sort(new);
        let count = new.len();
        new.extend(self.of(row));
        let (mut new, mut old) = (new[..count].iter().peekable(), new[count..].iter().peekable());
        if count == 0 {
            return;
        }
        for place in self.places(row) {
            let [one, other] =
                [&mut new, &mut old].map(|found| found.peek().map_or(Found::NOTHING, |found| **found));
            if one >= other {
                new.next();
            }
            if other >= one {
                old.next();
            }
            place.store(one.max(other).0, Ordering::Relaxed);
        }
    }

    /// The best of what was found in descending order.
    fn sort(&self, found: &mut Vec<Found>) {
        if found.len() > self.top_k {
            found.select_nth_unstable_by(self.top_k - 1, |one, other| other.cmp(one));
            found.truncate(self.top_k);
        }
        found.sort_unstable_by(|one, other| other.cmp(one));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn the_best_of_all_rounds_are_kept_and_a_row_counts_once(
            rounds in prop::collection::vec(prop::collection::btree_map(0u32..40, 0usize..6, 0..20), 0..6),
            top_k in 1usize..12,
        ) {
            // A row has one score, whichever round it is found in.
            let score = |row: u32| [-1.5f32, -0.25, -0.0, 0.0, 0.25, 1.0][row as usize % 6];
            let (best, mut all) = (Best::new(&[3..3, 4..5, 7..9], top_k), BTreeSet::new());
            for round in rounds {
                let mut found: Vec<Found> = round.into_keys().map(|row| Found::new(score(row), row)).collect();
                all.extend(found.iter().copied());
                best.join(8, &mut found);
            }
            let expected: Vec<Found> = all.iter().rev().take(top_k).copied().collect();
            prop_assert_eq!(best.of(8).collect::<Vec<_>>(), expected.clone());
            // Others, in no range or in one, have none.
            prop_assert!([0, 3, 4, 5, 6, 7, 9].iter().all(|row| best.of(*row).count() == 0));
            let last = expected.get(top_k - 1).map_or(f32::NEG_INFINITY, |last| score(last.row() as u32));
            prop_assert_eq!(best.last(8).to_bits(), last.to_bits());
        }
    }

    #[test]
    fn keys_are_in_the_order_of_scores() {
        let scores = [f32::NEG_INFINITY, -1.0, -0.5, -1e-40, -0.0, 0.0, 1e-40, 0.5, 1.0];
        assert!(scores.map(key).is_sorted_by(|one, next| one < next));
        assert_eq!(scores.map(|number| score(key(number)).to_bits()), scores.map(f32::to_bits));
    }
}
