//! Products of short rows of small integers, one row with many.

use super::vectors::{Vectors, by_vectors};

/// Numbers of a short row.
pub(crate) const WIDTH: usize = 32;

/// Numbers of a row that is not as short.
pub(crate) const LONG: usize = 64;

/// Rows that are looked at together.
pub(crate) const TOGETHER: usize = 8;

/// Short rows. Behind the last one there is room for as many as places of 16 bits count, so that none needs a check.
#[derive(Debug)]
pub(crate) struct ShortRows(Vec<[i8; WIDTH]>);

impl ShortRows {
    /// A place to fill up groups with, if there are fewer than 2¹⁶ others. What row is there, if any, is not said.
    pub(crate) const NONE: u16 = u16::MAX;

    /// So many rows that are zero.
    pub(crate) fn new(rows: usize) -> Self {
        // Memory that is never touched is none.
        Self(vec![[0; WIDTH]; rows + (1 << 16)])
    }

    pub(crate) fn rows(&self) -> &[[i8; WIDTH]] {
        &self.0[..self.0.len() - (1 << 16)]
    }

    pub(crate) fn rows_mut(&mut self) -> &mut [[i8; WIDTH]] {
        let rows = self.rows().len();
        &mut self.0[..rows]
    }
}

impl Vectors {
    /// The product of two rows of [`WIDTH`] or [`LONG`] numbers. No sum of the products of two neighbouring numbers may
    /// exceed 15 bits.
    #[inline]
    pub(crate) fn product<const N: usize>(self, one: &[u8; N], other: &[i8; N]) -> i32 {
        const { assert!(N.is_multiple_of(WIDTH)) };
        by_vectors!(self, product(one, other))
    }

    /// Notes which of the rows at these places, counted from the row `first` on, have a product of at least `least` with
    /// the one row; for the numbers of rows the same holds as in [`Self::product`]. Places come in whole groups of
    /// eight: fill up with [`ShortRows::NONE`], which may be noted, too.
    #[inline]
    pub(crate) fn pass_rows(
        self,
        (one, least): (&[u8; WIDTH], i32),
        (places, rows, first): (&[u16], &ShortRows, usize),
        passed: &mut Vec<u16>,
    ) {
        let (groups, rows) = (places.as_chunks::<TOGETHER>().0, &rows.0[first..]);
        // There is a row for each number of 16 bits, which the compiler can see from here on.
        let Some(rows) = rows.first_chunk() else { return };
        by_vectors!(self, pass((one, least), (groups, rows), passed));
    }
}

/// All rows, by places of 16 bits.
type All = [[i8; WIDTH]; 1 << 16];

mod portable {
    use super::{All, TOGETHER, WIDTH};

    pub(super) fn product<const N: usize>(one: &[u8; N], other: &[i8; N]) -> i32 {
        one.iter().zip(other).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum()
    }

    pub(super) fn pass(
        (one, least): (&[u8; WIDTH], i32),
        (groups, rows): (&[[u16; TOGETHER]], &All),
        passed: &mut Vec<u16>,
    ) {
        let reaches = |place: &&u16| product(one, &rows[usize::from(**place)]) >= least;
        passed.extend(groups.as_flattened().iter().filter(reaches));
    }
}

