//! Rows in bytes: a screen of half the size of [`crate::quantised`], with a margin for each pair.
//!
//! They are made of rows in 16-bit integers: `w/S = x̂ + e_w` with `|e_w|` at most `E_w`, the largest of all rows. A number
//! `w` becomes `q = ⌊(w·m + 2¹⁴) / 2¹⁵⌋`, from -127 to 127, with the row's *multiplier* `m`, which is `127·2¹⁵ / max|w|`
//! rounded down, or 2¹⁵ − 1 if that is less. So `q·t = x̂ + e` with the *step* `t = 2¹⁵ / (m·S)`, and `e` is `e_w` and what
//! `w/S` loses, whose length is known exactly, since it is a sum of integers. For two rows, the second dashed,
//! `q·q'·t·t' = cos + x̂·e' + e·x̂' + e·e'`, and hence (Cauchy and Schwarz)
//!
//! `|q·q'·t·t' − cos| ≤ |e| + |e'| + |e|·|e'|`.
//!
//! A kernel computes `b = q·q'·t·t' + (E + E' + E·E')` in float32 and drops pairs with `b` less than both of their
//! floors, which is right since `b` is not less than the score. The *error* `E` is `(1 + 2⁻¹²)` times what a row loses
//! and `E_w`, plus 2⁻²⁰, which covers whatever is off besides:
//!
//! - *Float32.* Steps are rounded, and `b` is rounded five times, each time a value that is at most `2P`, or makes at most
//!   `2P` of the result, with `P = (1 + E)·(1 + E')`. Rounding moves no number by more than itself, so that `|e|` is at most
//!   `1 + 2·E_w`, and `E_w ≤ 2⁻⁷` for up to 2¹⁷ columns. So `P ≤ 1 + 1.53·(E + E')`, and all that is off is less than
//!   `15·2⁻²⁴ + 2⁻¹⁹·(E + E')`.
//! - *The score* is rounded to float32 (`2⁻²⁵`). Sums in float64 of it and of the norms are off by less than
//!   `columns·2⁻⁵⁰ ≤ 2⁻³³`.
//!
//! The parts of `E + E'` make less than `2⁻¹²`, the others `16·2⁻²⁴`, less than the `32·2⁻²⁴` of two rows. By
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
use crate::machine::bytes::{ColumnPanel, Kernel, RowPanel};
use crate::machine::{FOUR, SHIFT, Sign, Vectors};
use crate::quantised::{Margin, SCALE};
use crate::words::{Room, Words};
use rayon::prelude::*;

/// Columns up to which no sum overflows.
const MOST_COLUMNS: usize = 1 << 17;

/// What the largest number of a row becomes at most.
const LARGEST: i32 = 127;

/// Rows whose scales are measured at a time.
const MEASURED_ROWS: usize = 64;

/// What the numbers of one row stand for.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Scale {
    /// What 16-bit integers are multiplied by; 0 for a zero row.
    multiplier: i16,
    /// Upper bound of the distance between the row at unit length and its numbers.
    error: f32,
}

impl Scale {
    /// The scale of a row in 16-bit integers, which are off by this at most.
    fn of(row: &[i16], vectors: Vectors, words_error: f64) -> Self {
        let largest = i32::from(vectors.largest_word(row));
        if largest == 0 {
            return Self::default();
        }
        // At most what 16 bits hold.
        let multiplier = ((LARGEST << SHIFT) / largest).min(i32::from(i16::MAX)) as i16;
        let lost = vectors.lost_in_bytes(row, multiplier).sqrt() / (f64::from(multiplier) * SCALE);
        let error = (lost + words_error) * (1.0 + 2f64.powi(-12)) + 2f64.powi(-20);
        Self { multiplier, error: (error as f32).next_up() }
    }

    /// What one unit is worth, of the row at unit length; 0 for a zero row.
    fn step(self) -> f32 {
        let worth = f64::from(1 << SHIFT) / (f64::from(self.multiplier) * SCALE);
        if self.multiplier == 0 { 0.0 } else { worth as f32 }
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

    /// Measures the scales of all rows; `None` as with [`Self::new`].
    pub(crate) fn measure(matrix: &DenseRows) -> Option<Self> {
        let mut of_rows = vec![Scale::default(); matrix.norms.len()];
        let (blocks, vectors) = (of_rows.par_chunks_mut(MEASURED_ROWS).enumerate(), Vectors::best());
        blocks.for_each_init(Room::default, |room, (block, scales)| {
            let first = block * MEASURED_ROWS;
            let rows: Vec<u32> = (first..first + scales.len()).map(|row| row as u32).collect();
            let words = matrix.words(&rows, room);
            for (at, scale) in scales.iter_mut().enumerate() {
                *scale = Scale::of(words.row(at), vectors, matrix.quantisation_error);
            }
        });
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
    room: Room,
}

/// Bytes of a line of the cache.
const LINE: usize = 64;

impl Packed {
    fn new(width: usize, sign: Sign) -> Self {
        let (bytes, rows, room, starts) = (Vec::new(), Vec::new(), Room::default(), Vec::new());
        let (vectors, steps, errors) = (Vectors::best(), Vec::new(), Vec::new());
        Self { width, sign, vectors, bytes, start: 0, panel: 0, rows, starts, steps, errors, room }
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
        self.steps.extend(self.rows.iter().map(|row| scale(row).step()));
        self.steps.resize(padded, 0.0);
        self.errors.clear();
        self.errors.extend(self.rows.iter().map(|row| scale(row).error));
        self.errors.resize(padded, 0.0);
        self.starts.clear();
        self.starts.resize(padded, 0);
        let panels = self.bytes[self.start..][..size].chunks_exact_mut(self.panel);
        let starts = self.starts.chunks_exact_mut(self.width);
        for ((rows, bytes), starts) in self.rows.chunks(self.width).zip(panels).zip(starts) {
            let source = Source { words: matrix.words(rows, &mut self.room), rows, scales: &scales.of_rows };
            source.pack(self.vectors, (bytes, self.width), self.sign, starts);
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
    words: Words<'a>,
    rows: &'a [u32],
    /// Those of all rows of the matrix.
    scales: &'a [Scale],
}

impl Source<'_> {
    /// Packs the rows into a panel of this width, and puts what the sum of each begins with where it belongs.
    fn pack(&self, vectors: Vectors, (bytes, width): (&mut [u8], usize), sign: Sign, starts: &mut [i32]) {
        let count = self.rows.len();
        for (first, starts) in (0..count).step_by(FOUR).zip(starts.chunks_mut(FOUR)) {
            // What is not there is packed as zeros.
            let row = |at: usize| self.words.row((first + at).min(count - 1));
            let multiplier =
                |at: usize| self.rows.get(first + at).map_or(0, |row| self.scales[*row as usize].multiplier);
            let four = (std::array::from_fn(row), std::array::from_fn(multiplier));
            let sums = vectors.pack(four, (&mut bytes[first * FOUR..], width), sign);
            starts.iter_mut().zip(sums).for_each(|(start, sum)| *start = -128 * sum);
        }
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
