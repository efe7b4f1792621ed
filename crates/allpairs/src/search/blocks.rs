//! Rows in blocks with their lists of candidates: how threads share out the work, and what they hand each other.
//!
//! A block meets itself, the blocks after it and other rows, as the share of the host says. What is found of a pair serves
//! both rows if both have a list. So all rows are finished together, which takes memory for all their neighbours.

use super::candidates::{Bench, Candidate, Finished, Lists, Scorer};
use super::meetings::Meetings;
use super::share::Share;
use super::{Ended, NEIGHBOURS_UNDER_WAY, Search};
use crate::machine::Vectors;
use crate::neighbours::Neighbour;
use crate::quantised::Margin;
use rayon::prelude::*;
use std::ops::Range;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Rows of a block have floors for a multiple of this, which all tiles divide.
pub(super) const BLOCK_STEP: usize = 96;

/// Neighbours that may be kept in memory if nobody said how many there would be.
const KEPT_NEIGHBOURS: usize = NEIGHBOURS_UNDER_WAY / 2;

/// Rows whose lists a thread has to itself at a time.
const LISTED_TOGETHER: usize = 64;

/// How candidates are scored: those that are rows of one part of all others after those of the part before it. So only that
/// part has to be in memory, and the rows that its rows are scored with.
pub(super) struct Parts<'a> {
    pub(super) count: usize,
    /// Rows whose lists a thread takes at a time, about.
    pub(super) rows: usize,
    /// Lets go of the memory that rows in files take.
    pub(super) let_go: &'a (dyn Fn(Range<usize>) + Sync),
}

impl Parts<'_> {
    /// All at once, with rows that stay in memory.
    pub(super) fn whole() -> Self {
        Self { count: 1, rows: 8 * LISTED_TOGETHER, let_go: &|_| {} }
    }
}

/// Some rows with their candidates.
pub(super) struct Block {
    pub(super) rows: Range<usize>,
    /// For each row the greatest sum that is not worth offering. Nothing ever is for zero rows and beyond the
    /// last row.
    floors: Vec<AtomicI32>,
    /// Lists of [`LISTED_TOGETHER`] rows each: threads seldom wait for one another.
    lists: Vec<Mutex<Lists>>,
}

/// What a block is compared with at a time.
#[derive(Clone, Copy)]
pub(super) struct Side<'a> {
    pub(super) first: usize,
    pub(super) end: usize,
    /// The block of these rows, if they have lists too.
    pub(super) mirror: Option<&'a Block>,
    /// Whether only the rows that come after a row are its partners, since all of them are rows of the block.
    pub(super) later_only: bool,
}

impl<'a> Side<'a> {
    /// Rows without lists.
    pub(super) fn of_rows(rows: Range<usize>) -> Self {
        Self { first: rows.start, end: rows.end, mirror: None, later_only: false }
    }

    pub(super) fn of_block(block: &'a Block, later_only: bool) -> Self {
        Self { first: block.rows.start, end: block.rows.end, mirror: Some(block), later_only }
    }

    pub(super) fn rows(&self) -> Range<usize> {
        self.first..self.end
    }
}

/// A pair that may matter for its row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hit {
    pub(super) row: u32,
    pub(super) column: u32,
    pub(super) found: Found,
}

/// What is known of a pair.
#[derive(Debug, Clone, Copy)]
pub(super) enum Found {
    /// Its sum, which is off by the margin at most.
    Sum(i32),
    /// Its score.
    Score(f32),
}

/// One thread's room to work in.
pub(super) trait Worker {
    /// Makes a block the one that is compared.
    fn load(&mut self, block: &Block);

    /// Compares that block with other rows.
    fn meet(&mut self, block: &Block, side: Side);
}

impl Block {
    /// Rows of which those `searched` have this floor to begin with; the others are in no search.
    pub(super) fn new(rows: Range<usize>, board: &Board, searched: impl Fn(usize) -> bool) -> Self {
        let padded = rows.len().next_multiple_of(BLOCK_STEP);
        let floor = |row: usize| if row < rows.end && searched(row) { board.first_floor } else { i32::MAX };
        let floors = (rows.start..rows.start + padded).map(|row| AtomicI32::new(floor(row))).collect();
        let starts = rows.clone().step_by(LISTED_TOGETHER);
        let count = |start: usize| LISTED_TOGETHER.min(rows.end - start);
        let new = |start| Mutex::new(Lists::new(count(start), &board.search.selection, board.room));
        let lists = starts.map(new).collect();
        Self { rows, floors, lists }
    }

