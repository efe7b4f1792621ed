//! Rows that may be neighbours: first known by their sums in integers, then by their scores.

mod limited;
mod open;

use crate::machine::Vectors;
use crate::neighbours::Neighbour;
use crate::quantised::Margin;
use crate::settings::Selection;
use limited::LimitedLists;
use open::OpenLists;
use std::ops::Range;

/// Candidates that are scored together.
pub(super) const TOGETHER: usize = 4;

/// Scores a candidate as defined.
pub(super) trait Scorer {
    /// The score of two rows. Calls with the same first row come together.
    fn score(&mut self, row: usize, other: usize) -> f32;

    /// The scores of a row with several others.
    fn score_together(&mut self, row: usize, others: [usize; TOGETHER]) -> [f32; TOGETHER] {
        others.map(|other| self.score(row, other))
    }

    /// Is told which rows come soon.
    fn expect(&self, _other: usize) {}

    /// How far sums may be from scores.
    fn margin(&self) -> Margin;

    /// Adds to the neighbours of a row, which are in their order, those that no search finds.
    fn complete(&mut self, row: usize, neighbours: &mut Vec<Neighbour>);
}

/// The candidates of some rows, each of which is named by its place among these rows.
#[derive(Debug)]
pub(super) enum Lists {
    /// So many of each row are wanted.
    Limited(LimitedLists),
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
    now: Vec<Candidate>,
    next: Vec<Candidate>,
}

impl Bench {
    pub(super) fn new(vectors: Vectors) -> Self {
        Self { vectors, lows: Vec::new(), waiting: Vec::new(), now: Vec::new(), next: Vec::new() }
    }
}

impl Lists {
    /// Empty lists of so many rows. Unless some `wait` to be scored, a list needs no more room than is asked for.
    pub(super) fn new(rows: usize, selection: &Selection, wait: bool) -> Self {
        let threshold = selection.threshold.unwrap_or(f32::NEG_INFINITY);
        match selection.top_k {
            Some(top_k) => Self::Limited(LimitedLists::new(rows, (top_k, wait), threshold)),
            None => Self::Open(OpenLists::new(rows, threshold)),
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
            Self::Open(lists) => {
                lists.offer((at, row), candidate, bench, scorer);
                None
            }
        }
    }

    /// Takes in a candidate that is scored already; what is returned is as with [`Self::offer`].
    pub(super) fn offer_scored(&mut self, at: usize, neighbour: Neighbour, margin: Margin) -> Option<i32> {
        match self {
            Self::Limited(lists) => lists.list(at).offer_scored(neighbour, margin),
            Self::Open(lists) => {
                lists.offer_scored(at, neighbour);
                None
            }
        }
    }

    /// Scores what is left of the lists at these places, the first of which is that of row `first_row`.
    pub(super) fn finish(
        &self,
        places: Range<usize>,
        first_row: usize,
        bench: &mut Bench,
        scorer: &mut impl Scorer,
    ) -> Finished {
        let mut finished = Finished::default();
        let mut neighbours = Vec::new();
        let mut scored = self.prepare(places.start, bench, scorer);
        for at in places.clone() {
            std::mem::swap(&mut bench.now, &mut bench.next);
            let (row, scored_now) = (first_row + at - places.start, scored);
            if at + 1 < places.end {
                scored = self.prepare(at + 1, bench, scorer);
            }
            neighbours.clear();
            neighbours.extend(bench.now[..scored_now].iter().map(|candidate| candidate.neighbour()));
            score_each(row, &bench.now[scored_now..], scorer, |neighbour| neighbours.push(neighbour));
            self.keep_wanted(&mut neighbours);
            scorer.complete(row, &mut neighbours);
            finished.push(&neighbours);
        }
        finished
    }

    /// Copies a list as the one that is finished next, and lets the memory know of it. Returns how many are scored.
    fn prepare(&self, at: usize, bench: &mut Bench, scorer: &impl Scorer) -> usize {
        let scored = match self {
            Self::Limited(lists) => lists.copy_possible(at, bench, scorer.margin()),
            Self::Open(lists) => lists.copy(at, &mut bench.next),
        };
        bench.next[scored..].iter().for_each(|candidate| scorer.expect(candidate.column as usize));
        scored
    }

    fn keep_wanted(&self, neighbours: &mut Vec<Neighbour>) {
        let (threshold, top_k) = match self {
            Self::Limited(lists) => (lists.threshold, lists.top_k),
            Self::Open(lists) => (lists.threshold, usize::MAX),
        };
        neighbours.retain(|neighbour| neighbour.similarity >= threshold);
        neighbours.sort_unstable_by(Neighbour::rank);
        neighbours.truncate(top_k);
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

    fn stored(self) -> [u32; 2] {
        [self.column, self.known]
    }

    fn of_stored([column, known]: [u32; 2]) -> Self {
        Self { column, known }
    }

    /// What it is if it is scored.
    fn neighbour(self) -> Neighbour {
        Neighbour { column: self.column, similarity: f32::from_bits(self.known) }
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
