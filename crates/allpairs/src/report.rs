//! What a host says about its work, as a file beside its part.

use serde::Serialize;

/// Zero rows that a report lists by number.
const LISTED_ZERO_ROWS: usize = 100;

/// The report of one host, written as `report-<host>.json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TrainReport {
    /// The host.
    pub host: String,
    /// Rows of the whole matrix.
    pub matrix_rows: u64,
    /// Columns of the matrix.
    pub matrix_columns: u64,
    /// First row of this host.
    pub first_row: u64,
    /// Rows of this host.
    pub rows: u64,
    /// Pairs written, each row with each of its neighbours.
    pub pairs: u64,
    /// Rows of this host whose entries are all zero. They score 0 with every row.
    pub zero_rows: ZeroRows,
    /// Seconds from the start of reading to the finished part.
    pub seconds: f64,
    /// Rows of this host a second.
    pub rows_per_second: f64,
    /// Threads used.
    pub threads: u64,
}

/// Rows whose entries are all zero.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ZeroRows {
    /// How many there are.
    pub count: u64,
    /// The first hundred of them.
    pub first: Vec<u64>,
}

impl ZeroRows {
    /// Finds them by their norms; `first_row` is the number of the first norm's row.
    pub(crate) fn of(norms: &[f64], first_row: u64) -> Self {
        let rows = || (first_row..).zip(norms).filter(|(_, norm)| **norm == 0.0).map(|(row, _)| row);
        Self { count: rows().count() as u64, first: rows().take(LISTED_ZERO_ROWS).collect() }
    }
}
