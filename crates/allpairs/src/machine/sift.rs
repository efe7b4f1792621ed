//! Products of short rows of small integers, one row with many.

/// Numbers of a short row.
pub(crate) const WIDTH: usize = 32;

/// One way to compute them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sift {
    /// Without any instruction that not every machine has.
    Portable,
    /// `vpmaddubsw` on 256 bits.
    #[cfg(target_arch = "x86_64")]
    Avx2(Checked),
}

/// Proof that the machine was asked and has the instructions.
#[cfg(target_arch = "x86_64")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Checked(());

impl Sift {
    /// All that this machine can run, the fastest first.
    pub(crate) fn available() -> Vec<Self> {
        let mut available = Vec::new();
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            available.push(Self::Avx2(Checked(())));
        }
        available.push(Self::Portable);
        available
    }

    /// The fastest.
    pub(crate) fn best() -> Self {
        Self::available()[0]
    }

    /// Notes which of the rows at these places have a product of at least `least` with the one row. No product of
    /// two neighbouring numbers may exceed 15 bits in sum.
    ///
    /// # Panics
    /// If there is no row at a place.
    #[inline]
    pub(crate) fn pass(
        self,
        (one, least): (&[u8; WIDTH], i32),
        (places, rows): (&[u16], &[[i8; WIDTH]]),
        passed: &mut Vec<u16>,
    ) {
        match self {
            Self::Portable => {
                let product = |row: &[i8; WIDTH]| -> i32 {
                    one.iter().zip(row).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum()
                };
                passed.extend(
                    places.iter().copied().filter(|place| product(&rows[usize::from(*place)]) >= least),
                );
            }
            // SAFETY: `Checked` shows that the instructions are there.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => unsafe { avx2::pass((one, least), (places, rows), passed) },
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::WIDTH;
    use std::arch::x86_64::*;

    #[target_feature(enable = "avx2")]
    pub(super) fn pass(
        (one, least): (&[u8; WIDTH], i32),
        (places, rows): (&[u16], &[[i8; WIDTH]]),
        passed: &mut Vec<u16>,
    ) {
        // SAFETY: both have 32 bytes.
        let one = unsafe { _mm256_loadu_si256(one.as_ptr().cast()) };
        let ones = _mm256_set1_epi16(1);
        for place in places {
            // SAFETY: as above.
            let row = unsafe { _mm256_loadu_si256(rows[usize::from(*place)].as_ptr().cast()) };
            let sums = _mm256_madd_epi16(_mm256_maddubs_epi16(one, row), ones);
            let sums = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256::<1>(sums));
            let sums = _mm_add_epi32(sums, _mm_shuffle_epi32::<0x4e>(sums));
            let sums = _mm_add_epi32(sums, _mm_shuffle_epi32::<0xb1>(sums));
            if _mm_cvtsi128_si32(sums) >= least {
                passed.push(*place);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_way_passes_the_same_rows(
            one in prop::collection::vec(0u8..128, WIDTH),
            rows in prop::collection::vec(prop::collection::vec(0i8..=127, WIDTH), 1..40),
            least in 0i32..300_000,
        ) {
            let one: [u8; WIDTH] = one.try_into().unwrap();
            let rows: Vec<[i8; WIDTH]> = rows.into_iter().map(|row| row.try_into().unwrap()).collect();
            let places: Vec<u16> = (0..rows.len() as u16).rev().collect();
            let product = |row: &[i8; WIDTH]| -> i32 { one.iter().zip(row).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum() };
            let expected: Vec<u16> = places.iter().copied().filter(|p| product(&rows[usize::from(*p)]) >= least).collect();
            for way in Sift::available() {
                let mut passed = Vec::new();
                way.pass((&one, least), (&places, &rows), &mut passed);
                prop_assert_eq!(&passed, &expected, "{:?}", way);
            }
        }
    }
}
