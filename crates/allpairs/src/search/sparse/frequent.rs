//! Columns that so many rows have that adding them up for every pair costs more than it tells.
//!
//! What the frequent columns can add to the score of two rows is at most the product of the norms that the rows
//! have in these columns (Cauchy and Schwarz). As frequent columns tend to have small weights, that is little; yet
//! most products of an all-pairs sum are theirs. So only the other columns are added up for every pair, and the
//! bound is put on top. Whoever passes is looked at again with a narrower bound, by signatures in the frequent
//! columns. Where to draw the line is decided by an estimate of the cost.

use super::signature::{Groups, LongSignature, UNIT};
use super::weights::Weights;
use crate::settings::Selection;
use rayon::prelude::*;

/// Numbers of frequent columns that are considered.
const LEVELS: [usize; 10] = [0, 8, 16, 32, 64, 128, 256, 512, 1024, 2048];

/// Rows on either side of the sample.
pub(super) const SAMPLE: (usize, usize) = (64, 2048);

/// Costs in nanoseconds, measured: a product that is added up, a pair whose long signatures are compared, a pair that
/// is scored, per entry of a row, and a sum that is compared.
const PRODUCT: f64 = 0.35;
pub(super) const LOOKED_AT: f64 = 15.0;
pub(super) const SCORED_ENTRY: f64 = 3.0;
pub(super) const COMPARED: f64 = 0.035;

/// A pair this near to the floor is expected to be scored.
const NEAR: f32 = 0.9;

/// The frequent columns.
#[derive(Debug)]
pub(super) struct Frequent {
    /// The first of them.
    pub(super) first: u32,
    /// For each row its norm in frequent columns, over the whole norm; a little too much rather than too little.
    pub(super) rests: Vec<f32>,
    /// For each row its signature in frequent columns, in units of its norm there; none if no column is frequent.
    pub(super) signatures: Vec<LongSignature>,
    /// What is to be expected for each pair, in nanoseconds.
    pub(super) cost: f64,
}

impl Frequent {
    pub(super) fn choose(weights: Weights, selection: &Selection) -> Self {
        let levels = Levels::of(weights);
        let (level, cost) = levels.cheapest(weights, selection);
        let first = weights.columns().saturating_sub(LEVELS[level]);
        let rests: Vec<f32> =
            (0..weights.rows()).into_par_iter().map(|row| rest(weights, row, first)).collect();
        let signatures = if first < weights.columns() {
            let groups = Groups::from(first, weights.shares());
            let signature = |row: usize| groups.signature(weights, row, rests[row]);
            (0..weights.rows()).into_par_iter().map(signature).collect()
        } else {
            Vec::new()
        };
        // Columns have 32 bits.
        Self { first: first as u32, rests, signatures, cost }
    }

    /// What one unit of the product of two signatures is worth for the product of two rests.
    pub(super) const OF_PRODUCT: f32 = (1.0 / (UNIT * UNIT)) as f32;
}

/// Norm of a row in the columns from this one on.
fn rest(weights: Weights, row: usize, first: usize) -> f32 {
    let mut squares = 0.0;
    weights.row(row, |column, weight| {
        squares += if column < first { 0.0 } else { f64::from(weight).powi(2) };
    });
    if squares == 0.0 { 0.0 } else { (squares.sqrt() as f32 * (1.0 + 1e-6)).next_up() }
}

/// Columns in groups of falling frequency.
struct Levels {
    /// For each column the level up to which it is not frequent yet.
    of_column: Vec<u8>,
    /// Products for each pair of rows if the columns of the lower levels are left out.
    products: Vec<f64>,
}

impl Levels {
    fn of(weights: Weights) -> Self {
        let columns = weights.columns();
        let level = |column: usize| LEVELS.partition_point(|level| *level < columns - column) - 1;
        let of_column: Vec<u8> = (0..columns).map(|column| level(column) as u8).collect();
        let mut products = vec![0.0; LEVELS.len()];
        for (count, level) in weights.counts().iter().zip(&of_column) {
            products[usize::from(*level)] += f64::from(*count).powi(2);
        }
        for level in (0..LEVELS.len() - 1).rev() {
            products[level] += products[level + 1];
        }
        let pairs = (weights.rows() as f64).powi(2);
        products.iter_mut().for_each(|products| *products /= pairs);
        Self { of_column, products }
    }

