//! Dot products in the order of the definition of a score (see [`crate::score`]), with vectors that hold its
//! accumulators. Products are rounded before they are added, so that every way has the same bits.

use crate::score::{LANES, combine, dot};

/// One way to compute them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exact {
    /// Without any instruction that not every machine has.
    Portable,
    /// Four accumulators in 256 bits.
    #[cfg(target_arch = "x86_64")]
    Avx2(Checked),
    /// All eight in 512 bits.
    #[cfg(target_arch = "x86_64")]
    Avx512(Checked),
}

/// Proof that the machine was asked and has the instructions.
#[cfg(target_arch = "x86_64")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Checked(());

impl Exact {
    /// All that this machine can run, the fastest first.
    pub(crate) fn available() -> Vec<Self> {
        let mut available = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f") {
                available.push(Self::Avx512(Checked(())));
            }
            if is_x86_feature_detected!("avx2") {
                available.push(Self::Avx2(Checked(())));
            }
        }
        available.push(Self::Portable);
        available
    }

    /// The fastest.
    pub(crate) fn best() -> Self {
        Self::available()[0]
    }

    /// The dot product of a row with one that is stored in float32, little-endian. The first row is filled up with
    /// zeros to a multiple of [`LANES`].
    #[inline]
    pub(crate) fn dot_stored(self, row: &[f64], stored: &[[u8; 4]]) -> f64 {
        let (whole, rest) = stored.as_chunks::<LANES>();
        let (begin, end) = row.split_at(LANES * whole.len());
        let mut sums = match self {
            Self::Portable => portable(begin.as_chunks().0, whole),
            // SAFETY: `Checked` shows that the instructions are there.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => unsafe { avx2(begin.as_chunks().0, whole) },
            // SAFETY: `Checked` shows that the instructions are there.
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(_) => unsafe { avx512(begin.as_chunks().0, whole) },
        };
        for ((sum, value), stored) in sums.iter_mut().zip(end).zip(rest) {
            *sum += value * f64::from(f32::from_le_bytes(*stored));
        }
        combine(&sums)
    }

    /// The dot product of two rows that are filled up with zeros to the same multiple of [`LANES`].
    #[inline]
    pub(crate) fn dot(self, row: &[f64], other: &[f64]) -> f64 {
        match self {
            Self::Portable => dot(row, other),
            // SAFETY: `Checked` shows that the instructions are there.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => unsafe { dot_avx2(row, other) },
            // SAFETY: `Checked` shows that the instructions are there.
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(_) => unsafe { dot_avx512(row, other) },
        }
    }
}

/// Asks for the beginning of a row that is needed soon.
#[inline]
pub(crate) fn prefetch(stored: &[[u8; 4]]) {
    /// From there on the machine sees for itself what comes next.
    const LINES: usize = 12;
    #[cfg(target_arch = "x86_64")]
    for line in stored.chunks(16).take(LINES) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the address is that of a number; nothing is read that a program could see.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = stored;
}

type Numbers = [f64; LANES];
type Stored = [[u8; 4]; LANES];

#[inline(always)]
fn portable(row: &[Numbers], stored: &[Stored]) -> Numbers {
    let mut sums = [0.0; LANES];
    for (values, stored) in row.iter().zip(stored) {
        for lane in 0..LANES {
            sums[lane] += values[lane] * f64::from(f32::from_le_bytes(stored[lane]));
        }
    }
    sums
}

// The same loops again: compiled for wider vectors, without which their products would not be fused either.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn avx2(row: &[Numbers], stored: &[Stored]) -> Numbers {
    portable(row, stored)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn dot_avx2(row: &[f64], other: &[f64]) -> f64 {
    dot(row, other)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn avx512(row: &[Numbers], stored: &[Stored]) -> Numbers {
    use std::arch::x86_64::*;
    let mut sums = _mm512_setzero_pd();
    for (values, stored) in row.iter().zip(stored) {
        // SAFETY: both have eight numbers.
        let (values, stored) =
            unsafe { (_mm512_loadu_pd(values.as_ptr()), _mm256_loadu_ps(stored.as_ptr().cast())) };
        sums = _mm512_add_pd(sums, _mm512_mul_pd(values, _mm512_cvtps_pd(stored)));
    }
    let mut out = [0.0; LANES];
    // SAFETY: there is room for eight numbers.
    unsafe { _mm512_storeu_pd(out.as_mut_ptr(), sums) };
    out
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn dot_avx512(row: &[f64], other: &[f64]) -> f64 {
    use std::arch::x86_64::*;
    let mut sums = _mm512_setzero_pd();
    for (values, others) in row.as_chunks::<LANES>().0.iter().zip(other.as_chunks::<LANES>().0) {
        // SAFETY: both have eight numbers.
        let (values, others) =
            unsafe { (_mm512_loadu_pd(values.as_ptr()), _mm512_loadu_pd(others.as_ptr())) };
        sums = _mm512_add_pd(sums, _mm512_mul_pd(values, others));
    }
    let mut out = [0.0; LANES];
    // SAFETY: there is room for eight numbers.
    unsafe { _mm512_storeu_pd(out.as_mut_ptr(), sums) };
    combine(&out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_way_has_the_bits_of_the_definition(
            pairs in prop::collection::vec((any::<f32>(), any::<f32>()), 0..70),
        ) {
            let finite = |value: f32| if value.is_finite() { value } else { 1.5 };
            let stored: Vec<[u8; 4]> = pairs.iter().map(|(_, value)| finite(*value).to_le_bytes()).collect();
            let fill = |mut row: Vec<f64>| {
                row.resize(pairs.len().next_multiple_of(LANES), 0.0);
                row
            };
            let row = fill(pairs.iter().map(|(value, _)| f64::from(finite(*value)) / 3.0).collect());
            let other = fill(pairs.iter().map(|(_, value)| f64::from(finite(*value))).collect());
            let expected = dot(&row, &other).to_bits();
            for way in Exact::available() {
                prop_assert_eq!(way.dot(&row, &other).to_bits(), expected, "{:?}", way);
                prop_assert_eq!(way.dot_stored(&row, &stored).to_bits(), expected, "{:?}", way);
            }
        }
    }
}
