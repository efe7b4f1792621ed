//! The whole matrix of scores, written in strips of rows as one `.npy` file.
//!
//! Scores are sums in float32 of the products of unit rows (see [`crate::machine::FloatKernel`]), which is half the
//! work of float64 and as exact as the numbers that are written, to about one part in ten million. Each
//! thread fills strips of its own, and a further one writes them. Where a sum is so near to 1 or −1 that it may be a copy or an opposite,
//! the score of the definition takes its place: copies score exactly 1.

mod room;
mod strip;
mod write;

use crate::machine::FloatKernel;
use crate::matrix::{Loaded, Matrix};
use crate::output::PartError;
use crate::settings::Measure;
use crate::train::{Progress, TrainError};
use crate::work::Tally;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use strip::{Bench, DenseStrips, fill_sparse};
use write::{StripWriter, Strips};

/// Bytes that one host writes without being forced to.
const MOST_BYTES: u64 = 10 << 30;

/// Bytes of all strips in memory that are taken without asking how much there is. Two threads have strips of 8 MiB
/// then: with less, the packed others are read from memory so often that it takes longer.
const STRIPS_BYTES: usize = 24 << 20;

/// Strips that each thread fills, at least, if there are as many bands.
const STRIPS_OF_A_THREAD: usize = 8;

/// Strips that are being written while each thread fills another one.
const WRITTEN: usize = 1;

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
        let strips = match &self.loaded.matrix {
            Matrix::Dense(matrix) => {
                Some(DenseStrips::new(matrix, others.clone(), best_kernel()).map_err(PartError::Io)?)
            }
            Matrix::Sparse(_) => None,
        };
        let (band, room) = strips.as_ref().map_or((1, 0), |strips| (strips.band(), strips.fair_room()));
        let cut = Cut::new((self.rows.len(), others.len()), band, room, rayon::current_num_threads());
        let room = Strips { count: cut.strips, scores: cut.height * others.len() };
        let writer = StripWriter::create(self.path, (self.rows.len(), others.len()), room)?;
        let tally = Mutex::new(Tally::default());
        let next = AtomicUsize::new(0);
        let filling =
            Filling { full: self, others, strips, height: cut.height, writer: &writer, next, tally: &tally };
        rayon::broadcast(|thread| {
            if thread.index() < cut.threads {
                filling.run();
            }
        });
        if self.stop.load(Ordering::Relaxed) {
            return Err(TrainError::Stopped);
        }
        writer.finish()?;
        Ok(tally.into_inner().unwrap_or_else(PoisonError::into_inner))
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

/// How the rows are cut into strips.
#[derive(Debug, PartialEq)]
struct Cut {
    /// Rows of a strip.
    height: usize,
    /// Threads that fill strips. More would have none to fill.
    threads: usize,
    /// Strips in memory at a time.
    strips: usize,
}

impl Cut {
    /// For so many rows of so many scores each. Strips are some bands of rows high, but for the last one; if that can be,
    /// all in memory take no more than the room, or [`STRIPS_BYTES`] if that is more.
    fn new((rows, columns): (usize, usize), band: usize, room: usize, threads: usize) -> Self {
        let row_bytes = (size_of::<f32>() * columns).max(1);
        let room = room.max(STRIPS_BYTES);
        let fitting = room / ((threads + WRITTEN) * row_bytes);
        // So that in the end no thread waits long for another.
        let even = rows.div_ceil(STRIPS_OF_A_THREAD * threads);
        let height = (fitting.min(even) / band * band).max(band);
        let threads = (room / (height * row_bytes)).saturating_sub(WRITTEN).clamp(1, threads);
        Self { height, threads, strips: threads + WRITTEN }
    }
}

/// Fills strips, each by one thread, so that none waits for another.
struct Filling<'a> {
    full: &'a Full<'a>,
    others: Range<usize>,
    strips: Option<DenseStrips<'a>>,
    height: usize,
    writer: &'a StripWriter,
    /// The strip that is begun next.
    next: AtomicUsize,
    tally: &'a Mutex<Tally>,
}

impl Filling<'_> {
    /// Fills one strip after the other until all are begun, or the work is stopped, or they can not be written.
    fn run(&self) {
        let (all, stop) = (&self.full.rows, self.full.stop);
        let mut bench = Bench::new(self.full.measure);
        // A strip has its number once it has room: so the one that is written next is always being filled.
        while let Some(mut strip) = self.writer.empty() {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let start = all.start + number * self.height;
            if start >= all.end || stop.load(Ordering::Relaxed) {
                break;
            }
            let rows = start..all.end.min(start + self.height);
            strip.begin(number, (start - all.start) * self.others.len(), rows.len() * self.others.len());
            match (&self.strips, &self.full.loaded.matrix) {
                (Some(strips), _) => strips.fill(rows.clone(), strip.scores(), &mut bench, stop),
                (None, Matrix::Sparse(matrix)) => {
                    fill_sparse(matrix, (rows.clone(), &self.others), strip.scores(), &mut bench, stop);
                }
                (None, Matrix::Dense(_)) => {}
            }
            self.writer.write(strip);
            self.tell(rows.len());
        }
        let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        tally.scores.add(&bench.finish());
    }

    fn tell(&self, rows: usize) {
        let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        tally.pairs += (rows * self.others.len()) as u64;
        let rows_done = tally.pairs / self.others.len() as u64;
        // Still locked, so that nobody sees fewer rows than before.
        let rows = self.full.rows.len() as u64;
        (self.full.progress)(Progress { rows_done, rows, pairs: tally.pairs });
    }
}

fn best_kernel() -> FloatKernel {
    // There is always the portable one.
    FloatKernel::available()[0]
}

impl From<std::io::Error> for TrainError {
    fn from(error: std::io::Error) -> Self {
        Self::Part(PartError::Io(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strips_fill_the_room_that_there_is_and_leave_each_thread_several() {
        let cut = |shape, band, room, threads| Cut::new(shape, band, room, threads);
        let table = [
            (cut((10_000, 20_000), 12, 0, 2), Cut { height: 96, threads: 2, strips: 3 }),
            (cut((10_000, 20_000), 12, 0, 1), Cut { height: 156, threads: 1, strips: 2 }),
            // More threads make lower strips, and none are lower than a band.
            (cut((10_000, 20_000), 12, 0, 64), Cut { height: 12, threads: 25, strips: 26 }),
            (cut((10_000, 20_000), 12, 1 << 30, 64), Cut { height: 12, threads: 64, strips: 65 }),
            (cut((1000, 1_000_000), 12, 512 << 20, 2), Cut { height: 36, threads: 2, strips: 3 }),
            (cut((1000, 1_000_000), 12, 0, 2), Cut { height: 12, threads: 1, strips: 2 }),
            (cut((1000, 1_000_000), 1, 0, 8), Cut { height: 1, threads: 5, strips: 6 }),
            // Few rows are cut so that each thread has several strips.
            (cut((1000, 100), 12, 0, 2), Cut { height: 60, threads: 2, strips: 3 }),
            (cut((5, 5), 12, 0, 2), Cut { height: 12, threads: 2, strips: 3 }),
            (cut((0, 0), 12, 0, 2), Cut { height: 12, threads: 2, strips: 3 }),
        ];
        for (found, expected) in table {
            assert_eq!(found, expected);
        }
    }
}
