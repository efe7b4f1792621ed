//! Dense rows against dense rows, screened in integers and scored as defined where it matters.
//!
//! Rows are compared in blocks (see [`super::blocks`]). Without `top_k` the number of neighbours is not known
//! beforehand: if they turn out to be too many to be kept, blocks are done one after the other instead, each
//! against all its partners.

use super::blocks::{BLOCK_STEP, Block, Board, Found, Hit, Parts, Side, Worker};
use super::candidates::{Bench, room};
use super::scorer::DenseScorer;
use super::share::{Counts, Share};
use super::tiles::{ByteTiles, Tiles, WordTiles};
use super::way::Way;
use super::{Ended, NEIGHBOURS_UNDER_WAY, Search};
use crate::bytes::{FirstFloors, Scales};
use crate::dense::DenseRows;
use crate::machine::{Kernel, Vectors, bytes};
use crate::neighbours::Neighbour;
use crate::quantised::Margin;
use rayon::prelude::*;
use std::ops::Range;

/// Bytes of a block's packed rows: a thread's share of the last cache.
const BLOCK_BYTES: usize = 2 << 20;

/// Blocks of own rows for each thread. Each block has all others packed anew, so there are few; what they meet is cut
/// into pieces to even out times.
const BLOCKS_PER_THREAD: usize = 2;

/// Bytes of the packed rows on the other side that are in use at a time: part of the second-level cache.
const SIDE_BYTES: usize = 128 << 10;

/// Parts of the matrix whose rows are scored one after the other. Each time all rows are read that have lists.
const PARTS: usize = 6;

/// Bytes of rows that are let go of together once they are scored: each time takes the system a while, and all threads.
const LET_GO_BYTES: usize = 2 << 20;

/// Sums that passed are handed over once there are so many.
const HITS: usize = 512;

/// A search over a dense matrix.
pub(super) struct Screen<'a> {
    pub(super) board: Board<'a>,
    pub(super) share: &'a Share,
    pub(super) matrix: &'a DenseRows,
    way: Way,
    /// How far scores in 16-bit integers may be off.
    pub(super) words_margin: Margin,
    first_floors: Option<FirstFloors>,
    pub(super) vectors: Vectors,
}

impl<'a> Screen<'a> {
    pub(super) fn new(
        search: &'a Search<'a>,
        share: &'a Share,
        matrix: &'a DenseRows,
        (margin, kernel): (Margin, Kernel),
    ) -> Self {
        let (way, first_floors) = Way::choose((search, share), (matrix, margin), kernel);
        Self { first_floors, ..Self::by(search, share, matrix, (margin, way)) }
    }

    /// A search in this way, without first floors; the margin is that of 16-bit integers.
    pub(super) fn by(
        search: &'a Search<'a>,
        share: &'a Share,
        matrix: &'a DenseRows,
        (words_margin, way): (Margin, Way),
    ) -> Self {
        let (margin, loose) = match way {
            Way::Words(_) => (words_margin, None),
            Way::Bytes(..) => (Margin::of_bounds(), Some(matrix.matrix.stride() * size_of::<i16>())),
        };
        let board = Board::new(search, margin, i32::MIN).with_room(room(&search.selection, loose));
        let (first_floors, vectors) = (None, Vectors::best());
        Self { board, share, matrix, way, words_margin, first_floors, vectors }
    }

    /// The same with these first floors.
    #[cfg(test)]
    pub(super) fn with_first_floors(self, first_floors: Option<FirstFloors>) -> Self {
        Self { first_floors, ..self }
    }

    /// What the bytes of rows stand for, if they are compared in bytes.
    pub(super) fn scales(&self) -> Option<&Scales> {
        match &self.way {
            Way::Words(_) => None,
            Way::Bytes(_, scales) => Some(scales),
        }
    }

    fn in_words(&self, limited: bool, kernel: Kernel) -> WorkerRoom<'_, WordTiles<'_>> {
        WorkerRoom::new(self, limited, WordTiles::new(self.matrix, kernel))
    }

    fn in_bytes<'b>(
        &'b self,
        limited: bool,
        (kernel, scales): (bytes::Kernel, &'b Scales),
    ) -> WorkerRoom<'b, ByteTiles<'b>> {
        WorkerRoom::new(self, limited, ByteTiles::new((self.matrix, scales), kernel))
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
        let (share, new_block) = (self.share, |rows| self.block(rows));
        let blocks = match &self.way {
            Way::Words(kernel) => {
                self.board.compare(share, size, &new_block, &|| self.in_words(true, *kernel))
            }
            Way::Bytes(kernel, scales) => {
                self.board.compare(share, size, &new_block, &|| self.in_bytes(true, (*kernel, scales)))
            }
        };
        match blocks {
            _ if self.board.search.stopped() => Err(Ended::Stopped),
            Some(blocks) => {
                let matrix = &self.matrix.matrix;
                let rows = LET_GO_BYTES / (matrix.stride() * matrix.bytes_of_number());
                let parts = Parts { count: PARTS, rows, let_go: &|rows| matrix.let_go_rows(rows) };
                self.hand_over(blocks, &parts, &mut take)
            }
            None => self.run_in_order(take),
        }
    }

