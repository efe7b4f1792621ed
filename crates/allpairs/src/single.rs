//! Scores in float32: a second look at candidates that a screen let through, before they are scored as defined.
//!
//! One row is brought to unit length in float32, `u = x/|x|`, the other, `y`, is taken as it is stored, and the score is
//! `u·y/|y|`. With the unit of rounding `r = 2⁻²⁴`, in parts of `|u|·|y|`, which is at least the sum of all `|u_c·y_c|`:
//!
//! - A number of `u` and its product with one of `y` are off by `r` each. The product goes through as many additions as
//!   its accumulator has columns, `⌈columns/16⌉` of which the first is exact, and four more to join the sixteen. In all
//!   less than `(columns/16 + 6)·r` for up to 2¹⁷ columns, but for products of such errors, which make it larger by
//!   less than the factor `1 + 2⁻⁹`.
//! - Dividing in float64 and rounding the quotient to float32 takes `r`, and so does the score.
//! - Numbers too small for `r` are off by `2⁻¹⁵⁰`. In `u` that is nothing; of products it is `columns·2⁻¹⁵⁰ ≤ 2⁻¹³³`,
//!   which is less than `2⁻³³·|y|` if `|y| ≥ 2⁻¹⁰⁰`. Nothing overflows if `|y| ≤ 2¹⁰⁰`. Other rows are refused.
//! - What is off in float64 is less than `columns·2⁻⁵⁰ ≤ 2⁻³³`.
//!
//! All that is less than `(columns/15 + 9)·r`.

use crate::machine::Vectors;

/// Columns up to which the margin holds.
const MOST_COLUMNS: usize = 1 << 17;

/// One row at unit length, to be scored with others in float32.
#[derive(Debug, Clone)]
pub(crate) struct SingleRow {
    vectors: Vectors,
    row: Vec<f32>,
}

impl SingleRow {
    /// Without a row yet; `None` if there are more columns than the margin holds for.
    pub(crate) fn new(vectors: Vectors, columns: usize) -> Option<Self> {
        (columns <= MOST_COLUMNS).then(|| Self { vectors, row: Vec::new() })
    }

    /// How far a score of [`Self::scores`] is at most from the score as it is defined.
    pub(crate) fn margin(columns: usize) -> f32 {
        (((columns as f64) / 15.0 + 9.0) * 2f64.powi(-24)) as f32
    }

    /// Takes a row as it is read, with its norm, which is not zero.
    pub(crate) fn hold(&mut self, row: &[f64], norm: f64) {
        let factor = 1.0 / norm;
        self.row.clear();
        self.row.extend(row.iter().map(|value| (value * factor) as f32));
    }

    /// The scores, about, of the row that was taken last with rows as they are stored and their norms. `None` if one
    /// of them is zero, or so small or large that the margin does not hold.
    #[inline]
    pub(crate) fn scores<const N: usize>(
        &self,
        stored: [&[[u8; 4]]; N],
        norms: [f64; N],
    ) -> Option<[f32; N]> {
        let allowed = 2f64.powi(-100)..=2f64.powi(100);
        if !norms.iter().all(|norm| allowed.contains(norm)) {
            return None;
        }
        let dots = self.vectors.dots_single(&self.row, stored);
        Some(std::array::from_fn(|at| (f64::from(dots[at]) / norms[at]) as f32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::tests::{kinds, matrix, scores};
    use crate::element::Element;
    use proptest::prelude::*;

    /// All scores in float32 that are not refused, with those as defined.
    fn both(rows: &[Vec<f64>]) -> Vec<(f32, f32)> {
        let matrix = matrix(rows, Element::F32, false);
        let mut single = SingleRow::new(Vectors::best(), rows[0].len()).unwrap();
        let mut read = vec![0.0; matrix.matrix.stride()];
        let mut both = Vec::new();
        for (row, scores) in
            scores(&matrix).into_iter().enumerate().filter(|(row, _)| matrix.norms[*row] > 0.0)
        {
            matrix.read(row..row + 1, &mut read);
            single.hold(&read, matrix.norms[row]);
            for (other, score) in scores.into_iter().enumerate() {
                let found = single.scores([matrix.stored_row(other).unwrap()], [matrix.norms[other]]);
                both.extend(found.map(|[found]| (found, score)));
            }
        }
        both
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn scores_in_float32_are_off_by_the_margin_at_most(
            seed in any::<u64>(), count in 1usize..60, columns in 1usize..100,
        ) {
            for (found, score) in both(&kinds(seed, count, columns)) {
                prop_assert!((found - score).abs() <= SingleRow::margin(columns), "{found} for {score}");
            }
        }
    }

    #[test]
    fn sums_that_are_rounded_upwards_each_time_stay_within_the_margin() {
        for columns in [1, 16, 500, 70_000] {
            // The small part is rounded away, or up, in every addition.
            let rows: Vec<Vec<f64>> = [0.7, 0.1, 1.0 / 3.0]
                .iter()
                .map(|first| {
                    (0..columns)
                        .map(|column| f64::from(*first as f32) + (column / 16 % 3) as f64 * 1e-7)
                        .collect()
                })
                .collect();
            for (found, score) in both(&rows) {
                assert!((found - score).abs() <= SingleRow::margin(columns), "{found} for {score}");
            }
        }
    }

    #[test]
    fn rows_that_float32_can_not_add_up_are_refused() {
        let mut single = SingleRow::new(Vectors::best(), 2).unwrap();
        single.hold(&[3.0, 4.0], 5.0);
        let stored = [1.0f32.to_le_bytes(); 2];
        for refused in [0.0, 1e-40, 1e38, f64::NAN] {
            assert_eq!(single.scores([&stored], [refused]), None);
        }
        assert!(single.scores([&stored], [2f64.sqrt()]).is_some());
        assert!(SingleRow::new(Vectors::best(), MOST_COLUMNS + 1).is_none());
    }
}
