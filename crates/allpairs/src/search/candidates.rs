//! Rows that may be neighbours: first known by sums in integers, then by their scores.

mod limited;
mod open;
mod scored;

use crate::machine::Vectors;
use crate::neighbours::Neighbour;
use crate::quantised::Margin;
use crate::settings::Selection;
use limited::{LimitedLists, Slot};
use open::OpenLists;
use scored::ScoredLists;

/// Candidates that are scored together.
pub(super) const TOGETHER: usize = 4;

/// Bytes that all lists may take without anybody having to look at them.
const FEW_BYTES: usize = 16 << 20;

/// Scores a candidate as defined.
pub(super) trait Scorer {
    /// The score of two rows. Calls with the same first row come together.
    fn score(&mut self, row: usize, other: usize) -> f32;

    /// The scores of a row with several others.
    fn score_together(&mut self, row: usize, others: [usize; TOGETHER]) -> [f32; TOGETHER] {
        others.map(|other| self.score(row, other))
    }

    /// Looks more closely at some candidates of a row: sums that are off by [`Self::reach_of_look`] at most, if there is
    /// a way between the first sums and the scores, for all of these.
    fn look(&mut self, _row: usize, _others: [usize; TOGETHER]) -> Option<[i32; TOGETHER]> {
        None
    }

    /// How far a sum from a closer look is from the true one at most; `None` if there is no closer look.
    fn reach_of_look(&self) -> Option<i32> {
        None
    }

    /// Is told which rows come soon.
    fn expect(&self, _other: usize) {}

    /// How far sums may be from scores.
    fn margin(&self) -> Margin;

    /// What the true sum of two rows is at least.
    fn least(&self, _row: usize, _other: usize, sum: i32) -> i32 {
        self.margin().least(sum)
    }

    /// Adds to the neighbours of a row, which are in their order, those that no search finds.
    fn complete(&mut self, row: usize, neighbours: &mut Vec<Neighbour>);
}

/// The candidates of some rows, each of which is named by its place among these rows.
#[derive(Debug)]
pub(super) enum Lists {
    /// So many of each row are wanted.
    Limited(LimitedLists),
    /// The same, and each is scored before it comes.
    Scored(ScoredLists),
    /// All that reach a threshold are.
    Open(OpenLists),
}

/// What a thread needs to work on lists.
#[derive(Debug)]
pub(super) struct Bench {
    vectors: Vectors,
    lows: Vec<i32>,
    waiting: Vec<Candidate>,
    /// The lists that are finished now and next.
    slots: [Slot; 2],
    neighbours: Vec<Neighbour>,
}

/// Candidates that each of so many lists has room for, if all wait to be scored.
///
/// Longer lists are shortened less often, which saves less time than their memory is worth, unless sums are `loose` and
/// candidates are looked at each time.
pub(super) fn room(lists: usize, selection: &Selection, loose: bool) -> usize {
    let Some(top_k) = selection.top_k else { return 0 };
    let long = 2 * top_k + 12;
    let bytes = lists.saturating_mul(long).saturating_mul(size_of::<Candidate>());
    if loose && bytes <= FEW_BYTES { long } else { top_k + top_k / 4 + 4 }
}

impl Bench {
    pub(super) fn new(vectors: Vectors) -> Self {
        let (waiting, neighbours) = (Vec::new(), Vec::new());
        Self { vectors, lows: Vec::new(), waiting, slots: Default::default(), neighbours }
    }
}

impl Lists {
    /// Empty lists of so many rows, with room for so many candidates each if so many are wanted; without, all of them are
    /// scored before they come.
    pub(super) fn new(rows: usize, selection: &Selection, room: Option<usize>) -> Self {
        let threshold = selection.threshold.unwrap_or(f32::NEG_INFINITY);
        match (selection.top_k, room) {
            (Some(top_k), Some(room)) => Self::Limited(LimitedLists::new(rows, (top_k, threshold), room)),
            (Some(top_k), None) => Self::Scored(ScoredLists::new(rows, (top_k, threshold))),
            (None, _) => Self::Open(OpenLists::new(rows, threshold)),
        }
    }

    /// Takes in a candidate with its sum, for the row at this place. Returns the greatest sum that is not worth offering
    /// from now on, if that is known better than before.
    pub(super) fn offer(
        &mut self,
        (at, row): (usize, usize),
        candidate: Candidate,
        bench: &mut Bench,
        scorer: &mut impl Scorer,
    ) -> Option<i32> {
        match self {
            Self::Limited(lists) => lists.list(at).offer(row, candidate, bench, scorer),
            Self::Scored(lists) => lists.offer_unscored((at, row), candidate, scorer),
            Self::Open(lists) => {
                lists.offer((at, row), candidate, &mut bench.waiting, scorer);
                None
            }
        }
    }