    /// Finishes blocks: what is scored then lies anywhere in the matrix, or in one part of it after the other.
    fn hand_over<E: Send>(
        &self,
        blocks: Vec<Block>,
        parts: &Parts,
        take: &mut (impl FnMut(usize, &[Neighbour]) -> Result<(), E> + Send),
    ) -> Result<(), Ended<E>> {
        self.matrix.matrix.expect_scattered_reads(true);
        let taken = self.board.hand_over(blocks, parts, &|| DenseScorer::new(self), take);
        self.matrix.matrix.expect_scattered_reads(false);
        taken
    }

    /// Hands them over block by block; each row is compared with all its partners while its block is at work.
    pub(super) fn run_in_order<E: Send>(
        &self,
        mut take: impl FnMut(usize, &[Neighbour]) -> Result<(), E> + Send,
    ) -> Result<(), Ended<E>> {
        // How many neighbours a row has is not known before the first ones are done.
        let (mut size, mut done) = (BLOCK_STEP, 0);
        for mut rows in self.share.rows.iter().cloned() {
            while !rows.is_empty() {
                let wave = rows.start..rows.end.min(rows.start + size * rayon::current_num_threads());
                rows.start = wave.end;
                done += wave.len();
                let most = self.run_wave(wave, size, &mut take)?;
                self.board.search.tell(done, self.share.row_count());
                size = (size * 4).min(self.block_rows(most));
            }
        }
        Ok(())
    }

    /// Compares rows in blocks of this size at the same time and hands them over. Returns the most neighbours that one of
    /// them has, 1 at least.
    fn run_wave<E: Send>(
        &self,
        rows: Range<usize>,
        size: usize,
        take: &mut (impl FnMut(usize, &[Neighbour]) -> Result<(), E> + Send),
    ) -> Result<usize, Ended<E>> {
        let starts: Vec<usize> = rows.clone().step_by(size).collect();
        let compare = |start: &usize| self.compare_whole(*start..rows.end.min(start + size));
        let blocks: Vec<Vec<Block>> = starts.par_iter().map(compare).collect();
        if self.board.search.stopped() {
            return Err(Ended::Stopped);
        }
        let mut most = 1;
        let mut take_all = |row: usize, neighbours: &[Neighbour]| {
            most = most.max(neighbours.len());
            take(row, neighbours)
        };
        self.hand_over(blocks.into_iter().flatten().collect(), &Parts::whole(), &mut take_all)?;
        Ok(most)
    }

    /// Compares rows with all their partners, in as many blocks as have different partners.
    fn compare_whole(&self, rows: Range<usize>) -> Vec<Block> {
        match &self.way {
            Way::Words(kernel) => self.compare_by(rows, self.in_words(false, *kernel)),
            Way::Bytes(kernel, scales) => self.compare_by(rows, self.in_bytes(false, (*kernel, scales))),
        }
    }

    fn compare_by(&self, rows: Range<usize>, mut worker: impl Worker) -> Vec<Block> {
        let pieces = self.share.pieces(rows);
        let whole = |piece: Range<usize>| {
            let block = self.block(piece.clone());
            worker.load(&block);
            for others in self.share.partners_in_order(piece.end - 1) {
                worker.meet(&block, Side::of_rows(others));
            }
            if self.share.counts == Counts::Once && self.share.among.contains(&piece.start) {
                worker.meet(&block, Side { later_only: true, ..Side::of_rows(piece) });
            }
            block
        };
        pieces.into_iter().map(whole).collect()
    }

    fn block(&self, rows: Range<usize>) -> Block {
        // Zero rows score 0 with every row, which needs no search.
        let block = Block::new(rows.clone(), &self.board, |row| self.matrix.norms[row] > 0.0);
        match &self.first_floors {
            Some(floors) => {
                block.with_floors(floors.of(rows).iter().map(|floor| self.board.margin.below(*floor)))
            }
            None => block,
        }
    }

    /// Rows of a block, given the most neighbours that a row had so far.
    fn block_rows(&self, neighbours: usize) -> usize {
        let threads = rayon::current_num_threads();
        let in_cache = BLOCK_BYTES / (self.way.bytes_of_number() * self.matrix.matrix.stride());
        let even = self.share.row_count().div_ceil(threads * BLOCKS_PER_THREAD);
        let in_memory = match self.board.search.selection.top_k {
            Some(_) => usize::MAX,
            None => NEIGHBOURS_UNDER_WAY / neighbours / threads,
        };
        in_cache.min(even).min(in_memory).next_multiple_of(BLOCK_STEP).max(BLOCK_STEP)
    }
}

