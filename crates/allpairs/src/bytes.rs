//! Rows in bytes: a screen of half the size of [`crate::quantised`], with a margin for each pair.
//!
//! A row `x` of norm `n` becomes `q = round(x / (n·t))`, numbers from -127 to 127, with the *step* `t`, which is
//! `max|x| / (127·n)` rounded to float32. So `q·t = x̂ + e` where `x̂ = x/n`. Its *error* `E` is an upper bound of `|e|`
//! and is measured for each row. For two rows, the second dashed, `q·q'·t·t' = cos + x̂·e' + e·x̂' + e·e'`, and hence
//! (Cauchy and Schwarz)
//!
//! `|q·q'·t·t' − cos| ≤ |e| + |e'| + |e|·|e'|`.
//!
//! A kernel computes `b = q·q'·t·t' + (E + E' + E·E')` in float32 and drops pairs with `b` less than both of their
//! floors, which is right since `b` is not less than the score. `E = (1 + 2⁻¹²)·|e| + 2⁻²⁰` of the measured `|e|`
//! covers whatever is off besides:
//!
//! - *Packing.* Stored float32 is multiplied in float32 by a factor that is off by `2⁻²⁴`, and so is the product. A
//!   product, at most 127.1, is then off by less than `2⁻¹⁶`, and is rounded otherwise than when it was measured only
//!   that near to the middle between two numbers. An error of at least `1/2 − 2⁻¹⁶` there became one of at most
//!   `1/2 + 2⁻¹⁶`; so `|e|` is less than `1 + 2⁻¹³` times what was measured.
//! - *Float32.* `b` is rounded five times, each time a value that is at most `2P`, or makes at most `2P` of the
//!   result, with `P = (1 + E)·(1 + E')`. `|e| ≤ 1`, since rounding moves no number by more than itself; so
//!   `P ≤ 1 + 1.51·(E + E')`, and all five are less than `11·2⁻²⁴ + 2⁻¹⁹·(E + E')`.
//! - *The score* is rounded to float32 (`2⁻²⁵`). Sums in float64 of it, of the norms and of `|e|` are off by less than
//!   `columns·2⁻⁵⁰ ≤ 2⁻³³`.
//!
//! The parts of `|e|` make less than `2⁻¹³ + 2⁻¹⁸ < 2⁻¹²`, the others `12·2⁻²⁴`, less than the `32·2⁻²⁴` of two rows. By
//! the same sum the score is not less than `b − 2·(E + E' + E·E')`.
//!
//! What a score is at least, `q·q'·(t·t') − (E + E' + E·E')`, is rounded five times too: the sum of products, the product
//! of steps, both sums of errors and the difference.
//!
//! Sums of up to 131,072 products of numbers of at most 127 fit 32 bits, and so does what they begin with,
//! `−128·Σq'`. On the way they may wrap.

mod first;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use first::{FirstFloors, Wanted};

use crate::dense::DenseRows;
use crate::machine::Vectors;
use crate::machine::bytes::{ColumnPanel, FOUR, Kernel, RowPanel, Sign};
use crate::quantised::Margin;
use rayon::prelude::*;

/// Columns up to which no sum overflows.
const MOST_COLUMNS: usize = 1 << 17;

/// What the largest entry of a row becomes.
const LARGEST: f64 = 127.0;

/// Adding this to a small number leaves it, rounded, in the lowest bits.
const ROUNDING: f64 = 6_755_399_441_055_744.0;

/// Numbers that are added up side by side.
const LANES: usize = 8;

/// Rows whose scales are measured at a time.
const MEASURED_ROWS: usize = 64;

/// What the numbers of one row stand for.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Scale {
    /// What one unit is worth, of the row at unit length; 0 for a zero row.
    pub(crate) step: f32,
    /// Upper bound of the distance between the row at unit length and its numbers.
    pub(crate) error: f32,
}

impl Scale {
    /// The scale of a row as it is read, with its norm.
    pub(crate) fn of(row: &[f64], norm: f64) -> Self {
        if norm == 0.0 {
            return Self::default();
        }
        let (whole, rest) = row.as_chunks::<LANES>();
        let mut largest = [0.0f64; LANES];
        for values in whole {
            largest = std::array::from_fn(|lane| largest[lane].max(values[lane].abs()));
        }
        let largest = rest.iter().chain(&largest).fold(0.0f64, |largest, value| largest.max(value.abs()));
        let step = Self::step(largest, norm);
        let factor = Self { step, error: 0.0 }.factor(norm);
        let square = |value: f64| {
            let product = value * factor;
            let off = product - (product + ROUNDING - ROUNDING);
            off * off
        };
        let mut squares = [0.0; LANES];
        for values in whole {
            squares = std::array::from_fn(|lane| squares[lane] + square(values[lane]));
        }
        let squares: f64 = squares.iter().sum::<f64>() + rest.iter().map(|value| square(*value)).sum::<f64>();
        Self::with_squares(step, squares)
    }

