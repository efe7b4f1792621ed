//! Tables into files. What is written depends on the rows and their sequence, never on the batches that brought them.

use std::io::Write;

use arrow::array::RecordBatch;
use arrow::compute::BatchCoalescer;
use arrow::csv::WriterBuilder as CsvBuilder;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::ipc::writer::FileWriter;
use arrow::json::LineDelimitedWriter;
use arrow::json::writer::{LineDelimited, WriterBuilder as JsonBuilder};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;

use super::BATCH_ROWS;
use crate::error::MergeError;
use crate::format::Format;
use crate::scratch::{Scratch, Writing};

/// Rows of a full row group.
const GROUP_ROWS: usize = 1 << 20;
/// Encoded bytes at which a row group of long rows is closed early, since it is held in memory until then.
const GROUP_BYTES: usize = 128 << 20;
/// Rows of a batch of an Arrow file, which is read batch by batch.
const ARROW_BATCH_ROWS: usize = 1 << 16;
/// Who made a Parquet file, in the form that readers expect.
const CREATED_BY: &str = concat!("trainyard-merge version ", env!("CARGO_PKG_VERSION"));

/// The result while its rows are written.
pub(super) struct TableWriter {
    to: Format,
    /// Cuts the rows into batches of the same length whatever came in.
    coalescer: BatchCoalescer,
    encoder: Encoder,
}

enum Encoder {
    Parquet(Box<ArrowWriter<Writing>>),
    Csv { writing: Writing, begun: bool },
    Jsonl { writing: Writing },
    Arrow(Box<FileWriter<Writing>>),
}

impl TableWriter {
    pub(super) fn create(scratch: &Scratch, schema: &SchemaRef, to: Format) -> Result<Self, MergeError> {
        check_types(schema, to)?;
        let writing = scratch.result()?;
        let encoder = match to {
            Format::Csv => Encoder::Csv { writing, begun: false },
            Format::Jsonl => Encoder::Jsonl { writing },
            Format::Arrow => {
                let writer = FileWriter::try_new(writing, schema);
                Encoder::Arrow(Box::new(writer.map_err(|source| encode(to, source))?))
            }
            Format::Parquet | Format::Npy | Format::Npz => {
                let writer = ArrowWriter::try_new(writing, SchemaRef::clone(schema), Some(properties()));
                Encoder::Parquet(Box::new(writer.map_err(|source| encode(to, source.into()))?))
            }
        };
        let rows = if to == Format::Arrow { ARROW_BATCH_ROWS } else { BATCH_ROWS };
        let coalescer = BatchCoalescer::new(SchemaRef::clone(schema), rows);
        Ok(Self { to, coalescer, encoder })
    }

    /// Takes the next rows.
    pub(super) fn write(&mut self, batch: RecordBatch) -> Result<(), MergeError> {
        self.coalescer.push_batch(batch).map_err(|source| encode(self.to, source))?;
        self.drain()
    }

    /// Writes what is left and closes the file.
    pub(super) fn finish(mut self) -> Result<(), MergeError> {
        self.coalescer.finish_buffered_batch().map_err(|source| encode(self.to, source))?;
        self.drain()?;
        let schema = self.coalescer.schema();
        match self.encoder {
            Encoder::Parquet(writer) => close(*writer),
            Encoder::Csv { mut writing, begun } => {
                if !begun && !schema.fields().is_empty() {
                    writing.put(&csv(&RecordBatch::new_empty(schema), true)?)?;
                }
                writing.finish()
            }
            Encoder::Jsonl { writing } => writing.finish(),
            Encoder::Arrow(mut writer) => {
                let finished = writer.finish();
                finished.map_err(|source| arrow_fault(&writer, source))?;
                writer.into_inner().map_err(|source| encode(self.to, source))?.finish()
            }
        }
    }

    fn drain(&mut self) -> Result<(), MergeError> {
        while let Some(batch) = self.coalescer.next_completed_batch() {
            self.encoder.write(&batch)?;
        }
        Ok(())
    }
}

impl Encoder {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), MergeError> {
        match self {
            Self::Parquet(writer) => {
                let written = writer.write(batch).and_then(|()| match writer.in_progress_size() {
                    size if size >= GROUP_BYTES => writer.flush(),
                    _ => Ok(()),
                });
                written.map_err(|source| parquet_fault(writer, source))
            }
            Self::Csv { writing, begun } => {
                let header = !std::mem::replace(begun, true);
                writing.put(&csv(batch, header)?)
            }
            Self::Jsonl { writing } => writing.put(&jsonl(batch)?),
            Self::Arrow(writer) => {
                let written = writer.write(batch);
                written.map_err(|source| arrow_fault(writer, source))
            }
        }
    }
}

fn properties() -> WriterProperties {
    WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .set_created_by(CREATED_BY.to_owned())
        .build()
}

fn close(mut writer: ArrowWriter<Writing>) -> Result<(), MergeError> {
    writer.finish().map_err(|source| parquet_fault(&writer, source))?;
    let flushed = writer.inner_mut().flush();
    flushed.map_err(|source| parquet_fault(&writer, source.into()))
}

fn parquet_fault(writer: &ArrowWriter<Writing>, source: ParquetError) -> MergeError {
    writer.inner().failure().unwrap_or_else(|| encode(Format::Parquet, source.into()))
}

fn arrow_fault(writer: &FileWriter<Writing>, source: ArrowError) -> MergeError {
    writer.get_ref().failure().unwrap_or_else(|| encode(Format::Arrow, source))
}

fn csv(batch: &RecordBatch, header: bool) -> Result<Vec<u8>, MergeError> {
    let mut bytes = Vec::new();
    let mut writer = CsvBuilder::new().with_header(header).build(&mut bytes);
    writer.write(batch).map_err(|source| encode(Format::Csv, source))?;
    drop(writer);
    Ok(bytes)
}

fn jsonl(batch: &RecordBatch) -> Result<Vec<u8>, MergeError> {
    let mut bytes = Vec::new();
    let mut writer: LineDelimitedWriter<_> =
        JsonBuilder::new().with_explicit_nulls(true).build::<_, LineDelimited>(&mut bytes);
    let written = writer.write(batch).and_then(|()| writer.finish());
    written.map_err(|source| encode(Format::Jsonl, source))?;
    drop(writer);
    Ok(bytes)
}

/// Refuses, before anything is written, what a field of a CSV file can not hold.
fn check_types(schema: &SchemaRef, to: Format) -> Result<(), MergeError> {
    match schema.fields().iter().find(|field| to == Format::Csv && field.data_type().is_nested()) {
        None => Ok(()),
        Some(field) => Err(MergeError::ColumnConversion {
            column: field.name().clone(),
            column_type: field.data_type().to_string(),
            to,
        }),
    }
}

fn encode(to: Format, source: ArrowError) -> MergeError {
    MergeError::Encode { to, source }
}
