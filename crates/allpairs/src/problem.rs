//! What can be wrong with a matrix and its files.

use std::fmt;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// A channel that can not be read as one matrix.
#[derive(Debug, Error)]
pub enum MatrixError {
    /// The folder or one of its entries can not be listed; the source names the path.
    #[error("the channel `matrix` can not be listed")]
    List(#[source] io::Error),
    /// The folder holds no file that counts.
    #[error("the channel `matrix` holds no file in {}", folder.display())]
    Empty {
        /// The channel's folder.
        folder: PathBuf,
    },
    /// A file of a kind that is not read.
    #[error("{}: the ending is not known; a matrix is made of .npy, .npz or .parquet files", file.display())]
    Ending {
        /// The file.
        file: PathBuf,
    },
    /// One file can not be read.
    #[error("{}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        #[source]
        problem: Box<FileProblem>,
    },
    /// Two files have rows of different lengths.
    #[error(
        "{}: shape ({rows}, {columns}) does not fit {}, whose shape is ({first_rows}, {first_columns}): \
         all files need the same number of columns",
        file.display(),
        first.display()
    )]
    Shape {
        /// The file that does not fit.
        file: PathBuf,
        /// Its rows.
        rows: u64,
        /// Its columns.
        columns: u64,
        /// The first file of the matrix.
        first: PathBuf,
        /// The first file's rows.
        first_rows: u64,
        /// The first file's columns.
        first_columns: u64,
    },
    /// Sparse and dense files in one channel.
    #[error("{} and {} can not be one matrix: one is sparse, the other dense", file.display(), first.display())]
    Mixed {
        /// The file that does not fit.
        file: PathBuf,
        /// The first file of the matrix.
        first: PathBuf,
    },
    /// All files together have no row.
    #[error("the channel `matrix` holds no row in {}", folder.display())]
    NoRows {
        /// The channel's folder.
        folder: PathBuf,
    },
    /// More rows than can be numbered.
    #[error("the matrix has {rows} rows; at most {most} can be compared with one another")]
    TooManyRows {
        /// Rows of all files together.
        rows: u64,
        /// The limit.
        most: u64,
    },
    /// An entry that is not a finite number.
    #[error(
        "row {row} of the matrix, column {column} is {value}: all entries must be finite (row {file_row} of {})",
        file.display()
    )]
    NonFinite {
        /// Row in the whole matrix, from 0.
        row: u64,
        /// Column, from 0.
        column: u64,
        /// What stands there.
        value: NonFinite,
        /// The file.
        file: PathBuf,
        /// Row in the file, from 0.
        file_row: u64,
    },
    /// The stop flag was set while the matrix was read.
    #[error("stopped while the matrix was read")]
    Stopped,
}

/// An entry that is no finite number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NonFinite {
    /// Not a number.
    Nan,
    /// Infinite, above or below zero.
    Infinity,
}

impl NonFinite {
    pub(crate) fn of(value: f64) -> Self {
        if value.is_nan() { Self::Nan } else { Self::Infinity }
    }
}

impl fmt::Display for NonFinite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nan => "NaN",
            Self::Infinity => "infinite",
        })
    }
}

