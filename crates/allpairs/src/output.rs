//! The result as a file: the pairs of rows, sorted by row and rank.

mod npz;
mod parquet_file;
mod table;

use crate::matrix::Ids;
use crate::neighbours::Neighbour;
use crate::settings::{Measure, PairFormat};
use crate::symmetric::Partial;
use arrow::error::ArrowError;
use npz::NpzWriter;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use table::TableWriter;
use thiserror::Error;

/// A part that can not be written.
#[derive(Debug, Error)]
pub enum PartError {
    /// The file can not be created, renamed or removed; the source names the path.
    #[error("the part can not be written")]
    Io(#[from] io::Error),
    /// The encoder failed, most often since the disk is full.
    #[error("{} can not be written", path.display())]
    Encode {
        /// The file.
        path: PathBuf,
        /// What the encoder says.
        #[source]
        source: ArrowError,
    },
}

/// What is to be written, and how.
#[derive(Debug, Clone)]
pub(crate) struct Layout<'a> {
    pub(crate) format: PairFormat,
    pub(crate) measure: Measure,
    /// The rows that pairs begin with; each of them may have any number of pairs.
    pub(crate) rows: Range<usize>,
    /// Rows of the matrix that pairs end with.
    pub(crate) columns: usize,
    /// Ids of the rows that pairs begin with, by their numbers.
    pub(crate) row_ids: Option<&'a Ids>,
    /// What a reader of the file must know if its lists are not whole.
    pub(crate) partial: Option<Partial>,
    /// Ids of the rows that pairs end with.
    pub(crate) column_ids: Option<&'a Ids>,
}

/// The number that is written for a score.
pub(crate) fn measured(similarity: f32, measure: Measure) -> f32 {
    match measure {
        Measure::Similarity => similarity,
        // Exact before it is rounded, and so 0 for a score of 1 and never below.
        Measure::Distance => (1.0 - f64::from(similarity)) as f32,
    }
}

/// Writes pairs; the file has its name only once it is whole.
pub(crate) struct PairWriter<'a> {
    path: PathBuf,
    unfinished: PathBuf,
    encoder: Encoder<'a>,
}

enum Encoder<'a> {
    Table(Box<TableWriter<'a>>),
    Npz(Box<NpzWriter>),
}

impl<'a> PairWriter<'a> {
    /// Begins the file.
    pub(crate) fn create(path: &Path, layout: &Layout<'a>) -> Result<Self, PartError> {
        let unfinished = unfinished(path);
        let encoder = match layout.format {
            PairFormat::Npz => Encoder::Npz(Box::new(NpzWriter::create(&unfinished, layout)?)),
            _ => Encoder::Table(Box::new(TableWriter::create(&unfinished, layout)?)),
        };
        Ok(Self { path: path.to_owned(), unfinished, encoder })
    }

    /// Adds the neighbours of a row; rows must come in order.
    pub(crate) fn push(&mut self, row: usize, neighbours: &[Neighbour]) -> Result<(), PartError> {
        match &mut self.encoder {
            Encoder::Table(writer) => writer.push(row, neighbours),
            Encoder::Npz(writer) => Ok(writer.push(row, neighbours)?),
        }
    }

    /// Completes the file and gives it its name.
    pub(crate) fn finish(mut self) -> Result<(), PartError> {
        match &mut self.encoder {
            Encoder::Table(writer) => writer.finish()?,
            Encoder::Npz(writer) => writer.finish()?,
        }
        Ok(fs_err::rename(&self.unfinished, &self.path)?)
    }
}

impl Drop for PairWriter<'_> {
    fn drop(&mut self) {
        // Gone already if the file was finished; nobody is left to tell if it can not be removed.
        let _ = fs_err::remove_file(&self.unfinished);
    }
}

/// What a file is called until it is whole: no pattern for results fits it.
pub(crate) fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".unfinished");
    PathBuf::from(name)
}
