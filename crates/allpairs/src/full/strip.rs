//! Some rows against all others: a strip of the matrix of scores.

use super::room::Room;
use crate::dense::DenseRows;
use crate::histogram::{Counter, Histogram};
use crate::machine::{FloatKernel, Vectors};
use crate::memory;
use crate::score::{dot, score};
use crate::settings::Measure;
use crate::sparse::SparseRows;
use rayon::prelude::*;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of the other side's packed rows that a thread uses at a time: they stay in its second cache.
const CHUNK_BYTES: usize = 384 << 10;

/// Packs rows and multiplies them.
pub(super) struct DenseStrips<'a> {
    matrix: &'a DenseRows,
    others: Range<usize>,
    kernel: FloatKernel,
    vectors: Vectors,
    /// Sums that far from 1 or −1 can be told from it.
    limit: f32,
    /// All others, packed, if there is room for them.
    packed: Option<Room>,
    /// Bytes of memory that there were in the beginning.
    available: u64,
}

/// What one thread needs while it fills strips.
pub(super) struct Bench {
    own: Vec<f32>,
    side: Vec<f32>,
    values: Vec<f64>,
    tile: Vec<f32>,
    finish: Finish,
}

impl Bench {
    pub(super) fn new(measure: Measure) -> Self {
        let finish = Finish { measure, counter: Counter::new() };
        Self { own: Vec::new(), side: Vec::new(), values: Vec::new(), tile: Vec::new(), finish }
    }

    /// The counts of all scores.
    pub(super) fn finish(self) -> Histogram {
        self.finish.counter.finish()
    }
}

/// Counts scores and turns them into what is asked for.
struct Finish {
    measure: Measure,
    counter: Counter,
}

impl Finish {
    fn take(&mut self, scores: &mut [f32]) {
        self.counter.count(scores);
        if self.measure != Measure::Similarity {
            scores.iter_mut().for_each(|score| *score = crate::output::measured(*score, self.measure));
        }
    }
}

impl<'a> DenseStrips<'a> {
    /// Strips of scores with these others.
    ///
    /// # Errors
    /// The system has no room for packed rows although it said so.
    pub(super) fn new(matrix: &'a DenseRows, others: Range<usize>, kernel: FloatKernel) -> io::Result<Self> {
        // Each of the products and sums is off by at most half of 2⁻²³; so are the numbers that go in.
        let doubt = (matrix.matrix.columns() as f32 + 4.0) * 2f32.powi(-23);
        let (limit, vectors) = (1.0 - doubt, Vectors::best());
        let available = memory::available().unwrap_or(0);
        let mut strips = Self { matrix, others, kernel, vectors, limit, packed: None, available };
        if strips.others_bytes() <= available / 2 {
            strips.keep_others()?;
        }
        Ok(strips)
    }

    /// Bytes of strips that are in keeping with the memory that is taken or left: the higher strips are, the less often
    /// others are read from memory, or packed anew.
    pub(super) fn fair_room(&self) -> usize {
        let bytes = if self.packed.is_some() { self.others_bytes() } else { self.available };
        bytes as usize / 4
    }

    /// Rows that are multiplied together.
    pub(super) fn band(&self) -> usize {
        self.kernel.rows()
    }

    /// Bytes of all others when they are packed.
    fn others_bytes(&self) -> u64 {
        let rows = self.others.len().next_multiple_of(self.kernel.columns());
        (rows * self.matrix.matrix.columns() * size_of::<f32>()) as u64
    }

    /// Packs all others, by all threads of the current pool.
    fn keep_others(&mut self) -> io::Result<()> {
        let mut room = Room::new(self.others_bytes() as usize / size_of::<f32>())?;
        let wide = self.kernel.columns();
        room.par_chunks_exact_mut(self.panel(wide)).enumerate().for_each_init(
            Vec::new,
            |values, (at, panel)| {
                let first = self.others.start + at * wide;
                self.pack_panel(first..self.others.end.min(first + wide), (wide, panel), values);
            },
        );
        // What is still needed of the files is needed once.
        self.matrix.matrix.let_go();
        self.packed = Some(room);
        Ok(())
    }

