//! Tiles by `smlal` on 128 bits.
//!
//! Only compiled so far: no machine with these instructions was there to run it. It is built like the portable
//! kernel and has to yield the same integers.

use super::Tile;
use super::portable::{COLUMNS, ROWS, Sums, compare_sums};
use std::arch::aarch64::*;

/// Adds two numbers of one row with two numbers of each of 16 columns.
macro_rules! add_row {
    ($sums:expr, $numbers:expr, $first:literal, $second:literal, $left:expr, $right:expr) => {
        for (side, columns) in [$left, $right].into_iter().enumerate() {
            let [low, high] = &mut $sums[side];
            *low = vmlal_laneq_s16::<$first>(*low, vget_low_s16(columns.0), $numbers);
            *high = vmlal_high_laneq_s16::<$first>(*high, columns.0, $numbers);
            *low = vmlal_laneq_s16::<$second>(*low, vget_low_s16(columns.1), $numbers);
            *high = vmlal_high_laneq_s16::<$second>(*high, columns.1, $numbers);
        }
    };
}

/// # Safety
/// NEON is there, and all lengths are those that `Kernel::compare` checks.
#[target_feature(enable = "neon")]
pub(super) unsafe fn compare(
    (rows, columns): (&[i16], &[i16]),
    row_floors: &[i32],
    column_floors: &[i32],
    tile: &mut Tile,
) -> bool {
    let mut sums = [[[vdupq_n_s32(0); 2]; 2]; ROWS];
    let steps = rows.as_chunks::<{ 2 * ROWS }>().0.iter().zip(columns.as_chunks::<{ 2 * COLUMNS }>().0);
    for (a, b) in steps {
        // SAFETY: 8 and 4 numbers of 12, and twice 16 of 32.
        let (upper, lower, left, right) = unsafe {
            let lower = vcombine_s16(vld1_s16(a.as_ptr().add(8)), vdup_n_s16(0));
            (vld1q_s16(a.as_ptr()), lower, vld2q_s16(b.as_ptr()), vld2q_s16(b.as_ptr().add(COLUMNS)))
        };
        add_row!(sums[0], upper, 0, 1, left, right);
        add_row!(sums[1], upper, 2, 3, left, right);
        add_row!(sums[2], upper, 4, 5, left, right);
        add_row!(sums[3], upper, 6, 7, left, right);
        add_row!(sums[4], lower, 0, 1, left, right);
        add_row!(sums[5], lower, 2, 3, left, right);
    }
    let mut stored: Sums = [[0; COLUMNS]; ROWS];
    for (out, sums) in stored.iter_mut().zip(&sums) {
        for (out, sums) in out.as_chunks_mut::<4>().0.iter_mut().zip(sums.iter().flatten()) {
            // SAFETY: four sums have room in a group of four.
            unsafe { vst1q_s32(out.as_mut_ptr(), *sums) };
        }
    }
    compare_sums(&stored, row_floors, column_floors, tile)
}
