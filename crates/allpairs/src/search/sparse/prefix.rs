//! Rows known by few of their columns, and signatures that tell most pairs apart: for high thresholds.
//!
//! The *prefix* of a row is what is left of it without the most frequent columns, as many as have a norm below the
//! threshold. Two rows that reach the threshold share a column of both prefixes: else all they share is left out of the
//! one that ends earlier, which is too little (Bayardo et al. 2007, with norms as in L2AP by Anastasiu and Karypis
//! 2014). So only lists of prefixes are walked through. On the way, short signatures of all columns are compared, and
//! of whoever passes long ones.

use super::frequent::{LOOKED_AT, SAMPLE, SCORED_ENTRY};
use super::signature::{Groups, LongSignature, Signature, UNIT, unsigned};
use super::weights::Weights;
use crate::machine::Vectors;
use rayon::prelude::*;

/// Thresholds from which on it is worth an estimate.
const LEAST_THRESHOLD: f32 = 0.5;

/// Cost in nanoseconds, measured: a row in a list whose signature is looked at.
const VISIT: f64 = 0.8;

/// Covers the rounding of scores to float32, of weights and of norms.
const SLACK: f64 = 1e-6;

/// Prefixes and signatures of all rows.
#[derive(Debug)]
pub(super) struct Prefixes {
    /// For each row the column before which its prefix ends.
    pub(super) ends: Vec<u32>,
    pub(super) signatures: Vec<Signature>,
    pub(super) long_signatures: Vec<LongSignature>,
    /// The least product of two signatures that reach the threshold.
    pub(super) least: i32,
    /// What is to be expected for each pair, in nanoseconds.
    pub(super) cost: f64,
}

impl Prefixes {
    /// Prefixes, if they promise less work than this, in nanoseconds for each pair.
    pub(super) fn if_cheaper(weights: Weights, threshold: Option<f32>, than: f64) -> Option<Self> {
        let threshold = threshold.filter(|threshold| *threshold >= LEAST_THRESHOLD)?;
        let bound = f64::from(threshold) - SLACK;
        let end = |entries: &mut Vec<u64>, row: usize| end_of_prefix(weights, row, (bound, entries));
        let ends: Vec<u32> = (0..weights.rows()).into_par_iter().map_init(Vec::new, end).collect();
        let visits = visits(weights, &ends);
        if visits * VISIT > than {
            return None;
        }
        let (signatures, long_signatures) = Groups::new(weights, 0).both(weights);
        let least = (UNIT * UNIT * bound).floor() as i32;
        let mut prefixes = Self { ends, signatures, long_signatures, least, cost: 0.0 };
        let (passed, scored) = prefixes.survivors(weights);
        prefixes.cost =
            visits * VISIT + passed * LOOKED_AT + scored * weights.entries_of_row() * SCORED_ENTRY;
        (prefixes.cost < than).then_some(prefixes)
    }

    /// Hands over the columns of a row's prefix.
    #[inline]
    pub(super) fn of_row(&self, weights: Weights, row: usize, mut take: impl FnMut(usize)) {
        weights.front(row, self.ends[row], |column, _| take(column));
    }

    /// The part of all pairs that short signatures let through, and the part that is scored, judged by a sample.
    fn survivors(&self, weights: Weights) -> (f64, f64) {
        let others = weights.sample(SAMPLE.1);
        let vectors = Vectors::best();
        let of_row = |held: &mut Vec<bool>, row: usize| {
            self.of_row(weights, row, |column| held[column] = true);
            let meets = |other: usize| {
                let mut meets = false;
                self.of_row(weights, other, |column| meets |= held[column]);
                meets
            };
            let (short, long) = (unsigned(&self.signatures[row]), unsigned(&self.long_signatures[row]));
            let (mut passed, mut scored) = (0, 0);
            for other in others.iter().copied() {
                if vectors.product(&short, &self.signatures[other]) >= self.least && meets(other) {
                    passed += 1;
                    let product = vectors.product(&long, &self.long_signatures[other]);
                    scored += usize::from(product >= self.least);
                }
            }
            self.of_row(weights, row, |column| held[column] = false);
            (passed, scored)
        };
        let rows = weights.sample(SAMPLE.0);
        let pairs = (rows.len() * others.len()).max(1) as f64;
        let new_held = || vec![false; weights.columns()];
        let (passed, scored) =
            rows.into_par_iter().map_init(new_held, of_row).reduce(|| (0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        (passed as f64 / pairs, scored as f64 / pairs)
    }
}

/// Looks at signatures for each pair of rows.
fn visits(weights: Weights, ends: &[u32]) -> f64 {
    // No branch, since it would be taken as often as not.
    let count = |row: usize, counts: &mut [u64]| {
        weights.row(row, |column, _| counts[column] += u64::from(column < ends[row] as usize));
    };
    let counts = weights.sums(count);
    let visits: f64 = counts.iter().map(|count| (*count as f64).powi(2)).sum();
    visits / (weights.rows() as f64).powi(2)
}

/// The column behind the last one that is needed for the norm of all from there on to reach the bound.
fn end_of_prefix(weights: Weights, row: usize, (bound, entries): (f64, &mut Vec<u64>)) -> u32 {
    entries.clear();
    // Columns have 32 bits.
    weights.row(row, |column, weight| entries.push((column as u64) << 32 | u64::from(weight.to_bits())));
    entries.sort_unstable();
    let mut squares = 0.0;
    let needed = entries.iter().rev().find(|entry| {
        squares += f64::from(f32::from_bits(**entry as u32)).powi(2);
        squares >= bound * bound
    });
    needed.map_or(0, |entry| (entry >> 32) as u32 + 1)
}
