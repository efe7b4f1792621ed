//! What is done to each of the scores of a whole matrix, many at a time.

use super::vectors::{Vectors, by_vectors};

/// Intervals of equal width between −1 and 1 that scores are counted in.
pub(crate) const BINS: usize = 40;

/// Scores whose intervals are found together.
pub(crate) const COUNTED_TOGETHER: usize = 128;

/// Numbers of two intervals, the second one shifted by [`PAIR_SHIFT`] bits.
pub(crate) type Pairs = [u16; COUNTED_TOGETHER / 2];

/// Bits of the first number in a pair: enough for [`BINS`].
pub(crate) const PAIR_SHIFT: u32 = 6;

/// The interval of a score, from −1 up; the last one includes 1.
#[inline(always)]
pub(crate) fn bin(score: f32) -> usize {
    let place = (f64::from(score) + 1.0) * (BINS as f64 / 2.0);
    // What is no number is not greater than 0.
    let place = if place > 0.0 { place } else { 0.0 };
    let place = if place < (BINS - 1) as f64 { place } else { (BINS - 1) as f64 };
    // SAFETY: neither infinite nor without a number, and less than 40. A conversion that looks at that itself is not done
    // by vector instructions.
    unsafe { place.to_int_unchecked::<i32>() as usize }
}

impl Vectors {
    /// Makes zeros of negative zeros; whether all sums are less than the limit and greater than its opposite.
    pub(crate) fn tidy(self, sums: &mut [f32], limit: f32) -> bool {
        by_vectors!(self, tidy(sums, limit))
    }

    /// The intervals of each score and the one half of all further on.
    pub(crate) fn bins(self, scores: &[f32; COUNTED_TOGETHER], pairs: &mut Pairs) {
        by_vectors!(self, bins(scores, pairs));
    }
}

#[inline(always)]
fn tidy(sums: &mut [f32], limit: f32) -> bool {
    // No early end, so that it can be done in vectors.
    sums.iter_mut().fold(true, |all, sum| {
        *sum += 0.0;
        all & (sum.abs() < limit)
    })
}

#[inline(always)]
fn bins(scores: &[f32; COUNTED_TOGETHER], pairs: &mut Pairs) {
    let (first, second) = scores.split_at(COUNTED_TOGETHER / 2);
    for ((first, second), pair) in first.iter().zip(second).zip(pairs) {
        *pair = (bin(*first) | bin(*second) << PAIR_SHIFT) as u16;
    }
}

mod portable {
    use super::{COUNTED_TOGETHER, Pairs};

    pub(super) fn tidy(sums: &mut [f32], limit: f32) -> bool {
        super::tidy(sums, limit)
    }

    pub(super) fn bins(scores: &[f32; COUNTED_TOGETHER], pairs: &mut Pairs) {
        super::bins(scores, pairs);
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{COUNTED_TOGETHER, Pairs};

    #[target_feature(enable = "avx2")]
    pub(super) fn tidy(sums: &mut [f32], limit: f32) -> bool {
        super::tidy(sums, limit)
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn bins(scores: &[f32; COUNTED_TOGETHER], pairs: &mut Pairs) {
        super::bins(scores, pairs);
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use super::{COUNTED_TOGETHER, Pairs};

    #[target_feature(enable = "avx512f,avx512vl")]
    pub(super) fn tidy(sums: &mut [f32], limit: f32) -> bool {
        super::tidy(sums, limit)
    }

    #[target_feature(enable = "avx512f,avx512vl")]
    pub(super) fn bins(scores: &[f32; COUNTED_TOGETHER], pairs: &mut Pairs) {
        super::bins(scores, pairs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scores at and beside the places where intervals begin, those from 0 up to 1 in steps, and some that are none.
    fn scores() -> Vec<f32> {
        let edges = (0..=BINS).map(|edge| (edge as f64 / (BINS as f64 / 2.0) - 1.0) as f32);
        let beside = edges.flat_map(|edge| [edge.next_down(), edge, edge.next_up()]);
        let steps = (0..1.0f32.to_bits()).step_by(1_009_003).flat_map(|bits| {
            let score = f32::from_bits(bits);
            [score, -score]
        });
        beside.chain(steps).chain([-0.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY]).collect()
    }

    #[test]
    fn scores_are_in_the_same_interval_by_any_instructions() {
        for vectors in Vectors::available() {
            for scores in scores().as_chunks::<COUNTED_TOGETHER>().0 {
                let mut pairs = [0; COUNTED_TOGETHER / 2];
                vectors.bins(scores, &mut pairs);
                for (at, pair) in pairs.iter().map(|pair| usize::from(*pair)).enumerate() {
                    let [first, second] = [at, at + COUNTED_TOGETHER / 2].map(|at| {
                        let interval = ((f64::from(scores[at]) + 1.0) * (BINS as f64 / 2.0)) as usize;
                        interval.min(BINS - 1)
                    });
                    assert_eq!(pair, first | second << PAIR_SHIFT, "{vectors:?} {}", scores[at]);
                }
            }
        }
    }

    #[test]
    fn sums_that_reach_the_limit_are_seen_by_any_instructions_and_zeros_are_positive() {
        for vectors in Vectors::available() {
            for count in [0, 1, 16, 77] {
                let mut sums = vec![-0.0; count];
                assert!(vectors.tidy(&mut sums, 0.5));
                assert!(sums.iter().all(|sum| sum.to_bits() == 0));
                for at in 0..count {
                    for reached in [0.5, -0.5, -1.0, f32::NAN] {
                        let mut sums = vec![0.4999; count];
                        sums[at] = reached;
                        assert!(!vectors.tidy(&mut sums, 0.5), "{vectors:?} {reached} at {at} of {count}");
                    }
                }
            }
        }
    }
}
