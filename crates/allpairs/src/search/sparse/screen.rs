//! Sparse rows in blocks: sums over all columns but the frequent ones for whole blocks at a time, a bound for the
//! rest, and scores as defined for whoever may matter.
//!
//! The rows of a block are turned by columns, so that one row of the other side adds its products to the sums of all
//! rows of the block that share a column with it. The sums of a block fit the first cache.

use super::by_row::ByRow;
use super::frequent::Frequent;
use super::prefix::{Prefixes, Signature, unsigned};
use crate::machine::{Lanes, Limits, Sift};
use crate::neighbours::{Best, Neighbour};
use crate::quantised::Margin;
use crate::score::score;
use crate::search::blocks::{Block, Board, Found, Hit, Side, Worker};
use crate::search::candidates::Scorer;
use crate::search::share::Share;
use crate::search::{BLOCKS_PER_THREAD, Ended, Search};
use crate::sparse::SparseRows;
use std::ops::Range;

/// Rows of a block: their sums take half of a first-level cache.
const BLOCK_ROWS: usize = 8192;

/// Rows of a block that are known by signatures: these take half of a second-level cache.
const SIGNATURE_ROWS: usize = 1 << 15;

/// Pairs are handed over once there are so many.
const HITS: usize = 512;

/// Rows of the other side between two looks at the stop flag.
const STOP_STEP: usize = 256;

/// A search over a sparse matrix.
pub(in crate::search) struct SparseScreen<'a> {
    board: Board<'a>,
    share: &'a Share,
    matrix: &'a SparseRows,
    frequent: Frequent,
    /// Used instead of sums if it is there.
    prefixes: Option<Prefixes>,
    /// Each entry over the norm of its row.
    weights: Vec<f32>,
    lanes: Lanes,
    sift: Sift,
}

impl<'a> SparseScreen<'a> {
    pub(in crate::search) fn new(
        search: &'a Search<'a>,
        share: &'a Share,
        matrix: &'a SparseRows,
        margin: Margin,
    ) -> Self {
        let weights_of =
            |row: usize| matrix.row(row).iter().map(move |entry| (entry.value / matrix.norms[row]) as f32);
        let frequent = Frequent::choose(matrix, &search.selection);
        let prefixes = Prefixes::if_cheaper(matrix, search.selection.threshold, frequent.cost);
        Self {
            // Pairs without a common column are never looked at.
            board: Board::new(search, margin, margin.positive()),
            share,
            matrix,
            frequent,
            prefixes,
            weights: (0..matrix.rows()).flat_map(weights_of).collect(),
            lanes: Lanes::best(),
            sift: Sift::best(),
        }
    }

    /// The same by signatures or by sums, whatever is cheaper.
    #[cfg(test)]
    pub(in crate::search) fn by_signatures(mut self, wanted: bool) -> Self {
        let threshold = self.board.search.selection.threshold;
        let prefixes = Prefixes::if_cheaper(self.matrix, threshold, f64::INFINITY);
        self.prefixes = prefixes.filter(|_| wanted);
        self
    }

    /// Hands the neighbours of each row to `take`, rows in order.
    pub(in crate::search) fn run<E>(
        &self,
        mut take: impl FnMut(usize, &[Neighbour]) -> Result<(), E> + Send,
    ) -> Result<(), Ended<E>> {
        let search = self.board.search;
        if !search.can_keep_lists(self.share) {
            return search.run_unscreened(self.share, take);
        }
        let new_block = |rows| Block::new(rows, &self.board, |row| self.matrix.norms[row] > 0.0);
        let blocks = self.board.compare(self.share, self.block_rows(), &new_block, &|| Room::new(self));
        match blocks {
            _ if search.stopped() => Err(Ended::Stopped),
            Some(blocks) => blocks
                .into_iter()
                .try_for_each(|block| self.board.hand_over(block, &|| SparseScorer::new(self), &mut take)),
            None => search.run_unscreened(self.share, take),
        }
    }

    /// Long lists are walked through faster, but all threads need blocks.
    fn block_rows(&self) -> usize {
        let most = if self.prefixes.is_some() { SIGNATURE_ROWS } else { BLOCK_ROWS };
        (self.share.own.len() / (BLOCKS_PER_THREAD * rayon::current_num_threads())).clamp(BLOCK_ROWS, most)
    }

    fn weights(&self, row: usize) -> &[f32] {
        &self.weights[self.matrix.offset(row)..self.matrix.offset(row + 1)]
    }

    /// Entries of a row in columns by which it is looked for.
    fn summed(&self, row: usize) -> impl Iterator<Item = (usize, f32)> {
        let entries = self.matrix.row(row).iter().zip(self.weights(row));
        let entries = entries.map(|(entry, weight)| (entry.column as usize, *weight));
        entries.filter(move |(column, _)| match &self.prefixes {
            Some(prefixes) => prefixes.holds(row, *column),
            None => !self.frequent.columns[*column],
        })
    }
}