    /// The same with floors that are not lower than these sums.
    pub(super) fn with_floors(self, sums: impl Iterator<Item = i32>) -> Self {
        self.floors.iter().zip(sums).for_each(|(floor, sum)| _ = floor.fetch_max(sum, Ordering::Relaxed));
        self
    }

    /// Floors from the one at this place on; as many as are asked for.
    pub(super) fn load_floors(&self, first: usize, out: &mut [i32]) {
        for (out, floor) in out.iter_mut().zip(&self.floors[first..]) {
            *out = floor.load(Ordering::Relaxed);
        }
    }

    /// All lists, each time those of some rows.
    fn lists(&self) -> impl Iterator<Item = (Range<usize>, &Mutex<Lists>)> {
        let starts = self.rows.clone().step_by(LISTED_TOGETHER);
        let rows = starts.map(|start| start..self.rows.end.min(start + LISTED_TOGETHER));
        rows.zip(&self.lists)
    }

    /// Takes over what was found for rows of this block.
    pub(super) fn take(
        &self,
        hits: &mut Vec<Hit>,
        board: &Board,
        bench: &mut Bench,
        scorer: &mut impl Scorer,
    ) {
        if hits.is_empty() {
            return;
        }
        board.offered.fetch_add(hits.len(), Ordering::Relaxed);
        let group = |hit: &Hit| (hit.row as usize - self.rows.start) / LISTED_TOGETHER;
        for hits in hits.chunk_by(|one, next| group(one) == group(next)) {
            // A thread that panicked takes the search down with it, so the lists are never seen half changed.
            let lists = &self.lists[group(&hits[0])];
            let mut lists = lists.lock().unwrap_or_else(PoisonError::into_inner);
            hits.iter().for_each(|hit| self.take_one(&mut lists, *hit, (board, bench), scorer));
        }
        hits.clear();
    }

    fn take_one(
        &self,
        lists: &mut Lists,
        Hit { row, column, found }: Hit,
        (board, bench): (&Board, &mut Bench),
        scorer: &mut impl Scorer,
    ) {
        let row = row as usize;
        let at = row - self.rows.start;
        let floor = match found {
            Found::Sum(sum) if sum > self.floors[at].load(Ordering::Relaxed) => {
                let candidate = Candidate::by_sum(column, sum);
                lists.offer((at % LISTED_TOGETHER, row), candidate, bench, scorer)
            }
            Found::Sum(_) => None,
            Found::Score(similarity) => {
                lists.offer_scored(at % LISTED_TOGETHER, Neighbour { column, similarity }, board.margin)
            }
        };
        if let Some(floor) = floor {
            self.floors[at].fetch_max(floor, Ordering::Relaxed);
        }
    }
}

/// What all threads of a search see.
pub(super) struct Board<'a> {
    pub(super) search: &'a Search<'a>,
    pub(super) margin: Margin,
    /// Floor of each row to begin with.
    pub(super) first_floor: i32,
    /// Candidates that a list has room for, if so many are wanted and they wait to be scored.
    room: Option<usize>,
    /// Candidates so far.
    offered: AtomicUsize,
}

impl<'a> Board<'a> {
    pub(super) fn new(search: &'a Search<'a>, margin: Margin, least_floor: i32) -> Self {
        let threshold = search.selection.threshold.unwrap_or(f32::NEG_INFINITY);
        let first_floor = margin.below(threshold).max(least_floor);
        Self { search, margin, first_floor, room: None, offered: AtomicUsize::new(0) }
    }

    /// The same for candidates that wait to be scored, each list with this room.
    pub(super) fn with_room(mut self, room: usize) -> Self {
        self.room = Some(room);
        self
    }

    /// Whether more neighbours were found, or are to be expected, than may be kept.
    pub(super) fn has_too_many(&self, part_done: f64) -> bool {
        let offered = self.offered.load(Ordering::Relaxed);
        // Few of all tell nothing: neighbours are often close to each other, such as rows that are nearly the same.
        let tell = part_done >= 0.05 && offered >= KEPT_NEIGHBOURS / 4;
        let expected = if tell { offered as f64 / part_done } else { offered as f64 };
        self.search.selection.top_k.is_none() && expected > KEPT_NEIGHBOURS as f64
    }

