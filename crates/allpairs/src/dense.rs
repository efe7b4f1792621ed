//! Dense matrices: rows of numbers in one or several files, read as float64.

mod fortran;

use crate::element::{Element, decode};
use crate::machine::{let_go, let_go_part, map_file};
use crate::npy::{Encoding, Header};
use crate::problem::FileProblem;
use crate::score::{self, LANES};
use memmap2::Advice;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The bytes of a file's numbers.
#[derive(Debug)]
pub(crate) enum Bytes {
    /// A memory-mapped file.
    Mapped(memmap2::Mmap),
    /// Decoded from a file that can not be mapped.
    Owned(Vec<u8>),
}

impl std::ops::Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map,
            Self::Owned(bytes) => bytes,
        }
    }
}

/// The rows of one file.
#[derive(Debug)]
pub(crate) struct DenseFile {
    pub(crate) path: PathBuf,
    pub(crate) bytes: Bytes,
    /// Where the numbers begin in `bytes`.
    pub(crate) start: usize,
    /// Bytes before the numbers of each row that are none of them.
    pub(crate) row_head: usize,
    pub(crate) encoding: Encoding,
    pub(crate) fortran_order: bool,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

impl DenseFile {
    /// So many rows whose bytes are still to be put in.
    pub(crate) fn empty(path: &Path, rows: usize, columns: usize) -> Self {
        Self {
            path: path.to_owned(),
            bytes: Bytes::Owned(Vec::new()),
            start: 0,
            row_head: 0,
            encoding: Element::F64.little_endian(),
            fortran_order: false,
            rows,
            columns,
        }
    }

    /// Maps a .npy file.
    pub(crate) fn open_npy(path: &Path) -> Result<Self, FileProblem> {
        let map = map_file(path).map_err(FileProblem::Io)?;
        let header = Header::parse(&map)?;
        let encoding = header.encoding()?;
        let &[rows, columns] = header.shape.as_slice() else {
            return Err(FileProblem::Dimensions { shape: header.shape_text() });
        };
        if columns == 0 {
            return Err(FileProblem::NoColumns);
        }
        let found = map.len() - header.start;
        let needed = u128::from(rows).saturating_mul(u128::from(columns) * encoding.element.size() as u128);
        if needed != found as u128 {
            return Err(FileProblem::Size { shape: header.shape_text(), needed, found: found as u64 });
        }
        Ok(Self {
            path: path.to_owned(),
            start: header.start,
            row_head: 0,
            bytes: Bytes::Mapped(map),
            encoding,
            fortran_order: header.fortran_order,
            // Both are at most the file's length now, unless there is no row.
            rows: rows as usize,
            columns: if rows == 0 { columns.min(usize::MAX as u64) as usize } else { columns as usize },
        })
    }

    /// Reads rows of this file; row `r` of them begins at `out[r * stride]`.
    fn read(&self, rows: Range<usize>, stride: usize, out: &mut [f64]) {
        let Encoding { element, big_endian } = self.encoding;
        let numbers = &self.bytes[self.start..];
        if self.fortran_order {
            return self.read_columns(rows, stride, out);
        }
        let row_bytes = self.row_head + self.columns * element.size();
        let stored = numbers[rows.start * row_bytes..rows.end * row_bytes].chunks_exact(row_bytes);
        for (row, out) in stored.zip(out.chunks_mut(stride)) {
            decode(&row[self.row_head..], element, big_endian, &mut out[..self.columns]);
        }
    }
}

impl DenseFile {
    /// Whether its rows are stored in float32 and little-endian, each in one piece.
    fn is_float32(&self) -> bool {
        self.encoding == Element::F32.little_endian() && !self.fortran_order
    }

    /// A row as it is stored, if that is float32 and little-endian.
    fn stored_row(&self, row: usize) -> Option<&[[u8; 4]]> {
        if !self.is_float32() {
            return None;
        }
        let row_bytes = self.row_head + self.columns * Element::F32.size();
        let begin = self.start + row * row_bytes + self.row_head;
        Some(self.bytes[begin..][..self.columns * Element::F32.size()].as_chunks().0)
    }
}

/// All rows of a dense matrix.
#[derive(Debug)]
pub(crate) struct DenseMatrix {
    files: Vec<DenseFile>,
    /// First row of each file, and the number of rows at the end.
    starts: Vec<usize>,
    columns: usize,
}

impl DenseMatrix {
    /// Joins files of equal columns; there must be at least one.
    pub(crate) fn join(files: Vec<DenseFile>) -> Self {
        let mut starts = vec![0];
        for file in &files {
            starts.push(starts[starts.len() - 1] + file.rows);
        }
        let columns = files.first().map_or(0, |file| file.columns);
        Self { files, starts, columns }
    }

    pub(crate) fn rows(&self) -> usize {
        self.starts[self.starts.len() - 1]
    }

    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    /// Numbers from one row to the next in what [`Self::read`] fills: the columns, filled up with zeros.
    pub(crate) fn stride(&self) -> usize {
        self.columns.next_multiple_of(LANES)
    }

    /// The file a row lies in, and its number there.
    pub(crate) fn place(&self, row: usize) -> (&Path, usize) {
        let file = self.file_of(row);
        (&self.files[file].path, row - self.starts[file])
    }

    /// Tells the system whether rows of mapped files are read here and there from now on, or one after the other. Where
    /// there is less memory than rows, reading what lies around a row would cost more than the row.
    pub(crate) fn expect_scattered_reads(&self, scattered: bool) {
        let advice = if scattered { Advice::Random } else { Advice::Normal };
        for file in &self.files {
            if let Bytes::Mapped(map) = &file.bytes {
                // It is about time alone.
                let _ = map.advise(advice);
            }
        }
    }

