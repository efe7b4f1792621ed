//! The channel `matrix` as one matrix, dense or sparse.

use crate::channel;
use crate::dense::{DenseFile, DenseMatrix, DenseRows};
use crate::npz;
use crate::parquet_file;
use crate::problem::{FileProblem, MatrixError, NonFinite};
use crate::quantised;
use crate::score::{self, dot};
use crate::sparse::{SparseFile, SparseRows};
use rayon::prelude::*;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Rows are numbered in 32 bits while they are compared.
const MOST_ROWS: u64 = u32::MAX as u64;

/// Rows that are inspected at a time.
const INSPECTED_ROWS: usize = 64;

/// All rows, checked and with their norms.
#[derive(Debug)]
pub(crate) enum Matrix {
    Dense(DenseRows),
    Sparse(SparseRows),
}

impl Matrix {
    /// Reads all files of the channel, in the byte order of their names, and inspects every row.
    pub(crate) fn load(folder: &Path, stop: &AtomicBool) -> Result<Self, MatrixError> {
        let mut files = Vec::new();
        for path in channel::files(folder)? {
            files.push(MatrixFile::open(path)?);
        }
        check_fit(&files)?;
        let rows: u64 = files.iter().map(|file| file.rows() as u64).sum();
        if rows == 0 {
            return Err(MatrixError::NoRows { folder: folder.to_owned() });
        }
        if rows > MOST_ROWS {
            return Err(MatrixError::TooManyRows { rows, most: MOST_ROWS });
        }
        let (mut dense, mut sparse) = (Vec::new(), Vec::new());
        for file in files {
            match file {
                MatrixFile::Dense(file) => dense.push(file),
                MatrixFile::Sparse(file) => sparse.push(file),
            }
        }
        if dense.is_empty() {
            return SparseRows::join(sparse).map(Self::Sparse);
        }
        inspect(DenseMatrix::join(dense), stop).map(Self::Dense)
    }

    pub(crate) fn rows(&self) -> usize {
        self.norms().len()
    }

    pub(crate) fn columns(&self) -> u64 {
        match self {
            Self::Dense(rows) => rows.matrix.columns() as u64,
            Self::Sparse(rows) => rows.columns,
        }
    }

    /// Norm of each row, 0 for a zero row and only for one.
    pub(crate) fn norms(&self) -> &[f64] {
        match self {
            Self::Dense(rows) => &rows.norms,
            Self::Sparse(rows) => &rows.norms,
        }
    }
}

enum MatrixFile {
    Dense(DenseFile),
    Sparse(SparseFile),
}

impl MatrixFile {
    fn open(path: PathBuf) -> Result<Self, MatrixError> {
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        let opened = match ending.to_ascii_lowercase().as_str() {
            "npy" => DenseFile::open_npy(&path).map(Self::Dense),
            "npz" => npz::read(&path).map(Self::Sparse),
            "parquet" => parquet_file::read(&path).map(Self::Dense),
            _ => return Err(MatrixError::Ending { file: path }),
        };
        opened.map_err(|problem: FileProblem| MatrixError::File { file: path, problem: Box::new(problem) })
    }

    fn path(&self) -> &Path {
        match self {
            Self::Dense(file) => &file.path,
            Self::Sparse(file) => &file.path,
        }
    }

    fn rows(&self) -> usize {
        match self {
            Self::Dense(file) => file.rows,
            Self::Sparse(file) => file.rows(),
        }
    }

    fn columns(&self) -> u64 {
        match self {
            Self::Dense(file) => file.columns as u64,
            Self::Sparse(file) => file.columns,
        }
    }
}

fn check_fit(files: &[MatrixFile]) -> Result<(), MatrixError> {
    let Some((first, others)) = files.split_first() else { return Ok(()) };
    for other in others {
        if matches!(first, MatrixFile::Dense(_)) != matches!(other, MatrixFile::Dense(_)) {
            return Err(MatrixError::Mixed { file: other.path().to_owned(), first: first.path().to_owned() });
        }
        if first.columns() != other.columns() {
            return Err(MatrixError::Shape {
                file: other.path().to_owned(),
                rows: other.rows() as u64,
                columns: other.columns(),
                first: first.path().to_owned(),
                first_rows: first.rows() as u64,
                first_columns: first.columns(),
            });
        }
    }
    Ok(())
}

/// Looks at every row once: all numbers finite, its exponent, its norm, its error in 16-bit integers.
pub(crate) fn inspect(matrix: DenseMatrix, stop: &AtomicBool) -> Result<DenseRows, MatrixError> {
    let mut norms = vec![0.0; matrix.rows()];
    let mut exponents = vec![0i16; matrix.rows()];
    let blocks = norms.par_chunks_mut(INSPECTED_ROWS).zip(exponents.par_chunks_mut(INSPECTED_ROWS));
    let outcomes: Vec<Result<f64, MatrixError>> = blocks
        .enumerate()
        .map(|(block, (norms, exponents))| {
            if stop.load(Ordering::Relaxed) {
                return Err(MatrixError::Stopped);
            }
            inspect_block(&matrix, block * INSPECTED_ROWS, norms, exponents)
        })
        .collect();
    // In order of rows, so that the row named is the same however many threads there are.
    let errors = outcomes.into_iter().collect::<Result<Vec<f64>, _>>()?;
    let quantisation_error = errors.into_iter().fold(0.0, f64::max);
    Ok(DenseRows { matrix, norms, exponents, quantisation_error })
}

fn inspect_block(
    matrix: &DenseMatrix,
    first: usize,
    norms: &mut [f64],
    exponents: &mut [i16],
) -> Result<f64, MatrixError> {
    let mut rows = vec![0.0; norms.len() * matrix.stride()];
    matrix.read(first..first + norms.len(), &mut rows);
    let mut largest_error = 0.0f64;
    let found = norms.iter_mut().zip(exponents).zip(rows.chunks_exact_mut(matrix.stride()));
    for (at, ((norm, exponent), row)) in found.enumerate() {
        if let Some(column) = row.iter().position(|value| !value.is_finite()) {
            let (file, file_row) = matrix.place(first + at);
            return Err(MatrixError::NonFinite {
                row: (first + at) as u64,
                column: column as u64,
                value: NonFinite::of(row[column]),
                file: file.to_owned(),
                file_row: file_row as u64,
            });
        }
        if matrix.needs_scaling(first + at) {
            let largest = row.iter().fold(0.0f64, |largest, value| largest.max(value.abs()));
            // Exponents of float64 lie between -1074 and 1023.
            *exponent = score::exponent(largest) as i16;
            score::scale(row, i32::from(*exponent));
        }
        *norm = dot(row, row).sqrt();
        largest_error = largest_error.max(quantised::error(row, *norm));
    }
    Ok(largest_error)
}
