//! A few small numbers for a row by which most pairs are told apart.
//!
//! The *signature* of a row has its norms in groups of columns, in units of 1/127 of a given length, rounded up. By
//! Cauchy and Schwarz in each group, the product of two signatures is not below what the groups add to their score.

use super::weights::Weights;
use crate::machine::LONG_SIGNATURE;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Columns with large shares, which are put into groups by these; what the others have is small and about the same.
const LARGE_SHARES: usize = 2048;

/// What the given length becomes.
pub(super) const UNIT: f64 = 127.0;

pub(super) type LongSignature = [i8; LONG_SIGNATURE];

/// Columns in `N` groups that have about the same share of all rows.
#[derive(Debug)]
pub(super) struct Groups<const N: usize> {
    first: usize,
    /// The group of each column from the first one on.
    of_columns: Vec<u8>,
}

impl<const N: usize> Groups<N> {
    /// Groups of all columns, given their shares.
    pub(super) fn new(shares: Vec<u64>) -> Self {
        Self::from(0, shares)
    }

    /// Groups of the columns from this one on, given the shares of all.
    pub(super) fn from(first: usize, mut shares: Vec<u64>) -> Self {
        let mut order: Vec<(Reverse<u64>, usize)> = shares.drain(first..).map(Reverse).zip(0..).collect();
        // Each in its turn.
        let mut of_columns: Vec<u8> = (0..order.len()).map(|at| (at % N) as u8).collect();
        if order.len() > LARGE_SHARES {
            order.select_nth_unstable(LARGE_SHARES);
            order.truncate(LARGE_SHARES);
        }
        order.sort_unstable();
        let mut groups: BinaryHeap<_> = (0..N as u8).map(|group| Reverse((0, group))).collect();
        for (Reverse(share), column) in order {
            // There is always a least one.
            let Some(mut least) = groups.peek_mut() else { break };
            let Reverse((of_group, group)) = &mut *least;
            of_columns[column] = *group;
            *of_group += share;
        }
        Self { first, of_columns }
    }

    /// Squares of the norms of a row in the groups.
    fn squares(&self, weights: Weights, row: usize) -> [f32; N] {
        let mut squares = [0.0; N];
        weights.row(row, |column, weight| {
            if let Some(group) = column.checked_sub(self.first).and_then(|at| self.of_columns.get(at)) {
                squares[usize::from(*group) % N] += weight * weight;
            }
        });
        squares
    }

    /// The signature of a row, of which `length` becomes [`UNIT`].
    pub(super) fn signature(&self, weights: Weights, row: usize, length: f32) -> [i8; N] {
        if length == 0.0 {
            return [0; N];
        }
        rounded_up(&self.squares(weights, row), unit(weights, row, length))
    }
}

/// What a norm is multiplied with: a little more than it says, for the rounding of weights and of sums of squares.
fn unit(weights: Weights, row: usize, length: f32) -> f32 {
    let slack = (weights.matrix.row(row).len() + 16) as f32 * f32::EPSILON;
    (UNIT as f32) * (1.0 + slack) / length
}

/// Roots in units, rounded up to whole numbers from 0 to 127.
fn rounded_up<const N: usize>(squares: &[f32; N], unit: f32) -> [i8; N] {
    /// Whatever is added to this is rounded to a whole number, which the lowest bits then hold.
    const WHOLE: f32 = (1 << 23) as f32;
    let mut numbers = [0; N];
    // Without a branch or a conversion, so that many are done at a time.
    for (out, square) in numbers.iter_mut().zip(squares) {
        let number = square.sqrt() * unit;
        let number = if number < UNIT as f32 { number } else { UNIT as f32 };
        let nearest = number + WHOLE;
        *out = (nearest.to_bits() as i8) + i8::from(nearest - WHOLE < number);
    }
    numbers
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
    fn groups_have_about_the_same_share_however_many_columns_there_are() {
        for columns in [1, 31, 500, 2 * LARGE_SHARES, 20 * LARGE_SHARES] {
            let shares: Vec<u64> = (0..columns as u64).map(|column| (1 << 40) / (column + 10)).collect();
            let groups = Groups::<32>::new(shares.clone());
            let mut of_groups = [0; 32];
            groups
                .of_columns
                .iter()
                .zip(&shares)
                .for_each(|(group, share)| of_groups[usize::from(*group)] += share);
            let all: u64 = shares.iter().sum();
            // One column may be more than a group should have.
            let most = (all / 32 + all / 320).max(shares[0]);
            assert!(of_groups.iter().all(|share| *share <= most), "{columns}: {of_groups:?}");
        }
    }

    #[test]
    fn numbers_are_rounded_up_and_end_at_the_greatest() {
        for (number, expected) in
            [(0.0f32, 0), (1e-9, 1), (1.0, 1), (1.0001, 2), (126.5, 127), (127.0, 127), (127.4, 127)]
        {
            assert_eq!(rounded_up(&[number * number], 1.0), [expected], "{number}");
        }
    }
}
