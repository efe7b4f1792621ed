//! Dot products in float32, of one row with a few stored ones. Products are rounded before they are added, and column
//! `c` is added to accumulator `c mod 16`, so that every way has the same bits.

use super::vectors::{Vectors, by_vectors};

/// Accumulators of one dot product.
const LANES: usize = 16;

type Numbers = [f32; LANES];
type Stored = [[u8; 4]; LANES];

impl Vectors {
    /// The dot products of a row with some that are stored in float32, little-endian. The first row has at least as
    /// many numbers as the others. [`crate::single`] says how far they are off.
    #[inline]
    pub(crate) fn dots_single<const N: usize>(self, row: &[f32], stored: [&[[u8; 4]]; N]) -> [f32; N] {
        let (whole_row, whole) = (row.as_chunks().0, stored.map(|stored| stored.as_chunks().0));
        let mut sums = by_vectors!(self, sums(whole_row, whole));
        for (sums, stored) in sums.iter_mut().zip(stored) {
            let rest = stored.as_chunks::<LANES>().1;
            let values = row.get(stored.len() - rest.len()..).unwrap_or_default();
            for ((sum, value), stored) in sums.iter_mut().zip(values).zip(rest) {
                *sum += value * f32::from_le_bytes(*stored);
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
    pub(super) fn sums<const N: usize>(row: &[Numbers], stored: [&[Stored]; N]) -> [Numbers; N] {
        stored.map(|stored| side_by_side(row, [stored])[0])
    }

    #[inline(always)]
    pub(super) fn side_by_side<const N: usize>(row: &[Numbers], stored: [&[Stored]; N]) -> [Numbers; N] {
        let length = stored.iter().fold(row.len(), |length, stored| length.min(stored.len()));
        let stored = stored.map(|stored| &stored[..length]);
        let mut sums = [[0.0; LANES]; N];
        for (at, values) in row[..length].iter().enumerate() {
            for (sums, stored) in sums.iter_mut().zip(stored) {
                for lane in 0..LANES {
                    sums[lane] += values[lane] * f32::from_le_bytes(stored[at][lane]);
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
    pub(super) fn sums<const N: usize>(row: &[Numbers], stored: [&[Stored]; N]) -> [Numbers; N] {
        super::portable::side_by_side(row, stored)
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use super::{LANES, Numbers, Stored};
    use std::arch::x86_64::*;

    #[target_feature(enable = "avx512f")]
    pub(super) fn sums<const N: usize>(row: &[Numbers], stored: [&[Stored]; N]) -> [Numbers; N] {
        let length = stored.iter().fold(row.len(), |length, stored| length.min(stored.len()));
        let stored = stored.map(|stored| &stored[..length]);
        let mut sums = [_mm512_setzero_ps(); N];
        for (at, values) in row[..length].iter().enumerate() {
            // SAFETY: it has sixteen numbers.
            let values = unsafe { _mm512_loadu_ps(values.as_ptr()) };
            for (sum, stored) in sums.iter_mut().zip(stored) {
                // SAFETY: it has sixteen numbers.
                let stored = unsafe { _mm512_loadu_ps(stored[at].as_ptr().cast()) };
                *sum = _mm512_add_ps(*sum, _mm512_mul_ps(values, stored));
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
        fn every_way_has_the_same_bits(
            pairs in prop::collection::vec((-2.0f32..2.0, any::<f32>()), 0..70), more in 0usize..9,
        ) {
            let finite = |value: f32| if value.is_finite() { value / 1e3 } else { 1.5 };
            let stored: Vec<[u8; 4]> = pairs.iter().map(|(_, value)| finite(*value).to_le_bytes()).collect();
            let own: Vec<[u8; 4]> = pairs.iter().map(|(value, _)| value.to_le_bytes()).collect();
            let mut row: Vec<f32> = pairs.iter().map(|(value, _)| *value).collect();
            let mut sums = [[0.0f32; LANES]; 2];
            for (column, (value, other)) in pairs.iter().enumerate() {
                sums[0][column % LANES] += value * finite(*other);
                sums[1][column % LANES] += value * value;
            }
            // What the row is filled up with does not count.
            row.resize(row.len() + more, f32::NAN);
            let [expected, of_own] = sums.map(|sums| combine(&sums).to_bits());
            for way in Vectors::available() {
                let alone = way.dots_single(&row, [&stored]).map(f32::to_bits);
                prop_assert_eq!(alone, [expected], "{:?}", way);
                let four = way.dots_single(&row, [&stored, &own, &own, &stored]).map(f32::to_bits);
                prop_assert_eq!(four, [expected, of_own, of_own, expected], "{:?}", way);
            }
        }
    }
}
