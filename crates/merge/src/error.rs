//! Everything that can end a merge, told apart by what the user can do about it.

use std::io;
use std::path::PathBuf;

use arrow::error::ArrowError;
use parquet::errors::ParquetError;

use crate::format::Format;
use crate::part::PartName;
use crate::report::Skipped;

/// Why a merge failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MergeError {
    /// The output's ending is not that of a format.
    #[error("{output} does not end in .parquet, .csv, .jsonl, .arrow, .npy or .npz")]
    OutputFormat {
        /// The path as given.
        output: PathBuf,
    },
    /// The pattern for parts is no pattern.
    #[error("{glob:?} is not a pattern for parts")]
    Glob {
        /// The pattern as given.
        glob: String,
        /// Where it is wrong.
        source: glob::PatternError,
    },
    /// The archive, or something in the folder, can not be opened or read.
    #[error("the parts in {archive} can not be read")]
    Open {
        /// The archive or folder.
        archive: PathBuf,
        /// Names the path it happened on.
        source: io::Error,
    },
    /// The archive is cut off, damaged, or no archive.
    #[error("{archive} is broken {place}, at byte {offset} of the unpacked archive")]
    BrokenArchive {
        /// The archive.
        archive: PathBuf,
        /// Near which entry.
        place: ArchivePlace,
        /// Bytes of the tar that could be read.
        offset: u64,
        /// What is wrong there.
        source: io::Error,
    },
    /// A part is stored as a sparse file, which can claim any size.
    #[error("{part} is stored as a sparse file, which is not read: pack it without --sparse")]
    Sparse {
        /// The part.
        part: PartName,
    },
    /// Nothing in the archive is a part.
    #[error("no part in {archive}: {wanted}; {}", held_text(.held))]
    NoPart {
        /// The archive or folder.
        archive: PathBuf,
        /// What was looked for.
        wanted: String,
        /// What is there instead.
        held: Skipped,
    },
    /// A file that the pattern fits has no known ending.
    #[error(
        "{part} does not end in .parquet, .csv, .jsonl, .arrow, .npy or .npz: a narrower pattern leaves it out"
    )]
    PartFormat {
        /// The file.
        part: PartName,
    },
    /// The parts are of several formats.
    #[error("{first} and {other} are of different formats: a pattern such as \"part-*.csv\" picks one kind")]
    MixedFormats {
        /// The first part.
        first: PartName,
        /// The first part of another format.
        other: PartName,
    },
    /// Parts of one format can not become an output of the other.
    #[error("{from} parts can not be merged into a {to} file{}", if matches!(.from, Format::Npy | Format::Npz) || matches!(.to, Format::Npy | Format::Npz) { ": .npy and .npz are made from parts of their own kind and nothing else" } else { "" })]
    Conversion {
        /// Format of the parts.
        from: Format,
        /// Format of the output.
        to: Format,
    },
    /// A column has a type that the output format can not hold.
    #[error("column {column:?} of type {column_type} has no place in a {to} file")]
    ColumnConversion {
        /// The column.
        column: String,
        /// Its type, as Arrow writes it.
        column_type: String,
        /// Format of the output.
        to: Format,
    },
    /// There are rows, but no part has a column.
    #[error("the rows of {part} have no columns, and a {to} file can not hold such rows")]
    NoColumns {
        /// The first part with rows.
        part: PartName,
        /// Format of the output.
        to: Format,
    },
    /// `.npy` arrays have no columns to order by.
    #[error("rows of .npy parts can not be ordered by {column:?}: they have no named columns")]
    NoNames {
        /// The column asked for.
        column: String,
    },
    /// No part has the column to order by.
    #[error("there is no column {column:?} to order by; the columns are {}", .columns.join(", "))]
    NoColumn {
        /// The column asked for.
        column: String,
        /// The columns there are, 20 at most.
        columns: Vec<String>,
    },
    /// The column to order by holds lists, objects or the like.
    #[error("rows can not be ordered by column {column:?} of type {column_type}")]
    NoOrder {
        /// The column asked for.
        column: String,
        /// Its type, as Arrow writes it.
        column_type: String,
    },
    /// Lists that are combined are in order of their rows.
    #[error(
        "the parts hold lists that are combined in order of their rows, not by {column:?}: merge them without an \
         order first, and the result by {column:?} then"
    )]
    ListOrder {
        /// The column asked for.
        column: String,
    },
    /// Lists can only be combined if all instances' are there.
    #[error(
        "the parts hold lists that are to be combined, and those of instance {host} of {hosts} are missing"
    )]
    MissingLists {
        /// The first instance without a part, from 1.
        host: usize,
        /// How many instances there were.
        hosts: usize,
    },
    /// The rows can not be sorted.
    #[error("the rows can not be brought into the order of column {column:?}")]
    Sort {
        /// The column asked for.
        column: String,
        /// What Arrow says.
        source: ArrowError,
    },
    /// One part is broken or does not fit the others.
    #[error("part {part} does not fit")]
    Part {
        /// The part.
        part: PartName,
        /// What is wrong with it.
        source: Box<PartError>,
    },
    /// The rows can not be expressed in the output format.
    #[error("the rows can not be written as {to}")]
    Encode {
        /// Format of the output.
        to: Format,
        /// What the encoder says.
        source: ArrowError,
    },
    /// No space is left where the output lies.
    #[error("the disk that holds {path} is full")]
    DiskFull {
        /// The output, or a temporary file beside it.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The output can not be written for another reason than space.
    #[error("{path} can not be written")]
    Unwritable {
        /// The output, or a temporary file beside it.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

/// What is wrong with one part.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PartError {
    /// Its bytes can not be read back.
    #[error("it can not be read")]
    Read(#[from] io::Error),
    /// Not a Parquet file, or a damaged one.
    #[error("it is not readable Parquet")]
    Parquet(#[from] ParquetError),
    /// The decoder stopped on damage that it did not foresee.
    #[error("it is damaged inside: the Parquet decoder gave up on it")]
    ParquetPanic,
    /// Its rows can not be brought into the common columns.
    #[error("its rows do not fit the common columns")]
    Arrow(#[from] ArrowError),
    /// A row has another number of fields than the header, or the file is not CSV.
    #[error("it is not readable CSV")]
    Csv(#[from] csv::Error),
    /// Its CSV header differs from that of the first part.
    #[error("its header is {found:?}, but {first} has {expected:?}")]
    Header {
        /// The part that set the header.
        first: PartName,
        /// The header expected.
        expected: String,
        /// The header found.
        found: String,
    },
    /// A line or record is longer than any sound one.
    #[error("the record at line {line} is longer than {limit} bytes")]
    RecordTooLong {
        /// Line where the record begins, from 1.
        line: u64,
        /// The most that is accepted.
        limit: u64,
    },
    /// A line is not a JSON object.
    #[error("line {line} is not a JSON object")]
    Json {
        /// The line, from 1.
        line: u64,
        /// What is wrong in it.
        source: serde_json::Error,
    },
    /// Text that must be UTF-8 is not.
    #[error("line {line} is not UTF-8")]
    NotUtf8 {
        /// The line, from 1.
        line: u64,
    },
    /// A JSON value has a kind that does not go with the same key elsewhere.
    #[error("line {line} has {found} at {column:?}, where {expected} stood before")]
    JsonKind {
        /// The line, from 1.
        line: u64,
        /// The key.
        column: String,
        /// Kind of the earlier values.
        expected: &'static str,
        /// Kind of this value.
        found: &'static str,
    },
    /// More columns than a table can sensibly have.
    #[error("line {line} brings the number of columns above {limit}")]
    TooManyColumns {
        /// The line, from 1.
        line: u64,
        /// The most that is accepted.
        limit: usize,
    },
    /// Two columns share a name, which the output format can not hold.
    #[error("its header has {column:?} twice, which only a .csv output can hold")]
    DuplicateColumn {
        /// The name.
        column: String,
    },
    /// Its columns differ from those of the first part.
    #[error("{difference}, unlike {first}")]
    Schema {
        /// The part that set the columns.
        first: PartName,
        /// The first difference.
        difference: SchemaDifference,
    },
    /// The Arrow decoder failed on it.
    #[error("it is a broken Arrow file: its decoder failed on it")]
    ArrowPanic,
    /// Not a readable ZIP archive.
    #[error("it is not a readable .npz archive")]
    Zip(#[from] zip::result::ZipError),
    /// An array of a sparse matrix is missing.
    #[error(
        "it has no array `{name}`: a sparse matrix is one in CSR form, as scipy.sparse.save_npz writes it"
    )]
    NoArray {
        /// The array.
        name: &'static str,
    },
    /// A sparse matrix of another form.
    #[error("it is a sparse matrix in `{format}` form: only rows (`csr`) can be joined")]
    NotCsr {
        /// The form.
        format: String,
    },
    /// Arrays that do not make up a sparse matrix.
    #[error("its arrays `shape`, `indptr`, `indices` and `data` do not fit together")]
    BrokenCsr,
    /// Its lists are not of the kind that the first part's are.
    #[error(
        "its lists are whole or were made with other settings or another version than those of {first}: they can not be \
         combined"
    )]
    OtherLists {
        /// The first part.
        first: PartName,
    },
    /// Two parts hold the lists of one instance.
    #[error("it holds the lists of instance {host}, which another part holds already")]
    SameLists {
        /// The instance, from 1.
        host: usize,
    },
    /// It says something about its lists that is not understood.
    #[error("what it says of its lists is not understood by this version: {text}")]
    UnknownLists {
        /// What it says.
        text: String,
    },
    /// Lists that are to be combined have three columns.
    #[error("its lists are to be combined, but its columns are not a row, a row and a score")]
    ListColumns,
    /// Its lists are not in order.
    #[error("its lists are not in order of their rows")]
    ListsUnordered,
    /// Not a NumPy array, or a kind that has no rows to join.
    #[error(transparent)]
    Npy(#[from] NpyFault),
    /// The array's length on disk is not what its header says.
    #[error("its header promises {promised} bytes of values, but {found} follow")]
    NpyLength {
        /// Bytes by the header.
        promised: u128,
        /// Bytes in the file.
        found: u64,
    },
    /// The array is of another type or row shape than the first part's.
    #[error("its rows are {found}, but those of {first} are {expected}")]
    NpyRows {
        /// The part that set type and shape.
        first: PartName,
        /// Type and shape expected.
        expected: String,
        /// Type and shape found.
        found: String,
    },
}

/// Why a `.npy` part can not be joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NpyFault {
    /// The magic bytes are missing.
    #[error("it is not a NumPy array")]
    NotNumPy,
    /// A version that is not known.
    #[error("its .npy version is none of 1, 2 and 3")]
    Version,
    /// The header claims a length that none has.
    #[error("its header is longer than 1 MiB")]
    LongHeader,
    /// The file is shorter than its header.
    #[error("it ends within its header")]
    CutOff,
    /// The header is not the dict that NumPy writes.
    #[error("its header is not that of a NumPy array")]
    Malformed,
    /// A structured type.
    #[error("its values are records, which can not be joined")]
    Records,
    /// An array without axes.
    #[error("it is a single value without rows")]
    Scalar,
    /// Column-major order.
    #[error("it is stored in Fortran order: save numpy.ascontiguousarray of it")]
    Fortran,
    /// A type whose size is not known.
    #[error("its values are of a type that has no fixed size")]
    UnknownType,
    /// Pickled objects.
    #[error("its values are Python objects, which are not read")]
    Objects,
    /// The rows of all parts can not be counted.
    #[error("the rows of all parts are more than can be counted")]
    TooManyRows,
}

/// The first difference between the columns of two parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SchemaDifference {
    /// A column is not there.
    Missing {
        /// Its name and type.
        column: String,
    },
    /// A column is there that should not be.
    Extra {
        /// Its name and type.
        column: String,
    },
    /// A column has another name or type.
    Column {
        /// Its place, from 1.
        at: usize,
        /// Name and type expected.
        expected: String,
        /// Name and type found.
        found: String,
    },
}

impl std::fmt::Display for SchemaDifference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Missing { column } => write!(f, "column {column} is missing"),
            Self::Extra { column } => write!(f, "column {column} is too many"),
            Self::Column { at, expected, found } => {
                write!(f, "column {at} is {found} instead of {expected}")
            }
        }
    }
}

