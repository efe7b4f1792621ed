//! Rows in 16-bit integers (see [`crate::quantised`]): their dot products, and how they become bytes.

use super::vectors::{Vectors, by_vectors};

/// Rows that are packed together: four bytes of each are sixteen that lie side by side in a panel.
pub(crate) const FOUR: usize = 4;

/// Columns that are packed at a time, two steps of a panel. Rows have a multiple of it.
const EIGHT: usize = 8;

/// Bits that a product of a number and a multiplier loses.
pub(crate) const SHIFT: u32 = 15;

/// Bytes as they are, or with 128 added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sign {
    Signed,
    Unsigned,
}

impl Sign {
    /// Bits that turn a number into its byte.
    fn flip(self) -> u8 {
        if self == Self::Unsigned { 0x80 } else { 0 }
    }
}

impl Vectors {
    /// The dot products of a row with some others, all of one length, which is a multiple of eight. Sums have to fit 32
    /// bits; on the way they may wrap.
    #[inline]
    pub(crate) fn dots_of_words<const N: usize>(self, row: &[i16], others: [&[i16]; N]) -> [i32; N] {
        by_vectors!(self, dots(row, others))
    }

    /// The largest absolute value.
    #[inline]
    pub(crate) fn largest_word(self, row: &[i16]) -> u16 {
        by_vectors!(self, largest(row))
    }

    /// The sum of the squares of what numbers lose where they become bytes, in units of `2⁻¹⁵ / multiplier`. It is exact for
    /// up to 2²⁵ numbers.
    #[inline]
    pub(crate) fn lost_in_bytes(self, row: &[i16], multiplier: i16) -> f64 {
        by_vectors!(self, lost(row, multiplier))
    }

    /// Puts rows in bytes where they belong in a panel of so many rows: `out` begins with the first byte of the first row.
    /// A number `w` becomes `⌊(w·multiplier + 2¹⁴) / 2¹⁵⌋`, which has to be at least -127 and at most 127. Returns the sum
    /// of each row.
    ///
    /// # Panics
    /// If `out` has less room than two steps for each eight columns.
    #[inline]
    pub(crate) fn pack(
        self,
        (rows, multipliers): ([&[i16]; FOUR], [i16; FOUR]),
        (out, width): (&mut [u8], usize),
        sign: Sign,
    ) -> [i32; FOUR] {
        by_vectors!(self, pack((rows, multipliers), (out, width), sign.flip()))
    }
}

/// A number in bytes.
#[inline(always)]
fn byte(word: i16, multiplier: i16) -> i32 {
    (i32::from(word) * i32::from(multiplier) + (1 << (SHIFT - 1))) >> SHIFT
}

mod portable {
    use super::{EIGHT, FOUR, SHIFT, byte};

    #[inline(always)]
    pub(super) fn dots<const N: usize>(row: &[i16], others: [&[i16]; N]) -> [i32; N] {
        others.map(|other| {
            let products = row.iter().zip(other).map(|(one, other)| i32::from(*one) * i32::from(*other));
            products.fold(0, i32::wrapping_add)
        })
    }

    #[inline(always)]
    pub(super) fn largest(row: &[i16]) -> u16 {
        row.iter().fold(0, |largest, word| largest.max(word.unsigned_abs()))
    }

    #[inline(always)]
    pub(super) fn lost(row: &[i16], multiplier: i16) -> f64 {
        let mut squares = [0.0; EIGHT];
        for words in row.as_chunks::<EIGHT>().0 {
            for (square, word) in squares.iter_mut().zip(words) {
                let off = (byte(*word, multiplier) << SHIFT) - i32::from(*word) * i32::from(multiplier);
                let off = f64::from(off);
                *square += off * off;
            }
        }
        squares.iter().sum()
    }

