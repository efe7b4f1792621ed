//! Dense rows against dense rows, screened in 16-bit integers and scored as defined where it matters.
//!
//! Rows are compared in blocks (see [`super::blocks`]). Without `top_k` the number of neighbours is not known
//! beforehand: if they turn out to be too many to be kept, blocks are done one after the other instead, each
//! against all its partners. A share of which each pair is wanted for one row only is always done so.

use super::blocks::{BLOCK_STEP, Block, Board, Found, Hit, Side, Worker};
use super::candidates::{Bench, Scorer, TOGETHER};
use super::share::Share;
use super::{BLOCKS_PER_THREAD, Ended, NEIGHBOURS_UNDER_WAY, Search};
use crate::dense::DenseRows;
use crate::machine::{Kernel, Tile, Vectors, prefetch};
use crate::neighbours::Neighbour;
use crate::quantised::{Margin, Panels};
use crate::score::score;
use rayon::prelude::*;
use std::ops::Range;

/// Bytes of a block's packed rows: a thread's share of the last cache.
const BLOCK_BYTES: usize = 4 << 20;

/// Bytes of the packed rows on the other side that are in use at a time: part of the second-level cache.
const SIDE_BYTES: usize = 128 << 10;

/// Sums that passed are handed over once there are so many.
const HITS: usize = 512;

/// A search over a dense matrix.
pub(super) struct Screen<'a> {
    board: Board<'a>,
    share: &'a Share,
    matrix: &'a DenseRows,
    kernel: Kernel,
    vectors: Vectors,
}

impl<'a> Screen<'a> {
    pub(super) fn new(
        search: &'a Search<'a>,
        share: &'a Share,
        matrix: &'a DenseRows,
        (margin, kernel): (Margin, Kernel),
    ) -> Self {
        Self { board: Board::new(search, margin, i32::MIN), share, matrix, kernel, vectors: Vectors::best() }
    }

    /// The same with other vectors for what is scored.
    #[cfg(test)]
    pub(super) fn scored_by(mut self, vectors: Vectors) -> Self {
        self.vectors = vectors;
        self
    }

    /// Hands the neighbours of each row to `take`, rows in order.
    pub(super) fn run<E: Send>(
        &self,
        mut take: impl FnMut(usize, &[Neighbour]) -> Result<(), E> + Send,
    ) -> Result<(), Ended<E>> {
        if !self.board.search.can_keep_lists(self.share) {
            return self.run_in_order(take);
        }
        let size = self.block_rows(1);
        let blocks =
            self.board.compare(self.share, size, &|rows| self.block(rows), &|| WorkerRoom::new(self, true));
        match blocks {
            _ if self.board.search.stopped() => Err(Ended::Stopped),
            Some(blocks) => self.hand_over(blocks, &mut take),
            None => self.run_in_order(take),
        }
    }

    /// Finishes blocks: most of what is scored then lies anywhere in the matrix.
    fn hand_over<E: Send>(
        &self,
        blocks: Vec<Block>,
        take: &mut (impl FnMut(usize, &[Neighbour]) -> Result<(), E> + Send),
    ) -> Result<(), Ended<E>> {
        self.matrix.matrix.expect_scattered_reads(true);
        let taken = self.board.hand_over(blocks, &|| DenseScorer::new(self), take);
        self.matrix.matrix.expect_scattered_reads(false);
        taken
    }

    /// Hands them over block by block; each row is compared with all its partners while its block is at work.
    pub(super) fn run_in_order<E: Send>(
        &self,
        mut take: impl FnMut(usize, &[Neighbour]) -> Result<(), E> + Send,
    ) -> Result<(), Ended<E>> {
        let search = self.board.search;
        let mut rows = self.share.own.clone();
        // How many neighbours a row has is not known before the first ones are done.
        let mut size = BLOCK_STEP;
        while !rows.is_empty() {
            let wave_end = rows.end.min(rows.start + size * rayon::current_num_threads());
            let starts: Vec<usize> = (rows.start..wave_end).step_by(size).collect();
            let blocks: Vec<Vec<Block>> = starts
                .par_iter()
                .map(|start| self.compare_whole(*start..wave_end.min(start + size)))
                .collect();
            if search.stopped() {
                return Err(Ended::Stopped);
            }
            let mut most = 1;
            let mut take_all = |row: usize, neighbours: &[Neighbour]| {
                most = most.max(neighbours.len());
                take(row, neighbours)
            };
            let blocks = blocks.into_iter().flatten().collect();
            self.hand_over(blocks, &mut take_all)?;
            rows.start = wave_end;
            (search.done)(self.share.own.len() - rows.len());
            size = (size * 4).min(self.block_rows(most));
        }
        Ok(())
    }

