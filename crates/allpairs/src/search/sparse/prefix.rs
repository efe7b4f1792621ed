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
use crate::sparse::Columns;
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
        let fronts = Fronts::new(weights, bound);
        let visits = fronts.visits(weights);
        if visits * VISIT > than {
            return None;
        }
        let (signatures, long_signatures) = Groups::new(weights, 0).both(weights);
        let least = (UNIT * UNIT * bound).floor() as i32;
        let mut prefixes = Self { fronts, signatures, long_signatures, least, cost: 0.0 };
        let (passed, scored) = prefixes.survivors(weights);
        prefixes.cost =
            visits * VISIT + passed * LOOKED_AT + scored * weights.entries_of_row() * SCORED_ENTRY;
        (prefixes.cost < than).then_some(prefixes)
    }

    /// Hands over the columns of a row's prefix.
    #[inline]
    pub(super) fn of_row(&self, row: usize, take: impl FnMut(usize)) {
        self.fronts.for_each(row, take);
    }

    /// The part of all pairs that short signatures let through, and the part that is scored, judged by a sample.
    fn survivors(&self, weights: Weights) -> (f64, f64) {
        let others = weights.sample(SAMPLE.1);
        let vectors = Vectors::best();
        let of_row = |held: &mut Vec<bool>, row: usize| {
            self.of_row(row, |column| held[column] = true);
            let meets = |other: usize| {
                let mut meets = false;
                self.of_row(other, |column| meets |= held[column]);
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
            self.of_row(row, |column| held[column] = false);
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

/// The columns of all prefixes, each from rare to frequent.
#[derive(Debug)]
struct Fronts {
    /// Where each row begins in `columns`, and their number at the end.
    offsets: Vec<usize>,
    columns: Columns,
}

/// Rows that a thread takes at a time.
const ROWS_OF_PIECE: usize = 512;

impl Fronts {
    /// For each row the columns up to the last one that is needed for the norm of all from there on to reach the bound.
    fn new(weights: Weights, bound: f64) -> Self {
        let of_piece = |first: usize| {
            let (mut entries, mut columns, mut lengths) = (Vec::new(), Vec::new(), Vec::new());
            for row in first..weights.rows().min(first + ROWS_OF_PIECE) {
                let front = front(weights, row, (bound, &mut entries));
                columns.extend(front.iter().map(|entry| (entry >> 32) as u32));
                lengths.push(front.len());
            }
            (columns, lengths)
        };
        let starts: Vec<usize> = (0..weights.rows()).step_by(ROWS_OF_PIECE).collect();
        let (pieces, lengths): (Vec<Vec<u32>>, Vec<Vec<usize>>) =
            starts.into_par_iter().map(of_piece).unzip();
        let mut offsets = Vec::with_capacity(weights.rows() + 1);
        offsets.push(0);
        let mut end = 0;
        offsets.extend(lengths.iter().flatten().map(|length| {
            end += length;
            end
        }));
        Self { offsets, columns: Columns::new(&pieces, weights.columns()) }
    }

    #[inline]
    fn for_each(&self, row: usize, take: impl FnMut(usize)) {
        self.columns.for_each(self.offsets[row]..self.offsets[row + 1], take);
    }

    /// Looks at signatures for each pair of rows.
    fn visits(&self, weights: Weights) -> f64 {
        let counts = weights.sums(|row, counts| self.for_each(row, |column| counts[column] += 1));
        let visits: f64 = counts.iter().map(|count| (*count as f64).powi(2)).sum();
        visits / (weights.rows() as f64).powi(2)
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
