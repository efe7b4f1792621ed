//! Whether dense rows are compared in bytes or in 16-bit integers, and which floors they begin with.
//!
//! Bytes take half of the time and have a margin some fifty times as wide, so that more pairs have to be looked at
//! again. How many is estimated from a sample, once first floors are known.

use super::Search;
use super::share::Share;
use crate::bytes::{FirstFloors, Scales, Wanted};
use crate::dense::DenseRows;
use crate::machine::{Kernel, Vectors, bytes};
use crate::quantised::Margin;
use crate::settings::Selection;
use crate::words::Room;
use rayon::prelude::*;
use std::ops::Range;

/// Sampled rows, and rows that each of them is compared with.
const SAMPLED: usize = 32;
const SAMPLED_OTHERS: usize = 2048;

/// Nanoseconds that a pair takes in bytes for each column, and saves by that. These and the others were measured with
/// vectors of 512 bits on a Zen 5.
const PAIR: f64 = 0.002;
const SAVED: f64 = 0.0018;

/// Nanoseconds that a closer look takes with what comes before it, and what each column adds.
const LOOK: f64 = 10.0;
const LOOK_COLUMN: f64 = 0.1;

/// The part of the pairs above a first floor that is looked at: the floor rises.
const LOOKED_AT: f64 = 0.3;

/// Closer looks for each neighbour that is asked for, taken while floors are not high yet, without first ones.
const EARLY: f64 = 5.0;

/// Nanoseconds that a list takes besides its pairs for each neighbour that is asked for, without first floors, and the
/// part of all its time that first floors can save.
const LIST: f64 = 1500.0;
const SAVED_BY_FLOORS: f64 = 0.35;

/// Nanoseconds that a round of finding first floors takes for each row, and what each column and each neighbour that is
/// asked for add.
const ROUND: f64 = 100.0;
const ROUND_COLUMN: f64 = 0.6;
const ROUND_NEIGHBOUR: f64 = 60.0;

/// How rows are compared.
#[derive(Debug)]
pub(super) enum Way {
    /// In 16-bit integers.
    Words(Kernel),
    /// In bytes.
    Bytes(bytes::Kernel, Scales),
}

impl Way {
    /// The one that promises to be faster, and the floors that rows begin with in either.
    pub(super) fn choose(
        (search, share): (&Search, &Share),
        (matrix, margin): (&DenseRows, Margin),
        words: Kernel,
    ) -> (Self, Option<FirstFloors>) {
        let as_words = |floors| (Self::Words(words), floors);
        let Some(kernel) = bytes::Kernel::fast().filter(|_| fits(matrix)) else { return as_words(None) };
        let Some(scales) = Scales::measure(matrix) else { return as_words(None) };
        let first = first_floors((search, share), (matrix, margin, &scales), kernel);
        let columns = matrix.matrix.columns() as f64;
        let looks = expected_looks((search, share), (matrix, &scales), first.as_ref());
        if SAVED * columns * share.pairs_of_a_list() > looks * (LOOK + LOOK_COLUMN * columns) {
            (Self::Bytes(kernel, scales), first)
        } else {
            as_words(first)
        }
    }

    /// Bytes of a number of a packed row.
    pub(super) fn bytes_of_number(&self) -> usize {
        match self {
            Self::Words(_) => 2,
            Self::Bytes(..) => 1,
        }
    }
}

/// Floors to begin with, as good as is worth the time.
fn first_floors(
    (search, share): (&Search, &Share),
    (matrix, margin, scales): (&DenseRows, Margin, &Scales),
    kernel: bytes::Kernel,
) -> Option<FirstFloors> {
    let top_k = search.selection.top_k?;
    let (others, lists) = (search.others.len().max(1) as f64, share.lists().max(1) as f64);
    let of_lists = Lists {
        columns: matrix.matrix.columns() as f64,
        top_k: top_k as f64,
        pairs: share.pairs_of_a_list(),
        met: (share.met_by_a_list() / others).min(1.0),
        placed: (others / lists).max(1.0),
    };
    let rounds = rounds(of_lists, FirstFloors::compared(top_k, kernel));
    let (rows, others) = (&share.listed()[..], &search.others);
    let wanted = Wanted { rows, others, top_k, rounds, margin, stop: search.stop };
    FirstFloors::find((matrix, scales), kernel, wanted)
}

