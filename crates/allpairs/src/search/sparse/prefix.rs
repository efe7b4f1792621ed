//! Rows known by few of their columns, and a signature that tells most pairs apart: for high thresholds.
//!
//! Columns are numbered from rare to frequent. The *prefix* of a row is what is left of it without the most frequent
//! columns, as many as have a norm below the threshold. Two rows that reach the threshold share a column of both
//! prefixes: else all they share is left out of the one that ends earlier, which is too little (Bayardo et al. 2007,
//! with norms as in L2AP by Anastasiu and Karypis 2014). So only lists of prefixes are walked through.
//!
//! The *signature* of a row has its norms in 32 groups of columns, in units of 1/127, rounded up. By Cauchy and Schwarz
//! in each group, the product of two signatures is not below their score.

use super::frequent::{SAMPLE, SCORED_ENTRY, counts, sample};
use crate::machine::{SIGNATURE, Sift};
use crate::sparse::SparseRows;

/// Thresholds from which on it is worth an estimate.
const LEAST_THRESHOLD: f32 = 0.5;

/// Cost in nanoseconds, measured: a row in a list whose signature is looked at.
const VISIT: f64 = 2.0;

/// Covers the rounding of scores to float32 and of norms in float64.
const SLACK: f64 = 1e-6;

pub(super) type Signature = [i8; SIGNATURE];

/// Prefixes and signatures of all rows.
#[derive(Debug)]
pub(super) struct Prefixes {
    /// Number of each column, from rare to frequent.
    ranks: Vec<u32>,
    /// For each row the number of the first column that is not in its prefix.
    ends: Vec<u32>,
    pub(super) signatures: Vec<Signature>,
    /// The least product of two signatures that reach the threshold.
    pub(super) least: i32,
}

impl Prefixes {
    /// Prefixes, if they promise less work than this, in nanoseconds for each pair.
    pub(super) fn if_cheaper(matrix: &SparseRows, threshold: Option<f32>, than: f64) -> Option<Self> {
        let threshold = threshold.filter(|threshold| *threshold >= LEAST_THRESHOLD)?;
        let bound = f64::from(threshold) - SLACK;
        let ranks = ranks(matrix);
        let mut parts = Vec::new();
        let ends =
            (0..matrix.rows()).map(|row| end_of_prefix(matrix, row, (&ranks, bound), &mut parts)).collect();
        let least = (127.0 * 127.0 * bound).floor() as i32;
        let mut prefixes = Self { ranks, ends, signatures: Vec::new(), least };
        let visits = prefixes.visits(matrix);
        if visits * VISIT > than {
            return None;
        }
        let groups = groups(matrix);
        prefixes.signatures = (0..matrix.rows()).map(|row| signature(matrix, row, &groups)).collect();
        let entries = matrix.offset(matrix.rows()) as f64 / matrix.rows() as f64;
        let cost = visits * VISIT + prefixes.survivors(matrix) * entries * SCORED_ENTRY;
        (cost < than).then_some(prefixes)
    }

    /// Whether the column is in the prefix of the row.
    pub(super) fn holds(&self, row: usize, column: usize) -> bool {
        self.ranks[column] < self.ends[row]
    }

    /// Looks at signatures for each pair of rows.
    fn visits(&self, matrix: &SparseRows) -> f64 {
        let mut counts = vec![0u32; self.ranks.len()];
        for row in 0..matrix.rows() {
            let columns = matrix.row(row).iter().map(|entry| entry.column as usize);
            columns.filter(|column| self.holds(row, *column)).for_each(|column| counts[column] += 1);
        }
        let visits: f64 = counts.iter().map(|count| f64::from(*count).powi(2)).sum();
        visits / (matrix.rows() as f64).powi(2)
    }

