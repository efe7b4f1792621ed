//! The files of a channel as one matrix, dense or sparse.

mod arrow_file;
mod channel;
mod csv_text;
#[cfg(feature = "hdf5")]
mod hdf5_file;
mod ids;
mod inspect;
mod parquet_file;
mod safetensors_file;
mod table;
mod vectors;

use crate::dense::{DenseFile, DenseMatrix, DenseRows};
use crate::element::Element;
use crate::npz;
use crate::problem::{FileProblem, MatrixError};
use crate::sparse::{SparseFile, SparseRows};
use crate::words;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) use ids::Ids;
pub(crate) use inspect::{FactsByRow, RowFacts, inspect};

/// Rows are numbered in 32 bits while they are compared.
const MOST_ROWS: u64 = u32::MAX as u64;

/// What can not be seen in a file itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reading {
    /// Column of a table that holds the ids of the rows; its number from 0 in a CSV file without a header.
    pub id_column: Option<String>,
    /// Whether the first line of a CSV file is a header; seen from that line if `None`.
    pub csv_header: Option<bool>,
    /// The tensor of a file that has several.
    pub tensor: Option<String>,
}

/// What a file that has to be decoded is read with.
#[derive(Clone, Copy)]
struct Decoding<'a> {
    reading: &'a Reading,
    stop: &'a AtomicBool,
}

impl Decoding<'_> {
    /// Ends the decoding of a file once that is asked for.
    fn go_on(self) -> Result<(), FileProblem> {
        if self.stop.load(Ordering::Relaxed) { Err(FileProblem::Stopped) } else { Ok(()) }
    }
}

/// All rows, checked and with their norms.
#[derive(Debug)]
pub(crate) enum Matrix {
    Dense(DenseRows),
    Sparse(SparseRows),
}

/// A matrix with what came along with it. With a query, the rows of the query come first.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) matrix: Matrix,
    /// Rows of the query, 0 without one.
    pub(crate) query_rows: usize,
    /// Ids of the rows of the matrix, without those of the query.
    pub(crate) ids: Option<Ids>,
    /// Ids of the rows of the query.
    pub(crate) query_ids: Option<Ids>,
    /// What is known of all rows, those of the query included.
    pub(crate) facts: RowFacts,
    /// Bytes of all files.
    pub(crate) bytes: u64,
}

