//! What a score is, to the last bit.
//!
//! `score(x, y) = dot(x, y) / (norm(x) · norm(y))` of the raw rows in float64, clipped to [−1, 1], rounded to
//! float32, with a negative zero written as zero. A zero row scores 0 with every row.
//!
//! Floating-point sums depend on their order, so the order is part of the definition:
//! column `c` is added to accumulator `c mod 8`, columns ascending, product rounded before it is added (no
//! fused multiply-add); then the eight accumulators are combined as `((0+4)+(2+6)) + ((1+5)+(3+7))`.
//! The norm is the square root of a row's dot product with itself in the same order. A column that is zero
//! in either row changes no accumulator, so sparse and dense rows of equal content have equal scores, and
//! nothing depends on blocks, threads, instances or the CPU.
//!
//! Rows of float64 are first multiplied by the power of two that brings their largest entry into [1, 2).
//! That is exact and leaves the score as it is, but keeps every finite row from over- or underflowing. Rows
//! of narrower types and of integers can do neither in float64 and stay as they are, with the same result.

/// Accumulators of one dot product.
pub const LANES: usize = 8;

/// Dot product of two rows of the same length, a multiple of [`LANES`] (fill up with zeros).
#[inline]
pub fn dot(x: &[f64], y: &[f64]) -> f64 {
    let mut sums = [0.0; LANES];
    for (a, b) in x.as_chunks::<LANES>().0.iter().zip(y.as_chunks::<LANES>().0) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    combine(&sums)
}

/// Joins the accumulators of one dot product in the order of the definition.
#[inline]
pub fn combine(sums: &[f64; LANES]) -> f64 {
    let half = [sums[0] + sums[4], sums[1] + sums[5], sums[2] + sums[6], sums[3] + sums[7]];
    (half[0] + half[2]) + (half[1] + half[3])
}

/// The score of two rows from their dot product and their norms.
#[inline]
pub fn score(dot: f64, norm_x: f64, norm_y: f64) -> f32 {
    let product = norm_x * norm_y;
    if product == 0.0 {
        return 0.0;
    }
    // Adding zero turns −0 into 0, so that equal scores are also equal bytes.
    (dot / product).clamp(-1.0, 1.0) as f32 + 0.0
}

/// The exponent `e` with `2^e ≤ largest < 2^(e+1)`, also for subnormal numbers; 0 for zero.
pub fn exponent(largest: f64) -> i32 {
    if largest == 0.0 {
        return 0;
    }
    let biased = ((largest.to_bits() >> 52) & 0x7ff) as i32;
    if biased > 0 {
        return biased - 1023;
    }
    // Subnormal: the place of the highest bit of the fraction, whose lowest bit is worth 2^-1074.
    63 - largest.to_bits().leading_zeros() as i32 - 1074
}

/// Multiplies a row by `2^-exponent`. Exact but for entries so small beside the largest (by 2^-1000) that
/// they can not change a score.
pub fn scale(row: &mut [f64], exponent: i32) {
    // One factor alone would not be representable for the smallest and the largest exponents.
    let first = -exponent / 2;
    let (first, second) = (power_of_two(first), power_of_two(-exponent - first));
    for value in row {
        *value = *value * first * second;
    }
}

fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponents_hold_from_the_smallest_to_the_largest_number() {
        let table = [
            (5e-324, -1074),
            (f64::MIN_POSITIVE / 2.0, -1023),
            (f64::MIN_POSITIVE, -1022),
            (1.0, 0),
            (1.999, 0),
            (2.0, 1),
            (f64::MAX, 1023),
            (0.0, 0),
        ];
        for (value, expected) in table {
            assert_eq!(exponent(value), expected, "{value}");
        }
    }

    #[test]
    fn scaling_brings_the_largest_entry_between_one_and_two() {
        for largest in [5e-324, 1e-300, 0.3, 1.0, 7.0, 1e300, f64::MAX] {
            let mut row = [largest, -largest / 2.0];
            scale(&mut row, exponent(largest));
            assert!((1.0..2.0).contains(&row[0]), "{largest} became {}", row[0]);
        }
    }

    #[test]
    fn the_order_of_a_sum_is_the_documented_one() {
        let x: Vec<f64> = (0..32).map(|c| 1.0 / (c as f64 + 1.0)).collect();
        let y: Vec<f64> = (0..32).map(|c| (c as f64).sin()).collect();
        let mut lanes = [0.0; 8];
        for c in 0..32 {
            let product = x[c] * y[c];
            lanes[c % 8] += product;
        }
        let expected =
            ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
        assert_eq!(dot(&x, &y).to_bits(), expected.to_bits());
    }

    #[test]
    fn a_score_is_clipped_and_never_minus_zero() {
        assert_eq!(score(1.0000000000000002, 1.0, 1.0), 1.0);
        assert_eq!(score(-1.0000000000000002, 1.0, 1.0), -1.0);
        assert_eq!(score(-1e-60, 1.0, 1.0).to_bits(), 0.0f32.to_bits());
        assert_eq!(score(0.0, 0.0, 3.0).to_bits(), 0.0f32.to_bits());
    }
}