    /// The level that promises the least work, and how much that is.
    fn cheapest(&self, weights: Weights, selection: &Selection) -> (usize, f64) {
        let (passed, scored) = self.survivors(weights, selection);
        let scored = scored * weights.entries_of_row() * SCORED_ENTRY;
        let cost = |level: usize| {
            self.products[level] * PRODUCT + f64::from(passed[level]) * LOOKED_AT + scored + COMPARED
        };
        let costs = (0..LEVELS.len()).map(|level| (level, cost(level)));
        costs.min_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((0, 0.0))
    }

    /// For each level the part of all pairs that its bound lets through, and the part that is scored, judged by a
    /// sample.
    fn survivors(&self, weights: Weights, selection: &Selection) -> (Bounds, f64) {
        let others: Vec<(usize, Bounds)> =
            weights.sample(SAMPLE.1).into_iter().map(|row| (row, self.bounds(weights, row))).collect();
        let new_spread = || vec![0.0f32; weights.columns()];
        let of_row = |spread: &mut Vec<f32>, row: usize| {
            weights.row(row, |column, weight| spread[column] = weight);
            let own = self.bounds(weights, row);
            let sums = |(other, bounds): &(usize, Bounds)| {
                let mut sums = self.sums(weights, *other, spread);
                sums.iter_mut().zip(own.iter().zip(bounds)).for_each(|(sum, (a, b))| *sum += a * b);
                sums
            };
            let sums: Vec<Bounds> = others.iter().filter(|(other, _)| *other != row).map(sums).collect();
            weights.row(row, |column, _| spread[column] = 0.0);
            (likely_floor(&sums, selection, weights.rows()), sums)
        };
        let of_rows: Vec<(f32, Vec<Bounds>)> =
            weights.sample(SAMPLE.0).into_par_iter().map_init(new_spread, of_row).collect();
        let floors: Vec<f32> = of_rows.iter().map(|(floor, _)| *floor).collect();
        let share = |level: usize, factor: f32| {
            let above =
                of_rows.par_iter().map(|(floor, sums)| count_above(sums, level, (*floor * factor, &floors)));
            above.sum::<usize>() as f32
                / of_rows.iter().map(|(_, sums)| sums.len()).sum::<usize>().max(1) as f32
        };
        (std::array::from_fn(|level| share(level, 1.0)), f64::from(share(0, NEAR)))
    }

    /// Norm of a row in the columns that each level leaves out.
    fn bounds(&self, weights: Weights, row: usize) -> Bounds {
        let mut squares = [0.0; LEVELS.len()];
        weights.row(row, |column, weight| {
            squares[usize::from(self.of_column[column])] += weight * weight;
        });
        // The columns of a level are left out by all above it.
        let mut before = 0.0;
        squares.map(|square| {
            let left_out: f32 = before;
            before += square;
            left_out.sqrt()
        })
    }

    /// What each level adds up for a row and one that is spread out.
    fn sums(&self, weights: Weights, row: usize, spread: &[f32]) -> Bounds {
        let mut sums = [0.0; LEVELS.len()];
        weights.row(row, |column, weight| {
            sums[usize::from(self.of_column[column])] += weight * spread[column];
        });
        for level in (0..LEVELS.len() - 1).rev() {
            sums[level] += sums[level + 1];
        }
        sums
    }
}

type Bounds = [f32; LEVELS.len()];

/// How many sums of a row in a level are above its floor or that of the other row, which is taken to be as high as
/// those of the sample are.
fn count_above(sums: &[Bounds], level: usize, (floor, floors): (f32, &[f32])) -> usize {
    let others = floors.iter().cycle();
    sums.iter().zip(others).filter(|(sums, other)| sums[level] > floor.min(**other)).count()
}

/// The score that a pair of this row will have to reach when most of the work is still to be done.
fn likely_floor(sums: &[Bounds], selection: &Selection, rows: usize) -> f32 {
    let mut floor = selection.threshold.unwrap_or(0.0).max(1e-6);
    if let Some(top_k) = selection.top_k {
        let mut scores: Vec<f32> = sums.iter().map(|sums| sums[0]).collect();
        scores.sort_unstable_by(|a, b| b.total_cmp(a));
        let place = top_k * scores.len() / rows;
        floor = floor.max(scores.get(place).copied().unwrap_or(0.0));
    }
    floor
}
