//! Few places on a circle that are so far apart from each other as any two places of it can be.
//!
//! With ranges of rows on a circle of as many hosts, and each host at these places from its own one on, any two ranges
//! are together on some host: a cyclic quorum by a difference cover (Colbourn and Ling, "Quorums from difference
//! covers", 2000). Half of the way round, places may be marks of a ruler that measures every distance.

/// Marks from 0 on of which two are apart by each distance from 1 to `reach`, about 1.7 times its root.
///
/// For any r and s, gaps of 1 (r times), r + 1, 2r + 1 (r times), 4r + 3 (s times), 2r + 2 (r + 1 times) and 1 (r times)
/// make 4r + s + 3 marks over a length of 4r(r + s + 2) + 3(s + 1) that measure every distance up to it (B. Wichmann, "A
/// note on restricted difference bases", 1963). The r and s with the fewest marks that reach far enough are taken.
pub(super) fn marks(reach: usize) -> Vec<usize> {
    if reach < 2 {
        return (0..=reach).collect();
    }
    let least_s = |r: usize| reach.saturating_sub(4 * r * (r + 2) + 3).div_ceil(4 * r + 3);
    let rulers = (0..=reach.isqrt()).map(|r| (r, least_s(r)));
    let (r, s) = rulers.min_by_key(|(r, s)| 4 * r + s).unwrap_or((0, reach));
    let gaps = [(r, 1), (1, r + 1), (r, 2 * r + 1), (s, 4 * r + 3), (r + 1, 2 * r + 2), (r, 1)];
    let gaps = gaps.into_iter().flat_map(|(times, gap)| std::iter::repeat_n(gap, times));
    let mut last = 0;
    let next = |gap| {
        last += gap;
        last
    };
    std::iter::once(0).chain(gaps.map(next)).collect()
}

/// For each distance from 1 on, up to `reach`, the first two of the marks that are so far apart, the lower one first.
pub(super) fn apart(marks: &[usize], reach: usize) -> impl Iterator<Item = (usize, usize)> {
    let two = move |distance| marks.iter().find(|mark| marks.contains(&(*mark + distance)));
    (1..=reach).filter_map(move |distance| two(distance).map(|mark| (*mark, mark + distance)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_marks_are_apart_by_each_distance_up_to_half_of_a_circle() {
        for hosts in 1..1000 {
            let (reach, marks) = (hosts / 2, marks(hosts / 2));
            let distances: Vec<usize> = apart(&marks, reach).map(|(one, other)| other - one).collect();
            assert_eq!(distances, (1..=reach).collect::<Vec<_>>(), "{hosts} hosts: {marks:?}");
            assert!(marks.is_sorted_by(|one, next| one < next), "{marks:?}");
            // Else two of them would be one place.
            assert!(marks.last() < Some(&hosts.max(2)), "{hosts} hosts: {marks:?}");
        }
    }

    #[test]
    fn marks_are_few() {
        let count = |hosts: usize| marks(hosts / 2).len();
        assert_eq!([1, 2, 3, 7, 12, 16, 64, 100].map(count), [1, 2, 2, 3, 4, 5, 10, 12]);
        assert!((4..1000).all(|hosts| (count(hosts) as f64) <= 1.5 * (hosts as f64).sqrt()));
    }
}
