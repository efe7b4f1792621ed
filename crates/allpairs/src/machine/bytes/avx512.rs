//! Tiles by `vpdpbusd` on 512 bits.

use super::{ColumnPanel, Floors, Greatest, NUMBER, RowPanel, Tile};
use std::arch::asm;
use std::arch::x86_64::*;

pub(super) const ROWS: usize = 12;
pub(super) const COLUMNS: usize = 32;

/// Four numbers of one row with four numbers of each of 32 columns, which lie in zmm24 and zmm25.
macro_rules! row {
    ($offset:literal, $left:literal, $right:literal) => {
        concat!(
            "vpbroadcastd zmm26, dword ptr [{a}+",
            $offset,
            "]\n",
            "vpdpbusd zmm",
            $left,
            ", zmm26, zmm24\n",
            "vpdpbusd zmm",
            $right,
            ", zmm26, zmm25\n",
        )
    };
}

/// Sums of a tile. In assembly, since the compiler keeps the sums in memory otherwise.
///
/// # Safety
/// AVX-512 VNNI is there; `a` points to 12 · `depth` numbers, `b` to 32 · `depth` and `starts` to 32 of them,
/// `depth` a multiple of 8 and not 0.
#[target_feature(enable = "avx512f,avx512vnni")]
unsafe fn sums(a: *const u8, b: *const u8, starts: *const i32, depth: usize) -> [[__m512i; 2]; ROWS] {
    // SAFETY: there are 32 starts.
    let starts = unsafe { [_mm512_loadu_si512(starts.cast()), _mm512_loadu_si512(starts.add(16).cast())] };
    let mut sums = [starts; ROWS];
    // SAFETY: reads 48 and 128 bytes of the panels in each step of four numbers a row, depth/4 steps in all;
    // writes registers only.
    unsafe {
        asm!(
            "2:",
            "vmovdqu64 zmm24, [{b}]",
            "vmovdqu64 zmm25, [{b}+64]",
            row!(0, 0, 1), row!(4, 2, 3), row!(8, 4, 5), row!(12, 6, 7),
            row!(16, 8, 9), row!(20, 10, 11), row!(24, 12, 13), row!(28, 14, 15),
            row!(32, 16, 17), row!(36, 18, 19), row!(40, 20, 21), row!(44, 22, 23),
            "vmovdqu64 zmm24, [{b}+128]",
            "vmovdqu64 zmm25, [{b}+192]",
            row!(48, 0, 1), row!(52, 2, 3), row!(56, 4, 5), row!(60, 6, 7),
            row!(64, 8, 9), row!(68, 10, 11), row!(72, 12, 13), row!(76, 14, 15),
            row!(80, 16, 17), row!(84, 18, 19), row!(88, 20, 21), row!(92, 22, 23),
            "add {a}, 96",
            "add {b}, 256",
            "dec {steps}",
            "jnz 2b",
            a = inout(reg) a => _,
            b = inout(reg) b => _,
            steps = inout(reg) depth / 8 => _,
            inout("zmm0") sums[0][0], inout("zmm1") sums[0][1],
            inout("zmm2") sums[1][0], inout("zmm3") sums[1][1],
            inout("zmm4") sums[2][0], inout("zmm5") sums[2][1],
            inout("zmm6") sums[3][0], inout("zmm7") sums[3][1],
            inout("zmm8") sums[4][0], inout("zmm9") sums[4][1],
            inout("zmm10") sums[5][0], inout("zmm11") sums[5][1],
            inout("zmm12") sums[6][0], inout("zmm13") sums[6][1],
            inout("zmm14") sums[7][0], inout("zmm15") sums[7][1],
            inout("zmm16") sums[8][0], inout("zmm17") sums[8][1],
            inout("zmm18") sums[9][0], inout("zmm19") sums[9][1],
            inout("zmm20") sums[10][0], inout("zmm21") sums[10][1],
            inout("zmm22") sums[11][0], inout("zmm23") sums[11][1],
            out("zmm24") _, out("zmm25") _, out("zmm26") _,
            options(nostack, readonly),
        );
    }
    sums
}

/// Numbers of all columns.
///
/// # Safety
/// AVX-512 is there and 32 numbers are.
#[target_feature(enable = "avx512f")]
unsafe fn load(numbers: *const f32) -> [__m512; 2] {
    // SAFETY: there are 32 numbers.
    unsafe { [_mm512_loadu_ps(numbers), _mm512_loadu_ps(numbers.add(16))] }
}

