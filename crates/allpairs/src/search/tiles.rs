//! The two ways to compare dense rows: in 16-bit integers, or in bytes with half of the work and a wider margin.

use crate::bytes::{ColumnPanels, RowPanels, Scales};
use crate::dense::DenseRows;
use crate::machine::{Kernel, Tile, bytes};
use crate::quantised::{Margin, Panels};
use std::fmt::Debug;
use std::ops::Range;

/// One thread's rows on both sides, packed, and a tile of sums of some of them.
///
/// Whatever a sum stands for here, the true one is not greater than it by more than the margin of the search.
pub(super) trait Tiles {
    /// What a sum has to exceed to pass.
    type Floor: Copy + Debug;

    /// The floor that only sums pass which are worth offering where this is the greatest that is not.
    fn floor(&self, sum: i32) -> Self::Floor;

    /// Rows of a tile.
    fn height(&self) -> usize;

    /// Columns of a tile.
    fn width(&self) -> usize;

    /// Packs the rows on the left.
    fn pack_rows(&mut self, rows: Range<usize>);

    /// Packs the rows on the right, as they are the columns of the result.
    fn pack_columns(&mut self, rows: Range<usize>);

    /// Compares the panels at these places. Says whether any sum passed the floor of its row or of its column.
    fn compare(&mut self, at: (usize, usize), rows: &[Self::Floor], columns: &[Self::Floor]) -> bool;

    /// Row, column and sum of whatever passed.
    fn passed(&self) -> impl Iterator<Item = (usize, usize, i32)>;
}

/// Rows in 16-bit integers.
pub(super) struct WordTiles<'a> {
    matrix: &'a DenseRows,
    kernel: Kernel,
    rows: Panels,
    columns: Panels,
    tile: Tile,
}

impl<'a> WordTiles<'a> {
    pub(super) fn new(matrix: &'a DenseRows, kernel: Kernel) -> Self {
        let (rows, columns) = (Panels::default(), Panels::default());
        Self { matrix, kernel, rows, columns, tile: Tile::new() }
    }
}

impl Tiles for WordTiles<'_> {
    type Floor = i32;

    fn floor(&self, sum: i32) -> i32 {
        sum
    }

    fn height(&self) -> usize {
        self.kernel.rows()
    }

    fn width(&self) -> usize {
        self.kernel.columns()
    }

    fn pack_rows(&mut self, rows: Range<usize>) {
        self.rows.pack(self.matrix, rows, self.kernel.rows());
    }

    fn pack_columns(&mut self, rows: Range<usize>) {
        self.columns.pack(self.matrix, rows, self.kernel.columns());
    }

    fn compare(&mut self, at: (usize, usize), rows: &[i32], columns: &[i32]) -> bool {
        let panels = (self.rows.panel(at.0), self.columns.panel(at.1));
        self.kernel.compare(panels, rows, columns, &mut self.tile)
    }

    fn passed(&self) -> impl Iterator<Item = (usize, usize, i32)> {
        self.tile.passed(self.kernel)
    }
}

/// Rows in bytes; what counts as a sum is the upper bound of a score.
pub(super) struct ByteTiles<'a> {
    matrix: (&'a DenseRows, &'a Scales),
    kernel: bytes::Kernel,
    rows: RowPanels,
    columns: ColumnPanels,
    tile: bytes::Tile,
}

impl<'a> ByteTiles<'a> {
    pub(super) fn new(matrix: (&'a DenseRows, &'a Scales), kernel: bytes::Kernel) -> Self {
        let (rows, columns) = (RowPanels::new(kernel), ColumnPanels::new(kernel));
        Self { matrix, kernel, rows, columns, tile: bytes::Tile::new() }
    }
}

impl Tiles for ByteTiles<'_> {
    type Floor = f32;

    fn floor(&self, sum: i32) -> f32 {
        Margin::short(sum)
    }

    fn height(&self) -> usize {
        self.kernel.rows()
    }

    fn width(&self) -> usize {
        self.kernel.columns()
    }

    fn pack_rows(&mut self, rows: Range<usize>) {
        self.rows.pack(self.matrix, rows);
    }

    fn pack_columns(&mut self, rows: Range<usize>) {
        self.columns.pack(self.matrix, rows);
    }

    fn compare(&mut self, at: (usize, usize), rows: &[f32], columns: &[f32]) -> bool {
        let floors = bytes::Floors { rows, columns };
        self.kernel.compare(self.rows.panel(at.0), self.columns.panel(at.1), floors, &mut self.tile)
    }

    fn passed(&self) -> impl Iterator<Item = (usize, usize, i32)> {
        let passed = self.tile.passed(self.kernel);
        passed.map(|(row, column, bound)| (row, column, Margin::sum_above(bound)))
    }
}
