//! Rows known by few of their columns, and signatures that tell most pairs apart: for high thresholds.
//!
//! The *prefix* of a row is what is left of it without the most frequent columns, as many as have a norm below the
//! threshold. Two rows that reach the threshold share a column of both prefixes: else all they share is left out of the
//! one that ends earlier, which is too little (Bayardo et al. 2007, with norms as in L2AP by Anastasiu and Karypis
//! 2014). So only lists of prefixes are walked through. On the way, signatures of all columns are compared.

use super::frequent::{SAMPLE, SCORED_ENTRY};
use super::signature::{Groups, UNIT, unsigned};
use super::weights::Weights;
use crate::machine::{SIGNATURE, ShortRows, Vectors};
use crate::sparse::Columns;
use rayon::prelude::*;
use std::sync::atomic::{AtomicU32, Ordering};

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
        let fronts = Fronts::new(weights, bound)?;
        let visits = fronts.visits;
        if visits * VISIT > than {
            return None;
        }
        let mut signatures = ShortRows::new(weights.rows());
        let groups = Groups::<SIGNATURE>::new(weights, 0);
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

/// The columns of all prefixes, each from rare to frequent.
#[derive(Debug)]
struct Fronts {
    /// Where each row begins in `columns`, and their number at the end.
    offsets: Vec<u32>,
    columns: Columns,
    /// Looks at signatures for each pair of rows.
    visits: f64,
}

/// Rows that a thread takes at a time.
const ROWS_OF_PIECE: usize = 512;

impl Fronts {
    /// For each row the columns up to the last one that is needed for the norm of all from there on to reach the bound;
    /// `None` if there are more than 32 bits count.
    fn new(weights: Weights, bound: f64) -> Option<Self> {
        let counts: Vec<AtomicU32> = (0..weights.columns()).map(|_| AtomicU32::new(0)).collect();
        let of_piece = |entries: &mut Vec<u64>, first: usize| {
            let (mut columns, mut lengths) = (Vec::new(), Vec::new());
            for row in first..weights.rows().min(first + ROWS_OF_PIECE) {
                let front = front(weights, row, (bound, entries));
                columns.extend(front.iter().map(|entry| (entry >> 32) as u32));
                lengths.push(front.len());
            }
            columns.iter().for_each(|column| _ = counts[*column as usize].fetch_add(1, Ordering::Relaxed));
            (columns, lengths)
        };
        let starts: Vec<usize> = (0..weights.rows()).step_by(ROWS_OF_PIECE).collect();
        let (pieces, lengths): (Vec<Vec<u32>>, Vec<Vec<usize>>) =
            starts.into_par_iter().map_init(Vec::new, of_piece).unzip();
        let mut offsets = Vec::with_capacity(weights.rows() + 1);
        let mut end = 0;
        for length in std::iter::once(&0).chain(lengths.iter().flatten()) {
            end += length;
            offsets.push(u32::try_from(end).ok()?);
        }
        let visits: f64 = counts.iter().map(|count| f64::from(count.load(Ordering::Relaxed)).powi(2)).sum();
        let visits = visits / (weights.rows() as f64).powi(2);
        Some(Self { offsets, columns: Columns::new(&pieces, weights.columns()), visits })
    }

    #[inline]
    fn for_each(&self, row: usize, take: impl FnMut(usize)) {
        self.columns.for_each(self.offsets[row] as usize..self.offsets[row + 1] as usize, take);
    }
}

/// The front of a row, column and weight of each entry in one number.
fn front<'a>(weights: Weights, row: usize, (bound, entries): (f64, &'a mut Vec<u64>)) -> &'a [u64] {
    entries.clear();
    // Columns have 32 bits.
    weights.row(row, |column, weight| entries.push((column as u64) << 32 | u64::from(weight.to_bits())));
    entries.sort_unstable();
    let mut squares = 0.0;
    let needed = entries.iter().rposition(|entry| {
        squares += f64::from(f32::from_bits(*entry as u32)).powi(2);
        squares >= bound * bound
    });
    &entries[..needed.map_or(0, |at| at + 1)]
}
