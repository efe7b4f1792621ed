//! Sums in float32 compared with floors, many at a time.

use super::vectors::{Vectors, by_vectors};

/// Sums are compared in groups of this many.
const WIDTH: usize = 64;

type Group = [f32; WIDTH];

/// What a group can not exceed, slightly lowered for roundings.
const SLACK: f32 = 4e-6;

impl Vectors {
    /// Notes the places where a sum, with the product of the two rests on top, is greater than the floor there or
    /// than the other floor, with that sum alone; sets all sums to zero.
    ///
    /// # Panics
    /// If there are more sums than limits, or more than 2¹⁶.
    pub(crate) fn pass_sums(
        self,
        sums: &mut [f32],
        limits: &Limits,
        other: (f32, f32),
        passed: &mut Vec<(u16, f32)>,
    ) {
        assert!(sums.len() <= limits.rests.len() && sums.len() <= 1 << 16);
        by_vectors!(self, pass(sums.as_chunks_mut().0, limits, other, passed));
    }
}

/// What sums are compared with: rests and floors of all places, a multiple of 64 of them.
///
/// One look at a group asks for less than any of its places does; so it pays to have equal rests side by side.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    rests: Vec<f32>,
    floors: Vec<f32>,
    /// Greatest rest and least floor of each group.
    of_groups: Vec<(f32, f32)>,
}

impl Limits {
    /// Fills both up to whole groups.
    pub(crate) fn set_rests(&mut self, rests: impl Iterator<Item = f32>) {
        self.rests.clear();
        self.rests.extend(rests);
        self.rests.resize(self.rests.len().next_multiple_of(WIDTH), 0.0);
    }

    pub(crate) fn set_floors(&mut self, floors: impl Iterator<Item = f32>) {
        self.floors.clear();
        self.floors.extend(floors);
        self.floors.resize(self.rests.len(), f32::INFINITY);
        let groups = self.rests.as_chunks::<WIDTH>().0.iter().zip(self.floors.as_chunks::<WIDTH>().0);
        self.of_groups.clear();
        self.of_groups.extend(groups.map(|(rests, floors)| {
            (rests.iter().copied().fold(0.0, f32::max), floors.iter().copied().fold(f32::INFINITY, f32::min))
        }));
    }

    pub(crate) fn floor(&self, at: usize) -> f32 {
        self.floors[at]
    }

    /// So many places, filled up to whole groups.
    pub(crate) fn len_of(&self, places: usize) -> usize {
        places.next_multiple_of(WIDTH).min(self.rests.len())
    }

    pub(crate) fn rest(&self, at: usize) -> f32 {
        self.rests[at]
    }

    /// The places that promise most by their sums less the product of the two rests, one of a group; none if there are
    /// fewer groups than places wanted.
    pub(crate) fn promising(&self, sums: &[f32], (rest, wanted): (f32, usize), places: &mut Vec<(f32, u16)>) {
        places.clear();
        let groups = sums.as_chunks::<WIDTH>().0.iter().zip(&self.of_groups);
        places.extend((0..).zip(groups).map(|(group, (sums, (most, _)))| {
            let greater = |a: f32, b: &f32| if *b > a { *b } else { a };
            let mut lanes = [f32::NEG_INFINITY; 16];
            for part in sums.as_chunks::<16>().0 {
                lanes.iter_mut().zip(part).for_each(|(lane, sum)| *lane = greater(*lane, sum));
            }
            let greatest = lanes.iter().fold(f32::NEG_INFINITY, greater);
            (greatest - rest * most, group)
        }));
        if wanted == 0 || places.len() < wanted {
            places.clear();
            return;
        }
        places.select_nth_unstable_by(wanted - 1, |a, b| b.0.total_cmp(&a.0));
        places.truncate(wanted);
        for (_, place) in places {
            let sums = &sums.as_chunks::<WIDTH>().0[usize::from(*place)];
            let at = (1..WIDTH).fold(0, |best, at| if sums[at] > sums[best] { at } else { best });
            *place = (usize::from(*place) * WIDTH + at) as u16;
        }
    }

    /// For each group the sum that one of its places must exceed at least.
    fn least(&self, (rest, floor): (f32, f32)) -> impl Iterator<Item = f32> {
        self.of_groups.iter().map(move |(most, least)| least.min(floor) - rest * most - SLACK)
    }

    /// Rests and floors of a group.
    fn group(&self, at: usize) -> (&Group, &Group) {
        (&self.rests.as_chunks().0[at], &self.floors.as_chunks().0[at])
    }
}

/// Notes the places of a group whose bits are set.
fn note(group: usize, sums: &Group, mut bits: u64, passed: &mut Vec<(u16, f32)>) {
    while bits != 0 {
        let at = bits.trailing_zeros();
        passed.push(((group * WIDTH) as u16 + at as u16, sums[at as usize]));
        bits &= bits - 1;
    }
}

mod portable {
    use super::{Group, Limits, WIDTH, note};

    fn above(sums: &Group, (rests, floors): (&Group, &Group), (rest, floor): (f32, f32)) -> u64 {
        let above = |lane: usize| sums[lane] + rest * rests[lane] > floors[lane].min(floor);
        (0..WIDTH).fold(0, |bits, lane| bits | u64::from(above(lane)) << lane)
    }

