//! Tiles by `vpdpbusd` on 256 bits.

use super::{ColumnPanel, Floors, Greatest, NUMBER, RowPanel, Tile};
use std::arch::asm;
use std::arch::x86_64::*;

pub(super) const ROWS: usize = 4;
pub(super) const COLUMNS: usize = 24;

/// Vectors of all columns.
const SIDES: usize = 3;

/// Four numbers of one row with four numbers of each of 24 columns, which lie in ymm12 to ymm14.
macro_rules! row {
    ($offset:literal, $left:literal, $middle:literal, $right:literal) => {
        concat!(
            "vpbroadcastd ymm15, dword ptr [{a}+",
            $offset,
            "]\n",
            "{{vex}} vpdpbusd ymm",
            $left,
            ", ymm15, ymm12\n",
            "{{vex}} vpdpbusd ymm",
            $middle,
            ", ymm15, ymm13\n",
            "{{vex}} vpdpbusd ymm",
            $right,
            ", ymm15, ymm14\n",
        )
    };
}

/// Sums of a tile. In assembly for the same reason as with 512 bits.
///
/// # Safety
/// AVX-VNNI is there; `a` points to 4 · `depth` numbers, `b` to 24 · `depth` and `starts` to 24 of them, `depth` a
/// multiple of 8 and not 0.
#[target_feature(enable = "avx2,avxvnni")]
unsafe fn sums(a: *const u8, b: *const u8, starts: *const i32, depth: usize) -> [[__m256i; SIDES]; ROWS] {
    // SAFETY: there are 24 starts.
    let starts = [0, 1, 2].map(|side| unsafe { _mm256_loadu_si256(starts.add(8 * side).cast()) });
    let mut sums = [starts; ROWS];
    // SAFETY: reads 16 and 96 bytes of the panels in each step of four numbers a row, depth/4 steps in all;
    // writes registers only.
    unsafe {
        asm!(
            "2:",
            "vmovdqu ymm12, [{b}]",
            "vmovdqu ymm13, [{b}+32]",
            "vmovdqu ymm14, [{b}+64]",
            row!(0, 0, 1, 2), row!(4, 3, 4, 5), row!(8, 6, 7, 8), row!(12, 9, 10, 11),
            "vmovdqu ymm12, [{b}+96]",
            "vmovdqu ymm13, [{b}+128]",
            "vmovdqu ymm14, [{b}+160]",
            row!(16, 0, 1, 2), row!(20, 3, 4, 5), row!(24, 6, 7, 8), row!(28, 9, 10, 11),
            "add {a}, 32",
            "add {b}, 192",
            "dec {steps}",
            "jnz 2b",
            a = inout(reg) a => _,
            b = inout(reg) b => _,
            steps = inout(reg) depth / 8 => _,
            inout("ymm0") sums[0][0], inout("ymm1") sums[0][1], inout("ymm2") sums[0][2],
            inout("ymm3") sums[1][0], inout("ymm4") sums[1][1], inout("ymm5") sums[1][2],
            inout("ymm6") sums[2][0], inout("ymm7") sums[2][1], inout("ymm8") sums[2][2],
            inout("ymm9") sums[3][0], inout("ymm10") sums[3][1], inout("ymm11") sums[3][2],
            out("ymm12") _, out("ymm13") _, out("ymm14") _, out("ymm15") _,
            options(nostack, readonly),
        );
    }
    sums
}

/// Numbers of all columns.
///
/// # Safety
/// AVX is there and 24 numbers are.
#[target_feature(enable = "avx")]
unsafe fn load(numbers: *const f32) -> [__m256; SIDES] {
    // SAFETY: there are 24 numbers.
    [0, 1, 2].map(|side| unsafe { _mm256_loadu_ps(numbers.add(8 * side)) })
}