    /// Numbers of a panel.
    fn panel(&self, width: usize) -> usize {
        width * self.matrix.matrix.columns()
    }

    /// Computes the scores of the rows with all others, row by row.
    pub(super) fn fill(&self, rows: Range<usize>, scores: &mut [f32], bench: &mut Bench, stop: &AtomicBool) {
        let (high, wide) = (self.kernel.rows(), self.kernel.columns());
        self.pack(rows.clone(), high, (&mut bench.own, &mut bench.values));
        let chunk = (CHUNK_BYTES / (size_of::<f32>() * self.panel(1))).next_multiple_of(wide).max(wide);
        for first in (0..self.others.len()).step_by(chunk) {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let side = first..self.others.len().min(first + chunk);
            let packed = match &self.packed {
                Some(all) => &all[first / wide * self.panel(wide)..],
                None => {
                    let rows = self.others.start + side.start..self.others.start + side.end;
                    self.pack(rows, wide, (&mut bench.side, &mut bench.values));
                    &bench.side
                }
            };
            let bands = scores.chunks_mut(high * self.others.len()).zip(bench.own.chunks(self.panel(high)));
            for (at, (band, left)) in bands.enumerate() {
                self.multiply((left, packed), (&mut *band, &side), &mut bench.tile);
                for (row, scores) in (rows.start + at * high..).zip(band.chunks_exact_mut(self.others.len()))
                {
                    let scores = &mut scores[side.clone()];
                    self.settle(row, self.others.start + side.start, scores);
                    bench.finish.take(scores);
                }
            }
        }
    }

    /// The sums of a panel of rows with those of a side, into the columns of the side.
    fn multiply(
        &self,
        (left, right): (&[f32], &[f32]),
        (band, side): (&mut [f32], &Range<usize>),
        tile: &mut Vec<f32>,
    ) {
        let (high, wide, stride) = (self.kernel.rows(), self.kernel.columns(), self.others.len());
        for (column, right) in side.clone().step_by(wide).zip(right.chunks_exact(self.panel(wide))) {
            if band.len() == high * stride && column + wide <= stride {
                self.kernel.dot_products(left, right, &mut band[column..], stride);
                continue;
            }
            // It does not fit in the last rows or columns.
            tile.resize(high * wide, 0.0);
            self.kernel.dot_products(left, right, tile, wide);
            for (row, sums) in band.chunks_exact_mut(stride).zip(tile.chunks_exact(wide)) {
                let out = &mut row[column..];
                let count = out.len().min(wide);
                out[..count].copy_from_slice(&sums[..count]);
            }
        }
    }

    /// Unit rows side by side in panels of equal width, the last one filled up with zeros.
    fn pack(&self, rows: Range<usize>, width: usize, (packed, values): (&mut Vec<f32>, &mut Vec<f64>)) {
        packed.resize(rows.len().div_ceil(width) * self.panel(width), 0.0);
        for (first, panel) in rows.clone().step_by(width).zip(packed.chunks_exact_mut(self.panel(width))) {
            self.pack_panel(first..rows.end.min(first + width), (width, panel), values);
        }
    }

    fn pack_panel(&self, rows: Range<usize>, (width, panel): (usize, &mut [f32]), values: &mut Vec<f64>) {
        if rows.len() < width {
            panel.fill(0.0);
        }
        values.resize(self.matrix.matrix.stride(), 0.0);
        for (at, row) in rows.enumerate() {
            self.matrix.read(row..row + 1, values);
            let norm = self.matrix.norms[row];
            let factor = if norm > 0.0 { 1.0 / norm } else { 0.0 };
            let places = panel[at..].iter_mut().step_by(width);
            places.zip(&*values).for_each(|(place, value)| *place = (value * factor) as f32);
        }
    }

