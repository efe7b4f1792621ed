//! Dense rows against dense rows, screened in 16-bit integers and scored as defined where it matters.
//!
//! Own rows are cut into blocks. Each block meets itself and the blocks after it, and every sum serves both
//! rows; it meets the rows of other hosts for its own sake only. So all rows are finished together, which takes
//! memory for all their neighbours. Without `top_k` their number is not known beforehand: if they turn out to be
//! too many, blocks are done one after the other instead, each against all rows.

use super::candidates::{Candidates, Scorer};
use super::{BLOCKS_PER_THREAD, Ended, NEIGHBOURS_UNDER_WAY, Search};
use crate::dense::DenseRows;
use crate::machine::{Kernel, Tile};
use crate::neighbours::Neighbour;
use crate::quantised::{Margin, Panels};
use rayon::prelude::*;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

/// Bytes of a block's packed rows: a thread's share of the last cache.
const BLOCK_BYTES: usize = 4 << 20;

/// Bytes of the packed rows on the other side that are in use at a time: part of the second-level cache.
const SIDE_BYTES: usize = 128 << 10;

/// Rows of a block are a multiple of this, which all tiles divide.
const BLOCK_STEP: usize = 96;

/// Sums that passed are handed over once there are so many.
const HITS: usize = 512;

/// Neighbours that may be kept in memory if nobody said how many there would be.
const KEPT_NEIGHBOURS: usize = NEIGHBOURS_UNDER_WAY / 2;

/// What all threads of a search share.
pub(super) struct Screen<'a> {
    search: &'a Search<'a>,
    matrix: &'a DenseRows,
    margin: Margin,
    kernel: Kernel,
    /// Candidates so far.
    offered: AtomicUsize,
}

/// Some own rows with their candidates.
struct Block {
    rows: Range<usize>,
    /// For each row the greatest sum that is not worth offering. Nothing ever is for zero rows and beyond the
    /// last row.
    floors: Vec<AtomicI32>,
    lists: Mutex<Vec<Candidates>>,
}

/// A block meets rows; with `mirror` these are own rows too and each sum serves both sides.
struct Meeting {
    block: usize,
    others: Range<usize>,
    mirror: Option<usize>,
}

#[derive(Debug, Clone, Copy)]
struct Hit {
    row: usize,
    column: u32,
    sum: i32,
}

impl Block {
    fn new(rows: Range<usize>, screen: &Screen) -> Self {
        let selection = &screen.search.selection;
        let floor = screen.margin.below(selection.threshold.unwrap_or(f32::NEG_INFINITY));
        let padded = rows.len().next_multiple_of(BLOCK_STEP);
        // Zero rows score 0 with every row, which needs no search.
        let norms = &screen.matrix.norms[rows.clone()];
        let searched = |at: usize| norms.get(at).is_some_and(|norm| *norm > 0.0);
        let floors =
            (0..padded).map(|at| AtomicI32::new(if searched(at) { floor } else { i32::MAX })).collect();
        let lists = Mutex::new(rows.clone().map(|_| Candidates::new(selection)).collect());
        Self { rows, floors, lists }
    }

    fn load_floors(&self, first: usize, out: &mut [i32]) {
        for (out, floor) in out.iter_mut().zip(&self.floors[first..]) {
            *out = floor.load(Ordering::Relaxed);
        }
    }

    fn take(&self, hits: &mut Vec<Hit>, screen: &Screen, scorer: &mut Scorer) {
        if hits.is_empty() {
            return;
        }
        // A thread that panicked takes the search down with it, so the lists are never seen half changed.
        let mut lists = self.lists.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        screen.offered.fetch_add(hits.len(), Ordering::Relaxed);
        for hit in hits.drain(..) {
            let at = hit.row - self.rows.start;
            if hit.sum > self.floors[at].load(Ordering::Relaxed)
                && let Some(floor) =
                    lists[at].offer(hit.row, (hit.column, hit.sum), &screen.search.selection, scorer)
            {
                self.floors[at].fetch_max(floor, Ordering::Relaxed);
            }
        }
    }
}

impl<'a> Screen<'a> {
    pub(super) fn new(search: &'a Search<'a>, matrix: &'a DenseRows, margin: Margin, kernel: Kernel) -> Self {
        Self { search, matrix, margin, kernel, offered: AtomicUsize::new(0) }
    }

    /// Hands the neighbours of each row to `take`, rows in order.
    pub(super) fn run<E>(
        &self,
        mut take: impl FnMut(usize, &[Neighbour]) -> Result<(), E> + Send,
    ) -> Result<(), Ended<E>> {
        let (own, others) = (&self.search.rows, &self.search.others);
        if own.start < others.start || own.end > others.end {
            return self.run_in_order(take);
        }
        match self.mirrored_blocks() {
            _ if self.search.stopped() => Err(Ended::Stopped),
            Some(blocks) => blocks.into_iter().try_for_each(|block| self.hand_over(block, &mut take)),
            None => self.run_in_order(take),
        }
    }