    /// Takes in a candidate that is scored already; what is returned is as with [`Self::offer`].
    pub(super) fn offer_scored(&mut self, at: usize, neighbour: Neighbour, margin: Margin) -> Option<i32> {
        match self {
            Self::Limited(lists) => lists.list(at).offer_scored(neighbour, margin),
            Self::Scored(lists) => lists.offer(at, neighbour, margin),
            Self::Open(lists) => {
                lists.offer_scored(at, neighbour);
                None
            }
        }
    }

    /// Scores what is left of the lists, the first of which is that of row `first_row`.
    pub(super) fn finish(&self, first_row: usize, bench: &mut Bench, scorer: &mut impl Scorer) -> Finished {
        let count = match self {
            Self::Limited(lists) => lists.count(),
            Self::Scored(lists) => lists.count(),
            Self::Open(lists) => lists.count(),
        };
        let mut finished = Finished::default();
        self.prepare((0, first_row), bench, scorer);
        for (at, row) in (0..count).zip(first_row..) {
            bench.slots.swap(0, 1);
            if at + 1 < count {
                self.prepare((at + 1, row + 1), bench, scorer);
            }
            let mut neighbours = std::mem::take(&mut bench.neighbours);
            neighbours.clear();
            match self {
                Self::Limited(lists) => lists.finish(row, bench, &mut neighbours, scorer),
                Self::Scored(lists) => lists.finish(at, &mut neighbours),
                Self::Open(lists) => lists.finish((at, row), &mut bench.waiting, &mut neighbours, scorer),
            }
            scorer.complete(row, &mut neighbours);
            finished.push(&neighbours);
            bench.neighbours = neighbours;
        }
        finished
    }

    /// Lets the memory know of the list that is finished next.
    fn prepare(&self, (at, row): (usize, usize), bench: &mut Bench, scorer: &impl Scorer) {
        match self {
            Self::Limited(lists) => lists.prepare((at, row), bench, scorer),
            Self::Scored(_) => {}
            Self::Open(lists) => lists.waiting(at).for_each(|other| scorer.expect(other)),
        }
    }
}

/// The neighbours of rows that follow one another.
#[derive(Debug, Default)]
pub(super) struct Finished {
    neighbours: Vec<Neighbour>,
    /// Where those of each row end.
    ends: Vec<usize>,
}

impl Finished {
    fn push(&mut self, neighbours: &[Neighbour]) {
        self.neighbours.extend_from_slice(neighbours);
        self.ends.push(self.neighbours.len());
    }

    /// The neighbours of each row.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[Neighbour]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.neighbours[start..*end])
    }
}

/// A row that may be a neighbour.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Candidate {
    /// Its number.
    pub(super) column: u32,
    /// Its sum, or the bits of its score.
    known: u32,
}

impl Candidate {
    /// One that is known by its sum.
    pub(super) fn by_sum(column: u32, sum: i32) -> Self {
        Self { column, known: sum as u32 }
    }

    fn by_score(Neighbour { column, similarity }: Neighbour) -> Self {
        Self { column, known: similarity.to_bits() }
    }

    fn sum(self) -> i32 {
        self.known as i32
    }

    /// What it is if it is scored.
    fn neighbour(self) -> Neighbour {
        Neighbour { column: self.column, similarity: f32::from_bits(self.known) }
    }

    fn stored(self) -> [u32; 2] {
        [self.column, self.known]
    }

    fn of_stored([column, known]: [u32; 2]) -> Self {
        Self { column, known }
    }
}

/// Looks more closely at rows, several at a time, and hands over each place with its sum, from the first on; ends early
/// where there is no way to look.
fn look_at_each(
    row: usize,
    others: impl ExactSizeIterator<Item = usize>,
    scorer: &mut impl Scorer,
    mut take: impl FnMut(usize, i32),
) {
    let (count, mut others) = (others.len(), others);
    for first in (0..count).step_by(TOGETHER) {
        let Some(one) = others.next() else { return };
        // What is missing in the end is filled up.
        let mut together = [one; TOGETHER];
        together[1..].iter_mut().zip(&mut others).for_each(|(place, other)| *place = other);
        let Some(sums) = scorer.look(row, together) else { return };
        (first..count).zip(sums).for_each(|(place, sum)| take(place, sum));
    }
}

/// Scores candidates of a row, several at a time.
fn score_each(
    row: usize,
    candidates: &[Candidate],
    scorer: &mut impl Scorer,
    mut take: impl FnMut(Neighbour),
) {
    let (together, rest) = candidates.as_chunks::<TOGETHER>();
    for candidates in together {
        let columns = candidates.map(|candidate| candidate.column);
        let scores = scorer.score_together(row, columns.map(|column| column as usize));
        let scored = columns.into_iter().zip(scores);
        scored.for_each(|(column, similarity)| take(Neighbour { column, similarity }));
    }
    for Candidate { column, .. } in rest {
        take(Neighbour { column: *column, similarity: scorer.score(row, *column as usize) });
    }
}
