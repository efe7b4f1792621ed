//! Pairs as a table of the columns `row`, `col` and `similarity` (or `distance`).

use super::parquet_file::{Column, Labels, ParquetFile};
use super::{Layout, PartError, measured};
use crate::matrix::Ids;
use crate::neighbours::Neighbour;
use crate::settings::{Measure, PairFormat};
use arrow::array::{ArrayRef, Float32Array, Int64Array, RecordBatch, StringArray};
use arrow::csv::Writer as CsvWriter;
use arrow::datatypes::{DataType, Field, Schema};
use arrow::error::ArrowError;
use arrow::ipc::writer::FileWriter;
use fs_err::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Pairs that are handed to the encoder at a time, so that pages too are cut at the same places.
pub(super) const BATCH_PAIRS: usize = 1 << 16;

pub(super) struct TableWriter<'a> {
    path: PathBuf,
    schema: Arc<Schema>,
    encoder: Encoder,
    measure: Measure,
    row_ids: Option<&'a Ids>,
    column_ids: Option<&'a Ids>,
    rows: Vec<u32>,
    columns: Vec<u32>,
    numbers: Vec<f32>,
}

enum Encoder {
    Parquet(Box<ParquetFile>),
    Csv(Box<CsvWriter<BufWriter<File>>>),
    Arrow(Box<FileWriter<BufWriter<File>>>),
}

impl<'a> TableWriter<'a> {
    pub(super) fn create(path: &Path, layout: &Layout<'a>) -> Result<Self, PartError> {
        let file = File::create(path)?;
        let name = match layout.measure {
            Measure::Similarity => "similarity",
            Measure::Distance => "distance",
        };
        let schema = Arc::new(Schema::new(vec![
            Field::new("row", id_type(layout.row_ids), false),
            Field::new("col", id_type(layout.column_ids), false),
            Field::new(name, DataType::Float32, false),
        ]));
        let encode = |source| PartError::Encode { path: path.to_owned(), source };
        let encoder = match layout.format {
            PairFormat::Csv => {
                let mut writer = CsvWriter::new(BufWriter::new(file));
                // The header, also if no pair follows.
                writer.write(&RecordBatch::new_empty(Arc::clone(&schema))).map_err(encode)?;
                Encoder::Csv(Box::new(writer))
            }
            PairFormat::Arrow => {
                Encoder::Arrow(Box::new(FileWriter::try_new(BufWriter::new(file), &schema).map_err(encode)?))
            }
            PairFormat::Parquet | PairFormat::Npz => {
                let labels = [layout.row_ids, layout.column_ids].map(|ids| match ids {
                    None => Labels::Rows,
                    Some(Ids::Numbers(_)) => Labels::Numbers,
                    Some(Ids::Texts(_)) => Labels::Texts,
                });
                let mut writer = ParquetFile::new(file.into_parts().0, &schema, labels);
                if let Some(partial) = layout.partial {
                    writer.add_metadata(partial.metadata());
                }
                Encoder::Parquet(Box::new(writer))
            }
        };
        Ok(Self {
            path: path.to_owned(),
            schema,
            encoder,
            measure: layout.measure,
            row_ids: layout.row_ids,
            column_ids: layout.column_ids,
            rows: Vec::with_capacity(BATCH_PAIRS),
            columns: Vec::with_capacity(BATCH_PAIRS),
            numbers: Vec::with_capacity(BATCH_PAIRS),
        })
    }

    pub(super) fn push(&mut self, row: usize, neighbours: &[Neighbour]) -> Result<(), PartError> {
        for neighbour in neighbours {
            // Rows are numbered in 32 bits.
            self.rows.push(row as u32);
            self.columns.push(neighbour.column);
            self.numbers.push(measured(neighbour.similarity, self.measure));
            if self.rows.len() == BATCH_PAIRS {
                self.write_batch()?;
            }
        }
        Ok(())
    }

    fn write_batch(&mut self) -> Result<(), PartError> {
        self.encode()?;
        self.rows.clear();
        self.columns.clear();
        self.numbers.clear();
        Ok(())
    }

    fn encode(&mut self) -> Result<(), PartError> {
        let (rows, others, numbers) = (&self.rows, &self.columns, &self.numbers);
        let (row_ids, column_ids) = (self.row_ids, self.column_ids);
        let columns: [Column; 3] = [
            Box::new(|pairs| labels(&rows[pairs], row_ids)),
            Box::new(|pairs| labels(&others[pairs], column_ids)),
            Box::new(|pairs| Arc::new(Float32Array::from_iter_values(numbers[pairs].iter().copied()))),
        ];
        let batch = || {
            let columns = columns.iter().map(|column| column(0..rows.len())).collect();
            RecordBatch::try_new(Arc::clone(&self.schema), columns)
        };
        let written = match &mut self.encoder {
            Encoder::Parquet(writer) => writer.write(&columns, rows.len()).map_err(ArrowError::from),
            Encoder::Csv(writer) => batch().and_then(|batch| writer.write(&batch)),
            Encoder::Arrow(writer) => batch().and_then(|batch| writer.write(&batch)),
        };
        written.map_err(|source| PartError::Encode { path: self.path.clone(), source })
    }

    pub(super) fn finish(&mut self) -> Result<(), PartError> {
        if !self.rows.is_empty() {
            self.write_batch()?;
        }
        let finished = match &mut self.encoder {
            Encoder::Parquet(writer) => writer.finish().map_err(ArrowError::from),
            // Flushed by itself after each batch.
            Encoder::Csv(_) => Ok(()),
            Encoder::Arrow(writer) => writer.finish(),
        };
        finished.map_err(|source| PartError::Encode { path: self.path.clone(), source })
    }
}

fn id_type(ids: Option<&Ids>) -> DataType {
    match ids {
        None | Some(Ids::Numbers(_)) => DataType::Int64,
        Some(Ids::Texts(_)) => DataType::Utf8,
    }
}

/// Rows by their ids if they have any, else by their numbers.
fn labels(rows: &[u32], ids: Option<&Ids>) -> ArrayRef {
    let rows = rows.iter();
    match ids {
        None => Arc::new(Int64Array::from_iter_values(rows.map(|row| i64::from(*row)))),
        Some(Ids::Numbers(ids)) => {
            Arc::new(Int64Array::from_iter_values(rows.map(|row| ids.value(*row as usize))))
        }
        Some(Ids::Texts(ids)) => {
            Arc::new(StringArray::from_iter_values(rows.map(|row| ids.value(*row as usize))))
        }
    }
}
