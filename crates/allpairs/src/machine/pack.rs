//! Small loops that are run for every row or every list, compiled for wider vectors too.

use super::vectors::{Vectors, by_vectors};

/// Adding this to a small number leaves it, rounded, in the lowest bits.
const ROUNDING: f64 = 6_755_399_441_055_744.0;

impl Vectors {
    /// The products of numbers and a factor, rounded to integers. None may need more than 16 bits.
    #[inline]
    pub(crate) fn quantise(self, values: &[f64], factor: f64, out: &mut [i16]) {
        by_vectors!(self, quantise(values, factor, out));
    }

    /// The same for numbers that are stored in float32, little-endian.
    #[inline]
    pub(crate) fn quantise_stored(self, stored: &[[u8; 4]], factor: f64, out: &mut [i16]) {
        by_vectors!(self, quantise_stored(stored, factor, out));
    }

    /// The place of a number that is hardly less than the greatest, among up to 32 numbers between -1.5 and 1.5, a
    /// multiple of eight.
    #[inline]
    pub(crate) fn about_greatest(self, numbers: &[f32]) -> usize {
        by_vectors!(self, about_greatest(numbers))
    }

    /// The number at this rank from the top, which is at most their count. Their order is lost.
    #[inline]
    pub(crate) fn greatest(self, numbers: &mut [i32], rank: usize) -> i32 {
        by_vectors!(self, greatest(numbers, rank))
    }
}

/// Bits that hold the place of a number in [`Vectors::about_greatest`].
const PLACE: i32 = 31;

/// A product, rounded to an integer of at most 16 bits.
#[inline(always)]
pub(crate) fn rounded(value: f64, factor: f64) -> i16 {
    // The lowest 16 bits are the number itself in two's complement.
    (value * factor + ROUNDING).to_bits() as i16
}

/// What a product loses where it is [`rounded`].
#[inline(always)]
pub(crate) fn lost_by_rounding(value: f64, factor: f64) -> f64 {
    let product = value * factor;
    // Taken off again, what rounds a number leaves the integer, without a detour through integers.
    product - ((product + ROUNDING) - ROUNDING)
}

mod portable {
    use super::{PLACE, rounded};

    #[inline(always)]
    pub(super) fn quantise(values: &[f64], factor: f64, out: &mut [i16]) {
        values.iter().zip(out).for_each(|(value, out)| *out = rounded(*value, factor));
    }

    #[inline(always)]
    pub(super) fn quantise_stored(stored: &[[u8; 4]], factor: f64, out: &mut [i16]) {
        let values = stored.iter().map(|stored| f64::from(f32::from_le_bytes(*stored)));
        values.zip(out).for_each(|(value, out)| *out = rounded(value, factor));
    }

    #[inline(always)]
    pub(super) fn about_greatest(numbers: &[f32]) -> usize {
        let mut best = [0i32; 8];
        for (at, numbers) in numbers.as_chunks::<8>().0.iter().enumerate() {
            for (lane, (best, number)) in best.iter_mut().zip(numbers).enumerate() {
                // The place takes the lowest bits, which matter little.
                let key = (number + 2.0).to_bits() as i32 & !PLACE | (8 * at + lane) as i32;
                *best = (*best).max(key);
            }
        }
        (best.iter().fold(0, |best, key| best.max(*key)) & PLACE) as usize
    }

    #[inline(always)]
    pub(super) fn greatest(numbers: &mut [i32], rank: usize) -> i32 {
        match numbers.len() {
            ..=16 => greatest_of_few::<16>(numbers, rank),
            17..=32 => greatest_of_few::<32>(numbers, rank),
            _ => *numbers.select_nth_unstable_by(rank - 1, |a, b| b.cmp(a)).1,
        }
    }

    /// Compares each with each: there is nothing for the machine to guess, and vectors do several at a time.
    #[inline(always)]
    fn greatest_of_few<const MOST: usize>(numbers: &[i32], rank: usize) -> i32 {
        let mut all = [i32::MIN; MOST];
        all[..numbers.len()].copy_from_slice(numbers);
        let mut greater = [0i32; MOST];
        for other in all {
            for (count, number) in greater.iter_mut().zip(&all) {
                *count += i32::from(other > *number);
            }
        }
        let mut least = i32::MAX;
        for (number, greater) in all.iter().zip(greater) {
            least = least.min(if (greater as usize) < rank { *number } else { i32::MAX });
        }
        least
    }
}

macro_rules! compiled_for {
    ($name:ident, $features:literal) => {
        #[cfg(target_arch = "x86_64")]
        mod $name {
            use super::portable;

            #[target_feature(enable = $features)]
            pub(super) fn quantise(values: &[f64], factor: f64, out: &mut [i16]) {
                portable::quantise(values, factor, out);
            }

            #[target_feature(enable = $features)]
            pub(super) fn quantise_stored(stored: &[[u8; 4]], factor: f64, out: &mut [i16]) {
                portable::quantise_stored(stored, factor, out);
            }

            #[target_feature(enable = $features)]
            pub(super) fn about_greatest(numbers: &[f32]) -> usize {
                portable::about_greatest(numbers)
            }

            #[target_feature(enable = $features)]
            pub(super) fn greatest(numbers: &mut [i32], rank: usize) -> i32 {
                portable::greatest(numbers, rank)
            }
        }
    };
}

compiled_for!(avx2, "avx2");
compiled_for!(avx512, "avx2,avx512f,avx512vl");

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_lost_and_what_is_left_make_the_product(value in -1.0f64..=1.0, factor in 0.0f64..=32_767.0) {
            let lost = value * factor - f64::from(rounded(value, factor));
            prop_assert_eq!(lost_by_rounding(value, factor).to_bits(), lost.to_bits());
        }

        #[test]
        fn the_rank_of_a_number_is_its_place_from_the_top(
            numbers in prop::collection::vec(prop_oneof![-3i32..3, any::<i32>()], 1..40),
            rank in 0usize..40,
        ) {
            let rank = rank % numbers.len() + 1;
            let mut sorted = numbers.clone();
            sorted.sort_unstable_by(|a, b| b.cmp(a));
            for way in Vectors::available() {
                prop_assert_eq!(way.greatest(&mut numbers.clone(), rank), sorted[rank - 1], "{:?}", way);
            }
        }

        #[test]
        fn about_the_greatest_is_found(numbers in prop::collection::vec(-1.5f32..=1.5, 32), count in 1usize..5) {
            let numbers = &numbers[..8 * count];
            let greatest = numbers.iter().fold(f32::MIN, |one, other| one.max(*other));
            for way in Vectors::available() {
                prop_assert!(numbers[way.about_greatest(numbers)] >= greatest - 1e-4, "{:?}", way);
            }
        }

        #[test]
        fn every_way_rounds_alike_to_the_nearest_integer(
            values in prop::collection::vec(-1.0f32..=1.0, 0..70), scale in 0.5f64..32_767.0,
        ) {
            let wide: Vec<f64> = values.iter().map(|value| f64::from(*value)).collect();
            let stored: Vec<[u8; 4]> = values.iter().map(|value| value.to_le_bytes()).collect();
            let expected: Vec<i16> = wide.iter().map(|value| (value * scale).round_ties_even() as i16).collect();
            for way in Vectors::available() {
                let mut out = [vec![0; values.len()], vec![0; values.len()]];
                way.quantise(&wide, scale, &mut out[0]);
                way.quantise_stored(&stored, scale, &mut out[1]);
                prop_assert_eq!(&out, &[expected.clone(), expected.clone()], "{:?}", way);
            }
        }
    }
}