    /// Whether more neighbours were found, or are to be expected, than may be kept.
    fn has_too_many(&self, part_done: f64) -> bool {
        let offered = self.offered.load(Ordering::Relaxed);
        let expected = if part_done < 0.05 { offered as f64 } else { offered as f64 / part_done };
        self.search.selection.top_k.is_none() && expected > KEPT_NEIGHBOURS as f64
    }

    /// All own rows with their candidates; `None` if these are too many to be kept.
    fn mirrored_blocks(&self) -> Option<Vec<Block>> {
        let (own, others) = (self.search.rows.clone(), &self.search.others);
        let size = self.block_rows(1);
        let cut = |range: Range<usize>| {
            range.clone().step_by(size).map(move |start| start..range.end.min(start + size))
        };
        let blocks: Vec<Block> = cut(own.clone()).map(|rows| Block::new(rows, self)).collect();
        let foreign: Vec<Range<usize>> =
            cut(others.start..own.start).chain(cut(own.end..others.end)).collect();
        let mut meetings = Vec::new();
        for block in 0..blocks.len() {
            let later = blocks.iter().enumerate().skip(block);
            meetings.extend(later.map(|(at, other)| {
                let others = other.rows.clone();
                Meeting { block, others, mirror: Some(at) }
            }));
            meetings.extend(foreign.iter().map(|others| Meeting {
                block,
                others: others.clone(),
                mirror: None,
            }));
        }
        self.hold(&blocks, &meetings).then_some(blocks)
    }

    /// Lets all threads work through the meetings; says whether the candidates can be kept.
    fn hold(&self, blocks: &[Block], meetings: &[Meeting]) -> bool {
        let (next, held) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let kept = rayon::broadcast(|_| {
            let mut worker = Worker::new(self, true);
            while let Some(meeting) = meetings.get(next.fetch_add(1, Ordering::Relaxed)) {
                worker.pack_block(&blocks[meeting.block]);
                let mirror = meeting.mirror.map(|at| &blocks[at]);
                worker.meet(&blocks[meeting.block], meeting.others.clone(), mirror);
                let held = held.fetch_add(1, Ordering::Relaxed) + 1;
                if self.has_too_many(held as f64 / meetings.len() as f64) {
                    return false;
                }
                (self.search.done)(self.search.rows.len() * held / meetings.len());
            }
            true
        });
        kept.into_iter().all(|kept| kept)
    }

    pub(super) fn run_in_order<E>(
        &self,
        mut take: impl FnMut(usize, &[Neighbour]) -> Result<(), E> + Send,
    ) -> Result<(), Ended<E>> {
        let mut rows = self.search.rows.clone();
        // How many neighbours a row has is not known before the first ones are done.
        let mut size = BLOCK_STEP;
        while !rows.is_empty() {
            let wave_end = rows.end.min(rows.start + size * rayon::current_num_threads());
            let starts: Vec<usize> = (rows.start..wave_end).step_by(size).collect();
            let blocks: Vec<Block> = starts
                .par_iter()
                .map(|start| {
                    let block = Block::new(*start..wave_end.min(start + size), self);
                    let mut worker = Worker::new(self, false);
                    worker.pack_block(&block);
                    worker.meet(&block, self.search.others.clone(), None);
                    block
                })
                .collect();
            if self.search.stopped() {
                return Err(Ended::Stopped);
            }
            let mut most = 1;
            for block in blocks {
                self.hand_over(block, &mut |row, neighbours: &[Neighbour]| {
                    most = most.max(neighbours.len());
                    take(row, neighbours)
                })?;
            }
            rows.start = wave_end;
            (self.search.done)(self.search.rows.len() - rows.len());
            size = (size * 4).min(self.block_rows(most));
        }
        Ok(())
    }

    /// Rows of a block, given the most neighbours that a row had so far.
    fn block_rows(&self, neighbours: usize) -> usize {
        let threads = rayon::current_num_threads();
        let in_cache = BLOCK_BYTES / (2 * self.matrix.matrix.stride());
        let even = self.search.rows.len().div_ceil(threads * BLOCKS_PER_THREAD);
        let in_memory = match self.search.selection.top_k {
            Some(_) => usize::MAX,
            None => NEIGHBOURS_UNDER_WAY / neighbours / threads,
        };
        in_cache.min(even).min(in_memory).next_multiple_of(BLOCK_STEP).max(BLOCK_STEP)
    }

