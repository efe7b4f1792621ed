//! A few small numbers for a row by which most pairs are told apart.
//!
//! The *signature* of a row has its norms in groups of columns, in units of 1/127 of a given length, rounded up. By
//! Cauchy and Schwarz in each group, the product of two signatures is not below what the groups add to their score.

use super::ordered::Ordered;
use rayon::prelude::*;
use std::ops::Range;

/// What the given length becomes.
pub(super) const UNIT: f64 = 127.0;

/// The group of each column of a range, so that all of `N` groups have about the same share of all rows.
pub(super) fn groups<const N: usize>(ordered: &Ordered, columns: Range<usize>) -> Vec<u8> {
    let mut shares = vec![0.0f64; columns.len()];
    for row in 0..ordered.rows() {
        let (of_row, weights) = ordered.row(row);
        let first = of_row.partition_point(|column| (*column as usize) < columns.start);
        for (column, weight) in of_row[first..].iter().zip(&weights[first..]) {
            if let Some(share) = shares.get_mut(*column as usize - columns.start) {
                *share += f64::from(weight * weight);
            }
        }
    }
    let mut order: Vec<u32> = (0..shares.len() as u32).collect();
    order.sort_unstable_by(|a, b| shares[*b as usize].total_cmp(&shares[*a as usize]).then(a.cmp(b)));
    let mut of_groups = [0.0f64; N];
    let mut groups = vec![0; shares.len()];
    for column in order {
        let least = (0..N).min_by(|a, b| of_groups[*a].total_cmp(&of_groups[*b])).unwrap_or(0);
        of_groups[least] += shares[column as usize];
        groups[column as usize] = least as u8;
    }
    groups
}

/// The signatures of all rows in the columns that have groups, which begin with `first`. `length` of a row becomes
/// [`UNIT`].
pub(super) fn signatures<const N: usize>(
    ordered: &Ordered,
    (first, groups): (usize, &[u8]),
    length: impl Fn(usize) -> f32 + Sync,
) -> Vec<[i8; N]> {
    let of_row = |row: usize| {
        let (columns, weights) = ordered.row(row);
        let begin = columns.partition_point(|column| (*column as usize) < first);
        let mut squares = [0.0f64; N];
        for (column, weight) in columns[begin..].iter().zip(&weights[begin..]) {
            if let Some(group) = groups.get(*column as usize - first) {
                squares[usize::from(*group)] += f64::from(*weight).powi(2);
            }
        }
        let length = length(row);
        if length == 0.0 {
            return [0; N];
        }
        let unit = (UNIT as f32) * (1.0 + 1e-6) / length;
        squares.map(|square| round_up(square.sqrt() as f32 * unit))
    };
    (0..ordered.rows()).into_par_iter().map(of_row).collect()
}

/// A number from 0 to 127, rounded up.
fn round_up(number: f32) -> i8 {
    let down = number as i8;
    down.saturating_add(i8::from(f32::from(down) < number))
}

/// A signature as the one side of a product.
pub(super) fn unsigned<const N: usize>(signature: &[i8; N]) -> [u8; N] {
    // None is negative.
    signature.map(i8::cast_unsigned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_up_and_end_at_the_greatest() {
        for (number, expected) in
            [(0.0, 0), (1e-9, 1), (1.0, 1), (1.0001, 2), (126.5, 127), (127.0, 127), (127.4, 127)]
        {
            assert_eq!(round_up(number), expected, "{number}");
        }
    }
}
