//! Which blocks meet which, and which thread takes which meeting.
//!
//! A thread stays with one block until that has met all others, so that it is made ready once, and threads seldom
//! need the same lists. Who finds no block left helps where most is to be done.

use super::blocks::{BLOCK_STEP, Block, Side};
use super::share::{Counts, Share};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Pieces that a block is met in: small ones at the end let all threads end together.
const PIECES: usize = 4;

/// All meetings of a share.
pub(super) struct Meetings<'a> {
    queues: Vec<Queue<'a>>,
    /// The first block that no thread is at.
    next: AtomicUsize,
}

/// What one block is still to meet.
struct Queue<'a> {
    block: &'a Block,
    sides: Vec<Side<'a>>,
    next: AtomicUsize,
}

impl<'a> Meetings<'a> {
    /// Those of a share whose rows are in these blocks, of `size` rows or less.
    pub(super) fn new(share: &Share, (blocks, size): (&'a [Block], usize)) -> Self {
        let queue = |(at, block)| {
            let mut sides = sides(share, (block, &blocks[at..]), (blocks, size));
            // Rows that two threads meet at the same time would twice be met before it is known what is good enough.
            if at % 2 == 1 {
                let behind_itself = usize::from(sides.first().is_some_and(|side| side.later_only));
                sides[behind_itself..].reverse();
            }
            Queue { block, sides: sides.into_iter().flat_map(cut(size)).collect(), next: AtomicUsize::new(0) }
        };
        let queues = blocks.iter().enumerate().map(queue).filter(|queue| !queue.sides.is_empty());
        Self { queues: queues.collect(), next: AtomicUsize::new(0) }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.queues.iter().map(|queue| queue.sides.len()).sum()
    }

    /// The next one for a thread that is at this block, and then at that of the meeting.
    pub(super) fn next(&self, at: &mut Option<usize>) -> Option<(&'a Block, Side<'a>)> {
        loop {
            let queue = at.and_then(|at| self.queues.get(at));
            if let Some(meeting) = queue.and_then(Queue::take) {
                return Some(meeting);
            }
            let fresh = self.next.fetch_add(1, Ordering::Relaxed);
            *at = if fresh < self.queues.len() { Some(fresh) } else { Some(self.longest()?) };
        }
    }

    fn longest(&self) -> Option<usize> {
        let left = self.queues.iter().map(Queue::left).enumerate().filter(|(_, left)| *left > 0);
        left.max_by_key(|(_, left)| *left).map(|(at, _)| at)
    }
}

impl<'a> Queue<'a> {
    fn take(&self) -> Option<(&'a Block, Side<'a>)> {
        let side = self.sides.get(self.next.fetch_add(1, Ordering::Relaxed))?;
        Some((self.block, *side))
    }

    fn left(&self) -> usize {
        self.sides.len().saturating_sub(self.next.load(Ordering::Relaxed))
    }
}

fn is_within(outer: &Range<usize>, block: &Block) -> bool {
    outer.start <= block.rows.start && block.rows.end <= outer.end && !block.rows.is_empty()
}

/// What a block is compared with: itself and the blocks behind it, if each two of its rows are a pair, and the others of
/// rectangles.
fn sides<'a>(
    share: &Share,
    (block, from_it_on): (&'a Block, &'a [Block]),
    (blocks, size): (&'a [Block], usize),
) -> Vec<Side<'a>> {
    let mut sides = Vec::new();
    if is_within(&share.among, block) {
        let among = from_it_on.iter().filter(|other| is_within(&share.among, other));
        let side = |(at, other): (usize, &'a Block)| match share.counts {
            Counts::Once => Side { later_only: at == 0, ..Side::of_rows(other.rows.clone()) },
            _ => Side::of_block(other, at == 0),
        };
        sides.extend(among.enumerate().map(side));
    }
    for rectangle in share.rectangles.iter().filter(|rectangle| is_within(&rectangle.rows, block)) {
        if share.counts == Counts::ForBoth {
            let others = blocks.iter().filter(|other| is_within(&rectangle.others, other));
            sides.extend(others.map(|other| Side::of_block(other, false)));
        } else {
            let others = rectangle.others.clone();
            let pieces = others.clone().step_by(size).map(|first| first..others.end.min(first + size));
            sides.extend(pieces.map(Side::of_rows));
        }
    }
    sides
}

/// Cuts what is met into pieces, if there are several threads.
fn cut<'a>(size: usize) -> impl Fn(Side<'a>) -> Vec<Side<'a>> {
    let pieces = if rayon::current_num_threads() > 1 { PIECES } else { 1 };
    let step = size.div_ceil(pieces).next_multiple_of(BLOCK_STEP);
    move |side| {
        let pieces = side.rows().step_by(step);
        pieces.map(|first| Side { first, end: side.end.min(first + step), ..side }).collect()
    }
}
