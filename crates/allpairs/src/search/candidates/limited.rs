//! Lists of the best rows, as many as are asked for.
//!
//! A list has room for little more than these. When it is full, whoever is certainly behind so many others is dropped; if
//! the sums can not tell, a closer look is taken, if there is one, and then candidates are scored, and the scores tell.
//! So however many rows tie within the margin, a list stays as short as it is.

use super::{Bench, Candidate, Scorer, look_at_each, score_each};
use crate::machine::Vectors;
use crate::neighbours::Neighbour;
use crate::quantised::Margin;

/// Lists with room for equally many candidates each.
#[derive(Debug)]
pub(in crate::search) struct LimitedLists {
    /// The candidates of each row: those that are scored, in their order, those that were looked at closely, and the
    /// others. As plain numbers, since the system has zeros at hand without touching memory; so what no candidate is put
    /// into takes none.
    places: Vec<[u32; 2]>,
    filled: Vec<Filled>,
    room: usize,
    top_k: usize,
    threshold: f32,
}

/// How many candidates a list has.
#[derive(Debug, Clone, Copy, Default)]
struct Filled {
    scored: u32,
    /// With those that are scored.
    looked_at: u32,
    all: u32,
    /// Of a list that was narrowed: with those that are scored and not in their order.
    exact: u32,
}

/// One of the lists.
pub(super) struct LimitedList<'a> {
    places: &'a mut [[u32; 2]],
    filled: &'a mut Filled,
    top_k: usize,
    threshold: f32,
}

impl LimitedLists {
    /// Lists with this room, which is at least what is wanted.
    pub(super) fn new(rows: usize, (top_k, threshold): (usize, f32), room: usize) -> Self {
        let (places, filled) = (vec![[0; 2]; rows * room], vec![Filled::default(); rows]);
        Self { places, filled, room, top_k, threshold }
    }

    pub(super) fn count(&self) -> usize {
        self.filled.len()
    }

    pub(super) fn list(&mut self, at: usize) -> LimitedList<'_> {
        let places = &mut self.places[at * self.room..][..self.room];
        let (top_k, threshold) = (self.top_k, self.threshold);
        LimitedList { places, filled: &mut self.filled[at], top_k, threshold }
    }

    /// The candidates of a list that were not looked at closely.
    pub(super) fn not_looked_at(&self, at: usize) -> &[[u32; 2]] {
        let filled = self.filled[at];
        &self.places[at * self.room..][filled.looked_at as usize..filled.all as usize]
    }

    /// Adds the neighbours of a list, all of whose candidates are scored, in their order.
    pub(super) fn finish(&self, at: usize, neighbours: &mut Vec<Neighbour>) {
        let places = &self.places[at * self.room..][..self.filled[at].all as usize];
        let scored = places.iter().map(|place| Candidate::of_stored(*place).neighbour());
        neighbours.extend(scored.filter(|neighbour| neighbour.similarity >= self.threshold));
        neighbours.sort_unstable_by(Neighbour::rank);
        neighbours.truncate(self.top_k);
    }
}

impl<'a> LimitedList<'a> {
    fn scored(&self) -> usize {
        self.filled.scored as usize
    }

