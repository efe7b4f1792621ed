//! Which rows of a matrix an instance works on.

use std::ops::Range;

/// The rows of the instance with the given rank, counted from 0, among `world_size` instances:
/// `round(rank · rows / world_size)` up to `round((rank + 1) · rows / world_size)`.
///
/// Halves are rounded to the even number, as Python's `round` does. The arithmetic is in integers, so that
/// the ranges of all instances are contiguous, ordered, disjoint and complete for any number of rows; in
/// floating point they are right only while the products are exact.
///
/// An instance that does not exist (`rank >= world_size`) has no rows.
pub fn row_range(rank: usize, world_size: usize, rows: u64) -> Range<u64> {
    if rank >= world_size {
        return rows..rows;
    }
    bound(rank, world_size, rows)..bound(rank + 1, world_size, rows)
}

/// `round(rank · rows / world_size)` for `rank <= world_size`.
fn bound(rank: usize, world_size: usize, rows: u64) -> u64 {
    let (product, parts) = (rank as u128 * u128::from(rows), world_size as u128);
    let (quotient, rest) = (product / parts, product % parts);
    let up = match (2 * rest).cmp(&parts) {
        std::cmp::Ordering::Less => 0,
        std::cmp::Ordering::Equal => quotient % 2,
        std::cmp::Ordering::Greater => 1,
    };
    // At most `rows`, because rank <= world_size.
    (quotient + up) as u64
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    const ROWS: u64 = 200;
    const INSTANCES: usize = 50;

    fn ranges(world_size: usize, rows: u64) -> Vec<Range<u64>> {
        (0..world_size).map(|rank| row_range(rank, world_size, rows)).collect()
    }

    /// The nearest integer to `i·n/parts` found by search, the even one of two that are equally near.
    fn nearest_by_search(i: u64, n: u64, parts: u64) -> u64 {
        let distance = |r: u64| (r * parts).abs_diff(i * n);
        (0..=n).min_by_key(|&r| (distance(r), r % 2)).unwrap()
    }

    #[test]
    fn bounds_are_the_nearest_integers_with_halves_to_even() {
        for rows in 0..=ROWS {
            for world_size in 1..=INSTANCES {
                for (rank, range) in ranges(world_size, rows).into_iter().enumerate() {
                    let expected = |i: usize| nearest_by_search(i as u64, rows, world_size as u64);
                    assert_eq!(
                        range,
                        expected(rank)..expected(rank + 1),
                        "{rank} of {world_size}, {rows} rows"
                    );
                }
            }
        }
    }

    #[test]
    fn ranges_are_those_of_python() {
        let program = format!(
            "print(*(round(i * n / N) for n in range({}) for N in range(1, {}) for i in range(N + 1)), sep='\\n')",
            ROWS + 1,
            INSTANCES + 1
        );
        let Ok(python) = Command::new("python3").args(["-c", &program]).output() else {
            return; // The same bounds are checked above without Python.
        };
        let mut ours = String::new();
        for rows in 0..=ROWS {
            for world_size in 1..=INSTANCES {
                for rank in 0..=world_size {
                    writeln!(ours, "{}", bound(rank, world_size, rows)).unwrap();
                }
            }
        }
        assert!(python.stdout == ours.as_bytes(), "{}", String::from_utf8_lossy(&python.stderr));
    }

    #[test]
    fn the_ten_hosts_of_a_known_matrix() {
        let starts: Vec<_> = ranges(10, 1797).iter().map(|r| r.start).collect();
        assert_eq!(starts, [0, 180, 359, 539, 719, 898, 1078, 1258, 1438, 1617]);
    }

    #[test]
    fn halves_go_to_the_even_row() {
        assert_eq!(ranges(2, 5), [0..2, 2..5]);
        assert_eq!(ranges(2, 7), [0..4, 4..7]);
    }

    #[test]
    fn the_largest_matrix_is_cut_exactly() {
        let rows = (1_u64 << 63) - 1;
        assert_eq!(row_range(0, 3, rows), 0..3_074_457_345_618_258_602);
        assert_eq!(row_range(2, 3, rows).end, rows);
    }

    #[test]
    fn an_instance_that_does_not_exist_has_no_rows() {
        assert!(row_range(3, 3, 100).is_empty());
        assert!(row_range(0, 0, 100).is_empty());
    }

    proptest! {
        #[test]
        fn ranges_are_contiguous_ordered_and_complete(world_size in 1_usize..300, rows in 0..u64::MAX) {
            let ranges = ranges(world_size, rows);
            prop_assert_eq!(ranges[0].start, 0);
            prop_assert_eq!(ranges[world_size - 1].end, rows);
            for pair in ranges.windows(2) {
                prop_assert!(pair[0].start <= pair[0].end);
                prop_assert_eq!(pair[0].end, pair[1].start);
            }
        }

        #[test]
        fn no_range_is_more_than_a_row_longer_than_its_share(world_size in 1_usize..300, rows in 0..u64::MAX) {
            let share = rows / world_size as u64;
            for range in ranges(world_size, rows) {
                prop_assert!((range.end - range.start).abs_diff(share) <= 1);
            }
        }
    }
}