/// Scores pairs of sparse rows.
struct SparseScorer<'a> {
    screen: &'a SparseScreen<'a>,
    /// The row at hand, spread out over all used columns.
    spread: Vec<f64>,
    held: Option<usize>,
    by_row: Option<ByRow<'a>>,
}

impl<'a> SparseScorer<'a> {
    fn new(screen: &'a SparseScreen<'a>) -> Self {
        Self { screen, spread: vec![0.0; screen.matrix.used_columns()], held: None, by_row: None }
    }

    fn hold(&mut self, row: usize) {
        if let Some(held) = self.held {
            self.screen.matrix.row(held).iter().for_each(|entry| self.spread[entry.column as usize] = 0.0);
        }
        self.screen.matrix.row(row).iter().for_each(|entry| self.spread[entry.column as usize] = entry.value);
        self.held = Some(row);
    }
}

impl Scorer for SparseScorer<'_> {
    fn score(&mut self, row: usize, other: usize) -> f32 {
        if self.held != Some(row) {
            self.hold(row);
        }
        let matrix = self.screen.matrix;
        score(matrix.dot(other, &self.spread), matrix.norms[row], matrix.norms[other])
    }

    fn margin(&self) -> Margin {
        self.screen.board.margin
    }

    /// Of scores that may be zero or less, none was looked at: if some of them belong to the list, the row is done
    /// anew by itself.
    fn complete(&mut self, row: usize, best: Best) -> Vec<Neighbour> {
        let (search, share) = (self.screen.board.search, self.screen.share);
        let selection = &search.selection;
        let margin = self.screen.board.margin;
        let sees_all = match (selection.threshold, selection.top_k) {
            (Some(threshold), _) if margin.is_positive(threshold) => true,
            (_, Some(top_k)) => best.count_above(margin.surely_positive()) >= top_k,
            (_, None) => false,
        };
        if sees_all {
            return best.finish();
        }
        let by_row = self.by_row.get_or_insert_with(|| ByRow::new(self.screen.matrix));
        by_row.neighbours(row, &share.partners(row), selection)
    }
}

/// As many sums as places of 16 bits count, so that none needs a check; each vector of them in one line of the cache.
#[repr(align(64))]
struct Sums([f32; 1 << 16]);

/// One thread's room to work in.
struct Room<'a> {
    screen: &'a SparseScreen<'a>,
    scorer: SparseScorer<'a>,
    turned: Turned,
    /// First row of the block that is turned.
    loaded: Option<usize>,
    /// The sums of a block's rows; all zero between two rows of the other side.
    sums: Box<Sums>,
    limits: Limits,
    floors: Vec<i32>,
    passed: Vec<u16>,
    hits: Vec<Hit>,
    mirrored_hits: Vec<Hit>,
}

impl<'a> Room<'a> {
    fn new(screen: &'a SparseScreen<'a>) -> Self {
        Self {
            screen,
            scorer: SparseScorer::new(screen),
            turned: Turned::default(),
            loaded: None,
            sums: Box::new(Sums([0.0; 1 << 16])),
            limits: Limits::default(),
            floors: Vec::new(),
            passed: Vec::new(),
            hits: Vec::new(),
            mirrored_hits: Vec::new(),
        }
    }

    fn load_floors(&mut self, block: &Block) {
        self.floors.resize(block.rows.len(), i32::MAX);
        block.load_floors(0, &mut self.floors);
        let floors = self.turned.order.iter().map(|at| Margin::short(self.floors[usize::from(*at)]));
        self.limits.set_floors(floors);
    }

    /// Compares all rows of the block with one other row.
    fn compare(&mut self, block: &Block, other: usize, side: Side) {
        let screen = self.screen;
        let mut floor = [i32::MAX];
        if let Some(mirror) = side.mirror {
            mirror.load_floors(other - mirror.rows.start, &mut floor);
        }
        let floor = Margin::short(floor[0]);
        self.passed.clear();
        match &screen.prefixes {
            Some(prefixes) => self.sift(prefixes, other),
            None => self.add_up(other, floor),
        }
        for at in 0..self.passed.len() {
            let at = usize::from(self.passed[at]);
            let row = block.rows.start + usize::from(self.turned.order[at]);
            // Within one block each pair is seen once.
            if row < other || (row > other && !side.later_only) {
                self.note(row, other, (self.limits.floor(at), floor));
            }
        }
    }

    /// Passes the rows that may reach the floors by their sums.
    fn add_up(&mut self, other: usize, floor: f32) {
        for (column, weight) in self.screen.summed(other) {
            self.turned.add(column, weight, &mut self.sums.0);
        }
        let sums = &mut self.sums.0[..self.limits.rests.len()];
        let rest = self.screen.frequent.rests[other];
        self.screen.lanes.pass(sums, &self.limits, (rest, floor), &mut self.passed);
    }

