//! Columns that so many rows have that adding them up for every pair costs more than it tells.
//!
//! What the frequent columns can add to the score of two rows is at most the product of the norms that the rows
//! have in these columns (Cauchy and Schwarz). As frequent columns tend to have small weights, that is little; yet
//! most products of an all-pairs sum are theirs. So only the other columns are added up for every pair, and the
//! bound is put on top. Where to draw the line is decided by an estimate of the cost.

use crate::settings::Selection;
use crate::sparse::SparseRows;

/// Numbers of frequent columns that are considered.
const LEVELS: [usize; 10] = [0, 8, 16, 32, 64, 128, 256, 512, 1024, 2048];

/// Rows on either side of the sample.
pub(super) const SAMPLE: (usize, usize) = (64, 4096);

/// Costs in nanoseconds, measured: a product that is added up, a pair that is scored, per entry of a row, and a sum
/// that is compared.
const PRODUCT: f64 = 0.7;
pub(super) const SCORED_ENTRY: f64 = 3.0;
const COMPARED: f64 = 0.035;

/// The frequent columns.
#[derive(Debug)]
pub(super) struct Frequent {
    /// Whether each column is one of them.
    pub(super) columns: Vec<bool>,
    /// For each row its norm in these columns, over the whole norm; a little too much rather than too little.
    pub(super) rests: Vec<f32>,
    /// What is to be expected for each pair, in nanoseconds.
    pub(super) cost: f64,
}

impl Frequent {
    pub(super) fn choose(matrix: &SparseRows, selection: &Selection) -> Self {
        let levels = Levels::of(matrix);
        let (level, cost) = levels.cheapest(matrix, selection);
        let columns: Vec<bool> =
            levels.of_column.iter().map(|of_column| usize::from(*of_column) < level).collect();
        let rests = (0..matrix.rows()).map(|row| rest(matrix, row, &columns)).collect();
        Self { columns, rests, cost }
    }
}

/// How many rows have each column.
pub(super) fn counts(matrix: &SparseRows) -> Vec<u32> {
    let mut counts = vec![0; matrix.used_columns()];
    let entries = (0..matrix.rows()).flat_map(|row| matrix.row(row));
    entries.for_each(|entry| counts[entry.column as usize] += 1);
    counts
}

/// About so many rows, from all over the matrix.
pub(super) fn sample(matrix: &SparseRows, wanted: usize) -> impl Iterator<Item = usize> {
    (0..matrix.rows()).step_by(matrix.rows().div_ceil(wanted).max(1))
}

fn rest(matrix: &SparseRows, row: usize, frequent: &[bool]) -> f32 {
    let left_out = matrix.row(row).iter().filter(|entry| frequent[entry.column as usize]);
    let squares: f64 = left_out.map(|entry| entry.value * entry.value).sum();
    if squares == 0.0 { 0.0 } else { ((squares.sqrt() / matrix.norms[row]) as f32 * (1.0 + 1e-6)).next_up() }
}

/// Columns in groups of falling frequency.
struct Levels {
    /// For each column the level up to which it is not frequent yet.
    of_column: Vec<u8>,
    /// Products for each pair of rows if the columns of the lower levels are left out.
    products: Vec<f64>,
}

impl Levels {
    fn of(matrix: &SparseRows) -> Self {
        let counts = counts(matrix);
        let mut order: Vec<u32> = (0..counts.len() as u32).collect();
        order.sort_unstable_by_key(|column| (std::cmp::Reverse(counts[*column as usize]), *column));
        let mut of_column = vec![0u8; counts.len()];
        let mut products = vec![0.0; LEVELS.len()];
        for (rank, column) in order.into_iter().enumerate() {
            let level = LEVELS.partition_point(|level| *level <= rank) - 1;
            of_column[column as usize] = level as u8;
            products[level] += f64::from(counts[column as usize]).powi(2);
        }
        for level in (0..LEVELS.len() - 1).rev() {
            products[level] += products[level + 1];
        }
        let pairs = (matrix.rows() as f64).powi(2);
        products.iter_mut().for_each(|products| *products /= pairs);
        Self { of_column, products }
    }

