//! Columns numbered anew: only those that have an entry, from rare to frequent.
//!
//! So memory depends on the entries alone, whatever width a file claims; and whatever a search leaves out of a row
//! because many rows have it, are the columns from a number on.

use super::row::{Column, Columns, with_columns};
use crate::score::LANES;
use rayon::prelude::*;

/// Columns that are counted in a table, however few entries there are.
const FEW_COLUMNS: u64 = 1 << 16;

/// All entries by the new numbers of their columns.
#[derive(Debug)]
pub(super) struct Numbered {
    pub(super) columns: Columns,
    /// How many rows have each column, ascending.
    pub(super) counts: Vec<u32>,
    /// Accumulator of each column (see [`crate::score`]).
    pub(super) lanes: Vec<u8>,
}

/// Numbers the columns of all entries, all of them below `width`, in their places.
pub(super) fn number(columns: Columns, width: u64) -> Numbered {
    let mut order = with_columns!(&columns, columns => counted(columns, width));
    order.par_sort_unstable();
    let numbers = Numbers::new(&order);
    let numbered = match columns {
        Columns::Long(columns) if Columns::are_short(order.len() as u64) => {
            Columns::Short(columns.par_iter().map(|column| u16::cut(numbers.of(*column))).collect())
        }
        mut columns => {
            with_columns!(&mut columns, columns => renumber(columns, &numbers));
            columns
        }
    };
    let lanes = order.iter().map(|(_, column)| (*column as usize % LANES) as u8).collect();
    Numbered { columns: numbered, counts: order.into_iter().map(|(count, _)| count).collect(), lanes }
}

fn renumber<C: Column>(columns: &mut [C], numbers: &Numbers) {
    columns.par_iter_mut().for_each(|column| *column = C::cut(numbers.of((*column).into())));
}

/// Entries of each column that has any, and the column.
fn counted<C: Column>(columns: &[C], width: u64) -> Vec<(u32, u32)> {
    // A table of all columns is faster, but a file may claim any number of them.
    if width <= FEW_COLUMNS || width <= columns.len() as u64 {
        let of_piece = |piece: &[C]| {
            let mut counts = vec![0u32; width as usize];
            piece.iter().for_each(|column| counts[(*column).into() as usize] += 1);
            counts
        };
        let piece = columns.len().div_ceil(rayon::current_num_threads()).max(1);
        let counts = columns.par_chunks(piece).map(of_piece).reduce_with(|mut one, other| {
            one.iter_mut().zip(other).for_each(|(one, other)| *one += other);
            one
        });
        return counts.unwrap_or_default().into_iter().zip(0..).filter(|(count, _)| *count > 0).collect();
    }
    let mut sorted = columns.to_vec();
    sorted.par_sort_unstable();
    sorted.chunk_by(|a, b| a == b).map(|same| (same.len() as u32, same[0].into())).collect()
}

/// The new number of each column.
enum Numbers {
    Table(Vec<u32>),
    /// Columns and their numbers by column, where a table would mostly be empty.
    Sorted(Vec<(u32, u32)>),
}

impl Numbers {
    /// Numbers for columns in the order in which they are to be.
    fn new(order: &[(u32, u32)]) -> Self {
        let columns = order.iter().map(|(_, column)| *column as usize + 1).max().unwrap_or(0);
        let numbers = order.iter().zip(0..).map(|((_, column), number)| (*column, number));
        if columns > 16 * order.len() {
            let mut sorted: Vec<(u32, u32)> = numbers.collect();
            sorted.par_sort_unstable();
            return Self::Sorted(sorted);
        }
        let mut table = vec![0; columns];
        numbers.for_each(|(column, number)| table[column as usize] = number);
        Self::Table(table)
    }

    fn of(&self, column: u32) -> u32 {
        match self {
            Self::Table(table) => table[column as usize],
            Self::Sorted(sorted) => sorted[sorted.partition_point(|(other, _)| *other < column)].1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_numbered_from_rare_to_frequent_whatever_the_width() {
        let far = 4_000_000_000;
        for (other, width) in [(8, 20), (far, u64::from(u32::MAX))] {
            let numbered = number(Columns::Long(vec![9, other, 3, 9, 3, 9]), width);
            let Columns::Short(columns) = numbered.columns else { panic!("few columns need 16 bits") };
            assert_eq!(columns, [2, 0, 1, 2, 1, 2], "{width}");
            assert_eq!(numbered.counts, [1, 2, 3]);
            assert_eq!(numbered.lanes, [(other % 8) as u8, 3, 1]);
        }
    }

    #[test]
    fn more_columns_than_16_bits_count_are_told_apart() {
        let columns: Vec<u32> = (0..(1 << 16) + 1).rev().collect();
        let numbered = number(Columns::Long(columns.clone()), 1 << 17);
        let Columns::Long(numbers) = numbered.columns else { panic!("so many columns need 32 bits") };
        assert_eq!(numbers, columns);
    }
}
