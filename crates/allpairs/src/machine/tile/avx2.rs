//! Tiles by `vpmaddwd` on 256 bits.

use super::Tile;
use std::arch::asm;
use std::arch::x86_64::*;

const ROWS: usize = 6;

/// Two numbers of one row with two numbers of each of 16 columns, which lie in ymm12 and ymm13.
macro_rules! row {
    ($offset:literal, $left:literal, $right:literal) => {
        concat!(
            "vpbroadcastd ymm14, dword ptr [{a}+",
            $offset,
            "]\n",
            "vpmaddwd ymm15, ymm14, ymm12\n",
            "vpmaddwd ymm14, ymm14, ymm13\n",
            "vpaddd ymm",
            $left,
            ", ymm",
            $left,
            ", ymm15\n",
            "vpaddd ymm",
            $right,
            ", ymm",
            $right,
            ", ymm14\n",
        )
    };
}

/// Sums of a tile. In assembly, since the compiler keeps the twelve sums in memory otherwise.
///
/// # Safety
/// AVX2 is there; `a` points to 6 · `depth` numbers and `b` to 16 · `depth`, `depth` a multiple of 4 and
/// not 0.
#[target_feature(enable = "avx2")]
unsafe fn sums(a: *const i16, b: *const i16, depth: usize) -> [[__m256i; 2]; ROWS] {
    let mut sums = [[_mm256_setzero_si256(); 2]; ROWS];
    // SAFETY: reads 24 and 64 bytes of the panels in each step of two numbers a row, depth/2 steps in all;
    // writes registers only.
    unsafe {
        asm!(
            "2:",
            "vmovdqu ymm12, [{b}]",
            "vmovdqu ymm13, [{b}+32]",
            row!(0, 0, 1), row!(4, 2, 3), row!(8, 4, 5), row!(12, 6, 7), row!(16, 8, 9), row!(20, 10, 11),
            "vmovdqu ymm12, [{b}+64]",
            "vmovdqu ymm13, [{b}+96]",
            row!(24, 0, 1), row!(28, 2, 3), row!(32, 4, 5), row!(36, 6, 7), row!(40, 8, 9), row!(44, 10, 11),
            "add {a}, 48",
            "add {b}, 128",
            "dec {steps}",
            "jnz 2b",
            a = inout(reg) a => _,
            b = inout(reg) b => _,
            steps = inout(reg) depth / 4 => _,
            inout("ymm0") sums[0][0], inout("ymm1") sums[0][1],
            inout("ymm2") sums[1][0], inout("ymm3") sums[1][1],
            inout("ymm4") sums[2][0], inout("ymm5") sums[2][1],
            inout("ymm6") sums[3][0], inout("ymm7") sums[3][1],
            inout("ymm8") sums[4][0], inout("ymm9") sums[4][1],
            inout("ymm10") sums[5][0], inout("ymm11") sums[5][1],
            out("ymm12") _, out("ymm13") _, out("ymm14") _, out("ymm15") _,
            options(nostack, readonly),
        );
    }
    sums
}

/// # Safety
/// AVX2 is there, and all lengths are those that `Kernel::compare` checks.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn compare(
    (rows, columns): (&[i16], &[i16]),
    row_floors: &[i32],
    column_floors: &[i32],
    tile: &mut Tile,
) -> bool {
    // SAFETY: the caller's promise.
    let sums = unsafe { sums(rows.as_ptr(), columns.as_ptr(), rows.len() / ROWS) };
    // SAFETY: there are 16 floors of columns.
    let floors = unsafe {
        [
            _mm256_loadu_si256(column_floors.as_ptr().cast()),
            _mm256_loadu_si256(column_floors.as_ptr().add(8).cast()),
        ]
    };
    let passed = |row: usize, side: usize| {
        _mm256_cmpgt_epi32(
            sums[row][side],
            _mm256_min_epi32(_mm256_set1_epi32(row_floors[row]), floors[side]),
        )
    };
    let mut any = _mm256_setzero_si256();
    for row in 0..ROWS {
        any = _mm256_or_si256(any, _mm256_or_si256(passed(row, 0), passed(row, 1)));
    }
    if _mm256_testz_si256(any, any) == 1 {
        return false;
    }
    let bits = |mask: __m256i| _mm256_movemask_ps(_mm256_castsi256_ps(mask)) as u32;
    for (row, (sums, out)) in sums.iter().zip(&mut tile.sums).enumerate() {
        tile.passed[row] = bits(passed(row, 0)) | bits(passed(row, 1)) << 8;
        // SAFETY: a row of the tile has room for 32 sums.
        unsafe {
            _mm256_storeu_si256(out.as_mut_ptr().cast(), sums[0]);
            _mm256_storeu_si256(out.as_mut_ptr().add(8).cast(), sums[1]);
        }
    }
    true
}