    /// Lets go of the memory that mapped files take; what is needed again is read again.
    pub(crate) fn let_go(&self) {
        for file in &self.files {
            if let Bytes::Mapped(map) = &file.bytes {
                // It is about memory that the system takes back anyway when it has to.
                let _ = let_go(map);
            }
        }
    }

    /// Lets go of the memory that these rows of mapped files take, or most of it.
    pub(crate) fn let_go_rows(&self, rows: Range<usize>) {
        for (file, first) in self.files.iter().zip(&self.starts) {
            let rows = rows.start.max(*first)..rows.end.min(first + file.rows);
            if let Bytes::Mapped(map) = &file.bytes
                && !rows.is_empty()
                && !file.fortran_order
            {
                let row_bytes = file.row_head + file.columns * file.encoding.element.size();
                let begin = file.start + (rows.start - first) * row_bytes;
                // As with [`Self::let_go`].
                let _ = let_go_part(map, begin..begin + rows.len() * row_bytes);
            }
        }
    }

    /// Bytes of a number as it is stored, the least of all files.
    pub(crate) fn bytes_of_number(&self) -> usize {
        let sizes = self.files.iter().map(|file| file.encoding.element.size());
        sizes.fold(usize::MAX, usize::min)
    }

    /// Whether the file of the first row has its numbers column by column.
    pub(crate) fn lie_in_columns(&self, rows: Range<usize>) -> bool {
        self.files.get(self.file_of(rows.start)).is_some_and(|file| file.fortran_order)
    }

    /// Whether all rows are scored as they are stored, in float32.
    pub(crate) fn is_float32(&self) -> bool {
        self.files.iter().filter(|file| file.rows > 0).all(DenseFile::is_float32)
    }

    /// A row as it is stored, if that is float32 and little-endian.
    pub(crate) fn stored_row(&self, row: usize) -> Option<&[[u8; 4]]> {
        let file = self.file_of(row);
        self.files[file].stored_row(row - self.starts[file])
    }

    /// Whether squares of the numbers of a row can over- or underflow in float64.
    pub(crate) fn needs_scaling(&self, row: usize) -> bool {
        self.files[self.file_of(row)].encoding.element.needs_scaling()
    }

    fn file_of(&self, row: usize) -> usize {
        self.starts.partition_point(|start| *start <= row) - 1
    }

    /// Reads raw rows into `out`, [`Self::stride`] numbers each; the filling must be zero already.
    pub(crate) fn read(&self, rows: Range<usize>, out: &mut [f64]) {
        let mut next = rows.start;
        while next < rows.end {
            let file = self.file_of(next);
            let end = rows.end.min(self.starts[file + 1]);
            let first = self.starts[file];
            let out = &mut out[(next - rows.start) * self.stride()..];
            self.files[file].read(next - first..end - first, self.stride(), out);
            next = end;
        }
    }
}

/// A dense matrix with what was found out about each row.
#[derive(Debug)]
pub(crate) struct DenseRows {
    pub(crate) matrix: DenseMatrix,
    /// Norm of each row, after scaling.
    pub(crate) norms: Vec<f64>,
    /// Power of two that each row is divided by before it is scored.
    pub(crate) exponents: Vec<i16>,
    /// Largest error of a row in 16-bit integers (see [`crate::quantised`]).
    pub(crate) quantisation_error: f64,
    /// All rows in 16-bit integers (see [`crate::words`]), [`DenseMatrix::stride`] numbers each, if they are held.
    pub(crate) held: Option<Vec<i16>>,
}

impl DenseRows {
    /// A row as it is stored, if that is float32 and little-endian; it is scored as it is.
    pub(crate) fn stored_row(&self, row: usize) -> Option<&[[u8; 4]]> {
        self.matrix.stored_row(row)
    }

    /// Reads rows as they are scored: scaled, [`DenseMatrix::stride`] numbers each.
    pub(crate) fn read(&self, rows: Range<usize>, out: &mut [f64]) {
        self.matrix.read(rows.clone(), out);
        for (row, values) in rows.zip(out.chunks_exact_mut(self.matrix.stride())) {
            if self.exponents[row] != 0 {
                score::scale(values, i32::from(self.exponents[row]));
            }
        }
    }
}

impl Element {
    /// How Rust and Parquet lay numbers out in memory.
    pub(crate) fn little_endian(self) -> Encoding {
        Encoding { element: self, big_endian: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_were_let_go_of_are_read_again_and_so_are_those_around_them() {
        let folder = tempfile::tempdir().unwrap();
        let matrix = |name: &str, first: f32, rows: usize| {
            // Rows that no page ends with.
            let columns = 1001;
            let header =
                format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {columns}), }}\n");
            let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
            bytes.extend((header.len() as u16).to_le_bytes());
            bytes.extend(header.as_bytes());
            (0..rows * columns).for_each(|at| bytes.extend((first + at as f32).to_le_bytes()));
            let path = folder.path().join(name);
            fs_err::write(&path, bytes).unwrap();
            DenseFile::open_npy(&path).unwrap()
        };
        let matrix = DenseMatrix::join(vec![matrix("a.npy", 0.0, 50), matrix("b.npy", 1e6, 30)]);
        let all = |matrix: &DenseMatrix| {
            (0..80).flat_map(|row| matrix.stored_row(row).unwrap().to_vec()).collect::<Vec<_>>()
        };
        let before = all(&matrix);
        for rows in [0..80, 3..7, 45..55, 79..80, 60..60, 0..50] {
            matrix.let_go_rows(rows);
            assert!(all(&matrix) == before);
        }
    }
}