    /// The level that promises the least work, and how much that is.
    fn cheapest(&self, matrix: &SparseRows, selection: &Selection) -> (usize, f64) {
        let survivors = self.survivors(matrix, selection);
        let entries = matrix.offset(matrix.rows()) as f64 / matrix.rows() as f64;
        let cost = |level: usize| {
            self.products[level] * PRODUCT + survivors[level] * entries * SCORED_ENTRY + COMPARED
        };
        let costs = (0..LEVELS.len()).map(|level| (level, cost(level)));
        costs.min_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((0, 0.0))
    }

    /// For each level the part of all pairs that its bound lets through, judged by a sample.
    fn survivors(&self, matrix: &SparseRows, selection: &Selection) -> Vec<f64> {
        let others: Vec<(usize, Bounds)> =
            sample(matrix, SAMPLE.1).map(|row| (row, self.bounds(matrix, row))).collect();
        let mut spread = vec![0.0; matrix.used_columns()];
        let (mut passed, mut pairs) = (vec![0.0; LEVELS.len()], 0.0);
        for row in sample(matrix, SAMPLE.0) {
            matrix.row(row).iter().for_each(|e| spread[e.column as usize] = e.value / matrix.norms[row]);
            let own = self.bounds(matrix, row);
            let others = others.iter().filter(|(other, _)| *other != row);
            let sums: Vec<Bounds> = others
                .map(|(other, bounds)| {
                    let mut sums = self.sums(matrix, *other, &spread);
                    sums.iter_mut().zip(own.iter().zip(bounds)).for_each(|(sum, (a, b))| *sum += a * b);
                    sums
                })
                .collect();
            let floor = likely_floor(&sums, selection, matrix.rows());
            for bounds in &sums {
                passed
                    .iter_mut()
                    .zip(bounds)
                    .for_each(|(passed, bound)| *passed += f64::from(*bound > floor));
            }
            pairs += sums.len() as f64;
            matrix.row(row).iter().for_each(|e| spread[e.column as usize] = 0.0);
        }
        passed.iter().map(|passed| passed / f64::max(pairs, 1.0)).collect()
    }

    /// Norm of a row in the columns that each level leaves out.
    fn bounds(&self, matrix: &SparseRows, row: usize) -> Bounds {
        let mut squares = [0.0; LEVELS.len()];
        for entry in matrix.row(row) {
            let part = entry.value / matrix.norms[row];
            let first = usize::from(self.of_column[entry.column as usize]) + 1;
            squares[first..].iter_mut().for_each(|sum| *sum += part * part);
        }
        squares.map(f64::sqrt)
    }

    /// What each level adds up for a row and one that is spread out.
    fn sums(&self, matrix: &SparseRows, row: usize, spread: &[f64]) -> Bounds {
        let mut sums = [0.0; LEVELS.len()];
        for entry in matrix.row(row) {
            let product = entry.value / matrix.norms[row] * spread[entry.column as usize];
            if product != 0.0 {
                let last = usize::from(self.of_column[entry.column as usize]);
                sums[..=last].iter_mut().for_each(|sum| *sum += product);
            }
        }
        sums
    }
}

type Bounds = [f64; LEVELS.len()];

/// The score that a pair of this row will have to reach when most of the work is still to be done.
fn likely_floor(sums: &[Bounds], selection: &Selection, rows: usize) -> f64 {
    let mut floor = f64::from(selection.threshold.unwrap_or(0.0)).max(1e-6);
    if let Some(top_k) = selection.top_k {
        let mut scores: Vec<f64> = sums.iter().map(|sums| sums[0]).collect();
        scores.sort_unstable_by(|a, b| b.total_cmp(a));
        let place = top_k * scores.len() / rows;
        floor = floor.max(scores.get(place).copied().unwrap_or(0.0));
    }
    floor
}