    pub(super) fn pack(
        (rows, multipliers): ([&[i16]; FOUR], [i16; FOUR]),
        (out, width): (&mut [u8], usize),
        flip: u8,
    ) -> [i32; FOUR] {
        let mut sums = [0; FOUR];
        for (row, (words, multiplier)) in rows.into_iter().zip(multipliers).enumerate() {
            for (at, words) in words.as_chunks::<FOUR>().0.iter().enumerate() {
                let bytes = words.map(|word| byte(word, multiplier));
                sums[row] += bytes.iter().sum::<i32>();
                let place = (at * width + row) * FOUR;
                // The lowest 8 bits are the number itself in two's complement.
                out[place..place + FOUR].copy_from_slice(&bytes.map(|byte| byte as u8 ^ flip));
            }
        }
        sums
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{EIGHT, FOUR, portable};
    use std::arch::x86_64::*;

    /// Numbers of a vector.
    const WIDE: usize = 16;

    #[target_feature(enable = "avx2")]
    pub(super) fn dots<const N: usize>(row: &[i16], others: [&[i16]; N]) -> [i32; N] {
        let (whole, rest) = row.as_chunks::<WIDE>();
        let chunks = others.map(|other| &other.as_chunks::<WIDE>().0[..whole.len()]);
        let mut sums = [_mm256_setzero_si256(); N];
        for (at, words) in whole.iter().enumerate() {
            // SAFETY: it has sixteen numbers.
            let words = unsafe { _mm256_loadu_si256(words.as_ptr().cast()) };
            for (sum, other) in sums.iter_mut().zip(chunks) {
                // SAFETY: it has sixteen numbers.
                let other = unsafe { _mm256_loadu_si256(other[at].as_ptr().cast()) };
                *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(words, other));
            }
        }
        let mut dots = portable::dots(rest, others.map(|other| &other[whole.len() * WIDE..]));
        for (dot, sum) in dots.iter_mut().zip(sums) {
            let mut lanes = [0; 8];
            // SAFETY: there is room for eight numbers.
            unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), sum) };
            *dot = lanes.into_iter().fold(*dot, i32::wrapping_add);
        }
        dots
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn largest(row: &[i16]) -> u16 {
        portable::largest(row)
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn lost(row: &[i16], multiplier: i16) -> f64 {
        portable::lost(row, multiplier)
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn pack(
        (rows, multipliers): ([&[i16]; FOUR], [i16; FOUR]),
        (out, width): (&mut [u8], usize),
        flip: u8,
    ) -> [i32; FOUR] {
        let count = rows[0].len() / EIGHT;
        let rows = rows.map(|row| &row.as_chunks::<EIGHT>().0[..count]);
        let multipliers = multipliers.map(|multiplier| _mm_set1_epi16(multiplier));
        let (all_signs, ones, flip) =
            (_mm_set1_epi8(i8::MIN), _mm_set1_epi8(1), _mm_set1_epi8(flip.cast_signed()));
        let mut sums = _mm_setzero_si128();
        for (at, out) in out.chunks_mut(2 * FOUR * width).take(count).enumerate() {
            let scaled = |row: usize| {
                // SAFETY: it has eight numbers.
                let words = unsafe { _mm_loadu_si128(rows[row][at].as_ptr().cast()) };
                _mm_mulhrs_epi16(words, multipliers[row])
            };
            // Four bytes each: the first and the second of one row, then of the next one.
            let upper = _mm_castsi128_ps(_mm_packs_epi16(scaled(0), scaled(1)));
            let lower = _mm_castsi128_ps(_mm_packs_epi16(scaled(2), scaled(3)));
            let first = _mm_castps_si128(_mm_shuffle_ps::<0b10_00_10_00>(upper, lower));
            let second = _mm_castps_si128(_mm_shuffle_ps::<0b11_01_11_01>(upper, lower));
            for step in [first, second] {
                let pairs = _mm_maddubs_epi16(_mm_xor_si128(step, all_signs), ones);
                sums = _mm_add_epi32(sums, _mm_madd_epi16(pairs, _mm_set1_epi16(1)));
            }
            let (place, next) = out.split_at_mut(FOUR * width);
            let (place, next) = (&mut place[..16], &mut next[..16]);
            // SAFETY: each has room for 16 bytes.
            unsafe {
                _mm_storeu_si128(place.as_mut_ptr().cast(), _mm_xor_si128(first, flip));
                _mm_storeu_si128(next.as_mut_ptr().cast(), _mm_xor_si128(second, flip));
            }
        }
        let mut out = [0i32; FOUR];
        // SAFETY: there is room for four numbers.
        unsafe { _mm_storeu_si128(out.as_mut_ptr().cast(), sums) };
        // 128 was added to each number.
        out.map(|sum| sum - 128 * (EIGHT * count) as i32)
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    pub(super) use super::avx2::pack;
    use super::portable;
    use std::arch::x86_64::*;

    /// Numbers of a vector.
    const WIDE: usize = 32;

    #[target_feature(enable = "avx512f,avx512vnni")]
    pub(super) fn dots<const N: usize>(row: &[i16], others: [&[i16]; N]) -> [i32; N] {
        let (whole, rest) = row.as_chunks::<WIDE>();
        let chunks = others.map(|other| &other.as_chunks::<WIDE>().0[..whole.len()]);
        let mut sums = [_mm512_setzero_si512(); N];
        for (at, words) in whole.iter().enumerate() {
            // SAFETY: it has 32 numbers.
            let words = unsafe { _mm512_loadu_si512(words.as_ptr().cast()) };
            for (sum, other) in sums.iter_mut().zip(chunks) {
                // SAFETY: it has 32 numbers.
                let other = unsafe { _mm512_loadu_si512(other[at].as_ptr().cast()) };
                *sum = _mm512_dpwssd_epi32(*sum, words, other);
            }
        }
        let rest = portable::dots(rest, others.map(|other| &other[whole.len() * WIDE..]));
        std::array::from_fn(|at| rest[at].wrapping_add(_mm512_reduce_add_epi32(sums[at])))
    }

    #[target_feature(enable = "avx2,avx512f,avx512vl")]
    pub(super) fn largest(row: &[i16]) -> u16 {
        portable::largest(row)
    }

    #[target_feature(enable = "avx2,avx512f,avx512vl")]
    pub(super) fn lost(row: &[i16], multiplier: i16) -> f64 {
        portable::lost(row, multiplier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words(most: usize) -> impl Strategy<Value = Vec<i16>> {
        prop::collection::vec(prop_oneof![-32767i16..=32767, -200i16..=200], most * EIGHT)
    }

    proptest! {
        #[test]
        fn every_way_has_the_same_dot_products(rows in prop::collection::vec(words(12), 5), count in 1usize..=12) {
            // Whole sums fit 32 bits.
            let rows: Vec<Vec<i16>> = rows.iter().map(|row| row[..count * EIGHT].iter().map(|word| word / 8).collect()).collect();
            let expected: Vec<i32> = rows[1..]
                .iter()
                .map(|other| rows[0].iter().zip(other).map(|(one, other)| i32::from(*one) * i32::from(*other)).sum())
                .collect();
            for way in Vectors::available() {
                let found = way.dots_of_words(&rows[0], [&rows[1], &rows[2], &rows[3], &rows[4]]);
                prop_assert_eq!(&found[..], &expected[..], "{:?}", way);
                prop_assert_eq!(way.dots_of_words(&rows[0], [&rows[1]]), [expected[0]], "{:?}", way);
            }
        }

        #[test]
        fn every_way_packs_the_same_bytes_and_knows_what_they_lose(
            rows in prop::collection::vec(words(6), FOUR), count in 1usize..=6, groups in 1usize..5,
        ) {
            let rows: Vec<&[i16]> = rows.iter().map(|row| &row[..count * EIGHT]).collect();
            let multiplier = |row: &&[i16]| {
                let largest = row.iter().map(|word| i32::from(word.unsigned_abs())).max().unwrap_or(0);
                ((127 << SHIFT) / largest.max(1)).min(32767) as i16
            };
            let multipliers: Vec<i16> = rows.iter().map(multiplier).collect();
            let (width, room) = (groups * FOUR, count * EIGHT * groups * FOUR);
            for sign in [Sign::Signed, Sign::Unsigned] {
                let (mut expected, mut sums) = (vec![1; room], [0; FOUR]);
                for (row, words) in rows.iter().enumerate() {
                    for (column, word) in words.iter().enumerate() {
                        let exact = f64::from(*word) * f64::from(multipliers[row]) / 32768.0;
                        let number = (exact + 0.5).floor() as i32;
                        prop_assert!((-127..=127).contains(&number));
                        sums[row] += number;
                        let plus = if sign == Sign::Unsigned { 128 } else { 0 };
                        expected[(column / 4 * width + row) * 4 + column % 4] = (number + plus) as u8;
                    }
                }
                for way in Vectors::available() {
                    let mut out = vec![1; room];
                    let rows = [rows[0], rows[1], rows[2], rows[3]];
                    let multipliers = [multipliers[0], multipliers[1], multipliers[2], multipliers[3]];
                    prop_assert_eq!(way.pack((rows, multipliers), (&mut out, width), sign), sums, "{:?}", way);
                    prop_assert_eq!(&out, &expected, "{:?}", way);
                }
            }
            for (row, multiplier) in rows.iter().zip(&multipliers) {
                let lost = |word: &i16| {
                    let product = i64::from(*word) * i64::from(*multiplier);
                    ((i64::from(byte(*word, *multiplier)) << SHIFT) - product).pow(2)
                };
                let expected = row.iter().map(lost).sum::<i64>();
                for way in Vectors::available() {
                    prop_assert_eq!(way.lost_in_bytes(row, *multiplier), expected as f64, "{:?}", way);
                    prop_assert_eq!(way.largest_word(row), row.iter().map(|word| word.unsigned_abs()).max().unwrap_or(0));
                }
            }
        }
    }
}
