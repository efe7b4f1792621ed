//! Parquet parts.

use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::compute::cast;
use arrow::datatypes::{Schema, SchemaRef};
use arrow::error::ArrowError;
use fs_err as fs;
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder};

use super::schema::plain;
use super::{BATCH_ROWS, Batches};
use crate::error::{MergeError, PartError};
use crate::part::Part;

type Reader = ParquetRecordBatchReaderBuilder<std::fs::File>;

/// The columns of a part.
pub(super) fn schema(part: &Part) -> Result<Schema, MergeError> {
    Ok(plain(reader(part)?.schema()))
}

/// What a part says under a key of its metadata.
pub(super) fn metadata(part: &Part, key: &str) -> Result<Option<String>, MergeError> {
    let reader = reader(part)?;
    let entries = reader.metadata().file_metadata().key_value_metadata();
    let entry = entries.into_iter().flatten().find(|entry| entry.key == key);
    Ok(entry.and_then(|entry| entry.value.clone()))
}

/// Opens a part for its rows.
pub(super) fn open(part: &Part, schema: SchemaRef) -> Result<Batches<'_>, MergeError> {
    let reader = reader(part)?.with_batch_size(BATCH_ROWS);
    let mut batches = guarded(part, || reader.build().map_err(PartError::from))?;
    Ok(Box::new(std::iter::from_fn(move || {
        let next = guarded(part, || {
            let batch = batches.next().transpose()?;
            batch.map(|batch| fit(&batch, &schema)).transpose().map_err(PartError::from)
        });
        next.transpose()
    })))
}

fn reader(part: &Part) -> Result<Reader, MergeError> {
    let file = fs::File::open(&part.file).map_err(|source| part.fault(source))?;
    guarded(part, || Ok(Reader::try_new_with_options(file.into_parts().0, ArrowReaderOptions::new())?))
}

/// Gives a batch the common types.
pub(super) fn fit(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let columns = batch.columns().iter().zip(schema.fields()).map(|(column, field)| {
        let same = column.data_type() == field.data_type();
        if same { Ok(ArrayRef::clone(column)) } else { cast(column, field.data_type()) }
    });
    let columns = columns.collect::<Result<_, _>>()?;
    let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(SchemaRef::clone(schema), columns, &rows)
}

/// The decoder panics on some damaged files; such a panic is the part's fault.
fn guarded<T>(part: &Part, decode: impl FnOnce() -> Result<T, PartError>) -> Result<T, MergeError> {
    catch_unwind(AssertUnwindSafe(decode))
        .unwrap_or(Err(PartError::ParquetPanic))
        .map_err(|source| part.fault(source))
}