/// One thread's room to work in.
struct WorkerRoom<'a, T: Tiles> {
    screen: &'a Screen<'a>,
    /// Whether to give up once there are too many candidates to be kept.
    limited: bool,
    scorer: DenseScorer<'a>,
    bench: Bench,
    /// First row of the block that is packed.
    packed: Option<usize>,
    tiles: T,
    row_sums: Vec<i32>,
    row_floors: Vec<T::Floor>,
    column_sums: Vec<i32>,
    column_floors: Vec<T::Floor>,
    hits: Vec<Hit>,
    mirrored_hits: Vec<Hit>,
}

impl<'a, T: Tiles> WorkerRoom<'a, T> {
    fn new(screen: &'a Screen<'a>, limited: bool, tiles: T) -> Self {
        Self {
            screen,
            limited,
            scorer: DenseScorer::new(screen),
            bench: Bench::new(screen.vectors),
            packed: None,
            row_sums: vec![0; tiles.height()],
            tiles,
            row_floors: Vec::new(),
            column_sums: Vec::new(),
            column_floors: Vec::new(),
            hits: Vec::new(),
            mirrored_hits: Vec::new(),
        }
    }

    fn compare(&mut self, block: &Block, side: Side) {
        let (height, width) = (self.tiles.height(), self.tiles.width());
        self.load_column_floors(side);
        for (at, first_row) in block.rows.clone().step_by(height).enumerate() {
            self.load_row_floors(block, at * height);
            for (other, first_column) in side.rows().step_by(width).enumerate() {
                if side.later_only && first_column + width <= first_row + 1 {
                    continue;
                }
                let column_floors = &self.column_floors[other * width..][..width];
                if self.tiles.compare((at, other), &self.row_floors, column_floors) {
                    self.collect((first_row, first_column), block.rows.end, side);
                    if self.hits.len().max(self.mirrored_hits.len()) >= HITS {
                        self.hand_hits(block, side.mirror);
                        self.load_row_floors(block, at * height);
                        self.load_column_floors(side);
                    }
                }
            }
        }
        self.hand_hits(block, side.mirror);
    }

    fn load_row_floors(&mut self, block: &Block, first: usize) {
        block.load_floors(first, &mut self.row_sums);
        self.row_floors.clear();
        self.row_floors.extend(self.row_sums.iter().map(|sum| self.tiles.floor(*sum)));
    }

    fn load_column_floors(&mut self, side: Side) {
        self.column_sums.clear();
        self.column_sums.resize(side.rows().len().next_multiple_of(self.tiles.width()), i32::MAX);
        if let Some(mirror) = side.mirror {
            mirror.load_floors(side.first - mirror.rows.start, &mut self.column_sums);
        }
        self.column_floors.clear();
        self.column_floors.extend(self.column_sums.iter().map(|sum| self.tiles.floor(*sum)));
    }

    /// Notes what passed in the tile. Within one block each pair is seen once, the lower row on the left.
    fn collect(&mut self, first: (usize, usize), block_end: usize, side: Side) {
        for (row, column, sum) in self.tiles.passed() {
            let (i, j) = (first.0 + row, first.1 + column);
            if i >= block_end || j >= side.end || i == j || (side.later_only && j < i) {
                continue;
            }
            let found = Found::Sum(sum);
            if sum > self.row_sums[row] {
                self.hits.push(Hit { row: i as u32, column: j as u32, found });
            }
            if side.mirror.is_some() && sum > self.column_sums[j - side.first] {
                self.mirrored_hits.push(Hit { row: j as u32, column: i as u32, found });
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

impl<T: Tiles> Worker for WorkerRoom<'_, T> {
    fn load(&mut self, block: &Block) {
        if self.packed != Some(block.rows.start) {
            self.tiles.pack_rows(block.rows.clone());
            self.packed = Some(block.rows.start);
        }
    }

    /// Packs the other rows, as many at a time as the cache holds.
    fn meet(&mut self, block: &Block, side: Side) {
        let width = self.tiles.width();
        let in_cache = SIDE_BYTES / (self.screen.way.bytes_of_number() * self.screen.matrix.matrix.stride());
        let size = in_cache.next_multiple_of(width).max(width);
        for first in side.rows().step_by(size) {
            let board = &self.screen.board;
            if board.search.stopped() || (self.limited && board.has_too_many(0.0)) {
                return;
            }
            let end = side.end.min(first + size);
            self.tiles.pack_columns(first..end);
            self.compare(block, Side { first, end, ..side });
        }
    }
}
