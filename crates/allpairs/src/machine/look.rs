//! What is found out about a stored row when it is looked at: loops over its numbers, compiled for wider vectors too.

use super::pack;
use super::vectors::{Vectors, by_vectors};
use crate::score::LANES;

/// Bits of the least float32 that is not finite, without its sign.
const INFINITE: u32 = 0x7f80_0000;

/// What is known of a row of float32 after one pass over its numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Looked {
    /// Whether all numbers are finite.
    pub(crate) finite: bool,
    /// Whether one of them is a negative zero.
    pub(crate) negative_zero: bool,
    /// The accumulators of its dot product with itself, as [`crate::score`] defines them.
    pub(crate) squares: [f64; LANES],
}

impl Vectors {
    /// Looks at a row of float32, little-endian.
    pub(crate) fn look(self, row: &[[u8; 4]]) -> Looked {
        by_vectors!(self, look(row))
    }

    /// For each accumulator of [`crate::score`] the sum of squares of what is lost where the row's numbers are
    /// multiplied by a factor and rounded to 16-bit integers.
    pub(crate) fn lost_by_rounding(self, row: &[[u8; 4]], factor: f64) -> [f64; LANES] {
        by_vectors!(self, lost_by_rounding(row, factor))
    }
}

/// The numbers of a row, eight at a time, the last ones filled up with zeros.
#[inline(always)]
fn by_lanes(row: &[[u8; 4]]) -> (&[[[u8; 4]; LANES]], [[u8; 4]; LANES]) {
    let (whole, rest) = row.as_chunks();
    let mut last = [[0; 4]; LANES];
    last[..rest.len()].copy_from_slice(rest);
    (whole, last)
}

mod portable {
    use super::{INFINITE, LANES, Looked, by_lanes, pack};

    #[inline(always)]
    pub(super) fn look(row: &[[u8; 4]]) -> Looked {
        let (mut squares, mut largest, mut least) = ([0.0; LANES], [0u32; LANES], [0i32; LANES]);
        let (whole, last) = by_lanes(row);
        for stored in whole.iter().chain(&[last]) {
            for lane in 0..LANES {
                let bits = u32::from_le_bytes(stored[lane]);
                let value = f64::from(f32::from_bits(bits));
                squares[lane] += value * value;
                largest[lane] = largest[lane].max(bits & !(1 << 31));
                // As a signed number a negative zero is the least there is.
                least[lane] = least[lane].min(bits.cast_signed());
            }
        }
        let finite = largest.iter().all(|bits| *bits < INFINITE);
        Looked { finite, negative_zero: least.contains(&i32::MIN), squares }
    }

    #[inline(always)]
    pub(super) fn lost_by_rounding(row: &[[u8; 4]], factor: f64) -> [f64; LANES] {
        let mut squares = [0.0; LANES];
        let (whole, last) = by_lanes(row);
        for stored in whole.iter().chain(&[last]) {
            for lane in 0..LANES {
                let lost = pack::lost_by_rounding(f64::from(f32::from_le_bytes(stored[lane])), factor);
                squares[lane] += lost * lost;
            }
        }
        squares
    }
}

macro_rules! compiled_for {
    ($name:ident, $features:literal) => {
        #[cfg(target_arch = "x86_64")]
        mod $name {
            use super::{LANES, Looked, portable};

            #[target_feature(enable = $features)]
            pub(super) fn look(row: &[[u8; 4]]) -> Looked {
                portable::look(row)
            }

            #[target_feature(enable = $features)]
            pub(super) fn lost_by_rounding(row: &[[u8; 4]], factor: f64) -> [f64; LANES] {
                portable::lost_by_rounding(row, factor)
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
        fn every_way_finds_the_same_about_a_row(
            bits in prop::collection::vec(prop_oneof![any::<u32>(), Just(0), Just(1 << 31)], 0..70),
            factor in 0.5f64..32_767.0,
        ) {
            let stored: Vec<[u8; 4]> = bits.iter().map(|bits| bits.to_le_bytes()).collect();
            let values = bits.iter().map(|bits| f32::from_bits(*bits));
            let (mut squares, mut lost) = ([0.0; LANES], [0.0; LANES]);
            for (column, value) in values.clone().enumerate() {
                let value = f64::from(value);
                let off = pack::lost_by_rounding(value, factor);
                squares[column % LANES] += value * value;
                lost[column % LANES] += off * off;
            }
            for way in Vectors::available() {
                let found = way.look(&stored);
                prop_assert_eq!(found.finite, values.clone().all(f32::is_finite), "{:?}", way);
                prop_assert_eq!(found.negative_zero, bits.contains(&(1 << 31)), "{:?}", way);
                if found.finite {
                    prop_assert_eq!(found.squares, squares, "{:?}", way);
                    prop_assert_eq!(way.lost_by_rounding(&stored, factor), lost, "{:?}", way);
                }
            }
        }
    }
}