    /// Puts the scores of the definition where sums are too near to 1 or −1, and zeros in place of negative ones.
    fn settle(&self, row: usize, first: usize, scores: &mut [f32]) {
        if self.vectors.tidy(scores, self.limit) {
            return;
        }
        let (stride, norms) = (self.matrix.matrix.stride(), &self.matrix.norms);
        let (mut x, mut y) = (vec![0.0; stride], vec![0.0; stride]);
        self.matrix.read(row..row + 1, &mut x);
        for (other, sum) in (first..).zip(scores) {
            // Not "≥": what is no number is settled, too.
            if sum.abs() < self.limit {
                continue;
            }
            self.matrix.read(other..other + 1, &mut y);
            *sum = score(dot(&x, &y), norms[row], norms[other]);
        }
    }
}

/// Computes the scores of sparse rows with all others, as they are defined.
pub(super) fn fill_sparse(
    matrix: &SparseRows,
    (rows, others): (Range<usize>, &Range<usize>),
    scores: &mut [f32],
    bench: &mut Bench,
    stop: &AtomicBool,
) {
    bench.values.resize(matrix.used_columns(), 0.0);
    let spread = &mut bench.values;
    for (row, scores) in rows.zip(scores.chunks_exact_mut(others.len())) {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        matrix.spread(row, spread);
        for (other, out) in others.clone().zip(&mut *scores) {
            *out = score(matrix.dot(other, spread), matrix.norms[row], matrix.norms[other]);
        }
        matrix.clear(row, spread);
        bench.finish.take(scores);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dense::{Bytes, DenseFile, DenseMatrix};
    use crate::element::Element;
    use crate::matrix::inspect;

    fn matrix(rows: usize, columns: usize) -> DenseRows {
        let numbers = (0..rows * columns).map(|at| (at as f64 * 0.731).sin());
        let bytes = Bytes::Owned(numbers.flat_map(f64::to_le_bytes).collect());
        let (encoding, path) = (Element::F64.little_endian(), "rows".into());
        let (start, row_head, fortran_order) = (0, 0, false);
        let file = DenseFile { path, bytes, start, row_head, encoding, fortran_order, rows, columns };
        inspect(DenseMatrix::join(vec![file]), false, &AtomicBool::new(false)).unwrap().0
    }

    #[test]
    fn every_bit_is_that_of_the_documented_sum_by_any_kernel_and_with_any_memory() {
        let columns = 29;
        let matrix = matrix(203, columns);
        let stop = AtomicBool::new(false);
        let unit = |row: usize| {
            let mut values = vec![0.0; matrix.matrix.stride()];
            matrix.read(row..row + 1, &mut values);
            values.truncate(columns);
            values.into_iter().map(|value| (value * (1.0 / matrix.norms[row])) as f32).collect::<Vec<_>>()
        };
        let (rows, others) = (20..57, 3..203);
        let mut expected = Vec::new();
        for row in rows.clone() {
            let x = unit(row);
            expected.extend(others.clone().map(|other| {
                if other == row {
                    return 1.0;
                }
                x.iter().zip(unit(other)).fold(0.0f32, |sum, (x, y)| x.mul_add(y, sum)) + 0.0
            }));
        }
        for kernel in FloatKernel::available() {
            for keep in [false, true] {
                let mut strips = DenseStrips::new(&matrix, others.clone(), kernel).unwrap();
                strips.packed = None;
                if keep {
                    strips.keep_others().unwrap();
                }
                let mut bench = Bench::new(Measure::Similarity);
                for cut in [20..21, 21..44, 44..57] {
                    let mut scores = vec![f32::NAN; cut.len() * others.len()];
                    strips.fill(cut.clone(), &mut scores, &mut bench, &stop);
                    let begin = (cut.start - rows.start) * others.len();
                    for (at, (found, expected)) in scores.iter().zip(&expected[begin..]).enumerate() {
                        assert_eq!(found.to_bits(), expected.to_bits(), "{kernel:?} {keep} {cut:?} {at}");
                    }
                }
                assert_eq!(bench.finish().counts.iter().sum::<u64>(), expected.len() as u64);
            }
        }
    }
}