    /// Lets all threads compare the pairs of a share, in blocks of so many rows. `None` if there are too many
    /// candidates to be kept.
    pub(super) fn compare<W: Worker>(
        &self,
        share: &Share,
        size: usize,
        new_block: &(impl Fn(Range<usize>) -> Block + Sync),
        new_worker: &(impl Fn() -> W + Sync),
    ) -> Option<Vec<Block>> {
        let cut = |range: Range<usize>| {
            range.clone().step_by(size).map(move |start| start..range.end.min(start + size))
        };
        let ranges: Vec<Range<usize>> = share.listed().into_iter().flat_map(cut).collect();
        let blocks: Vec<Block> = ranges.into_par_iter().map(new_block).collect();
        let meetings = Meetings::new(share, (&blocks, size));
        let (count, held) = (meetings.count(), AtomicUsize::new(0));
        let kept = rayon::broadcast(|_| {
            let (mut worker, mut at) = (new_worker(), None);
            while let Some((block, side)) = meetings.next(&mut at) {
                worker.load(block);
                worker.meet(block, side);
                let held = held.fetch_add(1, Ordering::Relaxed) + 1;
                if self.search.stopped() || self.has_too_many(held as f64 / count as f64) {
                    return false;
                }
                self.search.tell(held, count);
            }
            true
        });
        kept.into_iter().all(|kept| kept).then_some(blocks)
    }

    /// Scores what is left of the lists of all blocks and hands them to `take`, in order; those of a block are brought into
    /// their order while those of the one before it are taken.
    pub(super) fn hand_over<E: Send, S: Scorer>(
        &self,
        blocks: Vec<Block>,
        parts: &Parts,
        new_scorer: &(impl Fn() -> S + Sync),
        take: &mut (impl FnMut(usize, &[Neighbour]) -> Result<(), E> + Send),
    ) -> Result<(), Ended<E>> {
        let others = &self.search.others;
        for part in 0..parts.count {
            let [start, end] = [part, part + 1].map(|part| others.start + others.len() * part / parts.count);
            self.score_part(&blocks, start..end, parts, new_scorer);
        }
        let mut finished: (usize, Vec<Finished>) = (0, Vec::new());
        for block in blocks {
            if self.search.stopped() {
                return Err(Ended::Stopped);
            }
            let first = block.rows.start;
            let before = std::mem::take(&mut finished);
            let (taken, lists) = rayon::join(|| take_all(&before, take), || self.finish(&block, new_scorer));
            taken.map_err(Ended::Taker)?;
            finished = (first, lists);
        }
        take_all(&finished, take).map_err(Ended::Taker)
    }

    /// Scores the candidates of all lists that are rows of a part of all others, each part after those before it.
    fn score_part<S: Scorer>(
        &self,
        blocks: &[Block],
        part: Range<usize>,
        Parts { rows, let_go, .. }: &Parts,
        new_scorer: &(impl Fn() -> S + Sync),
    ) {
        let lists: Vec<(Range<usize>, &Mutex<Lists>)> = blocks.iter().flat_map(Block::lists).collect();
        let room = || (new_scorer(), Bench::new(Vectors::best()));
        lists.par_chunks((rows / LISTED_TOGETHER).max(1)).for_each_init(room, |(scorer, bench), groups| {
            for (rows, lists) in groups {
                if self.search.stopped() {
                    return;
                }
                let mut lists = lists.lock().unwrap_or_else(PoisonError::into_inner);
                if part.start == self.search.others.start {
                    lists.narrow(rows.start, bench, scorer);
                }
                lists.score_before((rows.start, part.end), bench, scorer);
            }
            // Most of the time they follow one another.
            for groups in groups.chunk_by(|(one, _), (next, _)| one.end == next.start) {
                if let (Some((first, _)), Some((last, _))) = (groups.first(), groups.last()) {
                    let_go(first.start..part.start.min(last.end));
                    let_go(part.end.max(first.start)..last.end);
                }
            }
        });
        let_go(part);
    }

    fn finish<S: Scorer>(&self, block: &Block, new_scorer: &(impl Fn() -> S + Sync)) -> Vec<Finished> {
        let room = || (new_scorer(), Bench::new(Vectors::best()));
        let finish = |(scorer, bench): &mut (S, Bench), (rows, lists): (Range<usize>, &Mutex<Lists>)| {
            lists.lock().unwrap_or_else(PoisonError::into_inner).finish(rows.start, bench, scorer)
        };
        block.lists().collect::<Vec<_>>().into_par_iter().map_init(room, finish).collect()
    }
}

/// Hands over the neighbours of rows from the first one on.
fn take_all<E>(
    (first, finished): &(usize, Vec<Finished>),
    take: &mut impl FnMut(usize, &[Neighbour]) -> Result<(), E>,
) -> Result<(), E> {
    (*first..).zip(finished.iter().flat_map(Finished::iter)).try_for_each(|(row, list)| take(row, list))
}
