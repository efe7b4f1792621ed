//! The part of one host: its rows' neighbours as a Parquet file.

use crate::neighbours::Neighbour;
use arrow::array::{ArrayRef, Float32Array, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use fs_err::File;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;

/// Pairs of a row group, the last one excepted. By count, never by bytes, so that the cut is the same everywhere.
const ROW_GROUP_PAIRS: usize = 1 << 20;

/// Pairs that are handed to the encoder at a time, so that pages too are cut at the same places.
const BATCH_PAIRS: usize = 1 << 16;

/// A part that can not be written.
#[derive(Debug, Error)]
pub enum PartError {
    /// The file can not be created, renamed or removed; the source names the path.
    #[error("the part can not be written")]
    Io(#[from] io::Error),
    /// The encoder failed, most often since the disk is full.
    #[error("{} can not be written", path.display())]
    Parquet {
        /// The file.
        path: PathBuf,
        /// What the encoder says.
        #[source]
        source: parquet::errors::ParquetError,
    },
}

/// Writes a part; the file has its name only once it is whole.
pub(crate) struct PartWriter {
    path: PathBuf,
    unfinished: PathBuf,
    writer: ArrowWriter<std::fs::File>,
    schema: Arc<Schema>,
    rows: Vec<i64>,
    columns: Vec<i64>,
    similarities: Vec<f32>,
}

impl PartWriter {
    /// Begins `part-<host>.parquet` in the folder.
    pub(crate) fn create(folder: &Path, host: &str) -> Result<Self, PartError> {
        let path = folder.join(format!("part-{host}.parquet"));
        let unfinished = folder.join(format!("part-{host}.unfinished"));
        let (file, _) = File::create(&unfinished)?.into_parts();
        let schema = Arc::new(Schema::new(vec![
            Field::new("row", DataType::Int64, false),
            Field::new("col", DataType::Int64, false),
            Field::new("similarity", DataType::Float32, false),
        ]));
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_max_row_group_row_count(Some(ROW_GROUP_PAIRS))
            .set_max_row_group_bytes(None)
            // Almost all of their values differ; a dictionary of them would be built only to be thrown away.
            .set_column_dictionary_enabled("col".into(), false)
            .set_column_dictionary_enabled("similarity".into(), false)
            .build();
        let writer = ArrowWriter::try_new(file, Arc::clone(&schema), Some(properties))
            .map_err(|source| PartError::Parquet { path: path.clone(), source })?;
        let (rows, columns, similarities) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { path, unfinished, writer, schema, rows, columns, similarities })
    }

    /// Adds the neighbours of a row; rows must come in order.
    pub(crate) fn push(&mut self, row: usize, neighbours: &[Neighbour]) -> Result<(), PartError> {
        for neighbour in neighbours {
            self.rows.push(row as i64);
            self.columns.push(i64::from(neighbour.column));
            self.similarities.push(neighbour.similarity);
            if self.rows.len() == BATCH_PAIRS {
                self.write_batch()?;
            }
        }
        Ok(())
    }

    fn write_batch(&mut self) -> Result<(), PartError> {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(std::mem::take(&mut self.rows))),
            Arc::new(Int64Array::from(std::mem::take(&mut self.columns))),
            Arc::new(Float32Array::from(std::mem::take(&mut self.similarities))),
        ];
        RecordBatch::try_new(Arc::clone(&self.schema), columns)
            .map_err(parquet::errors::ParquetError::from)
            .and_then(|batch| self.writer.write(&batch))
            .map_err(|source| PartError::Parquet { path: self.path.clone(), source })
    }

    /// Completes the file and gives it its name.
    pub(crate) fn finish(mut self) -> Result<(), PartError> {
        self.write_batch()?;
        self.writer.finish().map_err(|source| PartError::Parquet { path: self.path.clone(), source })?;
        Ok(fs_err::rename(&self.unfinished, &self.path)?)
    }
}

impl Drop for PartWriter {
    fn drop(&mut self) {
        // Gone already if the part was finished; nobody is left to tell if it can not be removed.
        let _ = fs_err::remove_file(&self.unfinished);
    }
}
