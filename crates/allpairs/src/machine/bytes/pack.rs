//! Rows of stored float32 become the bytes of a panel, four rows at a time.

use super::super::vectors::{Vectors, by_vectors};

/// Rows that are packed together: four bytes of each are sixteen that lie side by side in a panel.
pub(crate) const FOUR: usize = 4;

/// Columns that are packed at a time: two steps of a panel.
const EIGHT: usize = 8;

/// Adding this to a number between -2²¹ and 2²¹ leaves it, rounded to even, in the lowest bits.
const ROUNDING: f32 = 12_582_912.0;

type Stored<'a> = [&'a [[u8; 4]]; FOUR];

/// Numbers as they are, or with 128 added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sign {
    Signed,
    Unsigned,
}

impl Sign {
    /// Bits that turn a number into its byte.
    pub(crate) fn flip(self) -> u8 {
        if self == Self::Unsigned { 0x80 } else { 0 }
    }
}

impl Vectors {
    /// Multiplies stored rows by factors, rounds the products (between -127 and 127) and puts them where they belong
    /// in a panel of so many rows: `out` begins with the first byte of the first row. Returns the sum of each row.
    ///
    /// # Panics
    /// If `out` has less room than two steps for each eight columns, which the last ones are filled up to.
    pub(crate) fn pack(
        self,
        (stored, factors): (Stored, [f32; FOUR]),
        (out, width): (&mut [u8], usize),
        sign: Sign,
    ) -> [i32; FOUR] {
        let flip = sign.flip();
        let length = stored.iter().fold(usize::MAX, |length, row| length.min(row.len()));
        let whole = length / EIGHT;
        let (out, last) = out.split_at_mut((whole * 2 * FOUR * width).min(out.len()));
        let blocks = stored.map(|row| &row.as_chunks::<EIGHT>().0[..whole]);
        let mut sums = by_vectors!(self, pack((blocks, factors), (out, width), flip));
        if !length.is_multiple_of(EIGHT) {
            let mut rest = [[[0; 4]; EIGHT]; FOUR];
            for (rest, row) in rest.iter_mut().zip(stored) {
                let row = &row[whole * EIGHT..length];
                rest[..row.len()].copy_from_slice(row);
            }
            let rest = rest.each_ref().map(std::slice::from_ref);
            let more = by_vectors!(self, pack((rest, factors), (last, width), flip));
            sums.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
        }
        sums
    }
}

type Blocks<'a> = [&'a [[[u8; 4]; EIGHT]]; FOUR];

mod portable {
    use super::{Blocks, EIGHT, FOUR, ROUNDING};

    pub(super) fn pack(
        (blocks, factors): (Blocks, [f32; FOUR]),
        (out, width): (&mut [u8], usize),
        flip: u8,
    ) -> [i32; FOUR] {
        let mut sums = [0; FOUR];
        for (row, (blocks, factor)) in blocks.into_iter().zip(factors).enumerate() {
            for (at, block) in blocks.iter().enumerate() {
                let numbers: [i8; EIGHT] = std::array::from_fn(|column| {
                    (f32::from_le_bytes(block[column]) * factor + ROUNDING).to_bits() as i8
                });
                sums[row] += numbers.iter().map(|number| i32::from(*number)).sum::<i32>();
                for (half, numbers) in numbers.as_chunks::<4>().0.iter().enumerate() {
                    let first = (2 * at + half) * FOUR * width + FOUR * row;
                    out[first..first + FOUR].copy_from_slice(&numbers.map(|number| number as u8 ^ flip));
                }
            }
        }
        sums
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{Blocks, EIGHT, FOUR};
    use std::arch::x86_64::*;

    #[target_feature(enable = "avx2")]
    pub(super) fn pack(
        (blocks, factors): (Blocks, [f32; FOUR]),
        (out, width): (&mut [u8], usize),
        flip: u8,
    ) -> [i32; FOUR] {
        let count = blocks[0].len();
        let blocks = blocks.map(|blocks| &blocks[..count]);
        let factors = factors.map(|factor| _mm256_set1_ps(factor));
        let (all_signs, ones) = (_mm256_set1_epi8(i8::MIN), _mm256_set1_epi8(1));
        let flip = _mm256_set1_epi8(flip as i8);
        let mut sums = _mm256_setzero_si256();
        let steps = out.chunks_mut(2 * FOUR * width).take(count).enumerate();
        for (at, out) in steps {
            let quantise = |row: usize| {
                // SAFETY: it has eight numbers.
                let stored = unsafe { _mm256_loadu_ps(blocks[row][at].as_ptr().cast()) };
                _mm256_cvtps_epi32(_mm256_mul_ps(stored, factors[row]))
            };
            // Within each half: four numbers of the first row, of the second, and so on.
            let upper = _mm256_packs_epi32(quantise(0), quantise(1));
            let lower = _mm256_packs_epi32(quantise(2), quantise(3));
            let packed = _mm256_packs_epi16(upper, lower);
            let pairs = _mm256_maddubs_epi16(_mm256_xor_si256(packed, all_signs), ones);
            sums = _mm256_add_epi32(sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
            let packed = _mm256_xor_si256(packed, flip);
            let (first, second) = out.split_at_mut(FOUR * width);
            let (first, second) = (&mut first[..16], &mut second[..16]);
            // SAFETY: each has room for 16 bytes.
            unsafe {
                _mm_storeu_si128(first.as_mut_ptr().cast(), _mm256_castsi256_si128(packed));
                _mm_storeu_si128(second.as_mut_ptr().cast(), _mm256_extracti128_si256::<1>(packed));
            }
        }
        let sums = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256::<1>(sums));
        let mut out = [0i32; FOUR];
        // SAFETY: there is room for four numbers.
        unsafe { _mm_storeu_si128(out.as_mut_ptr().cast(), sums) };
        // 128 was added to each number.
        out.map(|sum| sum - 128 * (EIGHT * count) as i32)
    }
}

// There is nothing to gain by wider vectors: the numbers come from memory.
#[cfg(target_arch = "x86_64")]
use avx2 as avx512;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_way_packs_the_same_bytes(
            rows in prop::collection::vec(prop::collection::vec(-1.0f32..=1.0, 70), FOUR),
            columns in 1usize..70,
            groups in 1usize..5,
        ) {
            let stored: Vec<Vec<[u8; 4]>> =
                rows.iter().map(|row| row[..columns].iter().map(|v| v.to_le_bytes()).collect()).collect();
            let stored = [&stored[0][..], &stored[1], &stored[2], &stored[3]];
            let (factors, width) = ([127.0, 1.0, 0.0, 63.5], groups * FOUR);
            let room = columns.next_multiple_of(EIGHT) * width;
            for sign in [Sign::Signed, Sign::Unsigned] {
                let (mut expected, mut sums) = (vec![1; room], [0; FOUR]);
                for (row, values) in rows.iter().enumerate() {
                    for column in 0..columns.next_multiple_of(EIGHT) {
                        let value = if column < columns { values[column] } else { 0.0 };
                        let number = (value * factors[row]).round_ties_even() as i32;
                        sums[row] += number;
                        let plus = if sign == Sign::Unsigned { 128 } else { 0 };
                        expected[(column / 4 * width + row) * 4 + column % 4] = (number + plus) as u8;
                    }
                }
                for way in Vectors::available() {
                    let mut out = vec![1; room];
                    let found = way.pack((stored, factors), (&mut out, width), sign);
                    prop_assert_eq!(found, sums, "{:?}", way);
                    prop_assert_eq!(&out, &expected, "{:?}", way);
                }
            }
        }
    }
}
