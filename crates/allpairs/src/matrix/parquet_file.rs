//! Matrices in Parquet files.

use super::table::TableRows;
use super::{Decoding, OpenedFile};
use crate::problem::FileProblem;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Rows that are decoded at a time.
const BATCH_ROWS: usize = 1024;

/// Reads a whole file into memory.
pub(super) fn read(path: &Path, decoding: Decoding) -> Result<OpenedFile, FileProblem> {
    // The decoder is not meant for hostile files and panics on some.
    catch_unwind(AssertUnwindSafe(|| read_rows(path, decoding)))
        .unwrap_or(Err(FileProblem::Broken { format: "Parquet" }))
}

fn read_rows(path: &Path, decoding: Decoding) -> Result<OpenedFile, FileProblem> {
    let (file, _) = fs_err::File::open(path).map_err(FileProblem::Io)?.into_parts();
    let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(FileProblem::Parquet)?;
    let mut rows = TableRows::new(builder.schema(), decoding.reading)?;
    for batch in builder.with_batch_size(BATCH_ROWS).build().map_err(FileProblem::Parquet)? {
        decoding.go_on()?;
        rows.push(&batch.map_err(FileProblem::Arrow)?)?;
    }
    rows.finish(path)
}
