//! Dot products of a few rows with a few other rows in 16-bit integers, compared with floors at once.
//!
//! Both sides are *panels*: of `rows()` or `columns()` matrix rows, the first two numbers of each row, then the
//! next two of each row, and so on. Sums are 32-bit integers and thus the same whatever the order, the
//! instruction or the kernel; the caller sees to it that none overflows.

use std::fmt::Debug;

/// Rows of the largest tile.
const MOST_ROWS: usize = 12;

/// Columns of the largest tile.
const MOST_COLUMNS: usize = 32;

/// Sums of one tile and which of them passed.
#[derive(Debug)]
pub(crate) struct Tile {
    sums: [[i32; MOST_COLUMNS]; MOST_ROWS],
    passed: [u32; MOST_ROWS],
}

impl Tile {
    pub(crate) fn new() -> Self {
        Self { sums: [[0; MOST_COLUMNS]; MOST_ROWS], passed: [0; MOST_ROWS] }
    }

    /// Row, column and sum of whatever passed.
    pub(crate) fn passed(&self, kernel: Kernel) -> impl Iterator<Item = (usize, usize, i32)> {
        (0..kernel.rows()).flat_map(move |row| {
            let mut mask = self.passed[row];
            std::iter::from_fn(move || {
                let column = mask.trailing_zeros() as usize;
                mask &= mask.wrapping_sub(1);
                (column < 32).then(|| (row, column, self.sums[row][column]))
            })
        })
    }
}

/// One way to compute a tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// Without any instruction that not every machine has.
    Portable,
    /// `vpmaddwd` on 256 bits.
    #[cfg(target_arch = "x86_64")]
    Avx2(Supported),
    /// `vpdpwssd` on 512 bits.
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni(Supported),
}

/// Proof that the machine was asked and has the instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Supported(());

impl Kernel {
    /// All that this machine can run, the fastest first.
    pub(crate) fn available() -> Vec<Self> {
        let mut kernels = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vnni") {
                kernels.push(Self::Avx512Vnni(Supported(())));
            }
            if is_x86_feature_detected!("avx2") {
                kernels.push(Self::Avx2(Supported(())));
            }
        }
        kernels.push(Self::Portable);
        kernels
    }

    /// Rows of a tile.
    pub(crate) fn rows(self) -> usize {
        match self {
            Self::Portable => 6,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => 6,
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Vnni(_) => 12,
        }
    }

    /// Columns of a tile.
    pub(crate) fn columns(self) -> usize {
        match self {
            Self::Portable => 16,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => 16,
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Vnni(_) => 32,
        }
    }

    /// Computes a tile and marks each sum that is greater than the floor of its row or of its column. Says
    /// whether there is any; only then is the tile filled in.
    ///
    /// # Panics
    /// If the panels do not have the kernel's rows and columns, with the same multiple of eight numbers each.
    pub(crate) fn compare(
        self,
        (rows, columns): (&[i16], &[i16]),
        row_floors: &[i32],
        column_floors: &[i32],
        tile: &mut Tile,
    ) -> bool {
        let depth = rows.len() / self.rows();
        assert!(depth > 0 && depth.is_multiple_of(8) && rows.len() == depth * self.rows());
        assert!(columns.len() == depth * self.columns());
        assert!(row_floors.len() == self.rows() && column_floors.len() == self.columns());
        match self {
            Self::Portable => portable::compare((rows, columns), row_floors, column_floors, tile),
            // SAFETY: `Supported` shows that the instructions are there; the lengths were checked above.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => unsafe { avx2::compare((rows, columns), row_floors, column_floors, tile) },
            // SAFETY: as for AVX2.
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Vnni(_) => unsafe {
                avx512::compare((rows, columns), row_floors, column_floors, tile)
            },
        }
    }
}

mod portable {
    use super::Tile;

    const ROWS: usize = 6;
    const COLUMNS: usize = 16;

    pub(super) fn compare(
        (rows, columns): (&[i16], &[i16]),
        row_floors: &[i32],
        column_floors: &[i32],
        tile: &mut Tile,
    ) -> bool {
        let mut sums = [[0i32; COLUMNS]; ROWS];
        let steps = rows.as_chunks::<{ 2 * ROWS }>().0.iter().zip(columns.as_chunks::<{ 2 * COLUMNS }>().0);
        for (a, b) in steps {
            for (sums, a) in sums.iter_mut().zip(a.as_chunks::<2>().0) {
                for (sum, b) in sums.iter_mut().zip(b.as_chunks::<2>().0) {
                    *sum += i32::from(a[0]) * i32::from(b[0]) + i32::from(a[1]) * i32::from(b[1]);
                }
            }
        }
        let mut any = false;
        for (row, sums) in sums.iter().enumerate() {
            let mut mask = 0;
            for (column, sum) in sums.iter().enumerate() {
                mask |= u32::from(*sum > row_floors[row].min(column_floors[column])) << column;
            }
            tile.passed[row] = mask;
            tile.sums[row][..COLUMNS].copy_from_slice(sums);
            any |= mask != 0;
        }
        any
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
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
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A row-major matrix as one panel.
    fn panel(rows: &[Vec<i16>]) -> Vec<i16> {
        let pairs = rows[0].len() / 2;
        (0..pairs).flat_map(|p| rows.iter().flat_map(move |row| [row[2 * p], row[2 * p + 1]])).collect()
    }

    proptest! {
        #[test]
        fn every_kernel_passes_exactly_the_sums_above_the_lower_floor(
            seed in any::<u64>(), depth in 1usize..8, spread in 1i32..200_000_000,
        ) {
            let depth = depth * 8;
            let mut state = seed;
            let mut next = move || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) as i32
            };
            let limit = 32767 / 8;
            let mut numbers = |count: usize| -> Vec<Vec<i16>> {
                (0..count).map(|_| (0..depth).map(|_| (next() % limit) as i16).collect()).collect()
            };
            let (rows, columns) = (numbers(MOST_ROWS), numbers(MOST_COLUMNS));
            let floors: Vec<i32> = numbers(6).concat().iter().map(|v| i32::from(*v) * (spread / limit)).collect();
            for kernel in Kernel::available() {
                let (rows, columns) = (&rows[..kernel.rows()], &columns[..kernel.columns()]);
                let (row_floors, column_floors) = (&floors[..kernel.rows()], &floors[12..12 + kernel.columns()]);
                let mut expected = Vec::new();
                for (i, x) in rows.iter().enumerate() {
                    for (j, y) in columns.iter().enumerate() {
                        let sum: i32 = x.iter().zip(y).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum();
                        if sum > row_floors[i].min(column_floors[j]) {
                            expected.push((i, j, sum));
                        }
                    }
                }
                let mut tile = Tile::new();
                let any = kernel.compare((&panel(rows), &panel(columns)), row_floors, column_floors, &mut tile);
                prop_assert_eq!(any, !expected.is_empty());
                if any {
                    prop_assert_eq!(tile.passed(kernel).collect::<Vec<_>>(), expected, "{:?}", kernel);
                }
            }
        }
    }
}
