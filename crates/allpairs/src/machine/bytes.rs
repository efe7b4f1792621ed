//! Dot products of a few rows with a few other rows in bytes, turned into bounds of scores and compared with floors
//! at once (see [`crate::bytes`] for what the bounds are and why they hold).
//!
//! Both sides are *panels*: of [`Kernel::rows`] or [`Kernel::columns`] matrix rows, the first four numbers of each
//! row, then the next four of each row, and so on. Numbers lie between -127 and 127. The machine multiplies unsigned
//! bytes by signed ones; so those on the left have 128 added to them, and the sum of a column begins with what that
//! adds. Sums are 32-bit integers that wrap, and only the whole sum has to fit.
//!
//! AVX2 without VNNI has no kernel: `vpmaddubsw` adds two products in 16 bits, which do not fit, and to widen them
//! first makes it no faster than [`super::Kernel`] is with twice as many bits.

#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod avx_vnni;
mod portable;

use std::fmt::Debug;

/// Rows of the largest tile.
const MOST_ROWS: usize = 12;

/// Columns of the largest tile.
const MOST_COLUMNS: usize = 32;

/// The left side of a tile.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowPanel<'a> {
    /// Numbers, 128 added to each.
    pub(crate) bytes: &'a [u8],
    /// What one unit of a row's numbers is worth.
    pub(crate) steps: &'a [f32],
    /// How far a row in bytes is from the row.
    pub(crate) errors: &'a [f32],
}

/// The right side of a tile.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ColumnPanel<'a> {
    /// Numbers as they are, in two's complement.
    pub(crate) bytes: &'a [u8],
    /// What each sum begins with: -128 times the sum of the numbers.
    pub(crate) starts: &'a [i32],
    /// What one unit of a row's numbers is worth.
    pub(crate) steps: &'a [f32],
    /// How far a row in bytes is from the row.
    pub(crate) errors: &'a [f32],
}

/// What is looked for: the least scores that matter to rows and to columns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Floors<'a> {
    pub(crate) rows: &'a [f32],
    pub(crate) columns: &'a [f32],
}

/// Bits of a score in [`Greatest`] that hold a number instead.
const NUMBER: i32 = 0xff;

/// Numbers that a panel may have in [`Greatest`].
pub(crate) const NUMBERED: usize = NUMBER as usize + 1;

/// The greatest scores so far at each place of a tile, row by row. Instead of the lowest bits a score has the number of
/// the panel that it comes from.
#[derive(Debug)]
pub(crate) struct Greatest<'a> {
    pub(crate) scores: &'a mut [f32],
    /// The number of the panel that is compared now.
    pub(crate) number: u8,
}

/// A score of [`Greatest`] as it is at least, and its number.
#[inline]
pub(crate) fn numbered(score: f32) -> (f32, usize) {
    let (bits, number) = (score.to_bits(), NUMBER as u32);
    // Of a negative score more is less.
    let least = if score.is_sign_negative() { bits | number } else { bits & !number };
    (f32::from_bits(least), (bits & number) as usize)
}

/// Upper bounds of the scores of one tile and which of them passed.
#[derive(Debug)]
pub(crate) struct Tile {
    bounds: [[f32; MOST_COLUMNS]; MOST_ROWS],
    passed: [u32; MOST_ROWS],
}

impl Tile {
    pub(crate) fn new() -> Self {
        Self { bounds: [[0.0; MOST_COLUMNS]; MOST_ROWS], passed: [0; MOST_ROWS] }
    }

    /// Row, column and upper bound of the score of whatever passed.
    pub(crate) fn passed(&self, kernel: Kernel) -> impl Iterator<Item = (usize, usize, f32)> {
        (0..kernel.rows()).flat_map(move |row| {
            let mut mask = self.passed[row];
            std::iter::from_fn(move || {
                let column = mask.trailing_zeros() as usize;
                mask &= mask.wrapping_sub(1);
                (column < 32).then(|| (row, column, self.bounds[row][column]))
            })
        })
    }
}

