//! Floors to begin with: scores that as many rows as are wanted certainly reach, found by comparing each row with
//! few others that are probably like it.
//!
//! Without them whatever comes first passes, and where a list meets a part of all rows only, as with several hosts, it
//! never learns that rows which are no neighbours of its row are far behind those that are.
//!
//! In each of some rounds other rows are *landmarks*. Each row goes to the landmark that it is most like, and rows that
//! follow one another in the order of their landmarks are compared with each other, each with some hundreds: the order is
//! that of a round's landmarks, and among rows of one landmark that of the next round's. Of rows that are much alike a
//! good part meets in each round. The idea is that of locality-sensitive hashing, with landmarks in place of random
//! planes (Chávez, Navarro, Baeza-Yates and Marroquín, "Searching in metric spaces", 2001).
//!
//! What a row is compared with is dealt out to places, and of each place the greatest score is kept that a pair has at
//! least; so different places are different rows, and the best of them are a little lower than the best of the rows,
//! since some share a place. What rounds find is joined: a pair has the same bound in every round, bit for bit, so equal
//! bounds of two rounds may be one row and count once, and different bounds are different rows. The k-th best is a floor.

use super::{ColumnPanels, RowPanels, Scales};
use crate::dense::DenseRows;
use crate::machine::bytes::{Kernel, MOST_ROWS};
use crate::machine::{NUMBERED, Vectors};
use rayon::prelude::*;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// Landmarks of a round.
const LANDMARKS: usize = NUMBERED;

/// Rows that are compared with each other, if not many are wanted.
const COMPARED_TOGETHER: usize = 512;

/// Rounds behind which there is little left to find.
const MOST_ROUNDS: usize = 12;

/// Rounds below which too little is found to be worth it.
const LEAST_ROUNDS: usize = 2;

/// Rows whose landmarks are looked for at a time.
const PLACED_TOGETHER: usize = 96;

/// What first floors are wanted for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    /// The rows that get floors.
    pub(crate) rows: &'a [Range<usize>],
    /// The rows that may be neighbours.
    pub(crate) others: &'a Range<usize>,
    pub(crate) top_k: usize,
    /// Rounds that are worth their time.
    pub(crate) rounds: usize,
    /// Ends the work early.
    pub(crate) stop: &'a AtomicBool,
}

/// For each row a score that as many others as are wanted reach.
#[derive(Debug)]
pub(crate) struct FirstFloors {
    of_rows: Vec<f32>,
}

impl FirstFloors {
    /// Landmarks that each row that takes part is compared with in a round, and rows that each row with a floor is.
    pub(crate) fn compared(top_k: usize, kernel: Kernel) -> [usize; 2] {
        [LANDMARKS, compared_together(top_k, kernel)]
    }

    /// Floors of rows of a matrix; `None` if there may be too few rounds, or there are too few rows.
    pub(crate) fn find(matrix: (&DenseRows, &Scales), kernel: Kernel, wanted: Wanted) -> Option<Self> {
        let together = compared_together(wanted.top_k, kernel);
        let rounds = wanted.rounds.min(MOST_ROUNDS);
        if rounds < LEAST_ROUNDS || wanted.others.len() < 4 * together.max(LANDMARKS) {
            return None;
        }
        let bounds = Bounds::new(matrix.0.norms.len(), wanted.top_k);
        let (groups, vectors) = (groups(wanted.top_k, kernel), Vectors::best());
        let finder = Finder { matrix, kernel, wanted, groups, together, vectors };
        let landmarks = finder.nearest_landmarks(rounds);
        let order = |round: usize| finder.order(&landmarks, (round, rounds));
        let mut next = order(0);
        for round in 1..=rounds {
            let prepare = || if round < rounds { order(round) } else { Vec::new() };
            next = rayon::join(|| finder.compare(&next, &bounds), prepare).1;
        }
        Some(Self { of_rows: bounds.floors() })
    }

    /// Those of a range of rows.
    pub(crate) fn of(&self, rows: Range<usize>) -> &[f32] {
        &self.of_rows[rows]
    }
}

/// Places that rows are dealt out to, in panels: twice as many as places are needed.
fn groups(top_k: usize, kernel: Kernel) -> usize {
    (2 * (top_k + 1)).div_ceil(kernel.columns())
}

/// Rows that are compared with each other.
fn compared_together(top_k: usize, kernel: Kernel) -> usize {
    COMPARED_TOGETHER.max(4 * groups(top_k, kernel) * kernel.columns())
}

