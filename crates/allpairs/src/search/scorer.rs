//! Scores pairs of dense rows as they are defined, and before that in float32 if the search is in bytes.

use super::candidates::{Scorer, TOGETHER};
use super::screen::Screen;
use crate::bytes::Scales;
use crate::machine::prefetch;
use crate::neighbours::Neighbour;
use crate::quantised::Margin;
use crate::score::score;
use crate::single;

/// One thread's room to score in.
pub(super) struct DenseScorer<'a> {
    screen: &'a Screen<'a>,
    own: Vec<f64>,
    /// The row that `own` holds.
    held: Option<usize>,
    other: Vec<f64>,
    closer: Option<Closer<'a>>,
}

/// What a closer look takes.
struct Closer<'a> {
    scales: &'a Scales,
    /// How far its sums are at most from the true ones.
    reach: i32,
}

impl<'a> DenseScorer<'a> {
    pub(super) fn new(screen: &'a Screen<'a>) -> Self {
        let stride = screen.matrix.matrix.stride();
        let (own, other) = (vec![0.0; stride], vec![0.0; stride]);
        let margin = single::margin(screen.matrix.matrix.columns());
        let closer = screen
            .scales()
            .zip(margin)
            .map(|(scales, margin)| Closer { scales, reach: Margin::sum_above(margin) + 2 });
        Self { screen, own, held: None, other, closer }
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
        self.hold(row);
        let matrix = self.screen.matrix;
        let dot = match matrix.stored_row(other) {
            Some(stored) => self.screen.vectors.dots_stored(&self.own, [stored])[0],
            None => {
                matrix.read(other..other + 1, &mut self.other);
                self.screen.vectors.dot(&self.own, &self.other)
            }
        };
        score(dot, matrix.norms[row], matrix.norms[other])
    }

    fn score_together(&mut self, row: usize, others: [usize; TOGETHER]) -> [f32; TOGETHER] {
        let matrix = self.screen.matrix;
        let [Some(a), Some(b), Some(c), Some(d)] = others.map(|other| matrix.stored_row(other)) else {
            return others.map(|other| self.score(row, other));
        };
        self.hold(row);
        let dots = self.screen.vectors.dots_stored(&self.own, [a, b, c, d]);
        std::array::from_fn(|at| score(dots[at], matrix.norms[row], matrix.norms[others[at]]))
    }

    fn look(&mut self, row: usize, others: [usize; TOGETHER]) -> Option<[i32; TOGETHER]> {
        self.closer.as_ref()?;
        let matrix = self.screen.matrix;
        let stored = |row: usize| Some((matrix.stored_row(row)?, matrix.norms[row]));
        let [Some(a), Some(b), Some(c), Some(d)] = others.map(stored) else { return None };
        let scores = single::scores(self.screen.vectors, stored(row)?, [a, b, c, d])?;
        Some(scores.map(Margin::sum_above))
    }

    fn reach_of_look(&self) -> Option<i32> {
        self.closer.as_ref().map(|closer| closer.reach)
    }

    fn expect(&self, other: usize) {
        if let Some(stored) = self.screen.matrix.stored_row(other) {
            prefetch(stored);
        }
    }

    fn margin(&self) -> Margin {
        self.screen.board.margin
    }

    fn least(&self, row: usize, other: usize, sum: i32) -> i32 {
        match &self.closer {
            Some(closer) => closer.scales.least(sum, row, other),
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
