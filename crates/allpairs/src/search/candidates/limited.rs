//! Lists of the best rows, as many as are asked for.
//!
//! A list has room for little more than these. When it is full, whoever is certainly behind so many others is dropped; if
//! the sums can not tell, the candidates are scored, and the scores tell. So however many rows tie within the margin, a
//! list stays as short as it is.

use super::{Bench, Candidate, Scorer, score_each};
use crate::machine::Vectors;
use crate::neighbours::Neighbour;
use crate::quantised::Margin;

/// Lists with room for equally many candidates each.
#[derive(Debug)]
pub(in crate::search) struct LimitedLists {
    /// The candidates of each row: those that are scored, in their order, then those that wait. As plain numbers, since
    /// the system has those at hand without touching memory; so what no candidate is put into takes none.
    places: Vec<[u32; 2]>,
    filled: Vec<Filled>,
    room: usize,
    pub(super) top_k: usize,
    pub(super) threshold: f32,
}

/// How many candidates a list has.
#[derive(Debug, Clone, Copy, Default)]
struct Filled {
    scored: u32,
    all: u32,
}

/// One of the lists.
pub(super) struct LimitedList<'a> {
    places: &'a mut [[u32; 2]],
    filled: &'a mut Filled,
    top_k: usize,
    threshold: f32,
}

impl LimitedLists {
    pub(super) fn new(rows: usize, (top_k, wait): (usize, bool), threshold: f32) -> Self {
        // Longer lists would be shortened less often, which saves less time than their memory is worth.
        let room = if wait { top_k + top_k / 4 + 4 } else { top_k };
        let (places, filled) = (vec![[0; 2]; rows * room], vec![Filled::default(); rows]);
        Self { places, filled, room, top_k, threshold }
    }

    pub(super) fn list(&mut self, at: usize) -> LimitedList<'_> {
        let places = &mut self.places[at * self.room..][..self.room];
        let (top_k, threshold) = (self.top_k, self.threshold);
        LimitedList { places, filled: &mut self.filled[at], top_k, threshold }
    }

    /// Copies whoever of a list may be among the best, and says how many of them are scored.
    pub(super) fn copy_possible(&self, at: usize, bench: &mut Bench, margin: Margin) -> usize {
        let Filled { scored, all } = self.filled[at];
        let (scored, list) = (scored as usize, &self.places[at * self.room..][..all as usize]);
        let least = least_of_best((list, scored), self.top_k, (&mut bench.lows, bench.vectors), margin);
        bench.next.clear();
        let mut kept = 0;
        for (number, place) in list.iter().enumerate() {
            if number >= scored && margin.most(Candidate::of_stored(*place).sum()) < least {
                continue;
            }
            kept += usize::from(number < scored);
            bench.next.push(Candidate::of_stored(*place));
        }
        kept
    }
}

/// A sum that the true sums of as many candidates as are wanted surely reach; the least there is if there are not so many.
fn least_of_best(
    (list, scored): (&[[u32; 2]], usize),
    top_k: usize,
    (lows, vectors): (&mut Vec<i32>, Vectors),
    margin: Margin,
) -> i32 {
    if list.len() < top_k {
        return i32::MIN;
    }
    let (scored, waiting) = list.split_at(scored);
    lows.clear();
    let of_scored = scored.iter().map(|place| Candidate::of_stored(*place).neighbour().similarity);
    lows.extend(of_scored.map(|similarity| margin.least_of_score(similarity)));
    lows.extend(waiting.iter().map(|place| margin.least(Candidate::of_stored(*place).sum())));
    vectors.greatest(lows, top_k)
}

impl LimitedList<'_> {
    fn scored(&self) -> usize {
        self.filled.scored as usize
    }

    fn all(&self) -> usize {
        self.filled.all as usize
    }

    /// The last of as many scored ones as are wanted.
    fn last(&self) -> Option<Neighbour> {
        let is_full = self.scored() >= self.top_k;
        is_full.then(|| Candidate::of_stored(self.places[self.top_k - 1]).neighbour())
    }

    /// Whether a row of this number may be taken in, whatever its score: a full list of ones is closed to all rows
    /// behind its last.
    fn is_open_to(&self, column: u32) -> bool {
        self.last().is_none_or(|last| last.similarity < 1.0 || column < last.column)
    }

    pub(super) fn offer(
        &mut self,
        row: usize,
        candidate: Candidate,
        bench: &mut Bench,
        scorer: &mut impl Scorer,
    ) -> Option<i32> {
        if !self.is_open_to(candidate.column) {
            return None;
        }
        self.places[self.all()] = candidate.stored();
        self.filled.all += 1;
        (self.all() == self.places.len()).then(|| self.shorten(row, bench, scorer))
    }

    pub(super) fn offer_scored(&mut self, neighbour: Neighbour, margin: Margin) -> Option<i32> {
        if !self.is_open_to(neighbour.column) {
            return None;
        }
        self.insert(neighbour);
        self.last().map(|last| margin.below(last.similarity))
    }

    fn shorten(&mut self, row: usize, bench: &mut Bench, scorer: &mut impl Scorer) -> i32 {
        let margin = scorer.margin();
        let least = self.drop_certainly_behind((&mut bench.lows, bench.vectors), margin);
        let free = self.places.len() - self.all();
        if free >= (self.places.len() - self.top_k) / 2 {
            return margin.surely_less(least);
        }
        let waiting = self.places[self.scored()..self.all()].iter();
        bench.waiting.clear();
        bench.waiting.extend(waiting.map(|place| Candidate::of_stored(*place)));
        self.filled.all = self.filled.scored;
        score_each(row, &bench.waiting, scorer, |neighbour| self.insert(neighbour));
        let floor = self.last().map_or(i32::MIN, |last| margin.below(last.similarity));
        floor.max(margin.surely_less(least))
    }

    fn drop_certainly_behind(&mut self, lows: (&mut Vec<i32>, Vectors), margin: Margin) -> i32 {
        let (scored, all) = (self.scored(), self.all());
        let least = least_of_best((&self.places[..all], scored), self.top_k, lows, margin);
        let mut kept = scored;
        for at in scored..all {
            let place = self.places[at];
            // Written whether it is kept or not, so that nothing depends on a guess of the machine.
            self.places[kept] = place;
            kept += usize::from(margin.most(Candidate::of_stored(place).sum()) >= least);
        }
        // No more than there were.
        self.filled.all = kept as u32;
        least
    }

    /// Puts a neighbour in its place among those that are scored; all of them are, and there is room for as many as are
    /// wanted.
    fn insert(&mut self, neighbour: Neighbour) {
        if neighbour.similarity < self.threshold {
            return;
        }
        let scored = &self.places[..self.scored()];
        let is_before = |place: &[u32; 2]| Candidate::of_stored(*place).neighbour().rank(&neighbour).is_lt();
        let at = scored.partition_point(is_before);
        let (moved, count) = (scored.len().min(self.top_k - 1), (scored.len() + 1).min(self.top_k));
        if at <= moved {
            self.places.copy_within(at..moved, at + 1);
            self.places[at] = Candidate::by_score(neighbour).stored();
            (self.filled.scored, self.filled.all) = (count as u32, count as u32);
        }
    }
}
