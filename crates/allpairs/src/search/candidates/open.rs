//! Lists of all rows whose scores reach a threshold.

use super::{Candidate, Scorer, look_at_each, score_each};
use crate::neighbours::Neighbour;

/// Candidates of a list that wait to be scored together.
const WAITING: usize = 16;

/// Lists that take in whatever reaches the threshold.
#[derive(Debug)]
pub(in crate::search) struct OpenLists {
    /// Those that are scored, then those that wait.
    lists: Vec<OpenList>,
    threshold: f32,
}

#[derive(Debug, Clone, Default)]
struct OpenList {
    candidates: Vec<Candidate>,
    waiting: u32,
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
        let list = &mut self.lists[at];
        list.candidates.push(candidate);
        list.waiting += 1;
        if list.waiting as usize >= WAITING {
            waiting.clear();
            waiting.extend(list.candidates.drain(list.scored()..));
            list.waiting = 0;
            let take = |neighbour| list.candidates.push(Candidate::by_score(neighbour));
            score_reaching((row, self.threshold), waiting, scorer, take);
        }
    }

    pub(super) fn offer_scored(&mut self, at: usize, neighbour: Neighbour) {
        if neighbour.similarity >= self.threshold {
            self.lists[at].candidates.push(Candidate::by_score(neighbour));
        }
    }

    /// The rows that wait to be scored.
    pub(super) fn waiting(&self, at: usize) -> impl Iterator<Item = usize> {
        let list = &self.lists[at];
        list.candidates[list.scored()..].iter().map(|candidate| candidate.column as usize)
    }

    /// Scores what waits, and adds all neighbours in their order.
    pub(super) fn finish(
        &self,
        (at, row): (usize, usize),
        waiting: &mut Vec<Candidate>,
        neighbours: &mut Vec<Neighbour>,
        scorer: &mut impl Scorer,
    ) {
        let list = &self.lists[at];
        let (scored, others) = list.candidates.split_at(list.scored());
        neighbours.extend(scored.iter().map(|candidate| candidate.neighbour()));
        others.clone_into(waiting);
        score_reaching((row, self.threshold), waiting, scorer, |neighbour| neighbours.push(neighbour));
        neighbours.sort_unstable_by(Neighbour::rank);
    }
}

impl OpenList {
    fn scored(&self) -> usize {
        self.candidates.len() - self.waiting as usize
    }
}

/// Scores candidates of a row and hands over those that reach the threshold.
fn score_reaching(
    (row, threshold): (usize, f32),
    waiting: &mut Vec<Candidate>,
    scorer: &mut impl Scorer,
    mut take: impl FnMut(Neighbour),
) {
    if let Some(reach) = scorer.reach_of_look() {
        let wanted = scorer.margin().least_of_score(threshold);
        let mut possible = vec![true; waiting.len()];
        let others = waiting.iter().map(|candidate| candidate.column as usize);
        look_at_each(row, others, scorer, |at, sum| possible[at] = sum.saturating_add(reach) >= wanted);
        let mut possible = possible.into_iter();
        waiting.retain(|_| possible.next().unwrap_or(true));
    }
    score_each(row, waiting, scorer, |neighbour| {
        if neighbour.similarity >= threshold {
            take(neighbour);
        }
    });
}
