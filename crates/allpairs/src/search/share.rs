//! Which pairs of rows one host compares.
//!
//! Without symmetry a host has rows and compares each of them with all rows. With symmetry each unordered pair of the
//! matrix belongs to one host alone, all hosts have as many pairs, and few hosts have to do with a row. Rows are cut into
//! as many ranges as there are hosts, on a circle. A host has the ranges at some places from its own one on, so that two
//! of them are apart by each distance half of the way round (see [`cover`]): these two are its pairs of that distance.
//! With an even number of hosts two of them have the same two ranges that face each other, and share them.

mod cover;

use std::ops::Range;
use trainyard_toolkit::split::row_range;

/// Where four hosts cut the rows, in millionths: see [`Share::one_of_four`].
const CUTS_OF_FOUR: [usize; 3] = [393_459, 514_425, 757_212];

/// The pairs of one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Share {
    /// The rows that are compared with others, in ranges that ascend and do not touch.
    pub(super) rows: Vec<Range<usize>>,
    /// Rows of which each two are a pair.
    pub(super) among: Range<usize>,
    pub(super) rectangles: Vec<Rectangle>,
    pub(super) counts: Counts,
}

/// For which of its rows a pair counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Counts {
    /// For all rows that are compared with others, and no more.
    ForRows,
    /// For both, whichever they are.
    ForBoth,
    /// For one of them, which is compared with others.
    Once,
}

/// Each of some rows with each of some others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rectangle {
    pub(super) rows: Range<usize>,
    pub(super) others: Range<usize>,
}

impl Rectangle {
    fn new(rows: &Range<usize>, others: &Range<usize>) -> Self {
        Self { rows: rows.clone(), others: others.clone() }
    }

    fn is_empty(&self) -> bool {
        self.rows.is_empty() || self.others.is_empty()
    }
}

impl Share {
    /// Own rows with all of others.
    pub(super) fn of_rows(own: Range<usize>, others: Range<usize>) -> Self {
        let among = others.start <= own.start && own.end <= others.end;
        let foreign = if among { vec![others.start..own.start, own.end..others.end] } else { vec![others] };
        let rectangles = foreign.iter().map(|others| Rectangle::new(&own, others));
        let rectangles = rectangles.filter(|rectangle| !rectangle.is_empty()).collect();
        let among = if among { own.clone() } else { own.start..own.start };
        Self { rows: joined([own].into_iter()), among, rectangles, counts: Counts::ForRows }
    }

    /// The pairs of host `rank` of `hosts`, so that each unordered pair belongs to one host.
    pub(super) fn of_pairs(rank: usize, hosts: usize, rows: usize) -> Self {
        if hosts == 4 {
            return Self::one_of_four(rank, rows);
        }
        let range = |place: usize| {
            let range = row_range((rank + place) % hosts, hosts, rows as u64);
            range.start as usize..range.end as usize
        };
        let rectangle = |(one, other): (usize, usize)| {
            let (rows, others) = (range(one), range(other));
            let faces = 2 * (other - one) == hosts;
            match rank < hosts / 2 {
                true if faces => Rectangle { rows: rows.start..rows.start + rows.len() / 2, others },
                false if faces => Rectangle { rows, others: others.start + others.len() / 2..others.end },
                _ => Rectangle { rows, others },
            }
        };
        let marks = cover::marks(hosts / 2);
        Self::for_both(range(0), cover::apart(&marks, hosts / 2).map(rectangle).collect())
    }

    /// Four hosts come by with three fifths of the rows on average instead of three quarters, if their ranges differ:
    /// the pairs of all five (A, B, B', C and C') are on one of A B B', A C C', B B' C and B B' C' (compare W. H. Mills,
    /// "Covering designs I: coverings by a small number of subsets", 1979). Where to cut follows from equal work: with
    /// b rows in both of B, c in C and in C', and 1 in all, `b(a + b/2) = c(b + c/2) = 1/8`.
    fn one_of_four(rank: usize, rows: usize) -> Self {
        let [b, a, c] = CUTS_OF_FOUR.map(|cut| rows * cut / 1_000_000);
        let (b, a, both_c, first_c, second_c) = (0..b, b..a, a..rows, a..c, c..rows);
        match rank {
            0 => Self::for_both(b.clone(), vec![Rectangle::new(&b, &a)]),
            1 => {
                let rectangles = vec![Rectangle::new(&a, &both_c), Rectangle::new(&first_c, &second_c)];
                Self::for_both(a, rectangles)
            }
            2 => Self::for_both(first_c.clone(), vec![Rectangle::new(&b, &first_c)]),
            _ => Self::for_both(second_c.clone(), vec![Rectangle::new(&b, &second_c)]),
        }
    }

