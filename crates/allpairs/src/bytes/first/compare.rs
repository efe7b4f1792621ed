//! Compares rows that are close in some order, some hundreds with each other.
//!
//! What a row is compared with is dealt out to places, and of each place the best is kept; so the best of the places are
//! a little worse than the best of the rows, since some share a place. Instead of the lowest bits a score at a place has
//! the number of the panel that it is from, which tells the row.

use super::Wanted;
use super::best::{Best, Found, key, score};
use crate::bytes::{ColumnPanels, RowPanels, Scales};
use crate::dense::DenseRows;
use crate::machine::Vectors;
use crate::machine::bytes::{Greatest, Kernel, NUMBERED, numbered};
use rayon::prelude::*;
use std::ops::Range;

/// Rows that are compared with each other, if not many are wanted.
const COMPARED_TOGETHER: usize = 480;

/// Rows of a group: those of one group are compared with each other both ways, those of two groups once. A multiple of
/// the rows and the columns of all tiles.
const GROUP: usize = 96;

/// Where the best of what a row is compared with are kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    /// Rows of a tile.
    height: usize,
    /// Columns of a tile.
    width: usize,
    /// Panels of columns, or of rows, with places of their own; those behind them share these places in turn.
    of_columns: usize,
    of_rows: usize,
    /// Rows that are compared with each other.
    pub(super) together: usize,
}

impl Layout {
    pub(super) fn new(top_k: usize, kernel: Kernel) -> Self {
        let (height, width) = (kernel.rows(), kernel.columns());
        // Twice as many places as are needed, one of them for the row itself.
        let [of_rows, of_columns] = [height, width].map(|places| (2 * (top_k + 1)).div_ceil(places));
        let together = COMPARED_TOGETHER.max((4 * of_columns * width).next_multiple_of(GROUP));
        debug_assert!(
            (2 * together).div_ceil(height * of_rows) <= NUMBERED,
            "panels have numbers of their own"
        );
        Self { height, width, of_columns, of_rows, together }
    }

    /// Pairs that are compared for each row on average: those of one group twice.
    pub(super) fn pairs_of_a_row(&self) -> usize {
        (self.together + GROUP) / 2
    }

    /// The places of a panel for another one that is compared with it, of which so many have places of their own.
    fn places<'a>(
        &self,
        scores: &'a mut [f32],
        (panel, apart): (usize, usize),
        other: usize,
    ) -> Greatest<'a> {
        let tile = self.height * self.width;
        let scores = &mut scores[(panel * apart + other % apart) * tile..][..tile];
        Greatest { scores, number: (other / apart) as u8 }
    }

    /// Forgets what is at the places of so many panels.
    fn reset(&self, scores: &mut Vec<f32>, panels: usize) {
        scores.clear();
        scores.resize(panels * self.height * self.width, f32::NEG_INFINITY);
    }
}

/// One thread's room to compare rows in.
struct Room {
    rows: RowPanels,
    columns: ColumnPanels,
    /// What is best for the rows of one group, and for all columns that are rows of other groups.
    for_rows: Vec<f32>,
    for_columns: Vec<f32>,
    above: Vec<(u32, f32)>,
    keys: Vec<i32>,
    found: Vec<Found>,
}

/// Rows that are compared with each other.
struct Piece {
    /// Those that get floors.
    rows: Vec<u32>,
    /// Those that may be neighbours.
    columns: Vec<u32>,
    /// How many rows come first of the columns too: all or none.
    shared: usize,
}

impl Piece {
    /// Those that may be neighbours themselves with all that may be, and the others with these.
    fn both(rows: &[u32], wanted: &Wanted) -> [Self; 2] {
        let is = |row: &u32, kind: (bool, bool)| {
            let row = *row as usize;
            (wanted.has_floor(row), wanted.others.contains(&row)) == kind
        };
        let those = |kind| rows.iter().copied().filter(move |row| is(row, kind));
        let shared: Vec<u32> = those((true, true)).collect();
        let columns: Vec<u32> = shared.iter().copied().chain(those((false, true))).collect();
        let apart = Self { rows: those((true, false)).collect(), columns: columns.clone(), shared: 0 };
        [Self { shared: shared.len(), rows: shared, columns }, apart]
    }
}

/// Compares rows of a matrix.
pub(super) struct Comparer<'a> {
    pub(super) matrix: (&'a DenseRows, &'a Scales),
    pub(super) kernel: Kernel,
    pub(super) wanted: Wanted<'a>,
    pub(super) layout: Layout,
    pub(super) vectors: Vectors,
}