#[cfg(target_arch = "x86_64")]
macro_rules! with_products {
    ($name:ident, $features:literal, $add_products:expr) => {
        mod $name {
            use super::{All, TOGETHER, WIDTH};
            use std::arch::x86_64::*;

            /// Sums of the products of four neighbouring numbers each, added to `sums`.
            #[target_feature(enable = $features)]
            #[inline]
            fn add_products(sums: __m256i, one: __m256i, other: __m256i) -> __m256i {
                ($add_products)(sums, one, other)
            }

            #[target_feature(enable = $features)]
            pub(super) fn product<const N: usize>(one: &[u8; N], other: &[i8; N]) -> i32 {
                let mut sums = _mm256_setzero_si256();
                for first in (0..N).step_by(WIDTH) {
                    // SAFETY: both have 32 bytes from here on.
                    let (one, other) = unsafe {
                        let one = _mm256_loadu_si256(one.as_ptr().add(first).cast());
                        (one, _mm256_loadu_si256(other.as_ptr().add(first).cast()))
                    };
                    sums = add_products(sums, one, other);
                }
                let sums = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256::<1>(sums));
                let sums = _mm_add_epi32(sums, _mm_shuffle_epi32::<0x4e>(sums));
                _mm_cvtsi128_si32(_mm_add_epi32(sums, _mm_shuffle_epi32::<0xb1>(sums)))
            }

            #[target_feature(enable = $features)]
            pub(super) fn pass(
                (one, least): (&[u8; WIDTH], i32),
                (groups, rows): (&[[u16; TOGETHER]], &All),
                passed: &mut Vec<u16>,
            ) {
                // SAFETY: it has 32 bytes.
                let one = unsafe { _mm256_loadu_si256(one.as_ptr().cast()) };
                let below = _mm256_set1_epi32(least - 1);
                for group in groups {
                    let sums = |at: usize| {
                        let row = &rows[usize::from(group[at])];
                        // SAFETY: it has 32 bytes.
                        let row = unsafe { _mm256_loadu_si256(row.as_ptr().cast()) };
                        add_products(_mm256_setzero_si256(), one, row)
                    };
                    let fourth = |at: usize| {
                        let (first, second) = (
                            _mm256_hadd_epi32(sums(at), sums(at + 1)),
                            _mm256_hadd_epi32(sums(at + 2), sums(at + 3)),
                        );
                        _mm256_hadd_epi32(first, second)
                    };
                    let (lower, upper) = (fourth(0), fourth(4));
                    let sums = _mm256_add_epi32(
                        _mm256_permute2x128_si256::<0x20>(lower, upper),
                        _mm256_permute2x128_si256::<0x31>(lower, upper),
                    );
                    let above = _mm256_castsi256_ps(_mm256_cmpgt_epi32(sums, below));
                    let mut bits = _mm256_movemask_ps(above) as u32;
                    while bits != 0 {
                        passed.push(group[bits.trailing_zeros() as usize]);
                        bits &= bits - 1;
                    }
                }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
with_products!(avx2, "avx2", |sums, one, other| {
    let pairs = _mm256_maddubs_epi16(one, other);
    _mm256_add_epi32(sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
});

#[cfg(target_arch = "x86_64")]
with_products!(avx512, "avx2,avx512f,avx512vl,avx512vnni", |sums, one, other| _mm256_dpbusd_epi32(
    sums, one, other
));

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_way_passes_the_same_rows(
            one in prop::collection::vec(0u8..128, WIDTH),
            rows in prop::collection::vec(prop::collection::vec(0i8..=127, WIDTH), 1..40),
            least in 1i32..300_000,
            before in 0usize..3,
        ) {
            let one: [u8; WIDTH] = one.try_into().unwrap();
            let rows: Vec<[i8; WIDTH]> = rows.into_iter().map(|row| row.try_into().unwrap()).collect();
            let mut places: Vec<u16> = (0..rows.len() as u16).rev().collect();
            let product = |row: &[i8; WIDTH]| -> i32 { one.iter().zip(row).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum() };
            let expected: Vec<u16> = places.iter().copied().filter(|p| product(&rows[usize::from(*p)]) >= least).collect();
            places.resize(places.len().next_multiple_of(8), ShortRows::NONE);
            let mut short = ShortRows::new(before + rows.len());
            short.rows_mut()[before..].copy_from_slice(&rows);
            for way in Vectors::available() {
                let mut passed = Vec::new();
                way.pass_rows((&one, least), (&places, &short, before), &mut passed);
                passed.retain(|place| *place != ShortRows::NONE);
                prop_assert_eq!(&passed, &expected, "{:?}", way);
            }
        }

        #[test]
        fn every_way_has_the_same_product(
            one in prop::collection::vec(0u8..128, LONG), other in prop::collection::vec(0i8..=127, LONG),
        ) {
            let (one, other): ([u8; LONG], [i8; LONG]) = (one.try_into().unwrap(), other.try_into().unwrap());
            let expected: i32 = one.iter().zip(&other).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum();
            for way in Vectors::available() {
                prop_assert_eq!(way.product(&one, &other), expected, "{:?}", way);
            }
        }
    }
}