struct Finder<'a> {
    matrix: (&'a DenseRows, &'a Scales),
    kernel: Kernel,
    wanted: Wanted<'a>,
    /// Places that rows are dealt out to, in panels.
    groups: usize,
    together: usize,
    vectors: Vectors,
}

impl Finder<'_> {
    fn has_floor(&self, row: usize) -> bool {
        self.wanted.rows.iter().any(|range| range.contains(&row))
    }

    fn takes_part(&self, row: usize) -> bool {
        self.wanted.others.contains(&row) || self.has_floor(row)
    }

    fn stopped(&self) -> bool {
        self.wanted.stop.load(Ordering::Relaxed)
    }

    /// For each row of the matrix, one after the other, its landmark of each round.
    fn nearest_landmarks(&self, rounds: usize) -> Vec<u8> {
        let (others, count) = (self.wanted.others, rounds * LANDMARKS);
        let panels_of = |round: usize| {
            let landmarks = (0..LANDMARKS).map(|at| at * rounds + round);
            let mut panels = ColumnPanels::new(self.kernel);
            panels.pack(self.matrix, landmarks.map(|at| others.start + others.len() * at / count));
            panels
        };
        let panels: Vec<ColumnPanels> = (0..rounds).map(panels_of).collect();
        let mut nearest = vec![0; self.matrix.0.norms.len() * rounds];
        let blocks = nearest.par_chunks_mut(rounds * PLACED_TOGETHER).enumerate();
        blocks.for_each_init(
            || (RowPanels::new(self.kernel), Vec::new()),
            |(rows, scores), (block, nearest)| {
                let first = block * PLACED_TOGETHER;
                let range = first..first + nearest.len() / rounds;
                if !self.stopped() && range.clone().any(|row| self.takes_part(row)) {
                    rows.pack(self.matrix, range);
                    self.place(rows, &panels, (scores, nearest));
                }
            },
        );
        nearest
    }

    /// Finds the landmarks of rows that are packed.
    fn place(
        &self,
        rows: &RowPanels,
        panels: &[ColumnPanels],
        (scores, nearest): (&mut Vec<f32>, &mut [u8]),
    ) {
        let (height, width, rounds) = (self.kernel.rows(), self.kernel.columns(), panels.len());
        for (at, nearest) in nearest.chunks_mut(rounds * height).enumerate() {
            for (round, panels) in panels.iter().enumerate() {
                scores.clear();
                scores.resize(height * LANDMARKS, f32::NEG_INFINITY);
                for (number, scores) in scores.chunks_exact_mut(height * width).enumerate() {
                    self.kernel.raise(rows.panel(at), panels.panel(number), scores);
                }
                for (row, nearest) in nearest.chunks_exact_mut(rounds).enumerate() {
                    nearest[round] = self.vectors.about_greatest(&scores[row * width..], (width, height));
                }
            }
        }
    }

    /// The rows in the order of their landmarks of a round, and then of those of the next one.
    fn order(&self, landmarks: &[u8], (round, rounds): (usize, usize)) -> Vec<u32> {
        let number = |row: u32, round: usize| landmarks[row as usize * rounds + round % rounds];
        let rows = (0..self.matrix.0.norms.len() as u32).filter(|row| self.takes_part(*row as usize));
        sorted(&sorted(&rows.collect::<Vec<u32>>(), |row| number(row, round + 1)), |row| number(row, round))
    }

    /// Compares rows that are close to each other in this order.
    fn compare(&self, order: &[u32], bounds: &Bounds) {
        let pieces = (order.len() / self.together).max(1);
        let piece = |at: usize| &order[order.len() * at / pieces..order.len() * (at + 1) / pieces];
        let room = || {
            let panels = (RowPanels::new(self.kernel), ColumnPanels::new(self.kernel));
            (panels, Vec::new(), Vec::new())
        };
        let width = self.kernel.columns();
        (0..pieces).into_par_iter().for_each_init(room, |((rows, columns), greatest, room), at| {
            if self.stopped() {
                return;
            }
            let members = || piece(at).iter().map(|row| *row as usize);
            let own: Vec<usize> = members().filter(|row| self.has_floor(*row)).collect();
            if own.is_empty() {
                return;
            }
            let others: Vec<usize> = members().filter(|row| self.wanted.others.contains(row)).collect();
            // What fills up a panel is no row.
            let panels = others.len() / width;
            rows.pack(self.matrix, own.iter().copied());
            columns.pack(self.matrix, others.into_iter().take(panels * width));
            for (at, own) in own.chunks(self.kernel.rows()).enumerate() {
                // Before, since they come from memory while the rows are compared.
                let lasts: [i32; MOST_ROWS] =
                    std::array::from_fn(|row| own.get(row).map_or(0, |row| bounds.last(*row)));
                self.raise((rows, at), (columns, panels), greatest);
                for (row, number) in own.iter().enumerate() {
                    let of_groups = greatest.chunks_exact(self.kernel.rows() * width);
                    bounds.join(
                        (*number, lasts[row]),
                        of_groups.map(|places| &places[row * width..][..width]),
                        room,
                    );
                }
            }
        });
    }

    /// The greatest scores of a panel of rows at each place.
    fn raise(
        &self,
        (rows, at): (&RowPanels, usize),
        (columns, panels): (&ColumnPanels, usize),
        greatest: &mut Vec<f32>,
    ) {
        let size = self.kernel.rows() * self.kernel.columns();
        greatest.clear();
        greatest.resize(self.groups * size, f32::NEG_INFINITY);
        for number in 0..panels {
            let group = &mut greatest[number % self.groups * size..][..size];
            self.kernel.raise(rows.panel(at), columns.panel(number), group);
        }
    }
}