/// # Safety
/// AVX-VNNI, AVX2 and FMA are there, and all lengths are those that `Kernel::compare` checks.
#[target_feature(enable = "avx2,fma,avxvnni")]
pub(super) unsafe fn compare(rows: RowPanel, columns: ColumnPanel, floors: Floors, tile: &mut Tile) -> bool {
    let depth = rows.bytes.len() / ROWS;
    // SAFETY: the caller's promise.
    let sums = unsafe { sums(rows.bytes.as_ptr(), columns.bytes.as_ptr(), columns.starts.as_ptr(), depth) };
    // SAFETY: the caller's promise.
    let (steps, errors, column_floors) = unsafe {
        (load(columns.steps.as_ptr()), load(columns.errors.as_ptr()), load(floors.columns.as_ptr()))
    };
    let bound = |row: usize, side: usize| {
        let (step, error) = (_mm256_set1_ps(rows.steps[row]), _mm256_set1_ps(rows.errors[row]));
        let more = _mm256_add_ps(error, _mm256_set1_ps(1.0));
        let of_column = _mm256_mul_ps(_mm256_cvtepi32_ps(sums[row][side]), steps[side]);
        let margin = _mm256_fmadd_ps(errors[side], more, error);
        _mm256_fmadd_ps(of_column, step, margin)
    };
    let mut any = 0;
    let mut passed = [0; ROWS];
    for (row, passed) in passed.iter_mut().enumerate() {
        let floor = _mm256_set1_ps(floors.rows[row]);
        for (side, column_floors) in column_floors.iter().enumerate() {
            let least = _mm256_min_ps(floor, *column_floors);
            let mask = _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_GE_OQ>(bound(row, side), least));
            *passed |= (mask as u32) << (8 * side);
        }
        any |= *passed;
    }
    if any == 0 {
        return false;
    }
    tile.passed[..ROWS].copy_from_slice(&passed);
    for (row, out) in tile.bounds[..ROWS].iter_mut().enumerate().filter(|(row, _)| passed[*row] != 0) {
        for side in 0..SIDES {
            // SAFETY: a row of the tile has room for 32 numbers.
            unsafe { _mm256_storeu_ps(out.as_mut_ptr().add(8 * side), bound(row, side)) };
        }
    }
    true
}

/// # Safety
/// AVX-VNNI, AVX2 and FMA are there, and all lengths are those that `Kernel::raise` checks.
#[target_feature(enable = "avx2,fma,avxvnni")]
pub(super) unsafe fn raise(
    rows: RowPanel,
    columns: ColumnPanel,
    of_rows: Greatest,
    mut of_columns: Option<Greatest>,
) {
    let depth = rows.bytes.len() / ROWS;
    // SAFETY: the caller's promise.
    let sums = unsafe { sums(rows.bytes.as_ptr(), columns.bytes.as_ptr(), columns.starts.as_ptr(), depth) };
    // SAFETY: the caller's promise.
    let (steps, errors) = unsafe { (load(columns.steps.as_ptr()), load(columns.errors.as_ptr())) };
    for (row, sums) in sums.into_iter().enumerate() {
        let (step, error) = (_mm256_set1_ps(rows.steps[row]), _mm256_set1_ps(rows.errors[row]));
        for side in 0..SIDES {
            let margin = _mm256_fmadd_ps(errors[side], error, _mm256_add_ps(errors[side], error));
            let steps = _mm256_mul_ps(steps[side], step);
            let least = _mm256_fmsub_ps(_mm256_cvtepi32_ps(sums[side]), steps, margin);
            let place = row * COLUMNS + side * 8;
            raise_one(least, &mut of_rows.scores[place..][..8], of_rows.number);
            if let Some(Greatest { scores, number }) = &mut of_columns {
                raise_one(least, &mut scores[place..][..8], *number);
            }
        }
    }
}

/// Raises eight scores to others with this number.
#[inline]
#[target_feature(enable = "avx2")]
fn raise_one(least: __m256, greatest: &mut [f32], number: u8) {
    let kept = _mm256_and_si256(_mm256_castps_si256(least), _mm256_set1_epi32(!NUMBER));
    let numbered = _mm256_or_si256(kept, _mm256_set1_epi32(i32::from(number)));
    let greatest = &mut greatest[..8];
    // SAFETY: there are as many numbers as in a vector.
    unsafe {
        let raised = _mm256_max_ps(_mm256_loadu_ps(greatest.as_ptr()), _mm256_castsi256_ps(numbered));
        _mm256_storeu_ps(greatest.as_mut_ptr(), raised);
    }
}
