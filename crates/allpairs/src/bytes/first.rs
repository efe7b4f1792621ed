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
//! In the end neighbours of neighbours are looked at too (`closer`).

mod best;
mod closer;
mod compare;

use super::{ColumnPanels, RowPanels, Scales};
use crate::dense::DenseRows;
use crate::machine::Vectors;
use crate::machine::bytes::{Greatest, Kernel, numbered};
use crate::quantised::Margin;
use best::Best;
use compare::{Comparer, Layout};
use rayon::prelude::*;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// Landmarks of a round.
const LANDMARKS: usize = 128;

/// Rounds behind which there is little left to find.
const MOST_ROUNDS: usize = 12;

/// Rounds below which too little is found to be worth it.
const LEAST_ROUNDS: usize = 2;

/// Others that may be kept in all until there are floors, eight bytes each: as many as lists may hold.
const MOST_FOUND: usize = 1 << 26;

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
    /// How far scores in 16-bit integers may be off.
    pub(crate) margin: Margin,
    /// Ends the work early.
    pub(crate) stop: &'a AtomicBool,
}

/// For each row a score that as many others as are wanted reach.
#[derive(Debug)]
pub(crate) struct FirstFloors {
    of_rows: Vec<f32>,
}

impl FirstFloors {
    /// Landmarks that each row that takes part is compared with in a round, and pairs that there are for each row with a
    /// floor.
    pub(crate) fn compared(top_k: usize, kernel: Kernel) -> [usize; 2] {
        [LANDMARKS, Layout::new(top_k, kernel).pairs_of_a_row()]
    }

    /// Floors of rows of a matrix; `None` if there may be too few rounds, there are too few rows, or too many are wanted.
    pub(crate) fn find(matrix: (&DenseRows, &Scales), kernel: Kernel, wanted: Wanted) -> Option<Self> {
        let layout = Layout::new(wanted.top_k, kernel);
        let rounds = wanted.rounds.min(MOST_ROUNDS);
        let lists: usize = wanted.rows.iter().map(ExactSizeIterator::len).sum();
        let too_many = lists.saturating_mul(wanted.top_k) > MOST_FOUND;
        if too_many || rounds < LEAST_ROUNDS || wanted.others.len() < 4 * layout.together.max(LANDMARKS) {
            return None;
        }
        let best = Best::new(wanted.rows, wanted.top_k);
        let (sorter, comparer) = (
            Sorter { matrix, kernel, wanted },
            Comparer { matrix, kernel, wanted, layout, vectors: Vectors::best() },
        );
        let landmarks = sorter.nearest_landmarks(rounds);
        let mut next = Some(sorter.order(&landmarks, (0, rounds)));
        let mut round = 0;
        while let Some(order) = next {
            round += 1;
            let prepare = || (round < rounds).then(|| sorter.order(&landmarks, (round, rounds)));
            next = rayon::join(|| comparer.compare(&order, &best), prepare).1;
        }
        Some(Self { of_rows: closer::floors(matrix.0, wanted, &best) })
    }

    /// Those of a range of rows.
    pub(crate) fn of(&self, rows: Range<usize>) -> &[f32] {
        &self.of_rows[rows]
    }
}

impl Wanted<'_> {
    fn has_floor(&self, row: usize) -> bool {
        self.rows.iter().any(|range| range.contains(&row))
    }

    fn takes_part(&self, row: usize) -> bool {
        self.others.contains(&row) || self.has_floor(row)
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Puts rows in an order in which those that are alike are close.
struct Sorter<'a> {
    matrix: (&'a DenseRows, &'a Scales),
    kernel: Kernel,
    wanted: Wanted<'a>,
}

impl Sorter<'_> {
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
            || (RowPanels::new(self.kernel), vec![0.0; self.kernel.rows() * self.kernel.columns()]),
            |(rows, scores), (block, nearest)| {
                let first = block * PLACED_TOGETHER;
                let range = first..first + nearest.len() / rounds;
                if !self.wanted.stopped() && range.clone().any(|row| self.wanted.takes_part(row)) {
                    rows.pack(self.matrix, range);
                    self.place(rows, &panels, (scores, nearest));
                }
            },
        );
        nearest
    }

    /// Finds the landmarks of rows that are packed.
    fn place(&self, rows: &RowPanels, panels: &[ColumnPanels], (scores, nearest): (&mut [f32], &mut [u8])) {
        let (height, width, vectors) = (self.kernel.rows(), self.kernel.columns(), Vectors::best());
        for (at, nearest) in nearest.chunks_mut(panels.len() * height).enumerate() {
            for (round, columns) in panels.iter().enumerate() {
                scores.fill(f32::NEG_INFINITY);
                for number in 0..LANDMARKS / width {
                    let of_rows = Greatest { scores: &mut scores[..], number: number as u8 };
                    self.kernel.raise(rows.panel(at), columns.panel(number), of_rows, None);
                }
                for (scores, nearest) in scores.chunks(width).zip(nearest.chunks_exact_mut(panels.len())) {
                    let place = vectors.about_greatest(scores);
                    nearest[round] = (numbered(scores[place]).1 * width + place) as u8;
                }
            }
        }
    }

    /// The rows in the order of their landmarks of a round, and then of those of the next one.
    fn order(&self, landmarks: &[u8], (round, rounds): (usize, usize)) -> Vec<u32> {
        let number = |row: u32, round: usize| landmarks[row as usize * rounds + round % rounds];
        let rows = (0..self.matrix.0.norms.len() as u32).filter(|row| self.wanted.takes_part(*row as usize));
        sorted(&sorted(&rows.collect::<Vec<u32>>(), |row| number(row, round + 1)), |row| number(row, round))
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
        let margin = Margin::new(matrix.0.quantisation_error, matrix.0.matrix.columns()).unwrap();
        let wanted = Wanted { rows: &[rows], others: &others, top_k, rounds: 3, margin, stop: &stop };
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
                        // Zero rows are in no search.
                        let has_one = *floor > -2.0 || matrix.norms[row] == 0.0;
                        prop_assert!(has_one && reaching >= top_k, "{kernel:?}: {reaching} reach {floor}");
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
            assert!(near > 5800, "{kernel:?}: {near} of 6000");
        }
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