    fn for_both(among: Range<usize>, mut rectangles: Vec<Rectangle>) -> Self {
        rectangles.retain(|rectangle| !rectangle.is_empty());
        let rows = rectangles.iter().map(|rectangle| rectangle.rows.clone());
        Self { rows: joined(rows.chain([among.clone()])), among, rectangles, counts: Counts::ForBoth }
    }

    /// The same pairs, each of which counts for one of its rows only.
    pub(super) fn once(self) -> Self {
        Self { counts: Counts::Once, ..self }
    }

    /// How many rows are compared with others.
    pub(super) fn row_count(&self) -> usize {
        self.rows.iter().map(ExactSizeIterator::len).sum()
    }

    /// Rows that get a list, in ranges that ascend and do not overlap, cut as [`Self::pieces`] are.
    pub(super) fn listed(&self) -> Vec<Range<usize>> {
        let listed = self.rectangles.iter().filter(|_| self.counts == Counts::ForBoth);
        let others = listed.map(|rectangle| rectangle.others.clone());
        let listed = joined(self.rows.iter().cloned().chain(others));
        listed.into_iter().flat_map(|range| self.pieces(range)).collect()
    }

    /// How many rows get a list.
    pub(super) fn lists(&self) -> usize {
        self.listed().iter().map(ExactSizeIterator::len).sum()
    }

    /// The most lists that one of so many hosts has which share out the pairs of so many rows.
    pub(super) fn most_lists(hosts: usize, rows: usize) -> usize {
        // From four on, hosts have ranges of the same sizes, to a row.
        (0..hosts.min(4)).map(|rank| Self::of_pairs(rank, hosts, rows).lists()).max().unwrap_or(0)
    }

    /// Some rows that get a list, as many as are asked for, or all if there are fewer.
    pub(super) fn sample(&self, count: usize) -> Vec<usize> {
        let step = (self.lists() / count).max(1);
        self.listed().into_iter().flatten().step_by(step).take(count).collect()
    }

    /// Pairs that are compared for each list on average.
    pub(super) fn pairs_of_a_list(&self) -> f64 {
        (self.pairs_among() + self.pairs_with_others()) / self.lists().max(1) as f64
    }

    /// Rows that may come to a list on average: what each pair is for both of its rows, or for one of them.
    pub(super) fn met_by_a_list(&self) -> f64 {
        let (among, with_others) = match self.counts {
            Counts::ForRows => (2.0, 1.0),
            Counts::ForBoth => (2.0, 2.0),
            Counts::Once => (1.0, 1.0),
        };
        (among * self.pairs_among() + with_others * self.pairs_with_others()) / self.lists().max(1) as f64
    }

    fn pairs_among(&self) -> f64 {
        (self.among.len() as f64).powi(2) / 2.0
    }

    fn pairs_with_others(&self) -> f64 {
        self.rectangles.iter().map(|r| r.rows.len() as f64 * r.others.len() as f64).sum()
    }

    /// Rows in pieces that are cut wherever something of the share begins or ends, so that all rows of a piece have the
    /// same partners, those among themselves aside.
    pub(super) fn pieces(&self, rows: Range<usize>) -> Vec<Range<usize>> {
        let mut cuts = vec![rows.start, rows.end];
        let sides = self.rectangles.iter().flat_map(|rectangle| [&rectangle.rows, &rectangle.others]);
        let bounds = sides.chain([&self.among]).flat_map(|range| [range.start, range.end]);
        cuts.extend(bounds.filter(|cut| rows.contains(cut)));
        cuts.sort_unstable();
        cuts.dedup();
        cuts.windows(2).map(|cut| cut[0]..cut[1]).collect()
    }

    /// Rows that may be in the list of a row, perhaps the row itself among them. Not for pairs that count once.
    pub(super) fn partners(&self, row: usize) -> Vec<Range<usize>> {
        let among = Some(&self.among).filter(|among| among.contains(&row));
        let both = self.counts == Counts::ForBoth;
        let of_other = |rectangle: &&Rectangle| both && rectangle.others.contains(&row);
        let rows = self.rectangles.iter().filter(of_other).map(|rectangle| &rectangle.rows);
        in_order(among.into_iter().chain(rows).chain(self.others_of(row)).cloned().collect())
    }

    /// Rows that a row is compared with if rows are done one after the other. Not for pairs that count for both.
    pub(super) fn partners_in_order(&self, row: usize) -> Vec<Range<usize>> {
        let first = if self.counts == Counts::Once { row + 1 } else { self.among.start };
        let among = Some(first..self.among.end).filter(|_| self.among.contains(&row));
        in_order(among.into_iter().chain(self.others_of(row).cloned()).collect())
    }

    fn others_of(&self, row: usize) -> impl Iterator<Item = &Range<usize>> {
        let of_row = self.rectangles.iter().filter(move |rectangle| rectangle.rows.contains(&row));
        of_row.map(|rectangle| &rectangle.others)
    }
}

fn in_order(mut ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_unstable_by_key(|range| range.start);
    ranges
}