    /// The same for a row that is stored in float32, little-endian.
    fn of_stored(vectors: Vectors, stored: &[[u8; 4]], norm: f64) -> Self {
        if norm == 0.0 {
            return Self::default();
        }
        let step = Self::step(f64::from(vectors.largest_stored(stored)), norm);
        let factor = Self { step, error: 0.0 }.factor(norm);
        Self::with_squares(step, vectors.lost_by_rounding(stored, factor).iter().sum())
    }

    /// The step of a row with this largest number and norm.
    fn step(largest: f64, norm: f64) -> f32 {
        (largest / (LARGEST * norm)) as f32
    }

    /// A scale by what rounding moves numbers by, the squares of which have this sum.
    fn with_squares(step: f32, squares: f64) -> Self {
        let error = f64::from(step) * squares.sqrt();
        let error = error * (1.0 + 2f64.powi(-12)) + 2f64.powi(-20);
        Self { step, error: (error as f32).next_up() }
    }

    /// What a row of this norm is multiplied by.
    fn factor(self, norm: f64) -> f64 {
        if norm == 0.0 { 0.0 } else { 1.0 / (norm * f64::from(self.step)) }
    }
}

/// The scales of all rows of a matrix.
#[derive(Debug)]
pub(crate) struct Scales {
    of_rows: Vec<Scale>,
    /// How far the sum that stands for a bound is at most above the true one, as far as a row is the reason.
    reaches: Vec<i32>,
}

impl Scales {
    /// Scales in the order of the rows; `None` if there are so many columns that sums might not fit 32 bits.
    pub(crate) fn new(of_rows: Vec<Scale>, columns: usize) -> Option<Self> {
        // Half of the product of two errors is less than half of either times the largest.
        let largest = of_rows.iter().fold(0.0f32, |largest, scale| largest.max(scale.error));
        let reach = |scale: &Scale| (2.0 * scale.error * (1.0 + largest / 2.0)).next_up().next_up();
        let reaches = of_rows.iter().map(|scale| Margin::sum_above(reach(scale))).collect();
        (columns <= MOST_COLUMNS).then_some(Self { of_rows, reaches })
    }

    /// Reads all rows to measure their scales; `None` as with [`Self::new`].
    pub(crate) fn measure(matrix: &DenseRows) -> Option<Self> {
        let stride = matrix.matrix.stride();
        let mut of_rows = vec![Scale::default(); matrix.norms.len()];
        let blocks = of_rows.par_chunks_mut(MEASURED_ROWS).enumerate();
        let vectors = Vectors::best();
        blocks.for_each_init(
            || vec![0.0; MEASURED_ROWS * stride],
            |read, (block, scales)| {
                let first = block * MEASURED_ROWS;
                if (first..first + scales.len()).all(|row| matrix.stored_row(row).is_some()) {
                    for (row, scale) in (first..).zip(scales) {
                        let stored = matrix.stored_row(row).unwrap_or_default();
                        *scale = Scale::of_stored(vectors, stored, matrix.norms[row]);
                    }
                    return;
                }
                matrix.read(first..first + scales.len(), read);
                for (at, (scale, row)) in scales.iter_mut().zip(read.chunks_exact(stride)).enumerate() {
                    *scale = Scale::of(row, matrix.norms[first + at]);
                }
            },
        );
        Self::new(of_rows, matrix.matrix.columns())
    }

    /// What the true sum of two rows is at least, given the sum that stands for the bound that it does not exceed.
    #[inline]
    pub(crate) fn least(&self, sum: i32, row: usize, other: usize) -> i32 {
        // The bound itself may be a little less than what its sum stands for.
        sum.saturating_sub(2).saturating_sub(self.reaches[row]).saturating_sub(self.reaches[other])
    }

    /// How far the bound of a score is at most above it.
    pub(crate) fn margin(&self, row: usize, other: usize) -> f32 {
        let [error, other] = [row, other].map(|row| self.of_rows[row].error);
        2.0 * (error + other + error * other)
    }
}

