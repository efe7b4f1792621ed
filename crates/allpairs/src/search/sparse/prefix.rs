//! Rows known by few of their columns, and signatures that tell most pairs apart: for high thresholds.
//!
//! The *prefix* of a row is what is left of it without the most frequent columns, as many as have a norm below the
//! threshold. Two rows that reach the threshold share a column of both prefixes: else all they share is left out of the
//! one that ends earlier, which is too little (Bayardo et al. 2007, with norms as in L2AP by Anastasiu and Karypis
//! 2014). So only lists of prefixes are walked through. On the way, signatures of all columns are compared.

use super::frequent::{SAMPLE, SCORED_ENTRY};
use super::fronts::Fronts;
use super::signature::{Groups, UNIT, unsigned};
use super::weights::Weights;
use crate::machine::{SIGNATURE, ShortRows, Vectors};
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
    fronts: Fronts,
    pub(super) signatures: ShortRows,
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
        let (fronts, shares) = Fronts::new(weights, bound)?;
        let visits = fronts.visits;
        if visits * VISIT > than {
            return None;
        }
        let mut signatures = ShortRows::new(weights.rows());
        let groups = Groups::<SIGNATURE>::new(shares);
        let of_rows = signatures.rows_mut().par_iter_mut().enumerate();
        of_rows.for_each(|(row, signature)| *signature = groups.signature(weights, row, 1.0));
        let least = (UNIT * UNIT * bound).floor() as i32;
        let mut prefixes = Self { fronts, signatures, least, cost: 0.0 };
        let passed = prefixes.survivors(weights);
        prefixes.cost = visits * VISIT + passed * weights.entries_of_row() * SCORED_ENTRY;
        (prefixes.cost < than).then_some(prefixes)
    }

    /// Hands over the columns of a row's prefix.
    #[inline]
    pub(super) fn of_row(&self, row: usize, take: impl FnMut(usize)) {
        self.fronts.for_each(row, take);
    }

    /// The part of all pairs that signatures let through, judged by a sample.
    fn survivors(&self, weights: Weights) -> f64 {
        let others = weights.sample(SAMPLE.1);
        let vectors = Vectors::best();
        let of_row = |held: &mut Vec<bool>, row: usize| {
            self.of_row(row, |column| held[column] = true);
            let meets = |other: usize| {
                let mut meets = false;
                self.of_row(other, |column| meets |= held[column]);
                meets
            };
            let signatures = self.signatures.rows();
            let own = unsigned(&signatures[row]);
            let passes =
                |other: &&usize| vectors.product(&own, &signatures[**other]) >= self.least && meets(**other);
            let passed = others.iter().filter(passes).count();
            self.of_row(row, |column| held[column] = false);
            passed
        };
        let rows = weights.sample(SAMPLE.0);
        let pairs = (rows.len() * others.len()).max(1) as f64;
        let new_held = || vec![false; weights.columns()];
        rows.into_par_iter().map_init(new_held, of_row).sum::<usize>() as f64 / pairs
    }
}
