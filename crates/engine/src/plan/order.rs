//! The order of a channel's entries when it is shuffled: the same on every host, another in each epoch.
//!
//! Fisher and Yates' shuffle (Durstenfeld 1964) with the numbers of SplitMix64 (Steele, Lea, Flood 2014), which
//! start from the seed and the epoch alone. Amazon's own order is not known, so this is ours; it must never
//! change, because jobs are repeated by their seed.

/// The numbers from 0 to `count` in the order of an epoch.
pub(crate) fn shuffled(count: usize, seed: i64, epoch: u64) -> Vec<usize> {
    let start = SplitMix(seed.cast_unsigned()).next();
    // Mixed once more, or the numbers of one epoch would be those of another, only moved.
    let mut numbers = SplitMix(SplitMix(start ^ epoch).next());
    let mut order: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        order.swap(last, numbers.below(last + 1));
    }
    order
}

struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 to `bound`, each as likely as the others: those of an incomplete last round are passed over.
    fn below(&mut self, bound: usize) -> usize {
        let bound = bound as u64;
        let rest = (u64::MAX % bound + 1) % bound;
        loop {
            let number = self.next();
            if number <= u64::MAX - rest {
                return usize::try_from(number % bound).unwrap_or_default();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_order_of_a_seed_never_changes() {
        assert_eq!(shuffled(8, 7, 0), FIRST);
        assert_eq!(shuffled(8, 7, 1), SECOND);
    }

    // Computed by an implementation in Python.
    const FIRST: [usize; 8] = [7, 4, 3, 2, 5, 1, 6, 0];
    const SECOND: [usize; 8] = [7, 1, 3, 6, 5, 2, 0, 4];

    #[test]
    fn the_numbers_are_those_of_the_reference_implementation() {
        // Of https://prng.di.unimi.it/splitmix64.c with the state 1234567.
        let mut numbers = SplitMix(1_234_567);
        let first: Vec<_> = (0..3).map(|_| numbers.next()).collect();
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn every_place_is_as_likely_as_the_others() {
        let mut counts = [[0_u32; 5]; 5];
        for epoch in 0..10_000 {
            for (place, number) in shuffled(5, 1, epoch).into_iter().enumerate() {
                counts[place][number] += 1;
            }
        }
        assert!(counts.iter().flatten().all(|count| (1800..2200).contains(count)), "{counts:?}");
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_every_epoch_has_an_order_of_its_own(seed: i64, epoch in 0..1000_u64) {
            let order = shuffled(100, seed, epoch);
            prop_assert_eq!(&order, &shuffled(100, seed, epoch));
            prop_assert_ne!(&order, &shuffled(100, seed, epoch + 1));
            prop_assert_ne!(&order, &shuffled(100, seed.wrapping_add(1), epoch));
            let mut sorted = order;
            sorted.sort_unstable();
            prop_assert_eq!(sorted, (0..100).collect::<Vec<_>>());
        }
    }
}