/// The rows of all ranges, in ranges that ascend and do not touch.
fn joined(ranges: impl Iterator<Item = Range<usize>>) -> Vec<Range<usize>> {
    let mut joined: Vec<Range<usize>> = Vec::new();
    for range in in_order(ranges.collect()) {
        match joined.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// How many pairs a host has.
    fn pairs(share: &Share) -> usize {
        let among = share.among.len();
        let rectangles = share.rectangles.iter().map(|r| r.rows.len() * r.others.len());
        among * among.saturating_sub(1) / 2 + rectangles.sum::<usize>()
    }

    proptest! {
        #[test]
        fn each_unordered_pair_belongs_to_exactly_one_host(hosts in 1usize..48, rows in 0usize..100) {
            let mut seen = vec![0; rows * rows];
            let mut listed = vec![0; rows * rows];
            for rank in 0..hosts {
                let share = Share::of_pairs(rank, hosts, rows);
                let once = share.clone().once();
                prop_assert_eq!(once.listed().into_iter().flatten().count(), once.row_count());
                for row in once.listed().into_iter().flatten() {
                    for partner in once.partners_in_order(row).into_iter().flatten() {
                        seen[row.min(partner) * rows + row.max(partner)] += 1;
                    }
                }
                for row in share.listed().into_iter().flatten() {
                    let partners: Vec<usize> = share.partners(row).into_iter().flatten().collect();
                    prop_assert!(partners.is_sorted_by(|a, b| a < b), "{partners:?}");
                    partners.iter().filter(|partner| **partner != row).for_each(|partner| listed[row * rows + partner] += 1);
                }
            }
            for row in 0..rows {
                for other in 0..rows {
                    prop_assert_eq!(seen[row * rows + other], usize::from(row < other), "{} {}", row, other);
                    prop_assert_eq!(listed[row * rows + other], usize::from(row != other), "{} {}", row, other);
                }
            }
        }

        #[test]
        fn listed_rows_ascend_and_all_rows_of_a_piece_have_the_same_partners(
            hosts in 1usize..48,
            rows in 0usize..200,
            rank in 0usize..48,
        ) {
            let share = Share::of_pairs(rank % hosts, hosts, rows);
            let listed = share.listed();
            prop_assert!(listed.windows(2).all(|pair| pair[0].end <= pair[1].start), "{listed:?}");
            prop_assert!(share.rows.windows(2).all(|pair| pair[0].end < pair[1].start), "{:?}", share.rows);
            for piece in &listed {
                for row in piece.clone() {
                    prop_assert_eq!(share.partners(row), share.partners(piece.start), "{}", row);
                }
                let sides = share.rectangles.iter().flat_map(|rectangle| [&rectangle.rows, &rectangle.others]);
                for range in sides.chain([&share.among]) {
                    let inside = piece.clone().filter(|row| range.contains(row)).count();
                    prop_assert!(inside == 0 || inside == piece.len(), "{piece:?} {range:?}");
                }
            }
            prop_assert!(share.lists() <= Share::most_lists(hosts, rows) + hosts);
        }
    }

    #[test]
    fn the_work_of_all_hosts_is_equal_within_two_percent() {
        for rows in [1797, 20_000, 117_659, 1_000_003] {
            for hosts in [1, 2, 3, 4, 5, 7, 12, 16, 31, 64, 100] {
                let work: Vec<usize> =
                    (0..hosts).map(|rank| pairs(&Share::of_pairs(rank, hosts, rows))).collect();
                assert_eq!(work.iter().sum::<usize>(), rows * (rows - 1) / 2);
                let (least, most) = (work.iter().min().unwrap(), work.iter().max().unwrap());
                // A range of few rows can not be cut finer than by a row.
                let allowed = 0.02f64.max(2.5 * hosts as f64 / rows as f64);
                assert!(
                    (most - least) as f64 <= allowed * *most as f64,
                    "{rows} rows, {hosts} hosts: {work:?}"
                );
            }
        }
    }

    #[test]
    fn a_host_has_to_do_with_few_rows() {
        let part = |hosts| Share::most_lists(hosts, 1_000_000) as f64 / 1e6;
        let expected = [1.0, 1.0, 0.667, 0.637, 3.0 / 7.0, 4.0 / 12.0, 10.0 / 64.0, 12.0 / 100.0];
        for (hosts, expected) in [1, 2, 3, 4, 7, 12, 64, 100].into_iter().zip(expected) {
            assert!(part(hosts) <= expected + 1e-3, "{hosts} hosts: {}", part(hosts));
        }
    }

    #[test]
    fn a_sample_is_spread_over_all_rows_with_a_list() {
        let share = Share::of_pairs(1, 4, 100);
        assert_eq!(share.listed(), [39..51, 51..75, 75..100]);
        assert_eq!(share.sample(3), [39, 59, 79]);
        assert_eq!(share.sample(100).len(), 61);
    }
}
