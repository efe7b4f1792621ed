//! Tiles by instructions that every machine has.

use super::Tile;

pub(super) const ROWS: usize = 6;
pub(super) const COLUMNS: usize = 16;

/// Sums of a tile.
pub(super) type Sums = [[i32; COLUMNS]; ROWS];

pub(super) fn compare(
    (rows, columns): (&[i16], &[i16]),
    row_floors: &[i32],
    column_floors: &[i32],
    tile: &mut Tile,
) -> bool {
    let mut sums = [[0; COLUMNS]; ROWS];
    for (row, sums) in sums.iter_mut().enumerate() {
        *sums = row_sums((rows, columns), row);
    }
    compare_sums(&sums, row_floors, column_floors, tile)
}

/// One row with all columns. First and second numbers of the steps are added up apart, side by side as they lie:
/// this the compiler turns into vector instructions, and the sums stay in registers.
fn row_sums((rows, columns): (&[i16], &[i16]), row: usize) -> [i32; COLUMNS] {
    let mut halves = [0i32; 2 * COLUMNS];
    let steps = rows.as_chunks::<{ 2 * ROWS }>().0.iter().zip(columns.as_chunks::<{ 2 * COLUMNS }>().0);
    for (a, b) in steps {
        let a: [i16; 2 * COLUMNS] = std::array::from_fn(|at| a[2 * row + at % 2]);
        for at in 0..2 * COLUMNS {
            // Never wraps; a check for it would keep the loop from being vectorised.
            halves[at] = halves[at].wrapping_add(i32::from(a[at]) * i32::from(b[at]));
        }
    }
    std::array::from_fn(|column| halves[2 * column].wrapping_add(halves[2 * column + 1]))
}

/// Marks and keeps the sums that are greater than one of their floors.
pub(super) fn compare_sums(sums: &Sums, row_floors: &[i32], column_floors: &[i32], tile: &mut Tile) -> bool {
    let mut any = false;
    for (row, sums) in sums.iter().enumerate() {
        let passes = |column: usize| sums[column] > row_floors[row].min(column_floors[column]);
        any |= (0..COLUMNS).fold(false, |any, column| any | passes(column));
    }
    if !any {
        return false;
    }
    for (row, sums) in sums.iter().enumerate() {
        let passes = |column: usize| sums[column] > row_floors[row].min(column_floors[column]);
        tile.passed[row] = (0..COLUMNS).fold(0, |mask, column| mask | u32::from(passes(column)) << column);
        tile.sums[row][..COLUMNS].copy_from_slice(sums);
    }
    true
}
