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
//! Sums of up to 131,072 products of numbers of at most 127 fit 32 bits, and so does what they begin with,
//! `−128·Σq'`. On the way they may wrap.

use crate::dense::DenseRows;
use crate::machine::Vectors;
use crate::machine::bytes::{ColumnPanel, FOUR, Kernel, RowPanel, Sign};
use crate::quantised::Margin;
use rayon::prelude::*;
use std::ops::Range;

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
        let step = (largest / (LARGEST * norm)) as f32;
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
        blocks.for_each_init(
            || vec![0.0; MEASURED_ROWS * stride],
            |read, (block, scales)| {
                let first = block * MEASURED_ROWS;
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
    starts: Vec<i32>,
    steps: Vec<f32>,
    errors: Vec<f32>,
    read: Vec<f64>,
}

/// Bytes of a line of the cache.
const LINE: usize = 64;

impl Packed {
    fn new(width: usize, sign: Sign) -> Self {
        let (bytes, starts, steps, errors) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let vectors = Vectors::best();
        Self { width, sign, vectors, bytes, start: 0, panel: 0, starts, steps, errors, read: Vec::new() }
    }

    fn pack(&mut self, (matrix, scales): (&DenseRows, &Scales), rows: Range<usize>) {
        self.panel = self.width * matrix.matrix.stride();
        let padded = rows.len().next_multiple_of(self.width);
        let size = padded / self.width * self.panel;
        self.bytes.resize(size + LINE, 0);
        self.start = self.bytes.as_ptr().align_offset(LINE).min(LINE);
        let scales = &scales.of_rows[rows.clone()];
        self.steps.clear();
        self.steps.extend(scales.iter().map(|scale| scale.step));
        self.steps.resize(padded, 0.0);
        self.errors.clear();
        self.errors.extend(scales.iter().map(|scale| scale.error));
        self.errors.resize(padded, 0.0);
        self.starts.clear();
        self.starts.resize(padded, 0);
        let panels = self.bytes[self.start..][..size].chunks_exact_mut(self.panel);
        let starts = self.starts.chunks_exact_mut(self.width);
        for ((at, bytes), starts) in panels.enumerate().zip(starts) {
            let first = at * self.width;
            let scales = &scales[first..scales.len().min(first + self.width)];
            let source = Source { matrix, first: rows.start + first, scales };
            let mut target = Target { bytes, starts, width: self.width, sign: self.sign };
            if !source.pack_stored(self.vectors, &mut target) {
                source.pack_others(&mut self.read, &mut target);
            }
            starts.iter_mut().for_each(|start| *start *= -128);
        }
    }

    fn panel(&self, at: usize) -> &[u8] {
        &self.bytes[self.start + at * self.panel..][..self.panel]
    }

    /// What is known of the rows of a panel.
    fn of_panel<'a, T>(&self, of_rows: &'a [T], at: usize) -> &'a [T] {
        &of_rows[at * self.width..][..self.width]
    }
}