    /// Passes the rows that may reach the threshold by their signatures.
    fn sift(&mut self, prefixes: &Prefixes, other: usize) {
        let one = unsigned(&prefixes.signatures[other]);
        for (column, _) in self.screen.summed(other) {
            let rows = (self.turned.places(column), self.turned.signatures.as_slice());
            self.screen.sift.pass((&one, prefixes.least), rows, &mut self.passed);
        }
        self.passed.sort_unstable();
        self.passed.dedup();
    }

    fn note(&mut self, row: usize, other: usize, floors: (f32, f32)) {
        let similarity = self.scorer.score(other, row);
        let found = Found::Score(similarity);
        if similarity > floors.0 {
            self.hits.push(Hit { row, column: other as u32, found });
        }
        if similarity > floors.1 {
            self.mirrored_hits.push(Hit { row: other, column: row as u32, found });
        }
    }

    fn hand_hits(&mut self, block: &Block, mirror: Option<&Block>) {
        block.take(&mut self.hits, &self.screen.board, &mut self.scorer);
        if let Some(mirror) = mirror {
            mirror.take(&mut self.mirrored_hits, &self.screen.board, &mut self.scorer);
        }
    }
}

impl Worker for Room<'_> {
    fn load(&mut self, block: &Block) {
        if self.loaded == Some(block.rows.start) {
            return;
        }
        self.turned.turn(self.screen, block.rows.clone());
        let rests = &self.screen.frequent.rests[block.rows.clone()];
        self.limits.set_rests(self.turned.order.iter().map(|at| rests[usize::from(*at)]));
        self.loaded = Some(block.rows.start);
    }

    fn meet(&mut self, block: &Block, side: Side) {
        let board = &self.screen.board;
        self.load_floors(block);
        for other in side.rows() {
            if (other - side.first).is_multiple_of(STOP_STEP)
                && (board.search.stopped() || board.has_too_many(0.0))
            {
                return;
            }
            if self.screen.matrix.norms[other] == 0.0 {
                continue;
            }
            self.compare(block, other, side);
            if self.hits.len().max(self.mirrored_hits.len()) >= HITS {
                self.hand_hits(block, side.mirror);
                self.load_floors(block);
            }
        }
        self.hand_hits(block, side.mirror);
    }
}

/// The rows of a block by columns.
#[derive(Default)]
struct Turned {
    /// The rows by what they have in frequent columns; in what follows they are known by their place in it.
    order: Vec<u16>,
    /// Where each column begins in the others, and their length at the end.
    offsets: Vec<u32>,
    places: Vec<u16>,
    /// Signatures of the rows, if these are used.
    signatures: Vec<Signature>,
    weights: Vec<f32>,
}

impl Turned {
    fn turn(&mut self, screen: &SparseScreen, block: Range<usize>) {
        let rests = &screen.frequent.rests[block.clone()];
        // A block has fewer rows than 16 bits count.
        self.order.clear();
        self.order.extend(0..block.len() as u16);
        self.order.sort_unstable_by(|a, b| rests[usize::from(*a)].total_cmp(&rests[usize::from(*b)]));
        self.signatures.clear();
        if let Some(prefixes) = &screen.prefixes {
            let of_rows = &prefixes.signatures[block.clone()];
            self.signatures.extend(self.order.iter().map(|row| of_rows[usize::from(*row)]));
        }
        self.offsets.clear();
        self.offsets.resize(screen.matrix.used_columns() + 2, 0);
        for row in block.clone() {
            screen.summed(row).for_each(|(column, _)| self.offsets[column + 2] += 1);
        }
        for column in 2..self.offsets.len() {
            self.offsets[column] += self.offsets[column - 1];
        }
        let entries = self.offsets[self.offsets.len() - 1] as usize;
        self.places.resize(entries, 0);
        self.weights.resize(entries, 0.0);
        for (place, row) in self.order.iter().enumerate() {
            for (column, weight) in screen.summed(block.start + usize::from(*row)) {
                let at = self.offsets[column + 1] as usize;
                self.offsets[column + 1] += 1;
                self.places[at] = place as u16;
                self.weights[at] = weight;
            }
        }
    }

    /// The rows that have a column.
    fn places(&self, column: usize) -> &[u16] {
        &self.places[self.offsets[column] as usize..self.offsets[column + 1] as usize]
    }

    /// Adds the products of a weight with all rows of a column to their sums.
    #[inline]
    fn add(&self, column: usize, weight: f32, sums: &mut [f32; 1 << 16]) {
        let range = self.offsets[column] as usize..self.offsets[column + 1] as usize;
        for (place, other) in self.places[range.clone()].iter().zip(&self.weights[range]) {
            sums[usize::from(*place)] += weight * other;
        }
    }
}