    fn hand_over<E>(
        &self,
        block: Block,
        take: &mut (impl FnMut(usize, &[Neighbour]) -> Result<(), E> + Send),
    ) -> Result<(), Ended<E>> {
        let lists = block.lists.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        let finished: Vec<Vec<Neighbour>> = lists
            .into_par_iter()
            .enumerate()
            .map_init(
                || Scorer::new(self.matrix, self.margin),
                |scorer, (at, list)| list.finish(block.rows.start + at, self.search, scorer),
            )
            .collect();
        for (row, neighbours) in block.rows.zip(&finished) {
            take(row, neighbours).map_err(Ended::Taker)?;
        }
        Ok(())
    }
}

/// One thread's room to work in.
struct Worker<'a> {
    screen: &'a Screen<'a>,
    /// Whether to give up once there are too many candidates to be kept.
    limited: bool,
    scorer: Scorer<'a>,
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

impl<'a> Worker<'a> {
    fn new(screen: &'a Screen<'a>, limited: bool) -> Self {
        Self {
            screen,
            limited,
            scorer: Scorer::new(screen.matrix, screen.margin),
            own: Panels::default(),
            packed: None,
            side: Panels::default(),
            tile: Tile::new(),
            row_floors: vec![0; screen.kernel.rows()],
            column_floors: Vec::new(),
            hits: Vec::new(),
            mirrored_hits: Vec::new(),
        }
    }

    fn pack_block(&mut self, block: &Block) {
        if self.packed != Some(block.rows.start) {
            self.own.pack(self.screen.matrix, block.rows.clone(), self.screen.kernel.rows());
            self.packed = Some(block.rows.start);
        }
    }

    /// Compares the packed block with other rows, as many at a time as the cache holds.
    fn meet(&mut self, block: &Block, others: Range<usize>, mirror: Option<&Block>) {
        let width = self.screen.kernel.columns();
        let in_cache = SIDE_BYTES / (2 * self.screen.matrix.matrix.stride());
        let size = in_cache.next_multiple_of(width).max(width);
        for start in others.clone().step_by(size) {
            if self.screen.search.stopped() || (self.limited && self.screen.has_too_many(0.0)) {
                return;
            }
            let side = start..others.end.min(start + size);
            self.side.pack(self.screen.matrix, side.clone(), width);
            self.compare(block, side, mirror);
        }
    }

    fn compare(&mut self, block: &Block, side: Range<usize>, mirror: Option<&Block>) {
        let kernel = self.screen.kernel;
        let itself = mirror.is_some_and(|mirror| mirror.rows == block.rows);
        self.load_column_floors(&side, mirror);
        // Taken out so that the panels can be read while hits are handed over.
        let (own, others) = (std::mem::take(&mut self.own), std::mem::take(&mut self.side));
        for (at, rows) in own.iter().enumerate() {
            let first_row = block.rows.start + at * kernel.rows();
            block.load_floors(at * kernel.rows(), &mut self.row_floors);
            for (at, columns) in others.iter().enumerate() {
                let first_column = side.start + at * kernel.columns();
                if itself && first_column + kernel.columns() <= first_row + 1 {
                    continue;
                }
                let floors = &self.column_floors[at * kernel.columns()..][..kernel.columns()];
                if kernel.compare((rows, columns), &self.row_floors, floors, &mut self.tile) {
                    self.collect(
                        (first_row, first_column),
                        (block.rows.end, side.end),
                        itself,
                        mirror.is_some(),
                    );
                    if self.hits.len().max(self.mirrored_hits.len()) >= HITS {
                        self.hand_hits(block, mirror);
                        block.load_floors(first_row - block.rows.start, &mut self.row_floors);
                        self.load_column_floors(&side, mirror);
                    }
                }
            }
        }
        self.hand_hits(block, mirror);
        (self.own, self.side) = (own, others);
    }

    fn load_column_floors(&mut self, side: &Range<usize>, mirror: Option<&Block>) {
        self.column_floors.clear();
        self.column_floors.resize(side.len().next_multiple_of(self.screen.kernel.columns()), i32::MAX);
        if let Some(mirror) = mirror {
            mirror.load_floors(side.start - mirror.rows.start, &mut self.column_floors);
        }
    }

    /// Notes what passed in the tile. Within one block each pair is seen once, the lower row on the left.
    fn collect(&mut self, first: (usize, usize), end: (usize, usize), itself: bool, mirrored: bool) {
        for (row, column, sum) in self.tile.passed(self.screen.kernel) {
            let (i, j) = (first.0 + row, first.1 + column);
            if i >= end.0 || j >= end.1 || i == j || (itself && j < i) {
                continue;
            }
            if sum > self.row_floors[row] {
                self.hits.push(Hit { row: i, column: j as u32, sum });
            }
            if mirrored {
                self.mirrored_hits.push(Hit { row: j, column: i as u32, sum });
            }
        }
    }

    fn hand_hits(&mut self, block: &Block, mirror: Option<&Block>) {
        block.take(&mut self.hits, self.screen, &mut self.scorer);
        if let Some(mirror) = mirror {
            mirror.take(&mut self.mirrored_hits, self.screen, &mut self.scorer);
        }
    }
}
