//! Matrices that lie in their file column by column.
//!
//! A row of such a file lies in as many places as there are columns, each of them a line of the cache and a page away
//! from the next. So rows are made of it once, in memory, if there is room for them; else they are read from
//! where they lie, some columns at a time.

use super::{Bytes, DenseFile};
use crate::element::decode;
use crate::machine::let_go;
use crate::memory;
use crate::problem::FileProblem;
use rayon::prelude::*;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of a row that are written together: a line of the cache.
const LINE: usize = 64;

/// Rows that a thread takes at a time.
const PIECE_ROWS: usize = 1024;

/// Columns that are read together, a line of the cache of float64.
const READ_TOGETHER: usize = 8;

impl DenseFile {
    /// Brings the numbers into the order of the rows, if they are not and half of the memory has room for them.
    pub(crate) fn in_rows(self, stop: &AtomicBool) -> Result<Self, FileProblem> {
        let bytes = (self.rows * self.columns * self.encoding.element.size()) as u64;
        let has_room = memory::available().is_some_and(|available| bytes <= available / 2);
        if self.fortran_order && has_room { self.turned(stop) } else { Ok(self) }
    }

    pub(super) fn turned(mut self, stop: &AtomicBool) -> Result<Self, FileProblem> {
        let numbers = match self.encoding.element.size() {
            1 => self.turn::<1>(stop),
            2 => self.turn::<2>(stop),
            4 => self.turn::<4>(stop),
            _ => self.turn::<8>(stop),
        }?;
        (self.start, self.fortran_order) = (0, false);
        self.bytes = Bytes::Owned(numbers);
        Ok(self)
    }

    /// All numbers, of `N` bytes each, row by row. What was read of the file is let go of, so that not both are in
    /// memory.
    fn turn<const N: usize>(&self, stop: &AtomicBool) -> Result<Vec<u8>, FileProblem> {
        let stored = self.bytes[self.start..].as_chunks::<N>().0;
        let mut turned = vec![0; self.rows * self.columns * N];
        for first in (0..self.columns).step_by(LINE / N) {
            if stop.load(Ordering::Relaxed) {
                return Err(FileProblem::Stopped);
            }
            let columns = first..self.columns.min(first + LINE / N);
            turned.par_chunks_mut(PIECE_ROWS * self.columns * N).enumerate().for_each(|(piece, rows)| {
                for (row, out) in (piece * PIECE_ROWS..).zip(rows.chunks_exact_mut(self.columns * N)) {
                    for (column, out) in columns.clone().zip(&mut out.as_chunks_mut::<N>().0[columns.clone()])
                    {
                        *out = stored[column * self.rows + row];
                    }
                }
            });
            if let Bytes::Mapped(map) = &self.bytes {
                let_go(map).map_err(FileProblem::Io)?;
            }
        }
        Ok(turned)
    }

    /// Reads rows from where they lie; row `r` of them begins at `out[r * stride]`.
    pub(super) fn read_columns(&self, rows: Range<usize>, stride: usize, out: &mut [f64]) {
        let (numbers, size) = (&self.bytes[self.start..], self.encoding.element.size());
        let mut parts = vec![0.0; READ_TOGETHER * rows.len()];
        for first in (0..self.columns).step_by(READ_TOGETHER) {
            let columns = first..self.columns.min(first + READ_TOGETHER);
            for (column, part) in columns.clone().zip(parts.chunks_exact_mut(rows.len())) {
                let stored = &numbers[(column * self.rows + rows.start) * size..][..rows.len() * size];
                decode(stored, self.encoding.element, self.encoding.big_endian, part);
            }
            for (row, out) in out.chunks_mut(stride).take(rows.len()).enumerate() {
                for (at, out) in out[columns.clone()].iter_mut().enumerate() {
                    *out = parts[at * rows.len() + row];
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::Element;
    use proptest::prelude::*;
    use std::path::Path;

    const SIZES: [Element; 4] = [Element::I8, Element::F16, Element::F32, Element::F64];

    proptest! {
        #[test]
        fn columns_become_the_rows_that_they_are_read_as(
            rows in 1usize..40, columns in 1usize..90, element in prop::sample::select(SIZES.to_vec()), big_endian: bool,
        ) {
            let bytes: Vec<u8> = (0..rows * columns * element.size()).map(|at| (at * 7 % 120) as u8).collect();
            let encoding = crate::npy::Encoding { element, big_endian };
            let file = || DenseFile {
                bytes: Bytes::Owned(bytes.clone()),
                encoding,
                fortran_order: true,
                ..DenseFile::empty(Path::new("x"), rows, columns)
            };
            let mut expected = vec![0.0; rows * columns];
            for (column, stored) in bytes.chunks_exact(rows * element.size()).enumerate() {
                let mut part = vec![0.0; rows];
                decode(stored, element, big_endian, &mut part);
                part.iter().enumerate().for_each(|(row, value)| expected[row * columns + column] = *value);
            }
            let turned = file().turned(&AtomicBool::new(false)).unwrap();
            prop_assert!(!turned.fortran_order);
            for file in [file(), turned] {
                let mut out = vec![0.0; rows * columns];
                file.read(0..rows, columns, &mut out);
                prop_assert_eq!(&out, &expected);
                let mut last = vec![0.0; columns];
                file.read(rows - 1..rows, columns, &mut last);
                prop_assert_eq!(&last, &expected[(rows - 1) * columns..]);
            }
        }
    }
}