/// # Safety
/// AVX-512 VNNI is there, and all lengths are those that `Kernel::compare` checks.
#[target_feature(enable = "avx512f,avx512vnni")]
pub(super) unsafe fn compare(rows: RowPanel, columns: ColumnPanel, floors: Floors, tile: &mut Tile) -> bool {
    let depth = rows.bytes.len() / ROWS;
    // SAFETY: the caller's promise.
    let sums = unsafe { sums(rows.bytes.as_ptr(), columns.bytes.as_ptr(), columns.starts.as_ptr(), depth) };
    // SAFETY: the caller's promise.
    let (steps, errors, column_floors) = unsafe {
        (load(columns.steps.as_ptr()), load(columns.errors.as_ptr()), load(floors.columns.as_ptr()))
    };
    let bound = |row: usize, side: usize| {
        let (step, error) = (_mm512_set1_ps(rows.steps[row]), _mm512_set1_ps(rows.errors[row]));
        let more = _mm512_add_ps(error, _mm512_set1_ps(1.0));
        let of_column = _mm512_mul_ps(_mm512_cvtepi32_ps(sums[row][side]), steps[side]);
        let margin = _mm512_fmadd_ps(errors[side], more, error);
        _mm512_fmadd_ps(of_column, step, margin)
    };
    // All of them at once: a closure that is called in two places is not inlined, and its sums go through memory.
    let bounds: [[__m512; 2]; ROWS] = std::array::from_fn(|row| [bound(row, 0), bound(row, 1)]);
    let mut any = 0;
    let mut passed = [0; ROWS];
    for (row, passed) in passed.iter_mut().enumerate() {
        let floor = _mm512_set1_ps(floors.rows[row]);
        let [left, right] = [0, 1].map(|side| {
            let least = _mm512_min_ps(floor, column_floors[side]);
            _mm512_cmp_ps_mask::<_CMP_GE_OQ>(bounds[row][side], least)
        });
        *passed = u32::from(left) | u32::from(right) << 16;
        any |= *passed;
    }
    if any == 0 {
        return false;
    }
    tile.passed = passed;
    for (bounds, out) in bounds.iter().zip(&mut tile.bounds) {
        // SAFETY: a row of the tile has room for 32 numbers.
        unsafe {
            _mm512_storeu_ps(out.as_mut_ptr(), bounds[0]);
            _mm512_storeu_ps(out.as_mut_ptr().add(16), bounds[1]);
        }
    }
    true
}

/// # Safety
/// AVX-512 VNNI is there, and all lengths are those that `Kernel::raise` checks.
#[target_feature(enable = "avx512f,avx512vnni")]
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
        let (step, error) = (_mm512_set1_ps(rows.steps[row]), _mm512_set1_ps(rows.errors[row]));
        for side in 0..2 {
            let margin = _mm512_fmadd_ps(errors[side], error, _mm512_add_ps(errors[side], error));
            let steps = _mm512_mul_ps(steps[side], step);
            let least = _mm512_fmsub_ps(_mm512_cvtepi32_ps(sums[side]), steps, margin);
            let place = row * COLUMNS + side * 16;
            raise_one(least, &mut of_rows.scores[place..][..16], of_rows.number);
            if let Some(Greatest { scores, number }) = &mut of_columns {
                raise_one(least, &mut scores[place..][..16], *number);
            }
        }
    }
}

/// Raises sixteen scores to others with this number.
#[inline]
#[target_feature(enable = "avx512f")]
fn raise_one(least: __m512, greatest: &mut [f32], number: u8) {
    let (kept, number) = (_mm512_set1_epi32(!NUMBER), _mm512_set1_epi32(i32::from(number)));
    // Whatever is in the first and in the second, and whatever is in the third.
    let numbered = _mm512_ternarylogic_epi32::<0xea>(_mm512_castps_si512(least), kept, number);
    let greatest = &mut greatest[..16];
    // SAFETY: there are as many numbers as in a vector.
    unsafe {
        let raised = _mm512_max_ps(_mm512_loadu_ps(greatest.as_ptr()), _mm512_castsi512_ps(numbered));
        _mm512_storeu_ps(greatest.as_mut_ptr(), raised);
    }
}
