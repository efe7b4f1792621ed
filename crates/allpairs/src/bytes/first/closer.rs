//! A closer look at the best of each row and at the best of some of these: neighbours of a neighbour are often neighbours
//! (Dong, Moses and Li, "Efficient k-nearest neighbor graph construction for generic similarity measures", 2011).
//!
//! Rounds find most rows nearly all of their neighbours. Where one of as many as are wanted is still missing and the others
//! are far above the rest, the floor is that of any row; its neighbours mostly know it.

use super::Wanted;
use super::best::{Best, Found};
use crate::dense::DenseRows;
use crate::machine::{FOUR, Vectors, prefetch};
use crate::quantised::Margin;
use crate::words;
use rayon::prelude::*;
use std::ops::Range;

/// Rows whose best are looked at besides a row's own.
const NEAREST: usize = 3;

/// Rows that are looked at for each one that is wanted.
const LOOKED_AT: usize = 2;

/// Neighbours up to which a closer look is worth it: two rows have to be looked at for each of them.
const MOST_WANTED: usize = 16;

/// Rows that a thread takes at a time.
const TOGETHER: usize = 96;

/// Rows that are asked for ahead of those that are scored.
const AHEAD: usize = 8;

/// Floors of all rows of a matrix, where any is wanted.
pub(super) fn floors(matrix: &DenseRows, wanted: Wanted, best: &Best) -> Vec<f32> {
    let (margin, top_k) = (wanted.margin, wanted.top_k);
    let mut floors: Vec<f32> = (0..matrix.norms.len()).map(|row| best.last(row)).collect();
    if top_k <= MOST_WANTED {
        let closer = Closer { matrix, vectors: Vectors::best(), margin, best, top_k };
        let look = |room: &mut Room, rows: &[u32]| {
            if wanted.stopped() { vec![f32::NEG_INFINITY; rows.len()] } else { closer.look(rows, room) }
        };
        let order = closer.order(wanted.rows);
        let found: Vec<Vec<f32>> = order.par_chunks(TOGETHER).map_init(Room::default, look).collect();
        for (row, floor) in order.iter().zip(found.iter().flatten()) {
            let known = &mut floors[*row as usize];
            *known = known.max(*floor);
        }
    }
    floors
}

/// One thread's room.
#[derive(Default)]
struct Room {
    candidates: Vec<Found>,
    /// What is looked at for all rows, one after the other, and where that of each row ends.
    others: Vec<u32>,
    ends: Vec<usize>,
    sums: Vec<i32>,
    words: words::Room,
}

struct Closer<'a> {
    matrix: &'a DenseRows,
    vectors: Vectors,
    margin: Margin,
    best: &'a Best,
    top_k: usize,
}

impl Closer<'_> {
    /// Rows so that those with the same one among their best often follow one another: they look at much the same rows,
    /// which are in the cache then.
    fn order(&self, rows: &[Range<usize>]) -> Vec<u32> {
        let least = |row: usize| self.best.of(row).fold(row, |least, found| least.min(found.row()));
        let all = rows.par_iter().flat_map(|range| range.clone().into_par_iter());
        let mut order: Vec<(u32, u32)> = all.map(|row| (least(row) as u32, row as u32)).collect();
        order.par_sort_unstable();
        order.into_iter().map(|(_, row)| row).collect()
    }

    /// Floors of some rows, negative infinity where too few others can be scored.
    fn look(&self, rows: &[u32], room: &mut Room) -> Vec<f32> {
        room.others.clear();
        room.ends.clear();
        for row in rows {
            self.choose(*row as usize, &mut room.candidates);
            room.others.extend(room.candidates.iter().map(|found| found.row() as u32));
            room.ends.push(room.others.len());
        }
        room.others.iter().take(AHEAD).for_each(|other| self.expect(*other));
        let mut start = 0;
        let floor = |(row, end): (&u32, &usize)| {
            let looked_at = (&room.others[start..], end - start);
            self.score(*row, looked_at, (&mut room.words, &mut room.sums));
            start = *end;
            let enough = room.sums.len() >= self.top_k;
            let last = enough.then(|| self.vectors.greatest(&mut room.sums, self.top_k));
            last.map_or(f32::NEG_INFINITY, |last| self.margin.reached(last))
        };
        rows.iter().zip(&room.ends).map(floor).collect()
    }

    /// What is promising for a row: its best, and the best of those by what they score there.
    fn choose(&self, row: usize, candidates: &mut Vec<Found>) {
        let best = self.best;
        candidates.clear();
        candidates.extend(best.of(row));
        let nearest = best.of(row).map(Found::row).filter(|near| best.last(*near) > f32::NEG_INFINITY);
        for near in nearest.take(NEAREST) {
            candidates.extend(best.of(near).take(self.top_k / 2 + 1).filter(|found| found.row() != row));
        }
        candidates.sort_unstable_by_key(|found| found.row());
        candidates.dedup_by_key(|found| found.row());
        let most = LOOKED_AT * self.top_k;
        if candidates.len() > most {
            candidates.select_nth_unstable_by(most - 1, |one, other| other.cmp(one));
            candidates.truncate(most);
        }
    }

    /// The sums of a row with the first of others; what comes behind them is asked for.
    fn score(
        &self,
        row: u32,
        (others, count): (&[u32], usize),
        (room, sums): (&mut words::Room, &mut Vec<i32>),
    ) {
        sums.clear();
        for first in (0..count).step_by(FOUR) {
            let ahead = others.iter().skip(first + AHEAD).take(FOUR);
            ahead.for_each(|other| self.expect(*other));
            let four = &others[first..count.min(first + FOUR)];
            // What is not there is the row itself, and left out.
            let mut rows = [row; FOUR + 1];
            rows[1..].iter_mut().zip(four).for_each(|(place, other)| *place = *other);
            let words = self.matrix.words(&rows, room);
            let [own, others @ ..]: [_; FOUR + 1] = std::array::from_fn(|at| words.row(at));
            sums.extend(self.vectors.dots_of_words(own, others).iter().take(four.len()));
        }
    }

    fn expect(&self, row: u32) {
        if let Some(words) = self.matrix.held(row as usize) {
            prefetch(bytemuck::cast_slice(words));
        }
    }
}
