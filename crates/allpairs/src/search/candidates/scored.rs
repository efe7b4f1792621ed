//! Lists of the best rows, as many as are asked for, of which all scores are known before they come.
//!
//! Above a high threshold most lists stay short or empty. So each takes room as it grows, from all the lists that a
//! thread has to itself together.

use super::{Candidate, Scorer};
use crate::neighbours::Neighbour;
use crate::quantised::Margin;

/// Neighbours that a list has room for at first; whenever that is filled, for so many times as many.
const GROWTH: usize = 4;

/// Below this threshold lists have all their room at once: most of them fill, and growing takes time and memory.
const LOW_THRESHOLD: f32 = 0.5;

/// Lists that grow.
#[derive(Debug)]
pub(in crate::search) struct ScoredLists {
    lists: Vec<ScoredList>,
    /// The neighbours of all lists, those of each side by side and in their order.
    places: Vec<[u32; 2]>,
    /// Room that lists have left for a larger one.
    left: Vec<Room>,
    top_k: usize,
    threshold: f32,
}

/// Where a list lies, and how many neighbours it has; its room follows from that.
#[derive(Debug, Clone, Copy, Default)]
struct ScoredList {
    start: u32,
    count: u32,
}

#[derive(Debug, Clone, Copy)]
struct Room {
    start: u32,
    length: usize,
}

impl ScoredLists {
    pub(super) fn new(rows: usize, (top_k, threshold): (usize, f32)) -> Self {
        let lists = vec![ScoredList::default(); rows];
        Self { lists, places: Vec::new(), left: Vec::new(), top_k, threshold }
    }

    pub(super) fn count(&self) -> usize {
        self.lists.len()
    }

    /// Takes in a neighbour of the row at this place. Returns the greatest sum that is not worth offering once the list is
    /// full.
    pub(super) fn offer(&mut self, at: usize, neighbour: Neighbour, margin: Margin) -> Option<i32> {
        self.insert(at, neighbour).map(|last| margin.below(last.similarity))
    }

    /// Scores a candidate and takes it in.
    pub(super) fn offer_unscored(
        &mut self,
        (at, row): (usize, usize),
        Candidate { column, .. }: Candidate,
        scorer: &mut impl Scorer,
    ) -> Option<i32> {
        let similarity = scorer.score(row, column as usize);
        self.offer(at, Neighbour { column, similarity }, scorer.margin())
    }

    /// Returns the last one of the list if that is full.
    fn insert(&mut self, at: usize, neighbour: Neighbour) -> Option<Neighbour> {
        let list = self.neighbours(at);
        let place =
            list.partition_point(|place| Candidate::of_stored(*place).neighbour().rank(&neighbour).is_lt());
        let count = list.len();
        if neighbour.similarity >= self.threshold && place < self.top_k {
            if count < self.top_k {
                self.make_room(at);
            }
            let ScoredList { start, count } = self.lists[at];
            let list = &mut self.places[start as usize..][..count as usize];
            list[place..].rotate_right(1);
            list[place] = Candidate::by_score(neighbour).stored();
        }
        let list = self.neighbours(at);
        list.last().filter(|_| list.len() == self.top_k).map(|last| Candidate::of_stored(*last).neighbour())
    }

    /// Adds all neighbours of a row, which are in their order.
    pub(super) fn finish(&self, at: usize, neighbours: &mut Vec<Neighbour>) {
        neighbours.extend(self.neighbours(at).iter().map(|place| Candidate::of_stored(*place).neighbour()));
    }

    fn neighbours(&self, at: usize) -> &[[u32; 2]] {
        let ScoredList { start, count } = self.lists[at];
        &self.places[start as usize..][..count as usize]
    }

    /// Makes a list longer by one.
    fn make_room(&mut self, at: usize) {
        let ScoredList { start, count } = self.lists[at];
        let (has, needs) = (self.room(count as usize), self.room(count as usize + 1));
        self.lists[at].count += 1;
        if has == needs {
            return;
        }
        let new = match self.left.iter().position(|room| room.length == needs) {
            Some(at) => self.left.swap_remove(at).start,
            None => self.add_room(needs),
        };
        self.places.copy_within(start as usize..start as usize + count as usize, new as usize);
        self.lists[at].start = new;
        if has > 0 {
            self.left.push(Room { start, length: has });
        }
    }

    fn add_room(&mut self, length: usize) -> u32 {
        let start = self.places.len();
        if start + length > self.places.capacity() {
            // No more than a quarter may be empty: there are many of these.
            let all = if self.threshold < LOW_THRESHOLD { self.lists.len() * length - start } else { 0 };
            self.places.reserve_exact(length.max(start / 4).max(all));
        }
        self.places.resize(start + length, [0; 2]);
        // Lists that are kept have fewer neighbours than 32 bits count.
        start as u32
    }

    /// Neighbours that a list with so many has room for.
    fn room(&self, count: usize) -> usize {
        if count == 0 {
            return 0;
        }
        if self.threshold < LOW_THRESHOLD {
            return self.top_k;
        }
        let mut room = GROWTH;
        while room < count {
            room *= GROWTH;
        }
        room.min(self.top_k)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn lists_keep_the_best_of_what_they_were_offered(
            offered in prop::collection::vec((0usize..5, 0u32..100, 0u8..10), 0..400),
            top_k in 1usize..40,
            threshold in prop::sample::select(vec![f32::NEG_INFINITY, 0.5]),
        ) {
            let mut lists = ScoredLists::new(5, (top_k, threshold));
            let mut all = vec![Vec::new(); 5];
            for (row, column, similarity) in offered {
                let neighbour = Neighbour { column, similarity: f32::from(similarity) / 10.0 };
                if all[row].iter().any(|other: &Neighbour| other.column == column) {
                    continue;
                }
                let last = lists.insert(row, neighbour);
                all[row].push(neighbour);
                let mut best = all[row].clone();
                best.retain(|neighbour| neighbour.similarity >= threshold);
                best.sort_unstable_by(Neighbour::rank);
                best.truncate(top_k);
                prop_assert_eq!(last, best.get(top_k - 1).copied());
                let mut found = Vec::new();
                lists.finish(row, &mut found);
                prop_assert_eq!(found, best);
            }
        }
    }

    #[test]
    fn lists_without_neighbours_take_no_room_and_left_room_is_taken_again() {
        let mut lists = ScoredLists::new(64, (10, 0.5));
        assert_eq!(lists.places.capacity(), 0);
        let mut offer = |row: usize, columns: std::ops::Range<u32>| {
            columns.for_each(|column| _ = lists.insert(row, Neighbour { column, similarity: 0.5 }));
            lists.places.len()
        };
        assert_eq!(offer(3, 0..4), 4);
        assert_eq!(offer(3, 4..30), 14);
        assert_eq!(offer(60, 0..1), 14);
    }
}
