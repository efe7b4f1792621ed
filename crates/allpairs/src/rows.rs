//! The rows that belong to one host.

use std::ops::Range;

/// Host `rank` of `world_size` has the rows [round(rank·rows/world_size), round((rank+1)·rows/world_size)),
/// halves rounded to the even number, computed in integers.
pub(crate) fn row_range(rank: u64, world_size: u64, rows: u64) -> Range<u64> {
    bound(rank, world_size, rows)..bound(rank + 1, world_size, rows)
}

fn bound(rank: u64, world_size: u64, rows: u64) -> u64 {
    let (product, size) = (u128::from(rank) * u128::from(rows), u128::from(world_size));
    let (whole, rest) = (product / size, product % size);
    let up = match (rest * 2).cmp(&size) {
        std::cmp::Ordering::Less => 0,
        std::cmp::Ordering::Equal => whole % 2,
        std::cmp::Ordering::Greater => 1,
    };
    // A bound is at most `rows`, which is a u64.
    (whole + up) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_join_without_a_gap_and_round_halves_to_even() {
        assert_eq!(row_range(0, 2, 5), 0..2);
        assert_eq!(row_range(0, 2, 7), 0..4);
        for rows in 0..60 {
            for world_size in 1..20 {
                let ranges: Vec<_> = (0..world_size).map(|rank| row_range(rank, world_size, rows)).collect();
                assert_eq!((ranges[0].start, ranges[ranges.len() - 1].end), (0, rows));
                assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start));
            }
        }
    }
}