/// Rows in panels of one width, the last filled up with zeros, and what is known of each of them.
#[derive(Debug)]
struct Packed {
    width: usize,
    sign: Sign,
    vectors: Vectors,
    bytes: Vec<u8>,
    /// Where the panels begin in `bytes`: where a line of the cache does.
    start: usize,
    panel: usize,
    rows: Vec<u32>,
    starts: Vec<i32>,
    steps: Vec<f32>,
    errors: Vec<f32>,
    read: Vec<f64>,
}

/// Bytes of a line of the cache.
const LINE: usize = 64;

impl Packed {
    fn new(width: usize, sign: Sign) -> Self {
        let (bytes, rows, read, starts) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (vectors, steps, errors) = (Vectors::best(), Vec::new(), Vec::new());
        Self { width, sign, vectors, bytes, start: 0, panel: 0, rows, starts, steps, errors, read }
    }

    fn pack(&mut self, (matrix, scales): (&DenseRows, &Scales), rows: impl Iterator<Item = usize>) {
        self.rows.clear();
        self.rows.extend(rows.map(|row| row as u32));
        self.panel = self.width * matrix.matrix.stride();
        let padded = self.rows.len().next_multiple_of(self.width);
        let size = padded / self.width * self.panel;
        self.bytes.resize(size + LINE, 0);
        self.start = self.bytes.as_ptr().align_offset(LINE).min(LINE);
        let scale = |row: &u32| scales.of_rows[*row as usize];
        self.steps.clear();
        self.steps.extend(self.rows.iter().map(|row| scale(row).step));
        self.steps.resize(padded, 0.0);
        self.errors.clear();
        self.errors.extend(self.rows.iter().map(|row| scale(row).error));
        self.errors.resize(padded, 0.0);
        self.starts.clear();
        self.starts.resize(padded, 0);
        let panels = self.bytes[self.start..][..size].chunks_exact_mut(self.panel);
        let starts = self.starts.chunks_exact_mut(self.width);
        for ((rows, bytes), starts) in self.rows.chunks(self.width).zip(panels).zip(starts) {
            let source = Source { matrix, rows, scales: &scales.of_rows };
            let mut target = Target { bytes, starts, width: self.width, sign: self.sign };
            if !source.pack_stored(self.vectors, &mut target) {
                source.pack_others(&mut self.read, &mut target);
            }
            starts.iter_mut().for_each(|start| *start *= -128);
        }
    }

    #[inline]
    fn panel(&self, at: usize) -> &[u8] {
        &self.bytes[self.start + at * self.panel..][..self.panel]
    }

    /// What is known of the rows of a panel.
    #[inline]
    fn of_panel<'a, T>(&self, of_rows: &'a [T], at: usize) -> &'a [T] {
        &of_rows[at * self.width..][..self.width]
    }
}

/// Rows that become one panel.
struct Source<'a> {
    matrix: &'a DenseRows,
    rows: &'a [u32],
    /// Those of all rows of the matrix.
    scales: &'a [Scale],
}

/// One panel that is packed.
struct Target<'a> {
    bytes: &'a mut [u8],
    /// Where the sum of each row's numbers is put.
    starts: &'a mut [i32],
    width: usize,
    sign: Sign,
}