    /// Compares own rows with all their partners, in as many blocks as have different partners.
    fn compare_whole(&self, rows: Range<usize>) -> Vec<Block> {
        let mut worker = WorkerRoom::new(self, false);
        let pieces = self.share.pieces(rows);
        let whole = |piece: Range<usize>| {
            let block = self.block(piece.clone());
            worker.load(&block);
            for others in self.share.partners_once(piece.end - 1) {
                worker.meet(&block, Side::of_rows(others));
            }
            if self.share.symmetric {
                worker.meet(&block, Side { later_only: true, ..Side::of_rows(piece) });
            }
            block
        };
        pieces.into_iter().map(whole).collect()
    }

    fn block(&self, rows: Range<usize>) -> Block {
        // Zero rows score 0 with every row, which needs no search.
        Block::new(rows, &self.board, |row| self.matrix.norms[row] > 0.0)
    }

    /// Rows of a block, given the most neighbours that a row had so far.
    fn block_rows(&self, neighbours: usize) -> usize {
        let threads = rayon::current_num_threads();
        let in_cache = BLOCK_BYTES / (2 * self.matrix.matrix.stride());
        let even = self.share.own.len().div_ceil(threads * BLOCKS_PER_THREAD);
        let in_memory = match self.board.search.selection.top_k {
            Some(_) => usize::MAX,
            None => NEIGHBOURS_UNDER_WAY / neighbours / threads,
        };
        in_cache.min(even).min(in_memory).next_multiple_of(BLOCK_STEP).max(BLOCK_STEP)
    }
}

/// Scores pairs of dense rows.
struct DenseScorer<'a> {
    screen: &'a Screen<'a>,
    own: Vec<f64>,
    /// The row that `own` holds.
    held: Option<usize>,
    other: Vec<f64>,
}

impl<'a> DenseScorer<'a> {
    fn new(screen: &'a Screen<'a>) -> Self {
        let stride = screen.matrix.matrix.stride();
        let (own, other) = (vec![0.0; stride], vec![0.0; stride]);
        Self { screen, own, held: None, other }
    }

    fn hold(&mut self, row: usize) {
        if self.held != Some(row) {
            self.screen.matrix.read(row..row + 1, &mut self.own);
            self.held = Some(row);
        }
    }
}

impl Scorer for DenseScorer<'_> {
    fn score(&mut self, row: usize, other: usize) -> f32 {
        self.hold(row);
        let matrix = self.screen.matrix;
        let dot = match matrix.stored_row(other) {
            Some(stored) => self.screen.vectors.dots_stored(&self.own, [stored])[0],
            None => {
                matrix.read(other..other + 1, &mut self.other);
                self.screen.vectors.dot(&self.own, &self.other)
            }
        };
        score(dot, matrix.norms[row], matrix.norms[other])
    }

    fn score_together(&mut self, row: usize, others: [usize; TOGETHER]) -> [f32; TOGETHER] {
        let matrix = self.screen.matrix;
        let [Some(a), Some(b), Some(c), Some(d)] = others.map(|other| matrix.stored_row(other)) else {
            return others.map(|other| self.score(row, other));
        };
        self.hold(row);
        let dots = self.screen.vectors.dots_stored(&self.own, [a, b, c, d]);
        std::array::from_fn(|at| score(dots[at], matrix.norms[row], matrix.norms[others[at]]))
    }

    fn expect(&self, other: usize) {
        if let Some(stored) = self.screen.matrix.stored_row(other) {
            prefetch(stored);
        }
    }

    fn margin(&self) -> Margin {
        self.screen.board.margin
    }

    /// The neighbours of a zero row: it scores 0 with all rows, so the lowest numbers come first.
    fn complete(&mut self, row: usize, neighbours: &mut Vec<Neighbour>) {
        let selection = &self.screen.board.search.selection;
        if self.screen.matrix.norms[row] == 0.0
            && selection.threshold.is_none_or(|threshold| threshold <= 0.0)
        {
            let partners = self.screen.share.partners(row).into_iter().flatten();
            let lowest = partners.filter(|other| *other != row).take(selection.top_k.unwrap_or(usize::MAX));
            neighbours.clear();
            neighbours.extend(lowest.map(|other| Neighbour { column: other as u32, similarity: 0.0 }));
        }
    }
}

