//! What can be wrong with a matrix and its files.

use std::fmt;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// The endings that are known, as an error message lists them.
const ENDINGS: &str = ".npy, .npz, .parquet, .arrow, .feather, .arrows, .csv, .tsv, .safetensors, .fvecs, .bvecs, .ivecs or .h5";

/// A channel that can not be read as one matrix.
#[derive(Debug, Error)]
pub enum MatrixError {
    /// The folder or one of its entries can not be listed; the source names the path.
    #[error("the files of the matrix can not be listed")]
    List(#[source] io::Error),
    /// The folder holds no file that counts.
    #[error("{} holds no file of a matrix", folder.display())]
    Empty {
        /// The channel's folder.
        folder: PathBuf,
    },
    /// A file of a kind that is not read.
    #[error("{}: the ending is not known; a matrix is made of {ENDINGS} files", file.display())]
    Ending {
        /// The file.
        file: PathBuf,
    },
    /// HDF5, which this program was built without.
    #[error("{}: HDF5 is not built in: build with `--features hdf5`, or save the matrix as .npy", file.display())]
    NoHdf5 {
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
    #[error("{} holds no row of a matrix", folder.display())]
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
        "row {row} of the {whose}, column {column} is {value}: all entries must be finite (row {file_row} of {})",
        file.display()
    )]
    NonFinite {
        /// Which matrix: `matrix` or `query`.
        whose: &'static str,
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
    /// Some files have ids and others have not.
    #[error("{} has {}, unlike {}: either all files of a matrix have ids or none has", file.display(), if *with { "ids" } else { "no ids" }, first.display())]
    Ids {
        /// The file that does not fit.
        file: PathBuf,
        /// Whether that file has ids.
        with: bool,
        /// The first file of the matrix.
        first: PathBuf,
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
    /// The decoder gave up on the file.
    #[error("is a broken {format} file: its decoder failed on it")]
    Broken {
        /// The format.
        format: &'static str,
    },
    /// Not a readable Arrow file or stream.
    #[error("is not a readable Arrow file: {wanted}")]
    ArrowFile {
        /// What is wrong.
        wanted: &'static str,
    },
    /// Not a readable safetensors file.
    #[error("is not a readable safetensors file")]
    Safetensors(#[source] safetensors::SafeTensorError),
    /// The stop flag was set while the file was decoded.
    #[error("was not read to its end")]
    Stopped,
    /// Not a readable HDF5 file.
    #[error("is not a readable HDF5 file: {0}")]
    Hdf5(String),
    /// No tensor, or none that is meant beyond doubt.
    #[error("`tensor` must name one of its matrices: {}", if names.is_empty() { "there is none" } else { names })]
    Tensor {
        /// The tensors of two dimensions.
        names: String,
    },
    /// A file of vectors that is cut or has vectors of different lengths.
    #[error("row {row}, {at} bytes into the file, {what}; {needed}")]
    Vectors {
        /// Row, from 0.
        row: u64,
        /// Where the row begins.
        at: u64,
        /// What is there.
        what: String,
        /// What ought to be.
        needed: String,
    },
    /// A row of text that can not be split into fields.
    #[error("is not readable as CSV")]
    Csv(#[source] csv::Error),
    /// A line with more or fewer fields than the first.
    #[error("line {line} has {found} fields, the lines before it have {needed}")]
    Fields {
        /// Line, from 1.
        line: u64,
        /// Fields in the lines before.
        needed: u64,
        /// Fields in this line.
        found: u64,
    },
    /// A field that is no number.
    #[error("line {line}, column {column} is `{value}`: a matrix has a number everywhere")]
    Field {
        /// Line, from 1.
        line: u64,
        /// Name of the column, or its number from 0.
        column: String,
        /// What stands there, shortened.
        value: String,
    },
    /// It can not be told whether the first line of a CSV file is a header.
    #[error(
        "line 1 has numbers and other texts: say with `csv_header` (`true` or `false`) whether it is a header"
    )]
    Header,
    /// The column of ids is not there.
    #[error("has no column `{column}` that `id_column` names; there are {names}")]
    NoIdColumn {
        /// The name asked for.
        column: String,
        /// The columns that there are.
        names: String,
    },
    /// A row without an id.
    #[error("row {row} has no id in column `{column}`")]
    NoId {
        /// Row, from 0.
        row: u64,
        /// Name of the column.
        column: String,
    },
    /// Lists of indices and values of different lengths.
    #[error("row {row} has {indices} indices and {values} values")]
    SparseLists {
        /// Row, from 0.
        row: u64,
        /// Length of the first list.
        indices: u64,
        /// Length of the second list.
        values: u64,
    },
    /// A column that is no part of a matrix.
    #[error(
        "column `{column}` is of type {type_name}: either all columns are numbers, or one is a list of numbers, or \
         there are lists `indices` and `values`; `id_column` names a column of ids"
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
