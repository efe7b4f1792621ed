//! The whole matrix of scores, written in strips of rows as one `.npy` file.
//!
//! Scores are sums in float32 of the products of unit rows (see [`crate::machine::FloatKernel`]), which is half the
//! work of float64 and as exact as the numbers that are written, to about one part in ten million. A strip is
//! written while the next one is computed. Where a sum is so near to 1 or −1 that it may be a copy or an opposite,
//! the score of the definition takes its place: copies score exactly 1.

mod strip;
mod write;

use crate::histogram::Histogram;
use crate::machine::FloatKernel;
use crate::matrix::{Loaded, Matrix};
use crate::output::PartError;
use crate::settings::Measure;
use crate::train::{Progress, TrainError};
use crate::work::Tally;
use rayon::prelude::*;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use strip::DenseStrips;
use write::StripWriter;

/// Bytes that one host writes without being forced to.
const MOST_BYTES: u64 = 10 << 30;

/// Bytes of a strip, unless that would be too few rows to be worth packing the others for.
const STRIP_BYTES: usize = 32 << 20;

/// The fewest rows of a strip.
const STRIP_ROWS: usize = 96;

/// What to write.
pub(crate) struct Full<'a> {
    pub(crate) loaded: &'a Loaded,
    pub(crate) measure: Measure,
    pub(crate) force: bool,
    /// The rows whose scores are written.
    pub(crate) rows: Range<usize>,
    pub(crate) path: &'a Path,
    pub(crate) stop: &'a AtomicBool,
    pub(crate) progress: &'a (dyn Fn(Progress) + Sync),
    pub(crate) note: &'a (dyn Fn(&str) + Sync),
}

impl Full<'_> {
    /// Writes the scores of all own rows with all rows of the matrix.
    pub(crate) fn run(&self) -> Result<Tally, TrainError> {
        let others = self.loaded.query_rows..self.loaded.matrix.rows();
        self.check_size(others.len())?;
        let mut writer = StripWriter::create(self.path, (self.rows.len(), others.len()))?;
        let strips = match &self.loaded.matrix {
            Matrix::Dense(matrix) => Some(DenseStrips::new(matrix, others.clone(), best_kernel())),
            Matrix::Sparse(_) => None,
        };
        let mut tally = Tally::default();
        let strip_rows = (STRIP_BYTES / (4 * others.len())).max(STRIP_ROWS);
        for start in self.rows.clone().step_by(strip_rows) {
            let rows = start..self.rows.end.min(start + strip_rows);
            let mut strip = writer.buffer(rows.len() * others.len())?;
            let scores = strip.scores();
            match (&strips, &self.loaded.matrix) {
                (Some(strips), _) => strips.fill(rows.clone(), scores, self.stop),
                (None, Matrix::Sparse(matrix)) => strip::fill_sparse(matrix, (rows.clone(), &others), scores),
                (None, Matrix::Dense(_)) => {}
            }
            if self.stop.load(Ordering::Relaxed) {
                return Err(TrainError::Stopped);
            }
            tally.pairs += scores.len() as u64;
            tally.scores.add(&measure(scores, others.len(), self.measure));
            writer.write(strip)?;
            let rows_done = (rows.end - self.rows.start) as u64;
            (self.progress)(Progress { rows_done, rows: self.rows.len() as u64, pairs: tally.pairs });
        }
        writer.finish()?;
        Ok(tally)
    }

    fn check_size(&self, columns: usize) -> Result<(), TrainError> {
        let bytes = 4 * self.rows.len() as u64 * columns as u64;
        if bytes > MOST_BYTES && !self.force {
            return Err(TrainError::FullSize {
                rows: self.rows.len() as u64,
                columns: columns as u64,
                bytes,
            });
        }
        let (rows, gib) = (self.rows.len(), bytes as f64 / f64::from(1 << 30));
        (self.note)(&format!("writing {rows} x {columns} scores: {bytes} bytes ({gib:.2} GiB)"));
        Ok(())
    }
}

fn best_kernel() -> FloatKernel {
    // There is always the portable one.
    FloatKernel::available()[0]
}

/// Counts the scores and turns them into what is asked for.
fn measure(scores: &mut [f32], columns: usize, measure: Measure) -> Histogram {
    scores
        .par_chunks_mut(columns)
        .map(|row| {
            let mut histogram = Histogram::default();
            for score in row {
                histogram.count(*score);
                *score = crate::output::measured(*score, measure);
            }
            histogram
        })
        .reduce(Histogram::default, |mut one, other| {
            one.add(&other);
            one
        })
}

impl From<std::io::Error> for TrainError {
    fn from(error: std::io::Error) -> Self {
        Self::Part(PartError::Io(error))
    }
}
