//! Dot products in float32 of a stored row with a few others. Products are rounded before they are added, and column
//! `c` is added to accumulator `c mod 16`, so that every way has the same bits.

use super::vectors::{Vectors, by_vectors};

/// Accumulators of one dot product.
const LANES: usize = 16;

type Stored = [[u8; 4]; LANES];
type Numbers = [f32; LANES];

impl Vectors {
    /// The dot products of a row with some others, all of the same length and stored in float32, little-endian.
    /// [`crate::single`] says how far they are off.
    #[inline]
    pub(crate) fn dots_single<const N: usize>(self, row: &[[u8; 4]], others: [&[[u8; 4]]; N]) -> [f32; N] {
        let (whole, rest) = row.as_chunks::<LANES>();
        let mut sums = by_vectors!(self, sums(whole, others.map(|other| other.as_chunks().0)));
        for (sums, other) in sums.iter_mut().zip(others) {
            let others = other.get(row.len() - rest.len()..).unwrap_or_default();
            for ((sum, value), other) in sums.iter_mut().zip(rest).zip(others) {
                *sum += f32::from_le_bytes(*value) * f32::from_le_bytes(*other);
            }
        }
        sums.map(|sums| combine(&sums))
    }
}

/// Joins the accumulators of one dot product: each with the one half as many further on, and so on.
#[inline]
fn combine(sums: &Numbers) -> f32 {
    let eight: [f32; 8] = std::array::from_fn(|lane| sums[lane] + sums[lane + 8]);
    let four: [f32; 4] = std::array::from_fn(|lane| eight[lane] + eight[lane + 4]);
    (four[0] + four[2]) + (four[1] + four[3])
}

mod portable {
    use super::{LANES, Numbers, Stored};

    /// Row by row: the accumulators of more than one do not fit the registers that every machine has.
    pub(super) fn sums<const N: usize>(row: &[Stored], others: [&[Stored]; N]) -> [Numbers; N] {
        others.map(|other| side_by_side(row, [other])[0])
    }

    #[inline(always)]
    pub(super) fn side_by_side<const N: usize>(row: &[Stored], others: [&[Stored]; N]) -> [Numbers; N] {
        let length = others.iter().fold(row.len(), |length, other| length.min(other.len()));
        let others = others.map(|other| &other[..length]);
        let mut sums = [[0.0; LANES]; N];
        for (at, values) in row[..length].iter().enumerate() {
            for (sums, other) in sums.iter_mut().zip(others) {
                for lane in 0..LANES {
                    sums[lane] += f32::from_le_bytes(values[lane]) * f32::from_le_bytes(other[at][lane]);
                }
            }
        }
        sums
    }
}

// The same loop again, compiled for wider vectors.
#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{Numbers, Stored};

    #[target_feature(enable = "avx2")]
    pub(super) fn sums<const N: usize>(row: &[Stored], others: [&[Stored]; N]) -> [Numbers; N] {
        super::portable::side_by_side(row, others)
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use super::{LANES, Numbers, Stored};
    use std::arch::x86_64::*;

    #[target_feature(enable = "avx512f")]
    pub(super) fn sums<const N: usize>(row: &[Stored], others: [&[Stored]; N]) -> [Numbers; N] {
        let length = others.iter().fold(row.len(), |length, other| length.min(other.len()));
        let others = others.map(|other| &other[..length]);
        let mut sums = [_mm512_setzero_ps(); N];
        for (at, values) in row[..length].iter().enumerate() {
            // SAFETY: it has sixteen numbers.
            let values = unsafe { _mm512_loadu_ps(values.as_ptr().cast()) };
            for (sum, other) in sums.iter_mut().zip(others) {
                // SAFETY: it has sixteen numbers.
                let other = unsafe { _mm512_loadu_ps(other[at].as_ptr().cast()) };
                *sum = _mm512_add_ps(*sum, _mm512_mul_ps(values, other));
            }
        }
        let mut out = [[0.0; LANES]; N];
        for (out, sum) in out.iter_mut().zip(sums) {
            // SAFETY: there is room for sixteen numbers.
            unsafe { _mm512_storeu_ps(out.as_mut_ptr(), sum) };
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_way_has_the_same_bits(pairs in prop::collection::vec((-2.0f32..2.0, any::<f32>()), 0..70)) {
            let pairs: Vec<(f32, f32)> =
                pairs.iter().map(|(x, y)| (*x, if y.is_finite() { y / 1e3 } else { 1.5 })).collect();
            let row: Vec<[u8; 4]> = pairs.iter().map(|(value, _)| value.to_le_bytes()).collect();
            let other: Vec<[u8; 4]> = pairs.iter().map(|(_, value)| value.to_le_bytes()).collect();
            let mut sums = [[0.0f32; LANES]; 2];
            for (column, (x, y)) in pairs.iter().enumerate() {
                sums[0][column % LANES] += x * y;
                sums[1][column % LANES] += x * x;
            }
            let [expected, of_itself] = sums.map(|sums| combine(&sums).to_bits());
            for way in Vectors::available() {
                let alone = way.dots_single(&row, [&other]).map(f32::to_bits);
                prop_assert_eq!(alone, [expected], "{:?}", way);
                let four = way.dots_single(&row, [&other, &row, &row, &other]).map(f32::to_bits);
                prop_assert_eq!(four, [expected, of_itself, of_itself, expected], "{:?}", way);
            }
        }
    }
}
