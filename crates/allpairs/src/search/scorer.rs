//! Scores pairs of dense rows as they are defined, and before that in 16-bit integers if the search is in bytes.

use super::candidates::{Scorer, TOGETHER};
use super::screen::Screen;
use crate::bytes::Scales;
use crate::machine::prefetch;
use crate::neighbours::Neighbour;
use crate::quantised::Margin;
use crate::score::score;
use crate::words::Room;

/// One thread's room to score in.
pub(super) struct DenseScorer<'a> {
    screen: &'a Screen<'a>,
    own: Vec<f64>,
    /// The row that `own` holds.
    held: Option<usize>,
    other: Vec<f64>,
    /// Rows in 16-bit integers, where they are not held.
    room: Room,
    /// What the bytes stand for that a closer look comes after.
    scales: Option<&'a Scales>,
}

impl<'a> DenseScorer<'a> {
    pub(super) fn new(screen: &'a Screen<'a>) -> Self {
        let stride = screen.matrix.matrix.stride();
        let (own, other) = (vec![0.0; stride], vec![0.0; stride]);
        Self { screen, own, held: None, other, room: Room::default(), scales: screen.scales() }
    }

    fn dot(&mut self, row: usize, other: usize) -> f64 {
        self.hold(row);
        self.screen.matrix.read(other..other + 1, &mut self.other);
        self.screen.vectors.dot(&self.own, &self.other)
    }

    fn hold(&mut self, row: usize) {
        if self.held != Some(row) {
            self.screen.matrix.read(row..row + 1, &mut self.own);
            self.held = Some(row);
        }
    }
}

impl Scorer for DenseScorer<'_> {
    fn score(&mut self, row: usize, other: usize) -> f32 {
        self.score_together(row, &[other])[0]
    }

    fn score_together(&mut self, row: usize, others: &[usize]) -> [f32; TOGETHER] {
        let matrix = self.screen.matrix;
        // What is missing is filled up.
        let all: [usize; TOGETHER] = std::array::from_fn(|at| others.get(at).copied().unwrap_or(row));
        let dots = match (matrix.stored_row(row), all.map(|other| matrix.stored_row(other))) {
            (Some(own), [Some(a), Some(b), Some(c), Some(d)]) => {
                self.screen.vectors.dots_stored(own, [a, b, c, d])
            }
            _ => std::array::from_fn(|at| others.get(at).map_or(0.0, |other| self.dot(row, *other))),
        };
        std::array::from_fn(|at| score(dots[at], matrix.norms[row], matrix.norms[all[at]]))
    }

    fn look(&mut self, row: usize, [a, b, c, d]: [usize; TOGETHER]) -> [i32; TOGETHER] {
        let rows = [row, a, b, c, d].map(|row| row as u32);
        let words = self.screen.matrix.words(&rows, &mut self.room);
        let [own, others @ ..] = [0, 1, 2, 3, 4].map(|at| words.row(at));
        self.screen.vectors.dots_of_words(own, others)
    }

    fn reach_of_look(&self) -> Option<i32> {
        self.scales.map(|_| self.screen.words_margin.positive())
    }

    fn expect(&self, other: usize) {
        if let Some(stored) = self.screen.matrix.stored_row(other) {
            prefetch(stored.as_flattened());
        }
    }

    fn expect_look(&self, other: usize) {
        if let Some(words) = self.scales.and_then(|_| self.screen.matrix.held(other)) {
            prefetch(bytemuck::cast_slice(words));
        }
    }

    fn margin(&self) -> Margin {
        self.screen.board.margin
    }

    fn least(&self, row: usize, other: usize, sum: i32) -> i32 {
        match self.scales {
            Some(scales) => scales.least(sum, row, other),
            None => self.margin().least(sum),
        }
    }

    /// The neighbours of a zero row: it scores 0 with all rows, so the lowest numbers come first.
    fn complete(&mut self, row: usize, neighbours: &mut Vec<Neighbour>) {
        let selection = &self.screen.board.search.selection;
        if self.screen.matrix.norms[row] == 0.0
            && selection.threshold.is_none_or(|threshold| threshold <= 0.0)
        {
            let partners = self.screen.share.partners(row).into_iter().flatten();
            let lowest = partners.filter(|other| *other != row).take(selection.top_k.unwrap_or(usize::MAX));
            neighbours.clear();
            neighbours.extend(lowest.map(|other| Neighbour { column: other as u32, similarity: 0.0 }));
        }
    }
}