/// What is wrong with one file of a matrix.
#[derive(Debug, Error)]
pub enum FileProblem {
    /// The file can not be opened or read.
    #[error("can not be read")]
    Io(#[source] io::Error),
    /// The first bytes are not those of a .npy file.
    #[error("is not a .npy file: its first bytes are not those of one")]
    NotNpy,
    /// A .npy format that is not known.
    #[error("is a .npy file of format {major}.{minor}; 1.0, 2.0 and 3.0 are known")]
    NpyVersion {
        /// First number.
        major: u8,
        /// Second number.
        minor: u8,
    },
    /// The file ends inside its header.
    #[error("ends inside the .npy header")]
    NpyHeaderCut,
    /// The header lacks something or has it in another form.
    #[error("the .npy header has no usable {wanted}")]
    NpyHeader {
        /// What was looked for.
        wanted: &'static str,
    },
    /// The numbers are of a type that is not read.
    #[error("its numbers are of type {type_name}; floats of 16 to 64 bits and integers are read")]
    ElementType {
        /// The type as the file names it.
        type_name: String,
    },
    /// Not a matrix but an array of other dimensions.
    #[error("its shape is {shape}; a matrix has two dimensions")]
    Dimensions {
        /// The shape as Python prints it.
        shape: String,
    },
    /// A matrix without columns.
    #[error("it has no column")]
    NoColumns,
    /// The file is longer or shorter than its shape.
    #[error("shape {shape} needs {needed} bytes behind the header, the file has {found}")]
    Size {
        /// The shape as Python prints it.
        shape: String,
        /// Bytes needed.
        needed: u128,
        /// Bytes there.
        found: u64,
    },
    /// Not a readable ZIP archive.
    #[error("is not a readable .npz archive")]
    Zip(#[source] zip::result::ZipError),
    /// An array of the archive is missing.
    #[error("has no array `{member}`: a sparse matrix is one in CSR form as scipy.sparse.save_npz writes it")]
    Missing {
        /// Name of the array.
        member: &'static str,
    },
    /// An array of the archive is unusable.
    #[error("array `{member}`")]
    Member {
        /// Name of the array.
        member: &'static str,
        /// What is wrong with it.
        #[source]
        problem: Box<FileProblem>,
    },
    /// A sparse matrix in another form than CSR.
    #[error("is a sparse matrix in `{format}` form; convert it with .tocsr() before it is saved")]
    NotCsr {
        /// The form.
        format: String,
    },
    /// An array of the archive has another length than the others ask for.
    #[error("array `{member}` has {found} numbers instead of {needed}")]
    Length {
        /// Name of the array.
        member: &'static str,
        /// Numbers needed.
        needed: u64,
        /// Numbers there.
        found: u64,
    },
    /// Row offsets that do not rise from 0 to the number of entries.
    #[error(
        "the offsets `indptr` of row {row} are {from} and {to}, of {entries} entries: they must not fall"
    )]
    Offsets {
        /// Row, from 0.
        row: u64,
        /// First offset.
        from: i64,
        /// Second offset.
        to: i64,
        /// Stored entries.
        entries: u64,
    },
    /// A column number outside of the matrix.
    #[error("row {row} has an entry in column {column}; the matrix has {columns} columns")]
    ColumnNumber {
        /// Row, from 0.
        row: u64,
        /// The number found.
        column: i64,
        /// Columns of the matrix.
        columns: u64,
    },
    /// More columns than can be numbered.
    #[error("it has {columns} columns; at most {most} can be read")]
    TooManyColumns {
        /// Columns of the matrix.
        columns: u64,
        /// The limit.
        most: u64,
    },
    /// Not a readable Parquet file.
    #[error("is not a readable Parquet file")]
    Parquet(#[source] parquet::errors::ParquetError),
    /// A part of a Parquet file can not be decoded.
    #[error("can not be decoded")]
    Arrow(#[source] arrow::error::ArrowError),
    /// The Parquet decoder gave up on the file.
    #[error("is a broken Parquet file: its decoder failed on it")]
    ParquetBroken,
    /// A column that is no part of a matrix.
    #[error(
        "column `{column}` is of type {type_name}: either all columns are numbers, or one is a list of numbers"
    )]
    ColumnType {
        /// Name of the column.
        column: String,
        /// Its type.
        type_name: String,
    },
    /// An entry that is missing.
    #[error("row {row}, column `{column}` is null: a matrix has a number everywhere")]
    Null {
        /// Row, from 0.
        row: u64,
        /// Name of the column.
        column: String,
    },
    /// A list of another length than the first.
    #[error("row {row} has {found} numbers, the rows before it have {needed}")]
    ListLength {
        /// Row, from 0.
        row: u64,
        /// Numbers in the rows before.
        needed: u64,
        /// Numbers in this row.
        found: u64,
    },
}