/// One thread's room to work in.
struct WorkerRoom<'a> {
    screen: &'a Screen<'a>,
    /// Whether to give up once there are too many candidates to be kept.
    limited: bool,
    scorer: DenseScorer<'a>,
    bench: Bench,
    own: Panels,
    /// First row of the block that `own` holds.
    packed: Option<usize>,
    side: Panels,
    tile: Tile,
    row_floors: Vec<i32>,
    column_floors: Vec<i32>,
    hits: Vec<Hit>,
    mirrored_hits: Vec<Hit>,
}

impl<'a> WorkerRoom<'a> {
    fn new(screen: &'a Screen<'a>, limited: bool) -> Self {
        Self {
            screen,
            limited,
            scorer: DenseScorer::new(screen),
            bench: Bench::new(screen.vectors),
            own: Panels::new(screen.vectors),
            packed: None,
            side: Panels::new(screen.vectors),
            tile: Tile::new(),
            row_floors: vec![0; screen.kernel.rows()],
            column_floors: Vec::new(),
            hits: Vec::new(),
            mirrored_hits: Vec::new(),
        }
    }

    fn compare(&mut self, block: &Block, side: Side) {
        let kernel = self.screen.kernel;
        self.load_column_floors(side);
        // Taken out so that the panels can be read while hits are handed over.
        let empty = || Panels::new(self.screen.vectors);
        let (own, others) =
            (std::mem::replace(&mut self.own, empty()), std::mem::replace(&mut self.side, empty()));
        for (at, rows) in own.iter().enumerate() {
            let first_row = block.rows.start + at * kernel.rows();
            block.load_floors(at * kernel.rows(), &mut self.row_floors);
            for (at, columns) in others.iter().enumerate() {
                let first_column = side.first + at * kernel.columns();
                if side.later_only && first_column + kernel.columns() <= first_row + 1 {
                    continue;
                }
                let floors = &self.column_floors[at * kernel.columns()..][..kernel.columns()];
                if kernel.compare((rows, columns), &self.row_floors, floors, &mut self.tile) {
                    self.collect((first_row, first_column), block.rows.end, side);
                    if self.hits.len().max(self.mirrored_hits.len()) >= HITS {
                        self.hand_hits(block, side.mirror);
                        block.load_floors(first_row - block.rows.start, &mut self.row_floors);
                        self.load_column_floors(side);
                    }
                }
            }
        }
        self.hand_hits(block, side.mirror);
        (self.own, self.side) = (own, others);
    }

    fn load_column_floors(&mut self, side: Side) {
        self.column_floors.clear();
        self.column_floors.resize(side.rows().len().next_multiple_of(self.screen.kernel.columns()), i32::MAX);
        if let Some(mirror) = side.mirror {
            mirror.load_floors(side.first - mirror.rows.start, &mut self.column_floors);
        }
    }

    /// Notes what passed in the tile. Within one block each pair is seen once, the lower row on the left.
    fn collect(&mut self, first: (usize, usize), block_end: usize, side: Side) {
        for (row, column, sum) in self.tile.passed(self.screen.kernel) {
            let (i, j) = (first.0 + row, first.1 + column);
            if i >= block_end || j >= side.end || i == j || (side.later_only && j < i) {
                continue;
            }
            if sum > self.row_floors[row] {
                self.hits.push(Hit { row: i as u32, column: j as u32, found: Found::Sum(sum) });
            }
            if side.mirror.is_some() {
                self.mirrored_hits.push(Hit { row: j as u32, column: i as u32, found: Found::Sum(sum) });
            }
        }
    }

    fn hand_hits(&mut self, block: &Block, mirror: Option<&Block>) {
        let board = &self.screen.board;
        block.take(&mut self.hits, board, &mut self.bench, &mut self.scorer);
        if let Some(mirror) = mirror {
            mirror.take(&mut self.mirrored_hits, board, &mut self.bench, &mut self.scorer);
        }
    }
}

impl Worker for WorkerRoom<'_> {
    fn load(&mut self, block: &Block) {
        if self.packed != Some(block.rows.start) {
            self.own.pack(self.screen.matrix, block.rows.clone(), self.screen.kernel.rows());
            self.packed = Some(block.rows.start);
        }
    }

    /// Packs the other rows, as many at a time as the cache holds.
    fn meet(&mut self, block: &Block, side: Side) {
        let width = self.screen.kernel.columns();
        let in_cache = SIDE_BYTES / (2 * self.screen.matrix.matrix.stride());
        let size = in_cache.next_multiple_of(width).max(width);
        for first in side.rows().step_by(size) {
            let board = &self.screen.board;
            if board.search.stopped() || (self.limited && board.has_too_many(0.0)) {
                return;
            }
            let end = side.end.min(first + size);
            self.side.pack(self.screen.matrix, first..end, width);
            self.compare(block, Side { first, end, ..side });
        }
    }
}