/// What lists that may begin with floors have to do with, on average.
struct Lists {
    columns: f64,
    top_k: f64,
    pairs: f64,
    /// The part of all others that a list meets.
    met: f64,
    /// Rows that go to landmarks and are packed for each list: all others, however few lists gain by it.
    placed: f64,
}

/// Rounds of first floors that are worth their time, given what [`FirstFloors::compared`] says.
fn rounds(lists: Lists, compared: [usize; 2]) -> usize {
    let of_a_list = PAIR * lists.columns * lists.pairs + LIST * lists.top_k;
    let [landmarks, compared] = compared.map(|rows| PAIR * rows as f64);
    let of_a_round = ROUND
        + ROUND_NEIGHBOUR * lists.top_k
        + lists.columns * (compared + lists.placed * (ROUND_COLUMN + landmarks));
    let saved = SAVED_BY_FLOORS * of_a_list;
    // What is looked at in vain falls about with the number of rounds, so that the best number is a root. A list that
    // meets a part of all others does not learn by itself what is good enough.
    let rounds = (saved / lists.met.max(f64::EPSILON).sqrt() / of_a_round).sqrt().round();
    if rounds * of_a_round > saved { 0 } else { rounds as usize }
}

/// About so many pairs of a list are not told from its neighbours by bytes.
fn expected_looks(
    (search, share): (&Search, &Share),
    (matrix, scales): (&DenseRows, &Scales),
    first: Option<&FirstFloors>,
) -> f64 {
    let sample = |range: &Range<usize>, count: usize| {
        range.clone().step_by((range.len() / count).max(1)).take(count).collect::<Vec<usize>>()
    };
    let (rows, others) = (share.sample(SAMPLED), sample(&search.others, SAMPLED_OTHERS));
    let (vectors, Selection { top_k, threshold }) = (Vectors::best(), search.selection);
    let looks_of = |row: &usize| {
        let mut room = Room::default();
        let mut score = |other: &usize| {
            let pair = [*row as u32, *other as u32];
            let words = matrix.words(&pair, &mut room);
            let [sum] = vectors.dots_of_words(words.row(0), [words.row(1)]);
            (other != row).then(|| (*other, Margin::short(sum)))
        };
        let scores: Vec<(usize, f32)> = others.iter().filter_map(&mut score).collect();
        let mut floor = threshold.unwrap_or(f32::NEG_INFINITY);
        match (first, top_k) {
            (Some(first), _) => floor = floor.max(first.of(*row..*row + 1)[0]),
            // Of so few the best one is about as good as the last neighbour, or worse.
            (None, Some(_)) => floor = scores.iter().fold(floor, |best, (_, score)| best.max(*score)),
            (None, None) => {}
        }
        let is_near = |(other, score): &&(usize, f32)| *score + scales.margin(*row, *other) >= floor;
        scores.iter().filter(is_near).count()
    };
    let looks = rows.par_iter().map(looks_of).sum::<usize>() as f64 / rows.len().max(1) as f64;
    let met = share.met_by_a_list() / others.len().max(1) as f64;
    match (first, top_k) {
        (Some(_), _) => looks * met * LOOKED_AT,
        // The best one of a sample stands for so many rows, but not for more than are wanted.
        (None, Some(top_k)) => looks * met.min(top_k as f64) + EARLY * top_k as f64,
        (None, None) => looks * met,
    }
}

/// Whether rows are soon looked at in 16-bit integers: they are held or quickly made.
fn fits(matrix: &DenseRows) -> bool {
    matrix.held.is_some() || matrix.matrix.is_float32()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A share of 500 rows among 200,000 once took three times as long by them.
    #[test]
    fn few_rows_among_many_others_have_no_rounds_of_first_floors() {
        let rounds = |pairs, met, placed| {
            rounds(Lists { columns: 384.0, top_k: 10.0, pairs, met, placed }, [128, 288])
        };
        assert_eq!(
            [rounds(25_000.0, 1.0, 1.0), rounds(41_000.0, 0.41, 1.6), rounds(200_000.0, 1.0, 4.0)],
            [3, 4, 5]
        );
        assert_eq!(rounds(200_000.0, 1.0, 400.0), 0);
        // One of 64 hosts: three rounds took more than they saved.
        assert_eq!(rounds(10_000.0, 0.1, 6.4), 0);
    }
}
