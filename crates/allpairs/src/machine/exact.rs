//! Dot products in the order of the definition of a score (see [`crate::score`]), with vectors that hold its
//! accumulators. Products are rounded before they are added, so that every way has the same bits.

use super::vectors::{Vectors, by_vectors};
use crate::score::{LANES, combine};

type Numbers = [f64; LANES];
type Stored = [[u8; 4]; LANES];

impl Vectors {
    /// The dot products of a row with some others, all of one length and stored in float32, little-endian.
    ///
    /// Each sum waits for the one before it, so that several rows together take hardly longer than one.
    #[inline]
    pub(crate) fn dots_stored<const N: usize>(self, row: &[[u8; 4]], others: [&[[u8; 4]]; N]) -> [f64; N] {
        let (whole, rest) = row.as_chunks::<LANES>();
        let mut sums = by_vectors!(self, sums(whole, others.map(|other| other.as_chunks::<LANES>().0)));
        for (sums, other) in sums.iter_mut().zip(others) {
            let others = other.get(row.len() - rest.len()..).unwrap_or_default();
            for ((sum, value), other) in sums.iter_mut().zip(rest).zip(others) {
                *sum += f64::from(f32::from_le_bytes(*value)) * f64::from(f32::from_le_bytes(*other));
            }
        }
        sums.map(|sums| combine(&sums))
    }

    /// The dot product of two rows that are filled up with zeros to the same multiple of [`LANES`].
    #[inline]
    pub(crate) fn dot(self, row: &[f64], other: &[f64]) -> f64 {
        by_vectors!(self, dot(row, other))
    }
}

/// Asks for the beginning of a row that is needed soon, given its bytes.
#[inline]
pub(crate) fn prefetch(row: &[u8]) {
    /// More would push out what was asked for before.
    const LINES: usize = 64;
    #[cfg(target_arch = "x86_64")]
    for line in row.chunks(64).take(LINES) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the address is that of a byte; nothing is read that a program could see.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = row;
}

mod portable {
    use super::{LANES, Numbers, Stored};
    pub(super) use crate::score::dot;

    #[inline(always)]
    pub(super) fn sums<const N: usize>(row: &[Stored], others: [&[Stored]; N]) -> [Numbers; N] {
        let length = others.iter().fold(row.len(), |length, other| length.min(other.len()));
        let others = others.map(|other| &other[..length]);
        let mut sums = [[0.0; LANES]; N];
        for (at, values) in row[..length].iter().enumerate() {
            let values = values.map(|value| f64::from(f32::from_le_bytes(value)));
            for (sums, other) in sums.iter_mut().zip(others) {
                for lane in 0..LANES {
                    sums[lane] += values[lane] * f64::from(f32::from_le_bytes(other[at][lane]));
                }
            }
        }
        sums
    }
}

// The same loops again: compiled for wider vectors, without which their products would not be fused either.
#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{Numbers, Stored};

    #[target_feature(enable = "avx2")]
    pub(super) fn sums<const N: usize>(row: &[Stored], others: [&[Stored]; N]) -> [Numbers; N] {
        super::portable::sums(row, others)
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn dot(row: &[f64], other: &[f64]) -> f64 {
        super::portable::dot(row, other)
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use super::{LANES, Numbers, Stored, combine};
    use std::arch::x86_64::*;

    #[target_feature(enable = "avx512f")]
    fn out(sums: __m512d) -> Numbers {
        let mut out = [0.0; LANES];
        // SAFETY: there is room for eight numbers.
        unsafe { _mm512_storeu_pd(out.as_mut_ptr(), sums) };
        out
    }

    #[target_feature(enable = "avx512f")]
    pub(super) fn sums<const N: usize>(row: &[Stored], others: [&[Stored]; N]) -> [Numbers; N] {
        let length = others.iter().fold(row.len(), |length, other| length.min(other.len()));
        let others = others.map(|other| &other[..length]);
        let mut sums = [_mm512_setzero_pd(); N];
        for (at, values) in row[..length].iter().enumerate() {
            // SAFETY: it has eight numbers.
            let values = _mm512_cvtps_pd(unsafe { _mm256_loadu_ps(values.as_ptr().cast()) });
            for (sum, other) in sums.iter_mut().zip(others) {
                // SAFETY: it has eight numbers.
                let other = unsafe { _mm256_loadu_ps(other[at].as_ptr().cast()) };
                *sum = _mm512_add_pd(*sum, _mm512_mul_pd(values, _mm512_cvtps_pd(other)));
            }
        }
        sums.map(|sums| out(sums))
    }

    #[target_feature(enable = "avx512f")]
    pub(super) fn dot(row: &[f64], other: &[f64]) -> f64 {
        let mut sums = _mm512_setzero_pd();
        for (values, others) in row.as_chunks::<LANES>().0.iter().zip(other.as_chunks::<LANES>().0) {
            // SAFETY: both have eight numbers.
            let (values, others) =
                unsafe { (_mm512_loadu_pd(values.as_ptr()), _mm512_loadu_pd(others.as_ptr())) };
            sums = _mm512_add_pd(sums, _mm512_mul_pd(values, others));
        }
        combine(&out(sums))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::score::dot;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_way_has_the_bits_of_the_definition(
            pairs in prop::collection::vec((any::<f32>(), any::<f32>()), 0..70),
        ) {
            let finite = |value: f32| if value.is_finite() { value } else { 1.5 };
            let stored: Vec<[u8; 4]> = pairs.iter().map(|(_, value)| finite(*value).to_le_bytes()).collect();
            let first: Vec<[u8; 4]> = pairs.iter().map(|(value, _)| finite(*value).to_le_bytes()).collect();
            let fill = |mut row: Vec<f64>| {
                row.resize(pairs.len().next_multiple_of(LANES), 0.0);
                row
            };
            let third = fill(pairs.iter().map(|(value, _)| f64::from(finite(*value)) / 3.0).collect());
            let other = fill(pairs.iter().map(|(_, value)| f64::from(finite(*value))).collect());
            let row = fill(pairs.iter().map(|(value, _)| f64::from(finite(*value))).collect());
            let (expected, of_own) = (dot(&row, &other).to_bits(), dot(&row, &row).to_bits());
            for way in Vectors::available() {
                prop_assert_eq!(way.dot(&third, &other).to_bits(), dot(&third, &other).to_bits(), "{:?}", way);
                let alone = way.dots_stored(&first, [&stored]).map(f64::to_bits);
                prop_assert_eq!(alone, [expected], "{:?}", way);
                let four = way.dots_stored(&first, [&stored, &first, &first, &stored]).map(f64::to_bits);
                prop_assert_eq!(four, [expected, of_own, of_own, expected], "{:?}", way);
            }
        }
    }
}
