//! Rows that may be neighbours: first known by sums in integers, then by their scores.

mod limited;
mod open;
mod scored;

use crate::machine::Vectors;
use crate::neighbours::Neighbour;
use crate::quantised::Margin;
use crate::settings::Selection;
use limited::LimitedLists;
use open::OpenLists;
use scored::ScoredLists;

/// Candidates that are scored together.
pub(super) const TOGETHER: usize = 4;

/// Scores a candidate as defined.
pub(super) trait Scorer {
    /// The score of two rows. Calls with the same first row come together.
    fn score(&mut self, row: usize, other: usize) -> f32;

    /// The scores of a row with several others, [`TOGETHER`] at most.
    fn score_together(&mut self, row: usize, others: &[usize]) -> [f32; TOGETHER] {
        std::array::from_fn(|at| others.get(at).map_or(0.0, |other| self.score(row, *other)))
    }

    /// Looks more closely at some candidates of a row: sums that are off by [`Self::reach_of_look`] at most. Asked for only
    /// where there is a way between the first sums and the scores.
    fn look(&mut self, row: usize, others: [usize; TOGETHER]) -> [i32; TOGETHER];

    /// How far a sum from a closer look is from the true one at most; `None` if there is no closer look.
    fn reach_of_look(&self) -> Option<i32> {
        None
    }

    /// Is told which rows are scored soon.
    fn expect(&self, _other: usize) {}

    /// Is told which rows are looked at more closely soon.
    fn expect_look(&self, _other: usize) {}

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
    neighbours: Vec<Neighbour>,
}

/// Candidates that a list has room for, if all wait to be scored; given the bytes that a row is held in if sums are loose and
/// candidates are looked at each time.
///
/// Longer lists are shortened less often, which saves less time than their memory is worth, unless sums are loose. Short
/// ones would also often be crowded then by candidates that a closer look can not tell apart, and scoring these brings whole
/// files into memory, of which a part is enough: most of two bytes for each one that is held.
pub(super) fn room(selection: &Selection, loose: Option<usize>) -> usize {
    let Some(top_k) = selection.top_k else { return 0 };
    let (long, short) = (2 * top_k + 12, top_k + top_k / 4 + 4);
    let more = (long - short) * size_of::<Candidate>();
    if loose.is_some_and(|held| more <= held * 3 / 2) { long } else { short }
}

impl Bench {
    pub(super) fn new(vectors: Vectors) -> Self {
        Self { vectors, lows: Vec::new(), waiting: Vec::new(), neighbours: Vec::new() }
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

    /// Drops whatever can be without a score. Candidates that wait for one are in the order of their rows then.
    pub(super) fn narrow(&mut self, first_row: usize, bench: &mut Bench, scorer: &mut impl Scorer) {
        for at in 0..self.count() {
            if at + 1 < self.count() {
                self.not_looked_at(at + 1)
                    .iter()
                    .for_each(|[column, _]| scorer.expect_look(*column as usize));
            }
            match self {
                Self::Limited(lists) => lists.list(at).narrow(first_row + at, bench, scorer),
                Self::Scored(_) => {}
                Self::Open(lists) => lists.narrow((at, first_row + at), &mut bench.waiting, scorer),
            }
        }
    }

    /// Scores what waits in lists that were narrowed, as far as its row comes before this one.
    pub(super) fn score_before(
        &mut self,
        (first_row, end): (usize, usize),
        bench: &mut Bench,
        scorer: &mut impl Scorer,
    ) {
        let waiting = &mut bench.waiting;
        for at in 0..self.count() {
            if at + 1 < self.count() {
                before(self.waiting(at + 1), end)
                    .iter()
                    .for_each(|[column, _]| scorer.expect(*column as usize));
            }
            let places = before(self.waiting(at), end);
            waiting.clear();
            waiting.extend(places.iter().map(|place| Candidate::of_stored(*place)));
            let mut next = places.iter_mut();
            score_each(first_row + at, waiting, scorer, |neighbour| {
                if let Some(place) = next.next() {
                    *place = Candidate::by_score(neighbour).stored();
                }
            });
            self.note_scored(at, waiting.len());
        }
    }

    /// The candidates of a narrowed list that wait to be scored.
    fn waiting(&mut self, at: usize) -> &mut [[u32; 2]] {
        match self {
            Self::Limited(lists) => lists.list(at).waiting(),
            Self::Scored(_) => &mut [],
            Self::Open(lists) => lists.waiting(at),
        }
    }

    /// Takes note that the first of those that wait are scored.
    fn note_scored(&mut self, at: usize, count: usize) {
        match self {
            Self::Limited(lists) => lists.list(at).note_scored(count),
            Self::Scored(_) => {}
            Self::Open(lists) => lists.note_scored(at, count),
        }
    }

    /// The candidates of a list that were not looked at closely.
    fn not_looked_at(&self, at: usize) -> &[[u32; 2]] {
        match self {
            Self::Limited(lists) => lists.not_looked_at(at),
            Self::Scored(_) => &[],
            Self::Open(lists) => lists.not_looked_at(at),
        }
    }

    /// Hands over the neighbours of each row, the first of which has this number; all candidates are scored.
    pub(super) fn finish(&self, first_row: usize, bench: &mut Bench, scorer: &mut impl Scorer) -> Finished {
        let mut finished = Finished::default();
        for (at, row) in (0..self.count()).zip(first_row..) {
            let neighbours = &mut bench.neighbours;
            neighbours.clear();
            match self {
                Self::Limited(lists) => lists.finish(at, neighbours),
                Self::Scored(lists) => lists.finish(at, neighbours),
                Self::Open(lists) => lists.finish(at, neighbours),
            }
            scorer.complete(row, neighbours);
            finished.push(neighbours);
        }
        finished
    }

    fn count(&self) -> usize {
        match self {
            Self::Limited(lists) => lists.count(),
            Self::Scored(lists) => lists.count(),
            Self::Open(lists) => lists.count(),
        }
    }
}

/// Those of candidates in the order of their rows that come before one.
fn before(waiting: &mut [[u32; 2]], end: usize) -> &mut [[u32; 2]] {
    let count = waiting.partition_point(|[column, _]| (*column as usize) < end);
    &mut waiting[..count]
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

/// Looks more closely at rows, several at a time, and hands over each place with its sum, from the first on.
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
        let sums = scorer.look(row, together);
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
    for candidates in candidates.chunks(TOGETHER) {
        let mut others = [0; TOGETHER];
        others.iter_mut().zip(candidates).for_each(|(place, candidate)| *place = candidate.column as usize);
        let scores = scorer.score_together(row, &others[..candidates.len()]);
        let scored = candidates.iter().zip(scores);
        scored.for_each(|(candidate, similarity)| take(Neighbour { column: candidate.column, similarity }));
    }
}