/// One way to compute a tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// Without any instruction that not every machine has.
    Portable,
    /// `vpdpbusd` on 256 bits.
    #[cfg(target_arch = "x86_64")]
    AvxVnni(Supported),
    /// `vpdpbusd` on 512 bits.
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
            let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
            if avx2 && is_x86_feature_detected!("avxvnni") {
                kernels.push(Self::AvxVnni(Supported(())));
            }
        }
        kernels.push(Self::Portable);
        kernels
    }

    /// The fastest, if it is faster than 16-bit integers are.
    pub(crate) fn fast() -> Option<Self> {
        Self::available().into_iter().next().filter(|kernel| *kernel != Self::Portable)
    }

    /// Rows of a tile.
    #[inline]
    pub(crate) fn rows(self) -> usize {
        match self {
            Self::Portable => portable::ROWS,
            #[cfg(target_arch = "x86_64")]
            Self::AvxVnni(_) => avx_vnni::ROWS,
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Vnni(_) => avx512::ROWS,
        }
    }

    /// Columns of a tile.
    #[inline]
    pub(crate) fn columns(self) -> usize {
        match self {
            Self::Portable => portable::COLUMNS,
            #[cfg(target_arch = "x86_64")]
            Self::AvxVnni(_) => avx_vnni::COLUMNS,
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Vnni(_) => avx512::COLUMNS,
        }
    }

    /// Computes a tile and marks each pair whose score may be at least the floor of its row or of its column. Says
    /// whether there is any; only then is the tile filled in.
    ///
    /// The bound of a pair is `(sum · step') · step + (E' · (1 + E) + E)`, the column's step and error dashed, with
    /// products and sums in parentheses rounded once to float32. It passes if it is not less than either floor.
    ///
    /// # Panics
    /// If the panels do not have the kernel's rows and columns, with the same multiple of eight numbers each.
    #[inline]
    pub(crate) fn compare(
        self,
        rows: RowPanel,
        columns: ColumnPanel,
        floors: Floors,
        tile: &mut Tile,
    ) -> bool {
        self.check(rows, columns);
        assert!(floors.rows.len() == self.rows() && floors.columns.len() == self.columns());
        match self {
            Self::Portable => portable::compare(rows, columns, floors, tile),
            // SAFETY: `Supported` shows that the instructions are there; the lengths were checked above.
            #[cfg(target_arch = "x86_64")]
            Self::AvxVnni(_) => unsafe { avx_vnni::compare(rows, columns, floors, tile) },
            // SAFETY: as for AVX-VNNI.
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Vnni(_) => unsafe { avx512::compare(rows, columns, floors, tile) },
        }
    }

    /// Raises the greatest scores so far of the rows of a tile, and if wanted those of its columns. A pair stands for
    /// what its score is at least, `sum · (step · step') − (E · E' + (E + E'))`, which has the same bits whichever of
    /// the two is the row.
    ///
    /// # Panics
    /// As [`Self::compare`], and if there are not as many greatest scores as pairs in a tile.
    #[inline]
    pub(crate) fn raise(
        self,
        rows: RowPanel,
        columns: ColumnPanel,
        of_rows: Greatest,
        of_columns: Option<Greatest>,
    ) {
        self.check(rows, columns);
        let size = self.rows() * self.columns();
        assert!(of_rows.scores.len() == size);
        assert!(of_columns.as_ref().is_none_or(|greatest| greatest.scores.len() == size));
        match self {
            Self::Portable => portable::raise(rows, columns, of_rows, of_columns),
            // SAFETY: `Supported` shows that the instructions are there; the lengths were checked above.
            #[cfg(target_arch = "x86_64")]
            Self::AvxVnni(_) => unsafe { avx_vnni::raise(rows, columns, of_rows, of_columns) },
            // SAFETY: as for AVX-VNNI.
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Vnni(_) => unsafe { avx512::raise(rows, columns, of_rows, of_columns) },
        }
    }

    #[inline]
    fn check(self, rows: RowPanel, columns: ColumnPanel) {
        let (height, width) = (self.rows(), self.columns());
        let depth = rows.bytes.len() / height;
        assert!(depth > 0 && depth.is_multiple_of(8) && rows.bytes.len() == depth * height);
        assert!(columns.bytes.len() == depth * width && columns.starts.len() == width);
        assert!([rows.steps, rows.errors].iter().all(|of_rows| of_rows.len() == height));
        assert!([columns.steps, columns.errors].iter().all(|of| of.len() == width));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Rows as they lie in a panel.
    fn panel(rows: &[Vec<i8>], plus: i16) -> Vec<u8> {
        let steps = 0..rows[0].len() / 4;
        let numbers = |step: usize| rows.iter().flat_map(move |row| &row[4 * step..][..4]);
        steps.flat_map(numbers).map(|number| (i16::from(*number) + plus) as u8).collect()
    }

    /// The pairs that pass, by the definition.
    fn expected(
        (rows, columns): (&[Vec<i8>], &[Vec<i8>]),
        (steps, errors): (&[f32], &[f32]),
        floors: Floors,
    ) -> Vec<(usize, usize, u32)> {
        let mut expected = Vec::new();
        for (i, x) in rows.iter().enumerate() {
            for (j, y) in columns.iter().enumerate() {
                let sum: i32 = x.iter().zip(y).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum();
                let margin = errors[MOST_ROWS + j].mul_add(1.0 + errors[i], errors[i]);
                let bound = (sum as f32 * steps[MOST_ROWS + j]).mul_add(steps[i], margin);
                if bound >= floors.rows[i] || bound >= floors.columns[j] {
                    expected.push((i, j, bound.to_bits()));
                }
            }
        }
        expected
    }

    #[test]
    fn the_fast_kernel_is_the_first_one_or_none() {
        let first = Kernel::available()[0];
        assert_eq!(Kernel::fast(), (first != Kernel::Portable).then_some(first));
    }

    proptest! {
        #[test]
        fn every_kernel_passes_the_same_bounds_above_the_lower_floor(
            seed in any::<u64>(), depth in 1usize..8, largest in 0i64..128, high in -1.0f32..1.0,
        ) {
            let depth = depth * 8;
            let mut state = seed;
            let mut next = move |limit: i64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) as i64 % (2 * limit + 1) - limit
            };
            let mut numbers = |count: usize| -> Vec<Vec<i8>> {
                (0..count).map(|_| (0..depth).map(|_| next(largest) as i8).collect()).collect()
            };
            let (rows, columns) = (numbers(MOST_ROWS), numbers(MOST_COLUMNS));
            let mut reals = |limit: f32| -> Vec<f32> {
                (0..MOST_ROWS + MOST_COLUMNS).map(|_| (next(1000) + 1000) as f32 / 2000.0 * limit).collect()
            };
            let (steps, errors) = (reals(0.01), reals(0.1));
            let mut floors: Vec<f32> = reals(1.0).iter().map(|floor| floor + high).collect();
            (floors[0], floors[1], floors[MOST_ROWS]) = (f32::INFINITY, f32::NEG_INFINITY, f32::INFINITY);
            for kernel in Kernel::available() {
                let (height, width) = (kernel.rows(), kernel.columns());
                let (rows, columns) = (&rows[..height], &columns[..width]);
                let floors = Floors { rows: &floors[..height], columns: &floors[MOST_ROWS..][..width] };
                let expected = expected((rows, columns), (&steps, &errors), floors);
                let starts: Vec<i32> = columns
                    .iter()
                    .map(|column| -128 * column.iter().map(|number| i32::from(*number)).sum::<i32>())
                    .collect();
                let mut tile = Tile::new();
                let any = kernel.compare(
                    RowPanel { bytes: &panel(rows, 128), steps: &steps[..height], errors: &errors[..height] },
                    ColumnPanel {
                        bytes: &panel(columns, 0),
                        starts: &starts,
                        steps: &steps[MOST_ROWS..][..width],
                        errors: &errors[MOST_ROWS..][..width],
                    },
                    floors,
                    &mut tile,
                );
                prop_assert_eq!(any, !expected.is_empty());
                let passed = tile.passed(kernel).map(|(row, column, bound)| (row, column, bound.to_bits()));
                prop_assert_eq!(passed.collect::<Vec<_>>(), expected, "{:?}", kernel);
            }
        }
    }

    proptest! {
        #[test]
        fn every_kernel_keeps_the_greatest_of_each_place_with_the_number_of_its_panel(
            seed in any::<u64>(), depth in 1usize..6, panels in 1usize..5,
        ) {
            let depth = depth * 8;
            let mut state = seed;
            let mut next = move || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) as i64
            };
            for kernel in Kernel::available() {
                let (height, width) = (kernel.rows(), kernel.columns());
                let mut of = |count: usize| -> (Vec<Vec<i8>>, Vec<f32>, Vec<f32>) {
                    let numbers = (0..count).map(|_| (0..depth).map(|_| (next() % 255 - 127) as i8).collect()).collect();
                    let mut reals = |limit: f32| (0..count).map(|_| (next() % 1000 + 1) as f32 / 1000.0 * limit).collect();
                    (numbers, reals(0.01), reals(0.1))
                };
                let ((rows, steps, errors), number) = (of(height), 77);
                let mut of_rows = vec![f32::NEG_INFINITY; height * width];
                let mut expected = vec![f32::NEG_INFINITY; height * width];
                for panel_number in 0..panels as u8 {
                    let (columns, other_steps, other_errors) = of(width);
                    let sums = |column: &Vec<i8>| -128 * column.iter().map(|number| i32::from(*number)).sum::<i32>();
                    let starts: Vec<i32> = columns.iter().map(sums).collect();
                    let mut of_columns = vec![f32::NEG_INFINITY; height * width];
                    kernel.raise(
                        RowPanel { bytes: &panel(&rows, 128), steps: &steps, errors: &errors },
                        ColumnPanel { bytes: &panel(&columns, 0), starts: &starts, steps: &other_steps, errors: &other_errors },
                        Greatest { scores: &mut of_rows, number: panel_number },
                        Some(Greatest { scores: &mut of_columns, number }),
                    );
                    for (at, expected) in expected.iter_mut().enumerate() {
                        let (i, j) = (at / width, at % width);
                        let sum: i32 = rows[i].iter().zip(&columns[j]).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum();
                        let margin = errors[i].mul_add(other_errors[j], errors[i] + other_errors[j]);
                        let least = (sum as f32).mul_add(steps[i] * other_steps[j], -margin);
                        let (found, of_panel) = numbered(of_columns[at]);
                        prop_assert!(found <= least && found >= least - 4e-5 * least.abs(), "{:?}: {} {}", kernel, found, least);
                        prop_assert_eq!(of_panel, usize::from(number));
                        let with = |number: u8| f32::from_bits(least.to_bits() & !255 | u32::from(number));
                        *expected = expected.max(with(panel_number));
                    }
                }
                let bits = |scores: &[f32]| scores.iter().map(|score| score.to_bits()).collect::<Vec<_>>();
                prop_assert_eq!(bits(&of_rows), bits(&expected), "{:?}", kernel);
            }
        }
    }

    #[test]
    fn a_numbered_score_is_never_more_than_it_was() {
        for score in [0.5f32, -0.5, 1.0, -1.0, 1e-30, -1e-30, 0.0, -0.0] {
            for number in [0u32, 1, 254, 255] {
                let (least, found) = numbered(f32::from_bits(score.to_bits() & !255 | number));
                assert!(least <= score && least >= score - 4e-5, "{score}: {least}");
                assert_eq!(found, number as usize);
            }
        }
    }
}
