//! Lists of all rows whose scores reach a threshold.

use super::{Candidate, Scorer, look_at_each};
use crate::neighbours::Neighbour;

/// Candidates of a list that wait to be looked at together.
const WAITING: usize = 16;

/// Lists that take in whatever may reach the threshold.
#[derive(Debug)]
pub(in crate::search) struct OpenLists {
    lists: Vec<OpenList>,
    threshold: f32,
}

/// Candidates: those that are scored, those that were looked at closely, and the others.
#[derive(Debug, Clone, Default)]
struct OpenList {
    places: Vec<[u32; 2]>,
    scored: u32,
    /// Besides those that are scored.
    looked_at: u32,
}

impl OpenLists {
    pub(super) fn new(rows: usize, threshold: f32) -> Self {
        Self { lists: vec![OpenList::default(); rows], threshold }
    }

    pub(super) fn count(&self) -> usize {
        self.lists.len()
    }

    pub(super) fn offer(
        &mut self,
        (at, row): (usize, usize),
        candidate: Candidate,
        waiting: &mut Vec<Candidate>,
        scorer: &mut impl Scorer,
    ) {
        self.lists[at].places.push(candidate.stored());
        if self.not_looked_at(at).len() >= WAITING {
            self.lists[at].look(row, self.threshold, waiting, scorer);
        }
    }

    pub(super) fn offer_scored(&mut self, at: usize, neighbour: Neighbour) {
        if neighbour.similarity >= self.threshold {
            let list = &mut self.lists[at];
            list.places.insert(list.scored as usize, Candidate::by_score(neighbour).stored());
            list.scored += 1;
        }
    }

    /// The candidates of a list that were not looked at closely.
    pub(super) fn not_looked_at(&self, at: usize) -> &[[u32; 2]] {
        let OpenList { places, scored, looked_at } = &self.lists[at];
        &places[(scored + looked_at) as usize..]
    }

    /// Drops whatever a closer look shows to be below the threshold; the others are in the order of the rows then.
    pub(super) fn narrow(
        &mut self,
        (at, row): (usize, usize),
        waiting: &mut Vec<Candidate>,
        scorer: &mut impl Scorer,
    ) {
        let list = &mut self.lists[at];
        list.look(row, self.threshold, waiting, scorer);
        list.places[list.scored as usize..].sort_unstable();
    }

    /// The candidates of a narrowed list that wait to be scored.
    pub(super) fn waiting(&mut self, at: usize) -> &mut [[u32; 2]] {
        let list = &mut self.lists[at];
        &mut list.places[list.scored as usize..]
    }

    /// Takes note that the first of those that wait are scored.
    pub(super) fn note_scored(&mut self, at: usize, count: usize) {
        // Rows have numbers of 32 bits.
        self.lists[at].scored += count as u32;
    }

    /// Adds the neighbours of a list, all of whose candidates are scored, in their order.
    pub(super) fn finish(&self, at: usize, neighbours: &mut Vec<Neighbour>) {
        let scored = self.lists[at].places.iter().map(|place| Candidate::of_stored(*place).neighbour());
        neighbours.extend(scored.filter(|neighbour| neighbour.similarity >= self.threshold));
        neighbours.sort_unstable_by(Neighbour::rank);
    }
}

impl OpenList {
    /// Takes a closer look, if there is one, and drops what it shows to be below the threshold.
    fn look(&mut self, row: usize, threshold: f32, waiting: &mut Vec<Candidate>, scorer: &mut impl Scorer) {
        let known = (self.scored + self.looked_at) as usize;
        let Some(reach) = scorer.reach_of_look() else {
            self.looked_at = self.places.len() as u32 - self.scored;
            return;
        };
        let wanted = scorer.margin().least_of_score(threshold);
        waiting.clear();
        waiting.extend(self.places[known..].iter().map(|place| Candidate::of_stored(*place)));
        self.places.truncate(known);
        let others = waiting.iter().map(|candidate| candidate.column as usize);
        look_at_each(row, others, scorer, |at, sum| {
            if sum.saturating_add(reach) >= wanted {
                self.places.push(Candidate::by_sum(waiting[at].column, sum).stored());
            }
        });
        self.looked_at = self.places.len() as u32 - self.scored;
    }
}
