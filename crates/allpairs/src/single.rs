//! Scores in float32: a second look at candidates that a screen let through, before they are scored as defined.
//!
//! Rows `x` and `y` are taken as they are stored, and the score is `x·y / (|x|·|y|)`. With the unit of rounding
//! `r = 2⁻²⁴`, in parts of `|x|·|y|`, which is at least the sum of all `|x_c·y_c|`:
//!
//! - A product is off by `r`. It goes through as many additions as its accumulator has columns, `⌈columns/16⌉` of which
//!   the first is exact, and four more to join the sixteen. In all less than `(columns/16 + 5)·r` for up to 2¹⁷ columns,
//!   but for products of such errors, which make it larger by less than the factor `1 + 2⁻⁹`.
//! - Dividing in float64 and rounding the quotient to float32 takes `r`, and so does the score.
//! - Products too small for `r` are off by `2⁻¹⁵⁰`, in all `columns·2⁻¹⁵⁰ ≤ 2⁻¹³³`, which is at most `2⁻³³·|x|·|y|` if
//!   `|x|·|y| ≥ 2⁻¹⁰⁰`. Nothing overflows if `|x|·|y| ≤ 2¹⁰⁰`. Other pairs are refused.
//! - What is off in float64 is less than `columns·2⁻⁵⁰ ≤ 2⁻³³`.
//!
//! All that is less than `(columns/15 + 8)·r`.

use crate::machine::Vectors;

/// Columns up to which the margin holds.
const MOST_COLUMNS: usize = 1 << 17;

/// A row as it is stored, in float32 and little-endian, and its norm.
pub(crate) type StoredRow<'a> = (&'a [[u8; 4]], f64);

/// How far [`scores`] are at most from the scores as they are defined; `None` if there are too many columns.
pub(crate) fn margin(columns: usize) -> Option<f32> {
    let margin = (columns as f64 / 15.0 + 8.0) * 2f64.powi(-24);
    (columns <= MOST_COLUMNS).then_some(margin as f32)
}

/// The scores, about, of a row with some others. `None` if one of the rows is zero, or so small or large that the
/// margin does not hold.
#[inline]
pub(crate) fn scores<const N: usize>(
    vectors: Vectors,
    (row, norm): StoredRow,
    others: [StoredRow; N],
) -> Option<[f32; N]> {
    let norms = others.map(|(_, other)| norm * other);
    let allowed = 2f64.powi(-100)..=2f64.powi(100);
    if !norms.iter().all(|norms| allowed.contains(norms)) {
        return None;
    }
    let dots = vectors.dots_single(row, others.map(|(other, _)| other));
    Some(std::array::from_fn(|at| (f64::from(dots[at]) / norms[at]) as f32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::tests::{kinds, matrix, scores as defined};
    use crate::element::Element;
    use proptest::prelude::*;

    /// All scores in float32 that are not refused, with those as defined.
    fn both(rows: &[Vec<f64>]) -> Vec<(f32, f32)> {
        let matrix = matrix(rows, Element::F32, false);
        let stored = |row: usize| (matrix.stored_row(row).unwrap(), matrix.norms[row]);
        let mut both = Vec::new();
        for (row, defined) in defined(&matrix).into_iter().enumerate() {
            for (other, score) in defined.into_iter().enumerate() {
                let found = scores(Vectors::best(), stored(row), [stored(other)]);
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
                prop_assert!((found - score).abs() <= margin(columns).unwrap(), "{found} for {score}");
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
                assert!((found - score).abs() <= margin(columns).unwrap(), "{found} for {score}");
            }
        }
    }

    #[test]
    fn rows_that_float32_can_not_add_up_are_refused() {
        let ones = [1.0f32.to_le_bytes(); 2];
        let row = (&ones[..], 2f64.sqrt());
        for refused in [0.0, 1e-40, 1e38, f64::NAN] {
            assert_eq!(scores(Vectors::best(), row, [row, (&ones, refused)]), None);
        }
        assert_eq!(scores(Vectors::best(), row, [row]), Some([1.0]));
        assert!(margin(MOST_COLUMNS).is_some() && margin(MOST_COLUMNS + 1).is_none());
    }
}
