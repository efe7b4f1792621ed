//! Rows in 16-bit integers: a screen that tells, with a proven margin, which pairs can not matter.
//!
//! A row `x` becomes `q = round(S · x/|x|)` with `S = 32767`, so that `q/S = x/|x| + e`. The largest `|e|` over all
//! rows, `E`, is measured, not estimated. For two rows, `q·q'/S² = cos + x̂·e' + e·x̂' + e·e'`, hence
//! `|q·q'/S² − cos| ≤ 2E + E²` (Cauchy and Schwarz). The same argument bounds every partial sum by
//! `S²(1 + E)²`, which is checked to fit 32 bits.

use crate::dense::DenseRows;
use crate::machine::{Vectors, lost_by_rounding};
use crate::score::LANES;
use crate::words::Room;
use std::ops::Range;

/// What a unit entry becomes.
pub(crate) const SCALE: f64 = 32767.0;

/// Factor that turns a row of this norm into its integers.
pub(crate) fn factor(norm: f64) -> f64 {
    if norm == 0.0 { 0.0 } else { SCALE / norm }
}

/// `|e|` of a row.
pub(crate) fn error(row: &[f64], norm: f64) -> f64 {
    let factor = factor(norm);
    let square = |value: f64| {
        let off = lost_by_rounding(value, factor);
        off * off
    };
    let (whole, rest) = row.as_chunks::<LANES>();
    let mut squares = [0.0; LANES];
    for values in whole {
        squares = std::array::from_fn(|lane| squares[lane] + square(values[lane]));
    }
    let rest = rest.iter().map(|value| square(*value)).sum::<f64>();
    (squares.iter().sum::<f64>() + rest).sqrt() / SCALE
}

/// `|e|` of a row that is stored in float32, little-endian.
pub(crate) fn error_of_stored(row: &[[u8; 4]], norm: f64, vectors: Vectors) -> f64 {
    vectors.lost_by_rounding(row, factor(norm)).iter().sum::<f64>().sqrt() / SCALE
}

/// Translates between sums of integers and scores.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Margin {
    margin: f64,
    /// How far a sum is at most from the true one, which is the score times the square of the scale.
    reach: i32,
}

impl Margin {
    /// The margin for rows of so many columns and this largest error; `None` if sums might not fit 32 bits.
    pub(crate) fn new(error: f64, columns: usize) -> Option<Self> {
        // The second term covers the rounding of scores to float32, the third that of sums in float64.
        Self::fitting(2.0 * error + error * error + 2f64.powi(-23) + columns as f64 * 2f64.powi(-50))
    }

    /// The margin for sums in float32 over unit rows of at most so many entries; `None` if sums might not fit.
    pub(crate) fn of_short_sums(entries: usize) -> Option<Self> {
        // Sums of n products of rounded float32 numbers are off by less than (n + 3)·2⁻²⁴ of the product of the
        // norms; twice that covers all that is off in float64 and in the conversion to integers.
        Self::fitting((entries + 8) as f64 * 2f64.powi(-23))
    }

    /// The margin where sums stand for upper bounds of scores.
    pub(crate) fn of_bounds() -> Self {
        Self { margin: 0.0, reach: 1 }
    }

    /// A sum that stands for this score or a greater one, by two at most.
    #[inline]
    pub(crate) fn sum_above(score: f32) -> i32 {
        // Cut towards zero; whatever does not fit is as good as the greatest sum.
        ((f64::from(score) * SCALE * SCALE) as i32).saturating_add(1)
    }

    fn fitting(margin: f64) -> Option<Self> {
        let reach = (margin * SCALE * SCALE).ceil() as i32 + 1;
        (SCALE * SCALE * (1.0 + margin) < 0.95 * f64::from(i32::MAX)).then_some(Self { margin, reach })
    }

    /// Whether any pair of at least this score has a sum above [`Self::positive`].
    pub(crate) fn is_positive(self, score: f32) -> bool {
        f64::from(score) > 3.0 * self.margin
    }

    /// Any pair of a greater score has a sum above [`Self::positive`].
    pub(crate) fn surely_positive(self) -> f32 {
        (3.0 * self.margin) as f32
    }

    /// A sum that no pair exceeds whose score is 0.
    pub(crate) fn positive(self) -> i32 {
        self.reach
    }

    /// The score that a sum stands for, a little less for its rounding.
    pub(crate) fn short(sum: i32) -> f32 {
        match sum {
            i32::MIN => f32::NEG_INFINITY,
            i32::MAX => f32::INFINITY,
            sum => ((f64::from(sum) / (SCALE * SCALE)) as f32).next_down(),
        }
    }

    /// A score that a pair with this sum has at least.
    pub(crate) fn reached(self, sum: i32) -> f32 {
        ((f64::from(sum) / (SCALE * SCALE) - self.margin) as f32).next_down()
    }

    /// The greatest sum that no pair with at least this score has.
    pub(crate) fn below(self, score: f32) -> i32 {
        if score == f32::NEG_INFINITY {
            return i32::MIN;
        }
        // Scores lie between -1 and 1, and so the result fits.
        ((f64::from(score) - self.margin) * SCALE * SCALE).floor() as i32 - 1
    }

    /// What the true sum of a pair with this sum is at most.
    pub(crate) fn most(self, sum: i32) -> i32 {
        sum.saturating_add(self.reach)
    }

    /// What the true sum of a pair with this sum is at least.
    pub(crate) fn least(self, sum: i32) -> i32 {
        sum.saturating_sub(self.reach)
    }

    /// What the true sum of a pair with this score is at least.
    pub(crate) fn least_of_score(self, score: f32) -> i32 {
        // Scores lie between -1 and 1, and so the result fits.
        (f64::from(score) * SCALE * SCALE) as i32 - 2
    }

    /// The greatest sum whose pair is certainly behind one with at least this true sum.
    pub(crate) fn surely_less(self, true_sum: i32) -> i32 {
        true_sum.saturating_sub(self.reach + 1)
    }
}

/// Rows packed for [`crate::machine::Kernel::compare`]: panels of equal width, the last filled up with zeros.
#[derive(Debug, Default)]
pub(crate) struct Panels {
    numbers: Vec<i16>,
    panel: usize,
    rows: Vec<u32>,
    room: Room,
}

impl Panels {
    /// Packs rows; what was packed before is gone.
    pub(crate) fn pack(&mut self, matrix: &DenseRows, rows: Range<usize>, width: usize) {
        self.panel = width * matrix.matrix.stride();
        self.numbers.clear();
        self.numbers.resize(rows.len().div_ceil(width) * self.panel, 0);
        self.rows.clear();
        self.rows.extend(rows.map(|row| row as u32));
        for (rows, numbers) in self.rows.chunks(width).zip(self.numbers.chunks_exact_mut(self.panel)) {
            let words = matrix.words(rows, &mut self.room);
            for at in 0..rows.len() {
                let pairs = numbers.as_chunks_mut::<2>().0[at..].iter_mut().step_by(width);
                pairs.zip(words.row(at).as_chunks::<2>().0).for_each(|(place, pair)| *place = *pair);
            }
        }
    }

    /// The panel at this place, in the order of the rows.
    #[inline]
    pub(crate) fn panel(&self, at: usize) -> &[i16] {
        &self.numbers[at * self.panel..][..self.panel]
    }
}
