//! Rows known by few of their columns, and signatures that tell most pairs apart: for high thresholds.
//!
//! The *prefix* of a row is what is left of it without the most frequent columns, as many as have a norm below the
//! threshold. Two rows that reach the threshold share a column of both prefixes: else all they share is left out of the
//! one that ends earlier, which is too little (Bayardo et al. 2007, with norms as in L2AP by Anastasiu and Karypis
//! 2014). So only lists of prefixes are walked through. On the way, signatures of all columns are compared.

use super::frequent::{SAMPLE, SCORED_ENTRY};
use super::fronts::Fronts;
use super::signature::{Groups, UNIT, unsigned};
use super::weights::{Steps, Weights};
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
}

impl Prefixes {
    /// Those for this threshold; `None` if it is too low for them to be worth an estimate.
    pub(super) fn new(weights: Weights, threshold: Option<f32>) -> Option<Self> {
        Self::of_rows(weights, weights.all(), threshold)
    }

    /// What is to be expected of them for each pair, in nanoseconds, judged by a sample.
    pub(super) fn cost(weights: Weights, threshold: Option<f32>) -> Option<f64> {
        let sample = Self::of_rows(weights, weights.steps(SAMPLE.1), threshold)?;
        let scored = sample.survivors(weights) * weights.entries_of_row();
        Some(sample.fronts.visits * VISIT + scored * SCORED_ENTRY)
    }

    /// Those of some rows, which are known by their places among these.
    fn of_rows(weights: Weights, rows: Steps, threshold: Option<f32>) -> Option<Self> {
        let threshold = threshold.filter(|threshold| *threshold >= LEAST_THRESHOLD)?;
        let bound = f64::from(threshold) - SLACK;
        let (fronts, shares) = Fronts::new(weights, rows, bound)?;
        let mut signatures = ShortRows::new(rows.count());
        let groups = Groups::<SIGNATURE>::new(shares);
        let of_places = signatures.rows_mut().par_iter_mut().enumerate();
        of_places.for_each(|(place, signature)| *signature = groups.signature(weights, rows.row(place), 1.0));
        Some(Self { fronts, signatures, least: (UNIT * UNIT * bound).floor() as i32 })
    }

    /// Hands over the columns of a row's prefix.
    #[inline]
    pub(super) fn of_row(&self, row: usize, take: impl FnMut(usize)) {
        self.fronts.for_each(row, take);
    }

    /// The part of all pairs that signatures let through.
    fn survivors(&self, weights: Weights) -> f64 {
        let signatures = self.signatures.rows();
        let vectors = Vectors::best();
        let of_row = |held: &mut Vec<bool>, row: usize| {
            self.of_row(row, |column| held[column] = true);
            let meets = |other: usize| {
                let mut meets = false;
                self.of_row(other, |column| meets |= held[column]);
                meets
            };
            let own = unsigned(&signatures[row]);
            let passes = |other: &usize| {
                *other != row && vectors.product(&own, &signatures[*other]) >= self.least && meets(*other)
            };
            let passed = (0..signatures.len()).filter(passes).count();
            self.of_row(row, |column| held[column] = false);
            passed
        };
        let rows: Vec<usize> = (0..signatures.len()).step_by(SAMPLE.1 / SAMPLE.0).collect();
        let pairs = (rows.len() * signatures.len()).max(1) as f64;
        let new_held = || vec![false; weights.columns()];
        rows.into_par_iter().map_init(new_held, of_row).sum::<usize>() as f64 / pairs
    }
}