    /// The part of all pairs that is scored, judged by a sample.
    fn survivors(&self, matrix: &SparseRows) -> f64 {
        let places: Vec<usize> = sample(matrix, SAMPLE.1).collect();
        let others: Vec<Signature> = places.iter().map(|row| self.signatures[*row]).collect();
        let all: Vec<u16> = (0..others.len() as u16).collect();
        let mut held = vec![false; self.ranks.len()];
        let (mut survivors, mut pairs) = (0.0, 0.0);
        for row in sample(matrix, SAMPLE.0) {
            let columns = || matrix.row(row).iter().map(|entry| entry.column as usize);
            columns().filter(|column| self.holds(row, *column)).for_each(|column| held[column] = true);
            let mut passed = Vec::new();
            Sift::best().pass((&unsigned(&self.signatures[row]), self.least), (&all, &others), &mut passed);
            let meets = |at: &&u16| self.meets(matrix, places[usize::from(**at)], &held);
            survivors += passed.iter().filter(meets).count() as f64;
            pairs += others.len() as f64;
            columns().for_each(|column| held[column] = false);
        }
        survivors / f64::max(pairs, 1.0)
    }

    /// Whether a row has one of these columns in its prefix.
    fn meets(&self, matrix: &SparseRows, row: usize, held: &[bool]) -> bool {
        let mut columns = matrix.row(row).iter().map(|entry| entry.column as usize);
        columns.any(|column| held[column] && self.holds(row, column))
    }
}

/// A signature as the one side of a product.
pub(super) fn unsigned(signature: &Signature) -> [u8; SIGNATURE] {
    // None is negative.
    signature.map(i8::cast_unsigned)
}

fn ranks(matrix: &SparseRows) -> Vec<u32> {
    let counts = counts(matrix);
    let mut order: Vec<u32> = (0..counts.len() as u32).collect();
    order.sort_unstable_by_key(|column| (counts[*column as usize], *column));
    let mut ranks = vec![0; order.len()];
    (0..).zip(order).for_each(|(rank, column)| ranks[column as usize] = rank);
    ranks
}

fn end_of_prefix(
    matrix: &SparseRows,
    row: usize,
    (ranks, bound): (&[u32], f64),
    parts: &mut Vec<(u32, f64)>,
) -> u32 {
    let part = |value: f64| (value / matrix.norms[row]).powi(2);
    parts.clear();
    parts.extend(matrix.row(row).iter().map(|e| (ranks[e.column as usize], part(e.value))));
    parts.sort_unstable_by_key(|(rank, _)| std::cmp::Reverse(*rank));
    let mut squares = 0.0;
    let first_needed = parts.iter().find(|(_, square)| {
        squares += square;
        squares >= bound * bound
    });
    first_needed.map_or(0, |(rank, _)| rank + 1)
}

/// The group of each column, so that all groups have about the same share of all rows.
fn groups(matrix: &SparseRows) -> Vec<u8> {
    let mut shares = vec![0.0f64; matrix.used_columns()];
    for row in 0..matrix.rows() {
        let part = |value: f64| (value / matrix.norms[row]).powi(2);
        matrix.row(row).iter().for_each(|entry| shares[entry.column as usize] += part(entry.value));
    }
    let mut order: Vec<u32> = (0..shares.len() as u32).collect();
    order.sort_unstable_by(|a, b| shares[*b as usize].total_cmp(&shares[*a as usize]).then(a.cmp(b)));
    let mut of_groups = [0.0f64; SIGNATURE];
    let mut groups = vec![0; shares.len()];
    for column in order {
        let least = (0..SIGNATURE).min_by(|a, b| of_groups[*a].total_cmp(&of_groups[*b])).unwrap_or(0);
        of_groups[least] += shares[column as usize];
        groups[column as usize] = least as u8;
    }
    groups
}

fn signature(matrix: &SparseRows, row: usize, groups: &[u8]) -> Signature {
    let mut squares = [0.0f64; SIGNATURE];
    for entry in matrix.row(row) {
        squares[usize::from(groups[entry.column as usize])] += (entry.value / matrix.norms[row]).powi(2);
    }
    squares.map(|square| (square.sqrt() * 127.0).ceil().min(127.0) as i8)
}