impl Source<'_> {
    /// A row as it is stored with the factor for it, if it is float32 in little-endian order and neither so large nor
    /// so small that float32 has no factor.
    fn stored(&self, at: usize) -> Option<(&[[u8; 4]], f32)> {
        let row = *self.rows.get(at)? as usize;
        let stored = self.matrix.stored_row(row)?;
        let factor = self.factor(row) as f32;
        (factor == 0.0 || factor.is_normal()).then_some((stored, factor))
    }

    /// What the numbers of a row are multiplied by.
    fn factor(&self, row: usize) -> f64 {
        self.scales[row].factor(self.matrix.norms[row])
    }

    /// Packs those rows that can be packed as they are stored, and says whether that is all.
    fn pack_stored(&self, vectors: Vectors, target: &mut Target) -> bool {
        let mut all = true;
        for first in (0..self.rows.len()).step_by(FOUR) {
            let rows: [_; FOUR] = std::array::from_fn(|at| self.stored(first + at));
            all &= rows.iter().flatten().count() == FOUR.min(self.rows.len() - first);
            if let Some((any, _)) = rows.iter().flatten().next() {
                // What is not there is packed as zeros.
                let (stored, factors) = (
                    rows.map(|row| row.map_or(*any, |row| row.0)),
                    rows.map(|row| row.map_or(0.0, |row| row.1)),
                );
                let out = (&mut target.bytes[first * FOUR..], target.width);
                let sums = vectors.pack((stored, factors), out, target.sign);
                target.starts[first..].iter_mut().zip(sums).for_each(|(start, sum)| *start = sum);
            }
        }
        all
    }

    /// Packs the rows that [`Self::pack_stored`] left.
    fn pack_others(&self, read: &mut Vec<f64>, target: &mut Target) {
        let stride = self.matrix.matrix.stride();
        // Rows that lie in columns are read together; of others one stays in the nearest cache.
        let together = if self.lie_together_in_columns() { self.rows.len() } else { 1 };
        read.clear();
        read.resize(together * stride, 0.0);
        for start in (0..self.rows.len()).step_by(together) {
            if together == 1 && self.stored(start).is_some() {
                continue;
            }
            let first = self.rows[start] as usize;
            self.matrix.read(first..first + together, read);
            for (at, values) in (start..).zip(read.chunks_exact(stride)) {
                target.starts[at] = target.put(at, values, self.factor(self.rows[at] as usize));
            }
        }
    }

    /// Whether the rows follow one another in a file that is stored column by column.
    fn lie_together_in_columns(&self) -> bool {
        let follow = self.rows.is_sorted_by(|one, next| one + 1 == *next);
        let rows = self.rows.first().zip(self.rows.last()).filter(|_| follow);
        rows.is_some_and(|(first, last)| {
            self.matrix.matrix.lie_in_columns(*first as usize..*last as usize + 1)
        })
    }
}

impl Target<'_> {
    /// Puts the numbers of one row where they belong and returns their sum.
    fn put(&mut self, at: usize, values: &[f64], factor: f64) -> i32 {
        let flip = self.sign.flip();
        let steps = self.bytes.as_chunks_mut::<FOUR>().0[at..].iter_mut().step_by(self.width);
        let mut sum = 0;
        for (step, values) in steps.zip(values.as_chunks::<FOUR>().0) {
            // The lowest 8 bits are the number itself in two's complement.
            let numbers = values.map(|value| (value * factor + ROUNDING).to_bits() as i8);
            sum += numbers.iter().map(|number| i32::from(*number)).sum::<i32>();
            *step = numbers.map(|number| number as u8 ^ flip);
        }
        sum
    }
}

/// Rows packed for the left side of [`Kernel::compare`].
#[derive(Debug)]
pub(crate) struct RowPanels(Packed);

impl RowPanels {
    pub(crate) fn new(kernel: Kernel) -> Self {
        Self(Packed::new(kernel.rows(), Sign::Unsigned))
    }

    /// Packs rows; what was packed before is gone.
    pub(crate) fn pack(&mut self, matrix: (&DenseRows, &Scales), rows: impl Iterator<Item = usize>) {
        self.0.pack(matrix, rows);
    }

    /// The panel at this place, in the order of the rows. What fills up the last one has a bound of zero at most.
    #[inline]
    pub(crate) fn panel(&self, at: usize) -> RowPanel<'_> {
        let bytes = self.0.panel(at);
        let [steps, errors] = [&self.0.steps, &self.0.errors].map(|of_rows| self.0.of_panel(of_rows, at));
        RowPanel { bytes, steps, errors }
    }
}

/// Rows packed for the right side of [`Kernel::compare`].
#[derive(Debug)]
pub(crate) struct ColumnPanels(Packed);

impl ColumnPanels {
    pub(crate) fn new(kernel: Kernel) -> Self {
        Self(Packed::new(kernel.columns(), Sign::Signed))
    }

    /// Packs rows; what was packed before is gone.
    pub(crate) fn pack(&mut self, matrix: (&DenseRows, &Scales), rows: impl Iterator<Item = usize>) {
        self.0.pack(matrix, rows);
    }

    /// The panel at this place, in the order of the rows. What fills up the last one counts as zero rows.
    #[inline]
    pub(crate) fn panel(&self, at: usize) -> ColumnPanel<'_> {
        let bytes = self.0.panel(at);
        let [steps, errors] = [&self.0.steps, &self.0.errors].map(|of_rows| self.0.of_panel(of_rows, at));
        ColumnPanel { bytes, starts: self.0.of_panel(&self.0.starts, at), steps, errors }
    }
}
