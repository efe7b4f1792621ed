//! Dot products of a few rows with a few other rows in 16-bit integers, compared with floors at once.
//!
//! Both sides are *panels*: of `rows()` or `columns()` matrix rows, the first two numbers of each row, then the
//! next two of each row, and so on. Sums are 32-bit integers and thus the same whatever the order, the
//! instruction or the kernel; the caller sees to it that none overflows.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;

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
    /// `smlal` on 128 bits.
    #[cfg(target_arch = "aarch64")]
    Neon(Supported),
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
        #[cfg(target_arch = "aarch64")]
        if std::arch::is_aarch64_feature_detected!("neon") {
            kernels.push(Self::Neon(Supported(())));
        }
        kernels.push(Self::Portable);
        kernels
    }

    /// Rows of a tile.
    pub(crate) fn rows(self) -> usize {
        match self {
            Self::Portable => portable::ROWS,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => 6,
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Vnni(_) => 12,
            #[cfg(target_arch = "aarch64")]
            Self::Neon(_) => portable::ROWS,
        }
    }

    /// Columns of a tile.
    pub(crate) fn columns(self) -> usize {
        match self {
            Self::Portable => portable::COLUMNS,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => 16,
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Vnni(_) => 32,
            #[cfg(target_arch = "aarch64")]
            Self::Neon(_) => portable::COLUMNS,
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
            // SAFETY: as for AVX2.
            #[cfg(target_arch = "aarch64")]
            Self::Neon(_) => unsafe { neon::compare((rows, columns), row_floors, column_floors, tile) },
        }
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
