//! Tiles by `vpdpwssd` on 512 bits.

use super::Tile;
use std::arch::asm;
use std::arch::x86_64::*;

const ROWS: usize = 12;

/// Two numbers of one row with two numbers of each of 32 columns, which lie in zmm24 and zmm25.
macro_rules! row {
    ($offset:literal, $left:literal, $right:literal) => {
        concat!(
            "vpbroadcastd zmm26, dword ptr [{a}+",
            $offset,
            "]\n",
            "vpdpwssd zmm",
            $left,
            ", zmm26, zmm24\n",
            "vpdpwssd zmm",
            $right,
            ", zmm26, zmm25\n",
        )
    };
}

/// Sums of a tile. In assembly for the same reason as with 256 bits.
///
/// # Safety
/// AVX-512 VNNI is there; `a` points to 12 · `depth` numbers and `b` to 32 · `depth`, `depth` a multiple of
/// 4 and not 0.
#[target_feature(enable = "avx512f,avx512vnni")]
unsafe fn sums(a: *const i16, b: *const i16, depth: usize) -> [[__m512i; 2]; ROWS] {
    let mut sums = [[_mm512_setzero_si512(); 2]; ROWS];
    // SAFETY: reads 48 and 128 bytes of the panels in each step of two numbers a row, depth/2 steps in all;
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
            steps = inout(reg) depth / 4 => _,
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

/// # Safety
/// AVX-512 VNNI is there, and all lengths are those that `Kernel::compare` checks.
#[target_feature(enable = "avx512f,avx512vnni")]
pub(super) unsafe fn compare(
    (rows, columns): (&[i16], &[i16]),
    row_floors: &[i32],
    column_floors: &[i32],
    tile: &mut Tile,
) -> bool {
    // SAFETY: the caller's promise.
    let sums = unsafe { sums(rows.as_ptr(), columns.as_ptr(), rows.len() / ROWS) };
    // SAFETY: there are 32 floors of columns.
    let floors = unsafe {
        [
            _mm512_loadu_si512(column_floors.as_ptr().cast()),
            _mm512_loadu_si512(column_floors.as_ptr().add(16).cast()),
        ]
    };
    let mut any = 0;
    let mut passed = [0; ROWS];
    for row in 0..ROWS {
        let floor = _mm512_set1_epi32(row_floors[row]);
        let [left, right] = [0, 1]
            .map(|side| _mm512_cmpgt_epi32_mask(sums[row][side], _mm512_min_epi32(floor, floors[side])));
        passed[row] = u32::from(left) | u32::from(right) << 16;
        any |= passed[row];
    }
    if any == 0 {
        return false;
    }
    tile.passed = passed;
    for (sums, out) in sums.iter().zip(&mut tile.sums) {
        // SAFETY: a row of the tile has room for 32 sums.
        unsafe {
            _mm512_storeu_si512(out.as_mut_ptr().cast(), sums[0]);
            _mm512_storeu_si512(out.as_mut_ptr().add(16).cast(), sums[1]);
        }
    }
    true
}