impl Matrix {
    /// Reads the files of both folders (or both files), each in the byte order of their names, and inspects every
    /// row. Dense rows that are `compared` in integers are held so where there is room.
    pub(crate) fn load(
        matrix: &Path,
        query: Option<&Path>,
        (reading, compared): (&Reading, bool),
        stop: &AtomicBool,
    ) -> Result<Loaded, MatrixError> {
        let decoding = Decoding { reading, stop };
        let mut files = query.map_or(Ok(Vec::new()), |query| open_all(query, decoding))?;
        let query_files = files.len();
        let query_rows: usize = files.iter().map(|file| file.opened.rows()).sum();
        files.extend(open_all(matrix, decoding)?);
        let rows: u64 = files.iter().map(|file| file.opened.rows() as u64).sum();
        if rows > MOST_ROWS {
            return Err(MatrixError::TooManyRows { rows, most: MOST_ROWS });
        }
        widen(&mut files);
        check_fit(&files)?;
        let bytes = files.iter().map(|file| file.bytes).sum();
        let query_ids = join_ids(&files[..query_files])?;
        let ids = join_ids(&files[query_files..])?;
        let (matrix, facts) =
            join(files, compared, stop).map_err(|error| of_query(error, query_rows as u64))?;
        Ok(Loaded { matrix, query_rows, ids, query_ids, facts, bytes })
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

    /// Lets go of the memory that mapped files take; what is needed again is read again.
    pub(crate) fn let_go(&self) {
        if let Self::Dense(rows) = self {
            rows.matrix.let_go();
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

/// Reads a matrix (a file, or a folder of files), looks at every row as a search would, and tells its rows and columns.
///
/// # Errors
/// Whatever keeps it from being a matrix.
pub fn read_shape(matrix: &Path, reading: &Reading, stop: &AtomicBool) -> Result<(u64, u64), MatrixError> {
    let matrix = Matrix::load(matrix, None, (reading, false), stop)?.matrix;
    Ok((matrix.rows() as u64, matrix.columns()))
}

/// What one file holds.
#[derive(Debug)]
pub(crate) enum Content {
    Dense(DenseFile),
    Sparse(SparseFile),
}

/// One file, opened.
#[derive(Debug)]
pub(crate) struct OpenedFile {
    pub(crate) content: Content,
    pub(crate) ids: Option<Ids>,
    /// Whether the file says how many columns it has, rather than only which ones have entries.
    pub(crate) width_known: bool,
}

impl OpenedFile {
    fn rows(&self) -> usize {
        match &self.content {
            Content::Dense(file) => file.rows,
            Content::Sparse(file) => file.rows(),
        }
    }

    fn columns(&self) -> u64 {
        match &self.content {
            Content::Dense(file) => file.columns as u64,
            Content::Sparse(file) => file.columns,
        }
    }
}

struct MatrixFile {
    path: PathBuf,
    bytes: u64,
    opened: OpenedFile,
}

impl MatrixFile {
    fn open(path: PathBuf, decoding: Decoding) -> Result<Self, MatrixError> {
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        let dense = |file| OpenedFile { content: Content::Dense(file), ids: None, width_known: true };
        let opened = match ending.to_ascii_lowercase().as_str() {
            "npy" => DenseFile::open_npy(&path).and_then(|file| file.in_rows(decoding.stop)).map(dense),
            "npz" => npz::read(&path, decoding.stop).map(|file| OpenedFile {
                content: Content::Sparse(file),
                ids: None,
                width_known: true,
            }),
            "parquet" => parquet_file::read(&path, decoding),
            "arrow" | "arrows" | "feather" | "ipc" => arrow_file::read(&path, decoding),
            "csv" => csv_text::read(&path, b',', decoding),
            "tsv" => csv_text::read(&path, b'\t', decoding),
            "safetensors" => safetensors_file::open(&path, decoding.reading).map(dense),
            "fvecs" => vectors::open(&path, Element::F32).map(dense),
            "bvecs" => vectors::open(&path, Element::U8).map(dense),
            "ivecs" => vectors::open(&path, Element::I32).map(dense),
            #[cfg(feature = "hdf5")]
            "h5" | "hdf5" => hdf5_file::read(&path, decoding).map(dense),
            #[cfg(not(feature = "hdf5"))]
            "h5" | "hdf5" => return Err(MatrixError::NoHdf5 { file: path }),
            _ => return Err(MatrixError::Ending { file: path }),
        };
        let bytes = fs_err::metadata(&path).map_err(MatrixError::List)?.len();
        match opened {
            Ok(opened) => Ok(Self { path, bytes, opened }),
            Err(FileProblem::Stopped) => Err(MatrixError::Stopped),
            Err(problem) => Err(MatrixError::File { file: path, problem: Box::new(problem) }),
        }
    }
}

fn open_all(path: &Path, decoding: Decoding) -> Result<Vec<MatrixFile>, MatrixError> {
    let files: Vec<MatrixFile> = channel::files(path)?
        .into_iter()
        .map(|file| MatrixFile::open(file, decoding))
        .collect::<Result<_, _>>()?;
    if files.iter().all(|file| file.opened.rows() == 0) {
        return Err(MatrixError::NoRows { folder: path.to_owned() });
    }
    Ok(files)
}

/// Files of lists only show which columns have entries: they are as wide as the widest file.
fn widen(files: &mut [MatrixFile]) {
    let widest = files.iter().map(|file| file.opened.columns()).max().unwrap_or(0);
    for file in files {
        if let Content::Sparse(sparse) = &mut file.opened.content
            && !file.opened.width_known
        {
            sparse.columns = widest;
        }
    }
}

fn check_fit(files: &[MatrixFile]) -> Result<(), MatrixError> {
    let Some((first, others)) = files.split_first() else { return Ok(()) };
    let is_dense = |file: &MatrixFile| matches!(file.opened.content, Content::Dense(_));
    for other in others {
        if is_dense(first) != is_dense(other) {
            return Err(MatrixError::Mixed { file: other.path.clone(), first: first.path.clone() });
        }
        if first.opened.columns() != other.opened.columns() {
            return Err(MatrixError::Shape {
                file: other.path.clone(),
                rows: other.opened.rows() as u64,
                columns: other.opened.columns(),
                first: first.path.clone(),
                first_rows: first.opened.rows() as u64,
                first_columns: first.opened.columns(),
            });
        }
    }
    Ok(())
}

fn join_ids(files: &[MatrixFile]) -> Result<Option<Ids>, MatrixError> {
    // A file without rows has no say.
    let files = files.iter().filter(|file| file.opened.rows() > 0);
    let Some(first) = files.clone().next() else { return Ok(None) };
    let mut pieces = Vec::new();
    for file in files {
        match (&file.opened.ids, &first.opened.ids) {
            (Some(ids), Some(_)) => pieces.push(ids.clone()),
            (None, None) => {}
            (ids, _) => {
                let (with, file) = (ids.is_some(), file.path.clone());
                return Err(MatrixError::Ids { file, with, first: first.path.clone() });
            }
        }
    }
    Ids::join(&pieces).map_err(|source| MatrixError::File {
        file: first.path.clone(),
        problem: Box::new(FileProblem::Arrow(source)),
    })
}

fn join(
    files: Vec<MatrixFile>,
    compared: bool,
    stop: &AtomicBool,
) -> Result<(Matrix, RowFacts), MatrixError> {
    let (mut dense, mut sparse, mut facts) = (Vec::new(), Vec::new(), FactsByRow::default());
    for file in files {
        match file.opened.content {
            Content::Dense(file) => dense.push(file),
            Content::Sparse(file) => {
                facts.push_sparse(&file);
                sparse.push(file);
            }
        }
    }
    if dense.is_empty() {
        let (rows, facts) = rayon::join(|| SparseRows::join(sparse), || facts.finish());
        return Ok((Matrix::Sparse(rows?), facts));
    }
    let matrix = DenseMatrix::join(dense);
    let hold = compared && words::have_room(&matrix);
    inspect(matrix, hold, stop).map(|(rows, facts)| (Matrix::Dense(rows), facts))
}

/// Says of an error's row in which of the two matrices it is.
fn of_query(error: MatrixError, query_rows: u64) -> MatrixError {
    match error {
        MatrixError::NonFinite { row, column, value, file, file_row, .. } => {
            let in_query = row < query_rows;
            let whose = if in_query { "query" } else { "matrix" };
            let row = if in_query { row } else { row - query_rows };
            MatrixError::NonFinite { whose, row, column, value, file, file_row }
        }
        other => other,
    }
}