    fn looked_at(&self) -> usize {
        self.filled.looked_at as usize
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

    /// Makes room, and says what the greatest sum is that is not worth offering any more.
    fn shorten(&mut self, row: usize, bench: &mut Bench, scorer: &mut impl Scorer) -> i32 {
        let margin = scorer.margin();
        let mut least = self.drop_certainly_behind(row, (&mut bench.lows, bench.vectors), scorer);
        if self.is_crowded() {
            let room = (&mut bench.lows, bench.vectors);
            least = least.max(self.look_and_drop(row, room, &mut bench.waiting, scorer));
        }
        if !self.is_crowded() {
            return margin.surely_less(least);
        }
        self.score(row, &mut bench.waiting, scorer);
        let floor = self.last().map_or(i32::MIN, |last| margin.below(last.similarity));
        floor.max(margin.surely_less(least))
    }

    /// Whether so little room is left that the list would soon be shortened again.
    fn is_crowded(&self) -> bool {
        self.places.len() - self.all() < (self.places.len() - self.top_k) / 2
    }

    /// Returns a sum that as many candidates as are wanted surely reach; the least there is if there are not so many.
    fn drop_certainly_behind(
        &mut self,
        row: usize,
        (lows, vectors): (&mut Vec<i32>, Vectors),
        scorer: &impl Scorer,
    ) -> i32 {
        if self.all() < self.top_k {
            return i32::MIN;
        }
        let (scored, looked_at, all) = (self.scored(), self.looked_at(), self.all());
        let (margin, reach) = (scorer.margin(), scorer.reach_of_look().unwrap_or(0));
        lows.clear();
        for (at, place) in self.places[..all].iter().enumerate() {
            let candidate = Candidate::of_stored(*place);
            lows.push(if at < scored {
                margin.least_of_score(candidate.neighbour().similarity)
            } else if at < looked_at {
                candidate.sum().saturating_sub(reach)
            } else {
                scorer.least(row, candidate.column as usize, candidate.sum())
            });
        }
        let least = vectors.greatest(lows, self.top_k);
        let (mut kept, mut kept_looked_at) = (scored, scored);
        for at in scored..all {
            let place = self.places[at];
            let sum = Candidate::of_stored(place).sum();
            let most = if at < looked_at { sum.saturating_add(reach) } else { margin.most(sum) };
            // Written whether it is kept or not, so that nothing depends on a guess of the machine.
            self.places[kept] = place;
            kept += usize::from(most >= least);
            kept_looked_at = if at < looked_at { kept } else { kept_looked_at };
        }
        // No more than there were.
        (self.filled.looked_at, self.filled.all) = (kept_looked_at as u32, kept as u32);
        least
    }

    /// Takes a closer look, if there is one, and drops what it shows to be behind others. What is returned is as with
    /// [`Self::drop_certainly_behind`].
    fn look_and_drop(
        &mut self,
        row: usize,
        (lows, vectors): (&mut Vec<i32>, Vectors),
        waiting: &mut Vec<Candidate>,
        scorer: &mut impl Scorer,
    ) -> i32 {
        if scorer.reach_of_look().is_none() {
            return i32::MIN;
        }
        self.look(row, waiting, scorer);
        self.drop_certainly_behind(row, (lows, vectors), scorer)
    }

    /// Drops whatever can be without a score; what is left to be scored is in the order of the rows then.
    pub(super) fn narrow(&mut self, row: usize, bench: &mut Bench, scorer: &mut impl Scorer) {
        self.drop_certainly_behind(row, (&mut bench.lows, bench.vectors), scorer);
        self.look_and_drop(row, (&mut bench.lows, bench.vectors), &mut bench.waiting, scorer);
        let (scored, all) = (self.scored(), self.all());
        self.places[scored..all].sort_unstable();
        self.filled.exact = self.filled.scored;
    }

    /// The candidates of a narrowed list that wait to be scored.
    pub(super) fn waiting(self) -> &'a mut [[u32; 2]] {
        &mut self.places[self.filled.exact as usize..self.filled.all as usize]
    }

    /// Takes note that the first of those that wait are scored.
    pub(super) fn note_scored(&mut self, count: usize) {
        // No more than there are.
        self.filled.exact += count as u32;
    }

    /// Looks closely at the candidates that were not looked at so.
    fn look(&mut self, row: usize, waiting: &mut Vec<Candidate>, scorer: &mut impl Scorer) {
        let (looked_at, all) = (self.looked_at(), self.all());
        waiting.clear();
        waiting.extend(self.places[looked_at..all].iter().map(|place| Candidate::of_stored(*place)));
        let others = waiting.iter().map(|candidate| candidate.column as usize);
        look_at_each(row, others, scorer, |at, sum| {
            self.places[looked_at + at][1] = sum as u32;
            self.filled.looked_at += 1;
        });
    }

    /// Scores all candidates and keeps as many as are wanted.
    fn score(&mut self, row: usize, waiting: &mut Vec<Candidate>, scorer: &mut impl Scorer) {
        waiting.clear();
        waiting
            .extend(self.places[self.scored()..self.all()].iter().map(|place| Candidate::of_stored(*place)));
        (self.filled.looked_at, self.filled.all) = (self.filled.scored, self.filled.scored);
        score_each(row, waiting, scorer, |neighbour| self.insert(neighbour));
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
            let count = count as u32;
            *self.filled = Filled { scored: count, looked_at: count, all: count, exact: 0 };
        }
    }
}
