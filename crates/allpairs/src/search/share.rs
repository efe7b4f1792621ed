//! Which pairs of rows one host compares.
//!
//! Without symmetry a host has rows and compares each of them with all rows. With symmetry each unordered pair of
//! the matrix belongs to one host alone: hosts stand in a circle; a host has the pairs within its own range, and
//! those of its range with the ranges of the hosts that follow, half of the way round. With an even number of
//! hosts two of them face each other, and the earlier one has the first half of its own rows there.

use std::ops::Range;
use trainyard_toolkit::split::row_range;

/// The pairs of one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Share {
    /// The rows that the host has.
    pub(super) own: Range<usize>,
    /// Whether each two of them are a pair.
    pub(super) among: bool,
    pub(super) rectangles: Vec<Rectangle>,
    /// Whether a pair also counts for the other row of a rectangle.
    pub(super) symmetric: bool,
}

/// Each of some own rows with each of some others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rectangle {
    pub(super) rows: Range<usize>,
    pub(super) others: Range<usize>,
}

impl Share {
    /// Own rows with all of others.
    pub(super) fn of_rows(own: Range<usize>, others: Range<usize>) -> Self {
        let among = others.start <= own.start && own.end <= others.end;
        let foreign = if among { vec![others.start..own.start, own.end..others.end] } else { vec![others] };
        let rectangle = |others: Range<usize>| Rectangle { rows: own.clone(), others };
        let rectangles = foreign.into_iter().filter(|range| !range.is_empty()).map(rectangle).collect();
        Self { own, among, rectangles, symmetric: false }
    }

    /// The pairs of host `rank` of `hosts`, so that each unordered pair belongs to one host.
    pub(super) fn of_pairs(rank: usize, hosts: usize, rows: usize) -> Self {
        let range = |rank: usize| {
            let range = row_range(rank % hosts, hosts, rows as u64);
            range.start as usize..range.end as usize
        };
        let own = range(rank);
        let whole = |step: usize| Rectangle { rows: own.clone(), others: range(rank + step) };
        let mut rectangles: Vec<Rectangle> = (1..hosts.div_ceil(2)).map(whole).collect();
        if hosts.is_multiple_of(2) {
            let facing = range(rank + hosts / 2);
            rectangles.push(if rank < hosts / 2 {
                Rectangle { rows: own.start..own.start + own.len() / 2, others: facing }
            } else {
                Rectangle { rows: own.clone(), others: facing.start + facing.len() / 2..facing.end }
            });
        }
        rectangles.retain(|r| !r.rows.is_empty() && !r.others.is_empty());
        Self { own, among: true, rectangles, symmetric: true }
    }

    /// Rows that get a list, in ranges that ascend and do not overlap, cut wherever a rectangle begins or ends.
    pub(super) fn listed(&self) -> Vec<Range<usize>> {
        let mut listed = vec![self.own.clone()];
        if self.symmetric {
            listed.extend(self.rectangles.iter().map(|rectangle| rectangle.others.clone()));
        }
        listed.sort_unstable_by_key(|range| range.start);
        listed.into_iter().flat_map(|range| self.pieces(range)).collect()
    }

    /// Pairs that are compared for each list on average.
    pub(super) fn pairs_of_a_list(&self) -> f64 {
        let own = self.own.len() as f64;
        let among = if self.among { own * own / 2.0 } else { 0.0 };
        let others = self.rectangles.iter().map(|r| r.rows.len() as f64 * r.others.len() as f64);
        let lists: usize = self.listed().iter().map(ExactSizeIterator::len).sum();
        (among + others.sum::<f64>()) / lists.max(1) as f64
    }

    /// Rows in pieces that are cut wherever the rows of a rectangle begin or end, so that all rows of a piece have
    /// the same partners, those among themselves aside.
    pub(super) fn pieces(&self, rows: Range<usize>) -> Vec<Range<usize>> {
        let mut cuts = vec![rows.start, rows.end];
        let bounds = self.rectangles.iter().flat_map(|rectangle| [rectangle.rows.start, rectangle.rows.end]);
        cuts.extend(bounds.filter(|cut| rows.contains(cut)));
        cuts.sort_unstable();
        cuts.dedup();
        cuts.windows(2).map(|cut| cut[0]..cut[1]).collect()
    }

    /// Rows that a listed row is compared with here, the row itself among them if it is an own one.
    pub(super) fn partners(&self, row: usize) -> Vec<Range<usize>> {
        let mut partners = Vec::new();
        if self.among && self.own.contains(&row) {
            partners.push(self.own.clone());
        }
        for Rectangle { rows, others } in &self.rectangles {
            if rows.contains(&row) {
                partners.push(others.clone());
            } else if others.contains(&row) && self.symmetric {
                partners.push(rows.clone());
            }
        }
        partners.sort_unstable_by_key(|range| range.start);
        partners
    }

    /// Rows that an own row is compared with, so that a pair comes up for one of its rows only if pairs are
    /// counted for both.
    pub(super) fn partners_once(&self, row: usize) -> Vec<Range<usize>> {
        let mut partners = self.partners(row);
        if self.symmetric {
            partners.retain(|range| *range != self.own);
            partners.push(row + 1..self.own.end);
            partners.sort_unstable_by_key(|range| range.start);
        }
        partners
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// How many pairs a host has.
    fn pairs(share: &Share) -> usize {
        let own = share.own.len();
        let rectangles = share.rectangles.iter().map(|r| r.rows.len() * r.others.len());
        own * own.saturating_sub(1) / 2 + rectangles.sum::<usize>()
    }

    proptest! {
        #[test]
        fn each_unordered_pair_belongs_to_exactly_one_host(hosts in 1usize..14, rows in 0usize..60) {
            let mut seen = vec![0; rows * rows];
            for rank in 0..hosts {
                let share = Share::of_pairs(rank, hosts, rows);
                for row in share.own.clone() {
                    for partner in share.partners_once(row).into_iter().flatten() {
                        seen[row.min(partner) * rows + row.max(partner)] += 1;
                    }
                }
                for row in share.listed().into_iter().flatten() {
                    let partners: Vec<usize> = share.partners(row).into_iter().flatten().collect();
                    prop_assert!(partners.is_sorted_by(|a, b| a < b), "{partners:?}");
                }
            }
            for row in 0..rows {
                for other in 0..rows {
                    prop_assert_eq!(seen[row * rows + other], usize::from(row < other), "{} {}", row, other);
                }
            }
        }

        #[test]
        fn listed_rows_ascend_and_pieces_lie_within_rectangles(hosts in 1usize..14, rows in 0usize..60, rank in 0usize..14) {
            let share = Share::of_pairs(rank % hosts, hosts, rows);
            let listed = share.listed();
            prop_assert!(listed.windows(2).all(|pair| pair[0].end <= pair[1].start), "{listed:?}");
            for piece in &listed {
                for rectangle in &share.rectangles {
                    let inside = piece.clone().filter(|row| rectangle.rows.contains(row)).count();
                    prop_assert!(inside == 0 || inside == piece.len(), "{piece:?} {rectangle:?}");
                }
            }
        }
    }

    #[test]
    fn the_work_of_all_hosts_is_equal_within_two_percent() {
        for rows in [1797, 20_000, 117_659, 1_000_003] {
            for hosts in [1, 2, 3, 4, 7, 12, 16, 31, 64] {
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
}
