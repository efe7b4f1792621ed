//! Sums in float32 compared with floors, many at a time.

/// One way to compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lanes {
    /// Without any instruction that not every machine has.
    Portable,
    /// 256 bits.
    #[cfg(target_arch = "x86_64")]
    Avx2(Checked),
    /// 512 bits.
    #[cfg(target_arch = "x86_64")]
    Avx512(Checked),
}

/// Proof that the machine was asked and has the instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Checked(());

impl Lanes {
    /// Sums are compared in groups of this many.
    pub(crate) const WIDTH: usize = 32;

    /// All that this machine can run, the fastest first.
    pub(crate) fn available() -> Vec<Self> {
        let mut available = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f") {
                available.push(Self::Avx512(Checked(())));
            }
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                available.push(Self::Avx2(Checked(())));
            }
        }
        available.push(Self::Portable);
        available
    }

    /// The fastest.
    pub(crate) fn best() -> Self {
        Self::available()[0]
    }

    /// Notes the places where a sum, with the product of the two rests on top, is greater than the floor there or
    /// than the other floor; sets all sums to zero.
    ///
    /// # Panics
    /// If the slices are not of one length, a multiple of [`Self::WIDTH`] of at most 2¹⁶.
    pub(crate) fn pass(
        self,
        (sums, rests, floors): (&mut [f32], &[f32], &[f32]),
        (rest, floor): (f32, f32),
        passed: &mut Vec<u16>,
    ) {
        assert!(sums.len() == rests.len() && sums.len() == floors.len() && sums.len() <= 1 << 16);
        assert!(sums.len().is_multiple_of(Self::WIDTH));
        match self {
            Self::Portable => pass((sums, rests, floors), (rest, floor), passed),
            // SAFETY: `Checked` shows that the instructions are there.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => unsafe { pass_avx2((sums, rests, floors), (rest, floor), passed) },
            // SAFETY: as for AVX2.
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(_) => unsafe { pass_avx512((sums, rests, floors), (rest, floor), passed) },
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn pass_avx2(lanes: (&mut [f32], &[f32], &[f32]), other: (f32, f32), passed: &mut Vec<u16>) {
    pass(lanes, other, passed);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn pass_avx512(lanes: (&mut [f32], &[f32], &[f32]), other: (f32, f32), passed: &mut Vec<u16>) {
    pass(lanes, other, passed);
}

/// The one body, which the compiler turns into the instructions of whoever it is inlined into.
#[inline(always)]
fn pass(
    (sums, rests, floors): (&mut [f32], &[f32], &[f32]),
    (rest, floor): (f32, f32),
    passed: &mut Vec<u16>,
) {
    const WIDTH: usize = Lanes::WIDTH;
    let groups = sums.as_chunks_mut::<WIDTH>().0.iter_mut();
    let groups = groups.zip(rests.as_chunks::<WIDTH>().0.iter().zip(floors.as_chunks::<WIDTH>().0));
    for (group, (sums, (rests, floors))) in groups.enumerate() {
        let above = |lane: usize| {
            let lower = if floors[lane] < floor { floors[lane] } else { floor };
            sums[lane] + rest * rests[lane] > lower
        };
        let mut any = 0u32;
        for lane in 0..WIDTH {
            any |= u32::from(above(lane));
        }
        if any != 0 {
            let places = (0..WIDTH).filter(|lane| above(*lane));
            passed.extend(places.map(|lane| (group * WIDTH + lane) as u16));
        }
        *sums = [0.0; WIDTH];
    }
}