/// Rows in the order of their numbers; those of one number stay as they are.
fn sorted(rows: &[u32], number: impl Fn(u32) -> u8) -> Vec<u32> {
    let mut places = [0; LANDMARKS];
    rows.iter().for_each(|row| places[usize::from(number(*row))] += 1);
    let mut before = 0;
    for place in &mut places {
        before += std::mem::replace(place, before);
    }
    let mut sorted = vec![0; rows.len()];
    for row in rows {
        let place = &mut places[usize::from(number(*row))];
        sorted[*place] = *row;
        *place += 1;
    }
    sorted
}

/// For each row the best bounds so far, in descending order, by their keys.
struct Bounds {
    keys: Vec<AtomicI32>,
    of_row: usize,
    vectors: Vectors,
}

impl Bounds {
    fn new(rows: usize, top_k: usize) -> Self {
        // One more than wanted, since the row itself may be among what it is compared with.
        let of_row = top_k + 1;
        let keys = (0..rows * of_row).map(|_| AtomicI32::new(key(f32::NEG_INFINITY))).collect();
        Self { keys, of_row, vectors: Vectors::best() }
    }

    /// The key that others must exceed to be of use.
    fn last(&self, row: usize) -> i32 {
        self.keys[(row + 1) * self.of_row - 1].load(Ordering::Relaxed)
    }

    /// Takes in the bounds of different rows; those of one row come from one thread at a time. The last one is known.
    fn join<'a>(
        &self,
        (row, last): (usize, i32),
        scores: impl Iterator<Item = &'a [f32]>,
        room: &mut Vec<i32>,
    ) {
        let keys = &self.keys[row * self.of_row..][..self.of_row];
        let mut last = last;
        room.clear();
        scores.for_each(|scores| room.extend(scores.iter().map(|score| key(*score))));
        if last == key(f32::NEG_INFINITY) {
            // Most are better than nothing.
            let (all, rank) = (room.len(), self.of_row.min(room.len()));
            room.extend_from_within(..);
            last = self.vectors.greatest(&mut room[all..], rank).saturating_sub(1);
            room.truncate(all);
        }
        let mut new = 0;
        for at in 0..room.len() {
            // Written whether it is kept or not, so that nothing depends on a guess of the machine.
            room[new] = room[at];
            new += usize::from(room[at] > last);
        }
        if new == 0 {
            return;
        }
        room.truncate(new);
        room.sort_unstable_by(|one, other| other.cmp(one));
        room.extend(keys.iter().map(|key| key.load(Ordering::Relaxed)));
        let (mut new, mut old) = (room[..new].iter().peekable(), room[new..].iter().peekable());
        for place in keys {
            let [one, other] = [&mut new, &mut old].map(|keys| keys.peek().map_or(i32::MIN, |key| **key));
            // What both have may be the same row.
            if one >= other {
                new.next();
            }
            if other >= one {
                old.next();
            }
            place.store(one.max(other), Ordering::Relaxed);
        }
    }

    fn floors(self) -> Vec<f32> {
        (0..self.keys.len() / self.of_row).map(|row| score(self.last(row))).collect()
    }
}

/// A number that is greater for greater scores.
fn key(score: f32) -> i32 {
    let bits = score.to_bits() as i32;
    bits ^ (bits >> 31 & i32::MAX)
}

