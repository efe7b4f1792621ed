//! Rows known by few of their columns, and signatures that tell most pairs apart: for high thresholds.
//!
//! The *prefix* of a row is what is left of it without the most frequent columns, as many as have a norm below the
//! threshold. Two rows that reach the threshold share a column of both prefixes: else all they share is left out of the
//! one that ends earlier, which is too little (Bayardo et al. 2007, with norms as in L2AP by Anastasiu and Karypis
//! 2014). So only lists of prefixes are walked through. On the way, short signatures of all columns are compared, and
//! of whoever passes long ones.

use super::frequent::{LOOKED_AT, SAMPLE, SCORED_ENTRY};
use super::ordered::Ordered;
use super::signature::{UNIT, groups, signatures, unsigned};
use crate::machine::{LONG_SIGNATURE, SIGNATURE, Vectors};
use rayon::prelude::*;

/// Thresholds from which on it is worth an estimate.
const LEAST_THRESHOLD: f32 = 0.5;

/// Cost in nanoseconds, measured: a row in a list whose signature is looked at.
const VISIT: f64 = 0.8;

/// Covers the rounding of scores to float32, of weights and of norms.
const SLACK: f64 = 1e-6;

pub(super) type Signature = [i8; SIGNATURE];

/// Prefixes and signatures of all rows.
#[derive(Debug)]
pub(super) struct Prefixes {
    /// For each row the entries of its prefix, which come first.
    pub(super) lengths: Vec<u32>,
    pub(super) signatures: Vec<Signature>,
    pub(super) long_signatures: Vec<[i8; LONG_SIGNATURE]>,
    /// The least product of two signatures that reach the threshold.
    pub(super) least: i32,
    /// What is to be expected for each pair, in nanoseconds.
    pub(super) cost: f64,
}

impl Prefixes {
    /// Prefixes, if they promise less work than this, in nanoseconds for each pair.
    pub(super) fn if_cheaper(ordered: &Ordered, threshold: Option<f32>, than: f64) -> Option<Self> {
        let threshold = threshold.filter(|threshold| *threshold >= LEAST_THRESHOLD)?;
        let bound = f64::from(threshold) - SLACK;
        let length = |row: usize| length_of_prefix(ordered.row(row).1, bound);
        let lengths: Vec<u32> = (0..ordered.rows()).into_par_iter().map(length).collect();
        let visits = visits(ordered, &lengths);
        if visits * VISIT > than {
            return None;
        }
        let (short, long) = rayon::join(
            || signatures(ordered, (0, &groups::<SIGNATURE>(ordered, 0..ordered.counts.len())), |_| 1.0),
            || signatures(ordered, (0, &groups::<LONG_SIGNATURE>(ordered, 0..ordered.counts.len())), |_| 1.0),
        );
        let least = (UNIT * UNIT * bound).floor() as i32;
        let mut prefixes = Self { lengths, signatures: short, long_signatures: long, least, cost: 0.0 };
        let (passed, scored) = prefixes.survivors(ordered);
        prefixes.cost =
            visits * VISIT + passed * LOOKED_AT + scored * ordered.entries_of_row() * SCORED_ENTRY;
        (prefixes.cost < than).then_some(prefixes)
    }

    /// The part of all pairs that short signatures let through, and the part that is scored, judged by a sample.
    fn survivors(&self, ordered: &Ordered) -> (f64, f64) {
        let others = ordered.sample(SAMPLE.1);
        let of_row = |held: &mut Vec<bool>, row: usize| {
            ordered.front(row, self.lengths[row]).for_each(|(column, _)| held[column] = true);
            let meets =
                |other: usize| ordered.front(other, self.lengths[other]).any(|(column, _)| held[column]);
            let (short, long) = (unsigned(&self.signatures[row]), unsigned(&self.long_signatures[row]));
            let (mut passed, mut scored) = (0, 0);
            let vectors = Vectors::best();
            for other in others.iter().copied() {
                if vectors.product(&short, &self.signatures[other]) >= self.least && meets(other) {
                    passed += 1;
                    let product = vectors.product(&long, &self.long_signatures[other]);
                    scored += usize::from(product >= self.least);
                }
            }
            ordered.front(row, self.lengths[row]).for_each(|(column, _)| held[column] = false);
            (passed, scored)
        };
        let rows = ordered.sample(SAMPLE.0);
        let pairs = (rows.len() * others.len()).max(1) as f64;
        let new_held = || vec![false; ordered.counts.len()];
        let (passed, scored) =
            rows.into_par_iter().map_init(new_held, of_row).reduce(|| (0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        (passed as f64 / pairs, scored as f64 / pairs)
    }
}

/// Looks at signatures for each pair of rows.
fn visits(ordered: &Ordered, lengths: &[u32]) -> f64 {
    let mut counts = vec![0u32; ordered.counts.len()];
    for (row, length) in lengths.iter().enumerate() {
        ordered.front(row, *length).for_each(|(column, _)| counts[column] += 1);
    }
    let visits: f64 = counts.iter().map(|count| f64::from(*count).powi(2)).sum();
    visits / (ordered.rows() as f64).powi(2)
}

/// Weights up to the last one that is needed for the norm of all from there on to reach the bound.
fn length_of_prefix(weights: &[f32], bound: f64) -> u32 {
    let mut squares = 0.0;
    let needed = weights.iter().rposition(|weight| {
        squares += f64::from(*weight).powi(2);
        squares >= bound * bound
    });
    needed.map_or(0, |at| at as u32 + 1)
}