/// Rows that become one panel.
struct Source<'a> {
    matrix: &'a DenseRows,
    first: usize,
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
        let row = self.first + at;
        let stored = self.matrix.stored_row(row)?;
        let factor = self.scales[at].factor(self.matrix.norms[row]) as f32;
        (factor == 0.0 || factor.is_normal()).then_some((stored, factor))
    }

    /// Packs those rows that can be packed as they are stored, and says whether that is all.
    fn pack_stored(&self, vectors: Vectors, target: &mut Target) -> bool {
        let mut all = true;
        for (group, scales) in self.scales.chunks(FOUR).enumerate() {
            let first = group * FOUR;
            let rows: [_; FOUR] =
                std::array::from_fn(|at| if at < scales.len() { self.stored(first + at) } else { None });
            all &= rows.iter().flatten().count() == scales.len();
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
        let rows = self.first..self.first + self.scales.len();
        // Rows that lie in columns are read together; of others one stays in the nearest cache.
        let together = if self.matrix.matrix.lie_in_columns(rows.clone()) { rows.len() } else { 1 };
        read.clear();
        read.resize(together * stride, 0.0);
        for start in rows.step_by(together) {
            if together == 1 && self.stored(start - self.first).is_some() {
                continue;
            }
            self.matrix.read(start..start + together, read);
            for (row, values) in (start..).zip(read.chunks_exact(stride)) {
                let at = row - self.first;
                let factor = self.scales[at].factor(self.matrix.norms[row]);
                target.starts[at] = target.put(at, values, factor);
            }
        }
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
    pub(crate) fn pack(&mut self, matrix: (&DenseRows, &Scales), rows: Range<usize>) {
        self.0.pack(matrix, rows);
    }

    /// The panel at this place, in the order of the rows. What fills up the last one has a bound of zero at most.
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
    pub(crate) fn pack(&mut self, matrix: (&DenseRows, &Scales), rows: Range<usize>) {
        self.0.pack(matrix, rows);
    }

    /// The panel at this place, in the order of the rows. What fills up the last one counts as zero rows.
    pub(crate) fn panel(&self, at: usize) -> ColumnPanel<'_> {
        let bytes = self.0.panel(at);
        let [steps, errors] = [&self.0.steps, &self.0.errors].map(|of_rows| self.0.of_panel(of_rows, at));
        ColumnPanel { bytes, starts: self.0.of_panel(&self.0.starts, at), steps, errors }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::dense::{Bytes, DenseFile, DenseMatrix};
    use crate::element::Element;
    use crate::machine::bytes::{Floors, Tile};
    use crate::matrix::inspect;
    use crate::score::{dot, score};
    use proptest::prelude::*;
    use std::sync::atomic::AtomicBool;

    /// A matrix of numbers that lie in memory.
    pub(crate) fn matrix(rows: &[Vec<f64>], element: Element, fortran_order: bool) -> DenseRows {
        let turned = (0..rows[0].len()).flat_map(|column| rows.iter().map(move |row| row[column]));
        let numbers: Vec<f64> =
            if fortran_order { turned.collect() } else { rows.iter().flatten().copied().collect() };
        let bytes = match element {
            Element::F32 => numbers.iter().flat_map(|value| (*value as f32).to_le_bytes()).collect(),
            _ => numbers.iter().flat_map(|value| value.to_le_bytes()).collect(),
        };
        let file = DenseFile {
            bytes: Bytes::Owned(bytes),
            encoding: element.little_endian(),
            fortran_order,
            ..DenseFile::empty("rows".as_ref(), rows.len(), rows[0].len())
        };
        inspect(DenseMatrix::join(vec![file]), &AtomicBool::new(false)).unwrap().0
    }

    /// The scores of all pairs.
    pub(crate) fn scores(matrix: &DenseRows) -> Vec<Vec<f32>> {
        let stride = matrix.matrix.stride();
        let mut read = vec![0.0; matrix.norms.len() * stride];
        matrix.read(0..matrix.norms.len(), &mut read);
        let rows: Vec<(&[f64], f64)> = read.chunks_exact(stride).zip(matrix.norms.iter().copied()).collect();
        rows.iter().map(|(x, n)| rows.iter().map(|(y, m)| score(dot(x, y), *n, *m)).collect()).collect()
    }

    /// All pairs that pass, with their bounds.
    fn passed(matrix: &DenseRows, kernel: Kernel, floors: &[f32]) -> Vec<(usize, usize, f32)> {
        let scales = Scales::measure(matrix).unwrap();
        let (mut rows, mut columns) = (RowPanels::new(kernel), ColumnPanels::new(kernel));
        // Twice, since what was packed before must be gone.
        for _ in 0..2 {
            rows.pack((matrix, &scales), 0..floors.len());
            columns.pack((matrix, &scales), 0..floors.len());
        }
        let padded = |width: usize| {
            let mut padded = floors.to_vec();
            padded.resize(floors.len().next_multiple_of(width), f32::INFINITY);
            padded
        };
        let (of_rows, of_columns) = (padded(kernel.rows()), padded(kernel.columns()));
        let (mut tile, mut found) = (Tile::new(), Vec::new());
        for i in 0..floors.len().div_ceil(kernel.rows()) {
            for j in 0..floors.len().div_ceil(kernel.columns()) {
                let (row, column) = (rows.panel(i), columns.panel(j));
                let (first, second) = (i * kernel.rows(), j * kernel.columns());
                let floors = Floors {
                    rows: &of_rows[first..][..kernel.rows()],
                    columns: &of_columns[second..][..kernel.columns()],
                };
                if kernel.compare(row, column, floors, &mut tile) {
                    found.extend(
                        tile.passed(kernel).map(|(row, column, bound)| (first + row, second + column, bound)),
                    );
                }
            }
        }
        found.retain(|(row, column, _)| (*row).max(*column) < floors.len());
        found.sort_by_key(|(row, column, _)| (*row, *column));
        found
    }

    /// Rows of many kinds: entries of one size, of many, one large among small ones, equal and nearly equal rows, zeros.
    pub(crate) fn kinds(seed: u64, count: usize, columns: usize) -> Vec<Vec<f64>> {
        let mut state = seed | 1;
        let mut next = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as f64 / 2f64.powi(30) - 1.0
        };
        let mut rows: Vec<Vec<f64>> = Vec::new();
        for row in 0..count {
            let power = [0, 0, 30, -30, -126, 100, -149][row % 7];
            let size = 2f64.powi(power);
            let mut values: Vec<f64> = match row % 11 {
                0 => vec![0.0; columns],
                1 => vec![next(); columns],
                2 | 3 => (0..columns).map(|_| next() * 2f64.powf(20.0 * next())).collect(),
                // Halves of a step, which are the furthest from their numbers.
                4 => (0..columns).map(|_| (next() * 20.0).round() / 254.0).collect(),
                5..8 if row > 11 => rows[row - 4].iter().map(|value| value / size).collect(),
                8 if row > 11 => {
                    rows[row - 7].iter().map(|value| value / size * (1.0 + 1e-7 * next())).collect()
                }
                _ => (0..columns).map(|_| next()).collect(),
            };
            if matches!(row % 11, 3 | 4 | 9) {
                values[row % columns] = 1.0;
            }
            rows.push(values.iter().map(|value| f64::from((value * size) as f32)).map(finite).collect());
        }
        rows
    }

    fn finite(value: f64) -> f64 {
        if value.is_finite() { value } else { 1.0 }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn no_pair_is_dropped_that_reaches_a_floor(
            seed in any::<u64>(), count in 1usize..80, columns in 1usize..100, short in any::<bool>(), k in 0usize..4,
        ) {
            let element = if short { Element::F32 } else { Element::F64 };
            let matrix = matrix(&kinds(seed, count, columns), element, false);
            let scores = scores(&matrix);
            // Each row's floor is one of its scores, so that ties are among what is looked for.
            let floors: Vec<f32> = scores
                .iter()
                .enumerate()
                .map(|(row, scores)| match (row + k) % 5 {
                    0 => f32::INFINITY,
                    1 => f32::NEG_INFINITY,
                    _ => {
                        let mut sorted = scores.clone();
                        sorted.sort_by(|a, b| b.total_cmp(a));
                        sorted[k.min(sorted.len() - 1)]
                    }
                })
                .collect();
            let scales = Scales::measure(&matrix).unwrap();
            let mut first = None;
            for kernel in Kernel::available() {
                let found = passed(&matrix, kernel, &floors);
                for (i, scores) in scores.iter().enumerate() {
                    for (j, score) in scores.iter().enumerate() {
                        let at = found.binary_search_by_key(&(i, j), |(row, column, _)| (*row, *column));
                        match at {
                            Ok(at) => {
                                let bound = found[at].2;
                                prop_assert!(bound >= *score, "{bound} < {score}");
                                let least = scales.least(Margin::sum_above(bound), i, j);
                                prop_assert!(f64::from(least) <= f64::from(*score) * 32767.0 * 32767.0, "{bound} is far above {score}");
                            }
                            Err(_) => prop_assert!(*score < floors[i].min(floors[j]), "{kernel:?} drops {i}, {j}: {score}"),
                        }
                    }
                }
                let bits: Vec<_> = found.iter().map(|(row, column, bound)| (*row, *column, bound.to_bits())).collect();
                prop_assert_eq!(first.get_or_insert_with(|| bits.clone()), &bits, "{:?}", kernel);
            }
        }

        #[test]
        fn stored_rows_are_packed_like_rows_that_are_read(seed in any::<u64>(), count in 1usize..40, columns in 1usize..70) {
            // Whole numbers of steps, so that float32 and float64 are rounded alike.
            let mut state = seed | 1;
            let mut next = move || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) as i64
            };
            let mut rows = vec![vec![0.0; columns]; count];
            rows.iter_mut().flatten().for_each(|value| *value = (next() % 128) as f64);
            rows.iter_mut().for_each(|row| row[0] = 127.0);
            // For these there is no factor in float32.
            rows.iter_mut().skip(2).step_by(5).flatten().for_each(|value| *value *= 2f64.powi(-140));
            let (short, long) = (matrix(&rows, Element::F32, false), matrix(&rows, Element::F64, false));
            let turned = matrix(&rows, Element::F64, true);
            for kernel in Kernel::available() {
                let floors = vec![f32::NEG_INFINITY; count];
                let bits = |matrix| -> Vec<_> {
                    passed(matrix, kernel, &floors).iter().map(|(row, column, bound)| (*row, *column, bound.to_bits())).collect()
                };
                prop_assert_eq!(bits(&short), bits(&long));
                prop_assert_eq!(bits(&turned), bits(&long));
            }
        }
    }

    #[test]
    fn errors_are_those_of_the_numbers() {
        let scale = Scale::of(&[3.0, -4.0, 0.0, 0.0], 5.0);
        assert!((scale.step - 0.8 / 127.0).abs() < 1e-9);
        // 3 is 95.25 steps.
        let expected = (0.25 * 0.8 / 127.0) * (1.0 + 2f32.powi(-12)) + 2f32.powi(-20);
        assert!((scale.error - expected).abs() < 1e-8, "{scale:?}");
        assert_eq!(Scale::of(&[0.0; 8], 0.0), Scale::default());
    }

    #[test]
    fn sums_of_the_most_columns_do_not_overflow() {
        for sign in [1.0, -1.0] {
            let rows = vec![vec![1.0; MOST_COLUMNS], vec![sign; MOST_COLUMNS]];
            let matrix = matrix(&rows, Element::F32, false);
            for kernel in Kernel::available() {
                let found = passed(&matrix, kernel, &[f32::NEG_INFINITY; 2]);
                let bound = f64::from(found[1].2);
                assert!((bound - sign).abs() < 1e-3, "{kernel:?}: {found:?}");
            }
        }
        assert!(
            Scales::new(Vec::new(), MOST_COLUMNS).is_some()
                && Scales::new(Vec::new(), MOST_COLUMNS + 1).is_none()
        );
    }
}
