//! Which way parts are joined: as text, as arrays, or as tables of typed columns.
//!
//! Where parts and output have the same text format, rows stay the text they are; Arrow comes in only where types
//! are needed.

mod csv;
mod jsonl;
mod npy;
mod npz;

use crate::error::MergeError;
use crate::format::Format;
use crate::options::{Order, Progress};
use crate::part::Part;
use crate::scratch::Scratch;
use crate::table;

/// Rows between two calls of progress.
const PROGRESS_STEP: u64 = 1 << 16;

/// What every way of joining needs.
#[derive(Clone, Copy)]
pub(crate) struct Joining<'a> {
    /// In host order.
    pub(crate) parts: &'a [Part],
    pub(crate) scratch: &'a Scratch,
    /// Bytes of rows to hold while sorting.
    pub(crate) memory: usize,
    pub(crate) progress: &'a dyn Fn(Progress),
}

/// Joins the parts into the scratch result and returns its rows.
pub(crate) fn join(
    joining: &Joining<'_>,
    from: Format,
    to: Format,
    order: &Order,
) -> Result<u64, MergeError> {
    match (from, to, order) {
        (Format::Npy, Format::Npy, Order::Host) => npy::join(joining),
        (Format::Npz, Format::Npz, Order::Host) => npz::join(joining),
        (Format::Npy, Format::Npy, Order::Column(column))
        | (Format::Npz, Format::Npz, Order::Column(column)) => {
            Err(MergeError::NoNames { column: column.clone() })
        }
        (Format::Npy | Format::Npz, _, _) | (_, Format::Npy | Format::Npz, _) => {
            Err(MergeError::Conversion { from, to })
        }
        (Format::Csv, Format::Csv, _) => csv::join(joining, order),
        (Format::Jsonl, Format::Jsonl, _) => jsonl::join(joining, order),
        _ => table::join(joining, from, to, order),
    }
}

/// Counts what is written, and tells of it.
pub(crate) struct Tally<'a> {
    progress: &'a dyn Fn(Progress),
    pub(crate) parts: usize,
    pub(crate) rows: u64,
}

impl<'a> Tally<'a> {
    pub(crate) fn new(joining: &Joining<'a>) -> Self {
        Self { progress: joining.progress, parts: 0, rows: 0 }
    }

    pub(crate) fn add_rows(&mut self, rows: u64) {
        let before = self.rows / PROGRESS_STEP;
        self.rows += rows;
        if self.rows / PROGRESS_STEP > before {
            self.tell();
        }
    }

    pub(crate) fn finish_part(&mut self) {
        self.parts += 1;
        self.tell();
    }

    /// All parts are written.
    pub(crate) fn finish(mut self, parts: usize) -> u64 {
        self.parts = parts;
        self.tell();
        self.rows
    }

    fn tell(&self) {
        (self.progress)(Progress::Joined { parts: self.parts, rows: self.rows });
    }
}