impl Comparer<'_> {
    /// Compares rows that are close to each other in this order.
    pub(super) fn compare(&self, order: &[u32], best: &Best) {
        let room = || Room {
            rows: RowPanels::new(self.kernel),
            columns: ColumnPanels::new(self.kernel),
            for_rows: Vec::new(),
            for_columns: Vec::new(),
            above: Vec::new(),
            keys: Vec::new(),
            found: Vec::new(),
        };
        // What is left over joins the last piece.
        let (together, pieces) = (self.layout.together, (order.len() / self.layout.together).max(1));
        (0..pieces).into_par_iter().for_each_init(room, |room, at| {
            let end = if at + 1 == pieces { order.len() } else { (at + 1) * together };
            for piece in Piece::both(&order[at * together..end], &self.wanted) {
                if !self.wanted.stopped() && !piece.rows.is_empty() {
                    self.compare_piece(&piece, room, best);
                }
            }
        });
    }

    /// Compares the rows of a piece with each other: those of a group with each other and with what comes behind them,
    /// which also serves rows there that have floors of their own.
    fn compare_piece(&self, piece: &Piece, room: &mut Room, best: &Best) {
        let Layout { height, width, of_rows, of_columns, .. } = self.layout;
        room.rows.pack(self.matrix, piece.rows.iter().map(|row| *row as usize));
        room.columns.pack(self.matrix, piece.columns.iter().map(|row| *row as usize));
        self.layout.reset(&mut room.for_columns, piece.shared.div_ceil(width) * of_rows);
        for first in (0..piece.rows.len()).step_by(GROUP) {
            let end = piece.rows.len().min(first + GROUP);
            self.layout.reset(&mut room.for_rows, GROUP / height * of_columns);
            let is_shared = first < piece.shared;
            let begin = if is_shared { first / width } else { 0 };
            let mirrored = (first + GROUP) / width..if is_shared { piece.shared.div_ceil(width) } else { 0 };
            for panel in first / height..end.div_ceil(height) {
                for column_panel in begin..piece.columns.len().div_ceil(width) {
                    let own = (panel - first / height, of_columns);
                    let for_rows = self.layout.places(&mut room.for_rows, own, column_panel);
                    let for_columns = mirrored
                        .contains(&column_panel)
                        .then(|| self.layout.places(&mut room.for_columns, (column_panel, of_rows), panel));
                    let (rows, columns) = (room.rows.panel(panel), room.columns.panel(column_panel));
                    self.kernel.raise(rows, columns, for_rows, for_columns);
                }
            }
            self.join(piece, first..end, (room, best));
        }
    }

    /// Takes in what was found for the rows of a group.
    fn join(&self, piece: &Piece, group: Range<usize>, (room, best): (&mut Room, &Best)) {
        let Layout { height, width, of_rows, of_columns, .. } = self.layout;
        for (at, row) in group.clone().zip(&piece.rows[group.clone()]) {
            let mut last = best.last(*row as usize);
            room.found.clear();
            let (panel, place) = ((at - group.start) / height, at % height);
            // What fills up a last panel is no row, but may be above some: then all are taken in.
            if last == f32::NEG_INFINITY && piece.columns.len().is_multiple_of(width) {
                let places = |turn| ((panel * of_columns + turn) * height + place) * width;
                let scores = (0..of_columns).flat_map(|turn| &room.for_rows[places(turn)..][..width]);
                last = self.first_last(scores, &mut room.keys);
            }
            for turn in 0..of_columns {
                let places =
                    &room.for_rows[((panel * of_columns + turn) * height + place) * width..][..width];
                for (lane, score) in above(last, places.iter(), &mut room.above) {
                    let (least, number) = numbered(*score);
                    let other = piece.columns.get((number * of_columns + turn) * width + *lane as usize);
                    room.found.extend(other.map(|other| Found::new(least, *other)));
                }
            }
            if at < piece.shared && group.start > 0 {
                let (panel, lane) = (at / width, at % width);
                let places = &room.for_columns[panel * of_rows * height * width + lane..];
                let places = places.iter().step_by(width).take(of_rows * height);
                for (place, score) in above(last, places, &mut room.above) {
                    let ((least, number), place) = (numbered(*score), *place as usize);
                    let panel = number * of_rows + place / height;
                    let other = piece.rows.get(panel * height + place % height);
                    room.found.extend(other.map(|other| Found::new(least, *other)));
                }
            }
            room.found.retain(|found| found.row() != *row as usize);
            best.join(*row as usize, &mut room.found);
        }
    }

    /// A score that at least as many as are wanted are above, besides the row itself, since most are better than nothing.
    fn first_last<'a>(&self, scores: impl Iterator<Item = &'a f32>, keys: &mut Vec<i32>) -> f32 {
        keys.clear();
        keys.extend(scores.map(|score| key(*score)));
        let rank = keys.len().min(self.wanted.top_k + 1);
        // Equal ones are above it.
        score((self.vectors.greatest(keys, rank) - 1).max(key(f32::NEG_INFINITY)))
    }
}

/// The scores above the last one, with their places.
fn above<'a, 'b>(
    last: f32,
    scores: impl ExactSizeIterator<Item = &'a f32>,
    room: &'b mut Vec<(u32, f32)>,
) -> &'b [(u32, f32)] {
    room.resize(scores.len(), (0, 0.0));
    let mut count = 0;
    for (place, score) in scores.enumerate() {
        // Written whether it is above or not, so that nothing depends on a guess of the machine.
        room[count] = (place as u32, *score);
        count += usize::from(*score > last);
    }
    &room[..count]
}