    pub(super) fn pass(sums: &mut [Group], limits: &Limits, other: (f32, f32), passed: &mut Vec<(u16, f32)>) {
        for (at, (sums, least)) in sums.iter_mut().zip(limits.least(other)).enumerate() {
            if sums.iter().fold(false, |any, sum| any | (*sum > least)) {
                note(at, sums, above(sums, limits.group(at), other), passed);
            }
            *sums = [0.0; WIDTH];
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{Group, Limits, WIDTH, note};
    use std::arch::x86_64::*;

    #[target_feature(enable = "avx2")]
    fn above(sums: &Group, (rests, floors): (&Group, &Group), (rest, floor): (f32, f32)) -> u64 {
        let mut bits = 0;
        for first in (0..WIDTH).step_by(8) {
            // SAFETY: eight numbers from `first` on lie within a group.
            let above = unsafe {
                let upper = _mm256_mul_ps(_mm256_set1_ps(rest), _mm256_loadu_ps(rests.as_ptr().add(first)));
                let upper = _mm256_add_ps(_mm256_loadu_ps(sums.as_ptr().add(first)), upper);
                let lower = _mm256_min_ps(_mm256_set1_ps(floor), _mm256_loadu_ps(floors.as_ptr().add(first)));
                _mm256_cmp_ps::<_CMP_GT_OQ>(upper, lower)
            };
            bits |= u64::from(_mm256_movemask_ps(above) as u32) << first;
        }
        bits
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn pass(sums: &mut [Group], limits: &Limits, other: (f32, f32), passed: &mut Vec<(u16, f32)>) {
        for (at, (sums, least)) in sums.iter_mut().zip(limits.least(other)).enumerate() {
            let mut any = _mm256_setzero_ps();
            for first in (0..WIDTH).step_by(8) {
                // SAFETY: eight numbers from `first` on lie within a group.
                let sums = unsafe { _mm256_loadu_ps(sums.as_ptr().add(first)) };
                any = _mm256_or_ps(any, _mm256_cmp_ps::<_CMP_GT_OQ>(sums, _mm256_set1_ps(least)));
            }
            if _mm256_movemask_ps(any) != 0 {
                note(at, sums, above(sums, limits.group(at), other), passed);
            }
            *sums = [0.0; WIDTH];
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use super::{Group, Limits, WIDTH, note};
    use std::arch::x86_64::*;

    #[target_feature(enable = "avx512f")]
    fn above(sums: &Group, (rests, floors): (&Group, &Group), (rest, floor): (f32, f32)) -> u64 {
        let mut bits = 0;
        for first in (0..WIDTH).step_by(16) {
            // SAFETY: sixteen numbers from `first` on lie within a group.
            let above = unsafe {
                let upper = _mm512_mul_ps(_mm512_set1_ps(rest), _mm512_loadu_ps(rests.as_ptr().add(first)));
                let upper = _mm512_add_ps(_mm512_loadu_ps(sums.as_ptr().add(first)), upper);
                let lower = _mm512_min_ps(_mm512_set1_ps(floor), _mm512_loadu_ps(floors.as_ptr().add(first)));
                _mm512_cmp_ps_mask::<_CMP_GT_OQ>(upper, lower)
            };
            bits |= u64::from(above) << first;
        }
        bits
    }

    #[target_feature(enable = "avx512f")]
    pub(super) fn pass(sums: &mut [Group], limits: &Limits, other: (f32, f32), passed: &mut Vec<(u16, f32)>) {
        for (at, (sums, least)) in sums.iter_mut().zip(limits.least(other)).enumerate() {
            let mut any = 0;
            for first in (0..WIDTH).step_by(16) {
                // SAFETY: sixteen numbers from `first` on lie within a group.
                let sums = unsafe { _mm512_loadu_ps(sums.as_ptr().add(first)) };
                any |= _mm512_cmp_ps_mask::<_CMP_GT_OQ>(sums, _mm512_set1_ps(least));
            }
            if any != 0 {
                note(at, sums, above(sums, limits.group(at), other), passed);
            }
            *sums = [0.0; WIDTH];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_way_passes_the_same_places_and_clears_all_sums(
            groups in 1usize..4, seed in any::<u64>(), rest in 0.0..1.0f32, floor in -0.5..1.5f32,
        ) {
            let mut state = seed;
            let mut numbers = |scale: f32| -> Vec<f32> {
                let next = (0..groups * WIDTH).map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    (state >> 40) as f32 / (1 << 24) as f32 * scale
                });
                next.collect()
            };
            let (sums, rests, mut floors) = (numbers(1.0), numbers(1.0), numbers(2.0));
            floors[0] = f32::INFINITY;
            let expected: Vec<(u16, f32)> = (0..sums.len())
                .filter(|at| sums[*at] + rest * rests[*at] > floors[*at].min(floor))
                .map(|at| (at as u16, sums[at]))
                .collect();
            let mut limits = Limits::default();
            limits.set_rests(rests.into_iter());
            limits.set_floors(floors.into_iter());
            for way in Vectors::available() {
                let (mut sums, mut passed) = (sums.clone(), Vec::new());
                way.pass_sums(&mut sums, &limits, (rest, floor), &mut passed);
                prop_assert_eq!(&passed, &expected, "{:?}", way);
                prop_assert!(sums.iter().all(|sum| *sum == 0.0));
            }
        }
    }
}
