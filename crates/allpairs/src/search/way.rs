//! Whether dense rows are compared in bytes or in 16-bit integers.
//!
//! Bytes take half of the time and have a margin some fifty times as wide, so that more pairs have to be looked at
//! again. How many is estimated from a sample.

use super::Search;
use super::share::Share;
use crate::bytes::Scales;
use crate::dense::DenseRows;
use crate::machine::{Kernel, Vectors, bytes};
use crate::settings::Selection;
use crate::single;
use rayon::prelude::*;
use std::ops::Range;

/// Sampled rows, and rows that each of them is compared with.
const SAMPLED: usize = 32;
const SAMPLED_OTHERS: usize = 2048;

/// Nanoseconds that bytes save of a pair of rows, for each column. Measured with vectors of 512 bits on a Zen 5, as the others.
const SAVED: f64 = 0.0018;

/// The part of all pairs that is compared in bytes: the first block is not.
const IN_BYTES: f64 = 0.8;

/// Nanoseconds that a closer look takes with what comes before it, and what each column adds.
const LOOK: f64 = 10.0;
const LOOK_COLUMN: f64 = 0.1;

/// Closer looks for each neighbour that is asked for, taken while the floors are not high yet.
const EARLY: f64 = 5.0;

/// What is saved by as much more than what it costs is worth it: both are rough.
const WORTH_IT: f64 = 1.3;

/// How rows are compared.
#[derive(Debug)]
pub(super) enum Way {
    /// In 16-bit integers.
    Words(Kernel),
    /// In bytes; with `top_k` the first block in 16-bit integers, whose sums need no closer look. While lists do not
    /// know yet what is good enough, many pairs do.
    Bytes(bytes::Kernel, Scales, Kernel),
}

impl Way {
    /// The one that promises to be faster; this kernel in 16-bit integers otherwise.
    pub(super) fn choose(search: &Search, share: &Share, matrix: &DenseRows, words: Kernel) -> Self {
        Self::bytes_if_faster(search, share, (matrix, words)).unwrap_or(Self::Words(words))
    }

    fn bytes_if_faster(
        search: &Search,
        share: &Share,
        (matrix, words): (&DenseRows, Kernel),
    ) -> Option<Self> {
        let kernel = bytes::Kernel::fast()?;
        let columns = matrix.matrix.columns();
        single::margin(columns).filter(|_| matrix.matrix.is_float32())?;
        let saved = SAVED * IN_BYTES * columns as f64 * share.pairs_of_a_list();
        let a_look = LOOK + LOOK_COLUMN * columns as f64;
        let early = search.selection.top_k.map_or(0.0, |top_k| EARLY * top_k as f64 * a_look);
        if saved <= early {
            return None;
        }
        let scales = Scales::measure(matrix)?;
        let looks = expected_looks(search, matrix, &scales);
        (saved > WORTH_IT * (early + looks * a_look)).then_some(Self::Bytes(kernel, scales, words))
    }

    /// Bytes of a number of a packed row.
    pub(super) fn bytes_of_number(&self) -> usize {
        match self {
            Self::Words(_) => 2,
            Self::Bytes(..) => 1,
        }
    }
}

/// About so many pairs of a row are not told from its neighbours by bytes.
fn expected_looks(search: &Search, matrix: &DenseRows, scales: &Scales) -> f64 {
    let sample = |range: &Range<usize>, count: usize| {
        range.clone().step_by((range.len() / count).max(1)).take(count).collect::<Vec<usize>>()
    };
    let (rows, others) = (sample(&search.rows, SAMPLED), sample(&search.others, SAMPLED_OTHERS));
    let (vectors, Selection { top_k, threshold }) = (Vectors::best(), search.selection);
    let stored = |row: usize| Some((matrix.stored_row(row)?, matrix.norms[row]));
    let looks_of = |row: &usize| {
        let score = |other: &usize| {
            let [score] = single::scores(vectors, stored(*row)?, [stored(*other)?])?;
            (other != row).then_some((*other, score))
        };
        let scores: Vec<(usize, f32)> = others.iter().filter_map(score).collect();
        let mut floor = threshold.unwrap_or(f32::NEG_INFINITY);
        if top_k.is_some() {
            // Of so few the best one is about as good as the last neighbour, or worse.
            floor = scores.iter().fold(floor, |best, (_, score)| best.max(*score));
        }
        let is_near = |(other, score): &&(usize, f32)| *score + scales.margin(*row, *other) >= floor;
        scores.iter().filter(is_near).count()
    };
    let looks: usize = rows.par_iter().map(looks_of).sum();
    // The best one of a sample stands for so many rows, but not for more than are wanted.
    let stands_for = search.others.len() as f64 / others.len().max(1) as f64;
    let stands_for = top_k.map_or(stands_for, |top_k| stands_for.min(top_k as f64));
    looks as f64 / rows.len().max(1) as f64 * stands_for
}
