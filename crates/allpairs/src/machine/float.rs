//! Dot products in float32, for results that hold all scores.
//!
//! Every product is added to its sum with one rounding, columns ascending. So a sum does not depend on the
//! instructions that the machine has, nor on the tile that it was computed in.

/// Dot products of some rows with some others at a time, by the widest instructions there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FloatKernel {
    set: Set,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Set {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl FloatKernel {
    /// All that this machine can run, the fastest first.
    pub(crate) fn available() -> Vec<Self> {
        let mut sets = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f") {
                sets.push(Set::Avx512);
            }
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                sets.push(Set::Avx2);
            }
        }
        sets.push(Set::Portable);
        sets.into_iter().map(|set| Self { set }).collect()
    }

    /// Rows on the left side of a tile.
    pub(crate) fn rows(self) -> usize {
        match self.set {
            Set::Portable => PORTABLE.0,
            #[cfg(target_arch = "x86_64")]
            Set::Avx2 => AVX2.0,
            #[cfg(target_arch = "x86_64")]
            Set::Avx512 => AVX512.0,
        }
    }

    /// Rows on the right side of a tile.
    pub(crate) fn columns(self) -> usize {
        match self.set {
            Set::Portable => PORTABLE.1,
            #[cfg(target_arch = "x86_64")]
            Set::Avx2 => AVX2.1,
            #[cfg(target_arch = "x86_64")]
            Set::Avx512 => AVX512.1,
        }
    }

    /// Dot products of two panels, [`Self::columns`] numbers for each row of the left one; those of the next row begin
    /// `stride` numbers further on.
    ///
    /// A panel holds its rows side by side: the first number of each, then the second of each, and so on.
    pub(crate) fn dot_products(self, left: &[f32], right: &[f32], out: &mut [f32], stride: usize) {
        match self.set {
            Set::Portable => tile::<{ PORTABLE.0 }, { PORTABLE.1 }>(left, right, out, stride),
            // SAFETY: only `available` makes a kernel, after it has seen that the machine has these instructions.
            #[cfg(target_arch = "x86_64")]
            Set::Avx2 => unsafe { avx2(left, right, out, stride) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Set::Avx512 => unsafe { avx512(left, right, out, stride) },
        }
    }

    /// Keeps the multipliers busy with numbers in registers, `rounds` times; returns how many operations that were.
    pub(crate) fn spin(self, rounds: usize) -> u64 {
        let (rows, columns) = (self.rows(), self.columns());
        let (left, right) = (vec![1e-9; rows * SPUN], vec![1e-9; columns * SPUN]);
        let mut out = vec![0.0; rows * columns];
        for _ in 0..rounds {
            self.dot_products(&left, &right, &mut out, columns);
            std::hint::black_box(&out);
        }
        2 * (rows * columns * SPUN * rounds) as u64
    }
}

/// Numbers of a row while spinning: both panels stay in the first cache.
const SPUN: usize = 128;

const PORTABLE: (usize, usize) = (4, 8);
#[cfg(target_arch = "x86_64")]
const AVX2: (usize, usize) = (6, 16);
#[cfg(target_arch = "x86_64")]
const AVX512: (usize, usize) = (12, 32);

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn avx2(left: &[f32], right: &[f32], out: &mut [f32], stride: usize) {
    tile::<{ AVX2.0 }, { AVX2.1 }>(left, right, out, stride);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn avx512(left: &[f32], right: &[f32], out: &mut [f32], stride: usize) {
    tile::<{ AVX512.0 }, { AVX512.1 }>(left, right, out, stride);
}

/// Begins at a line of the cache. Sums wait in memory until a loop begins and when it has ended, and vectors that lie in two
/// lines each would take as long as a tenth of the loop.
#[repr(align(64))]
struct Aligned<T>(T);

#[inline(always)]
fn tile<const ROWS: usize, const COLUMNS: usize>(
    left: &[f32],
    right: &[f32],
    out: &mut [f32],
    stride: usize,
) {
    let mut sums = Aligned([[0.0f32; COLUMNS]; ROWS]);
    for (x, y) in left.as_chunks::<ROWS>().0.iter().zip(right.as_chunks::<COLUMNS>().0) {
        for (x, sums) in x.iter().zip(&mut sums.0) {
            for (y, sum) in y.iter().zip(sums) {
                *sum = x.mul_add(*y, *sum);
            }
        }
    }
    for (out, sums) in out.chunks_mut(stride).zip(&sums.0) {
        out[..COLUMNS].copy_from_slice(sums);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_adds_up_the_same_bits() {
        let number = |seed: usize| (seed as f32 * 0.731).sin();
        for columns in [1, 2, 7, 100] {
            for kernel in FloatKernel::available() {
                let left: Vec<f32> = (0..kernel.rows() * columns).map(number).collect();
                let right: Vec<f32> = (0..kernel.columns() * columns).map(|at| number(at + 5)).collect();
                let stride = kernel.columns() + 3;
                let mut out = vec![f32::NAN; kernel.rows() * stride];
                kernel.dot_products(&left, &right, &mut out, stride);
                for (at, found) in out.iter().enumerate() {
                    let (row, column) = (at / stride, at % stride);
                    if column >= kernel.columns() {
                        assert!(found.is_nan(), "{kernel:?} wrote beside its tile");
                        continue;
                    }
                    let sum = (0..columns).fold(0.0f32, |sum, k| {
                        left[k * kernel.rows() + row].mul_add(right[k * kernel.columns() + column], sum)
                    });
                    assert_eq!(sum.to_bits(), found.to_bits(), "{kernel:?}");
                }
            }
        }
    }
}