/// Where in an archive reading ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArchivePlace {
    /// Before any entry.
    Start,
    /// In the contents of an entry.
    In(String),
    /// Behind the contents of an entry, at the next header.
    After(String),
}

impl std::fmt::Display for ArchivePlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Start => f.write_str("before its first entry"),
            Self::In(path) => write!(f, "in {path}"),
            Self::After(path) => write!(f, "after {path}"),
        }
    }
}

/// Tells a full disk from other reasons why `path` can not be written.
pub(crate) fn unwritable(path: impl Into<PathBuf>, source: io::Error) -> MergeError {
    let path = path.into();
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => MergeError::DiskFull { path, source },
        _ => MergeError::Unwritable { path, source },
    }
}

/// The names in an archive that has no part.
fn held_text(held: &Skipped) -> String {
    match held.count {
        0 => "it holds no files".to_owned(),
        count if count > held.first.len() as u64 => {
            format!("it holds {} and {} more", held.first.join(", "), count - held.first.len() as u64)
        }
        _ => format!("it holds {}", held.first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_apart_from_other_reasons() {
        for kind in [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded] {
            assert!(matches!(unwritable("out.csv", kind.into()), MergeError::DiskFull { .. }));
        }
        let denied = unwritable("out.csv", io::ErrorKind::PermissionDenied.into());
        assert_eq!(denied.to_string(), "out.csv can not be written");
    }
}
