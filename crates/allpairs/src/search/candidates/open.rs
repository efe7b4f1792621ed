//! Lists of all rows whose scores reach a threshold.

use super::{Bench, Candidate, Scorer, score_each};
use crate::neighbours::Neighbour;

/// Candidates of a list that wait to be scored together.
const WAITING: usize = 16;

/// Lists that take in whatever reaches the threshold.
#[derive(Debug)]
pub(in crate::search) struct OpenLists {
    /// Those that are scored, then those that wait.
    lists: Vec<OpenList>,
    pub(super) threshold: f32,
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

    pub(super) fn offer(
        &mut self,
        (at, row): (usize, usize),
        candidate: Candidate,
        bench: &mut Bench,
        scorer: &mut impl Scorer,
    ) {
        let list = &mut self.lists[at];
        list.candidates.push(candidate);
        list.waiting += 1;
        if list.waiting as usize >= WAITING {
            let scored = list.scored();
            bench.waiting.clear();
            bench.waiting.extend(list.candidates.drain(scored..));
            list.waiting = 0;
            score_each(row, &bench.waiting, scorer, |neighbour| {
                if neighbour.similarity >= self.threshold {
                    list.candidates.push(Candidate::by_score(neighbour));
                }
            });
        }
    }

    pub(super) fn offer_scored(&mut self, at: usize, neighbour: Neighbour) {
        if neighbour.similarity >= self.threshold {
            self.lists[at].candidates.push(Candidate::by_score(neighbour));
        }
    }

    /// Copies a list and says how many of it are scored.
    pub(super) fn copy(&self, at: usize, out: &mut Vec<Candidate>) -> usize {
        self.lists[at].candidates.clone_into(out);
        self.lists[at].scored()
    }
}

impl OpenList {
    fn scored(&self) -> usize {
        self.candidates.len() - self.waiting as usize
    }
}