/// The score of a key.
fn score(key: i32) -> f32 {
    f32::from_bits((key ^ (key >> 31 & i32::MAX)) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::tests::{kinds, matrix, scores};
    use crate::element::Element;
    use proptest::prelude::*;

    fn find(
        matrix: (&DenseRows, &Scales),
        kernel: Kernel,
        (rows, others): (Range<usize>, Range<usize>),
        top_k: usize,
    ) -> Option<FirstFloors> {
        let stop = AtomicBool::new(false);
        let wanted = Wanted { rows: &[rows], others: &others, top_k, rounds: 3, stop: &stop };
        FirstFloors::find(matrix, kernel, wanted)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(6))]

        #[test]
        fn as_many_rows_as_are_wanted_reach_a_first_floor(
            seed in any::<u64>(), columns in 1usize..40, top_k in 1usize..40, begin in 0usize..300,
            count in 2048usize..2400,
        ) {
            let matrix = matrix(&kinds(seed, count, columns), Element::F32, false);
            let scales = Scales::measure(&matrix).unwrap();
            let scores = scores(&matrix);
            for kernel in Kernel::available() {
                for (own, among) in [(0..count, 0..count), (begin..begin + 300, 0..count), (0..count, begin..count)] {
                    let floors = find((&matrix, &scales), kernel, (own.clone(), among.clone()), top_k);
                    let Some(floors) = floors else {
                        prop_assert!(among.len() < 2048, "{kernel:?}");
                        continue;
                    };
                    for (row, floor) in own.clone().zip(floors.of(own)) {
                        let others = among.clone().filter(|other| *other != row);
                        let reaching = others.filter(|other| scores[row][*other] >= *floor).count();
                        prop_assert!(*floor > -2.0 && reaching >= top_k, "{kernel:?}: {reaching} reach {floor}");
                    }
                }
            }
        }
    }

    /// Clusters of rows at random angles; what is not of a row's cluster is far away.
    fn clustered(count: usize, in_a_cluster: usize) -> Vec<Vec<f64>> {
        let mut state = 5u64;
        let mut next = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as f64 / 2f64.powi(30) - 1.0
        };
        let clusters = count / in_a_cluster;
        let centres: Vec<Vec<f64>> = (0..clusters).map(|_| (0..48).map(|_| next()).collect()).collect();
        (0..count)
            .map(|row| centres[row % clusters].iter().map(|value| value + 0.4 * next()).collect())
            .collect()
    }

    #[test]
    fn most_first_floors_are_near_the_last_neighbour_though_few_rows_are_alike() {
        let rows = clustered(6000, 20);
        let matrix = matrix(&rows, Element::F32, false);
        let scales = Scales::measure(&matrix).unwrap();
        for kernel in Kernel::available() {
            let floors = find((&matrix, &scales), kernel, (0..6000, 0..6000), 10).unwrap();
            // Within a cluster scores are about 0.86; the best of other clusters are about 0.5.
            let near = floors.of(0..6000).iter().filter(|floor| **floor > 0.75).count();
            assert!(near > 5000, "{kernel:?}: {near} of 6000");
        }
    }

    #[test]
    fn bounds_that_two_rounds_may_have_found_of_one_row_count_once() {
        let bounds = Bounds::new(1, 3);
        let join = |bounds: &Bounds, found: &[&[f32]]| {
            bounds.join((0, bounds.last(0)), found.iter().copied(), &mut Vec::new());
        };
        let floor = |bounds: &Bounds| score(bounds.last(0));
        join(&bounds, &[&[0.9, 0.5][..], &[0.7, 0.9]]);
        assert_eq!(floor(&bounds), 0.5);
        // Nothing new: at most the same rows.
        join(&bounds, &[&[0.7, 0.9, 0.5, -0.3][..]]);
        assert_eq!(floor(&bounds), 0.5);
        join(&bounds, &[&[0.9, 0.9, 0.9, 0.1][..]]);
        assert_eq!(floor(&bounds), 0.7);
        join(&bounds, &[&[0.8, 0.9, f32::NEG_INFINITY][..]]);
        assert_eq!(floor(&bounds), 0.8);
    }

    #[test]
    fn a_row_does_not_count_for_itself() {
        for kernel in Kernel::available() {
            // Eight rows each are the same, and no other is like them.
            let rows: Vec<Vec<f64>> = clustered(600, 1).into_iter().cycle().take(4800).collect();
            let matrix = matrix(&rows, Element::F32, false);
            let scales = Scales::measure(&matrix).unwrap();
            let floors = |top_k| find((&matrix, &scales), kernel, (0..4800, 0..4800), top_k).unwrap();
            assert!(floors(7).of(0..4800).iter().any(|floor| *floor > 0.9), "{kernel:?}");
            assert!(floors(8).of(0..4800).iter().all(|floor| *floor < 0.9), "{kernel:?}");
        }
    }
}
