//! Tiles by instructions that every machine has: to compare the others with, not to be fast.

use super::{ColumnPanel, Floors, Greatest, NUMBER, RowPanel, Tile};

pub(super) const ROWS: usize = 4;
pub(super) const COLUMNS: usize = 16;

pub(super) fn compare(rows: RowPanel, columns: ColumnPanel, floors: Floors, tile: &mut Tile) -> bool {
    let mut any = false;
    for row in 0..ROWS {
        let (step, error) = (rows.steps[row], rows.errors[row]);
        tile.passed[row] = 0;
        for (column, sum) in row_sums(rows, columns, row).into_iter().enumerate() {
            let margin = columns.errors[column].mul_add(1.0 + error, error);
            let bound = (sum as f32 * columns.steps[column]).mul_add(step, margin);
            let passes = bound >= floors.rows[row].min(floors.columns[column]);
            tile.bounds[row][column] = bound;
            tile.passed[row] |= u32::from(passes) << column;
            any |= passes;
        }
    }
    any
}

pub(super) fn raise(
    rows: RowPanel,
    columns: ColumnPanel,
    of_rows: Greatest,
    mut of_columns: Option<Greatest>,
) {
    for row in 0..ROWS {
        let (step, error) = (rows.steps[row], rows.errors[row]);
        for (column, sum) in row_sums(rows, columns, row).into_iter().enumerate() {
            let margin = columns.errors[column].mul_add(error, columns.errors[column] + error);
            let least = (sum as f32).mul_add(columns.steps[column] * step, -margin);
            let place = row * COLUMNS + column;
            raise_one(least, &mut of_rows.scores[place], of_rows.number);
            if let Some(Greatest { scores, number }) = &mut of_columns {
                raise_one(least, &mut scores[place], *number);
            }
        }
    }
}

fn raise_one(least: f32, greatest: &mut f32, number: u8) {
    let numbered = f32::from_bits(least.to_bits() & !NUMBER as u32 | u32::from(number));
    *greatest = greatest.max(numbered);
}

/// One row with all columns.
fn row_sums(rows: RowPanel, columns: ColumnPanel, row: usize) -> [i32; COLUMNS] {
    let mut sums: [i32; COLUMNS] = std::array::from_fn(|column| columns.starts[column]);
    let (rows, columns) = (rows.bytes.as_chunks::<4>().0, columns.bytes.as_chunks::<4>().0);
    for (a, b) in rows.chunks_exact(ROWS).zip(columns.chunks_exact(COLUMNS)) {
        for (sum, b) in sums.iter_mut().zip(b) {
            for (a, b) in a[row].iter().zip(b) {
                *sum = sum.wrapping_add(i32::from(*a) * i32::from(*b as i8));
            }
        }
    }
    sums
}
