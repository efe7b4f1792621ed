//! What a host says about its work, as files beside its part.

use crate::histogram::Histogram;
use serde::Serialize;
use std::io;
use std::path::Path;

/// Zero rows that a report lists by number.
const LISTED_ZERO_ROWS: usize = 100;

/// The report of one host, written as `report-<host>.json`; `report-<host>.svg` shows its scores.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TrainReport {
    /// The host.
    pub host: String,
    /// Rows of the whole matrix.
    pub matrix_rows: u64,
    /// Columns of the matrix.
    pub matrix_columns: u64,
    /// Rows of the query, if there is one.
    pub query_rows: Option<u64>,
    /// First row of this host, of the query if there is one.
    pub first_row: u64,
    /// Rows of this host.
    pub rows: u64,
    /// Whether hosts shared out pairs instead of rows: then the lists of the parts are to be combined, and each score
    /// served two rows.
    pub symmetric: bool,
    /// Pairs written, each row with each of its neighbours.
    pub pairs: u64,
    /// Rows of this host whose entries are all zero. They score 0 with every row.
    pub zero_rows: ZeroRows,
    /// Rows of the whole matrix (and the query) that equal an earlier one: their 128-bit hashes are equal.
    pub duplicate_rows: u64,
    /// Rows of the whole matrix (and the query) that had norm 1, to a millionth, as they came.
    pub unit_rows: u64,
    /// Whether all rows that are not zero had norm 1 as they came.
    pub already_normalised: bool,
    /// Bytes of the files that were read.
    pub bytes_read: u64,
    /// Seconds from the start of reading to the finished part.
    pub seconds: f64,
    /// Seconds of these that were spent on comparing and writing.
    pub compare_seconds: f64,
    /// Rows of this host a second.
    pub rows_per_second: f64,
    /// Pairs of rows that were compared, each row of this host with each other row, whether or not they were skipped
    /// as too far apart.
    pub compared_pairs: u64,
    /// Of these a second of comparing and writing.
    pub compared_pairs_per_second: f64,
    /// Threads used.
    pub threads: u64,
    /// Multiplications and additions of float32 a second of these threads, in 10⁹, measured in 1 ms after the work.
    /// `None` for work of less than 0.2 s.
    pub peak_gflops: Option<f64>,
    /// What comparing all pairs one by one takes, two operations a column, by what the machine can do in that time.
    /// Above 1 where work is saved: pairs serve two rows, and narrower numbers decide most. `None` for sparse rows and
    /// for work of less than 0.2 s.
    pub share_of_peak: Option<f64>,
    /// How often which scores are in the result.
    pub scores: Histogram,
}

impl TrainReport {
    /// Writes the report as two files of that name, with the endings `.json` and `.svg`.
    pub(crate) fn write(&self, name: &Path) -> io::Result<()> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        let title = format!("{} pairs of {} x {}", self.pairs, self.matrix_rows, self.matrix_columns);
        fs_err::write(with_ending(name, ".json"), text)?;
        fs_err::write(with_ending(name, ".svg"), self.scores.svg(&title))
    }
}

fn with_ending(name: &Path, ending: &str) -> std::path::PathBuf {
    let mut name = name.as_os_str().to_owned();
    name.push(ending);
    name.into()
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
