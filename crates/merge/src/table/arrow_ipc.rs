//! Arrow parts.

use std::io::BufReader;
use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow::datatypes::{Schema, SchemaRef};
use arrow::ipc::reader::FileReader;
use fs_err as fs;

use super::Batches;
use super::parquet::fit;
use super::schema::plain;
use crate::error::{MergeError, PartError};
use crate::part::Part;

/// The columns of a part.
pub(super) fn schema(part: &Part) -> Result<Schema, MergeError> {
    Ok(plain(&reader(part)?.schema()))
}

/// Opens a part for its rows.
pub(super) fn open(part: &Part, schema: SchemaRef) -> Result<Batches<'_>, MergeError> {
    let mut batches = reader(part)?;
    Ok(Box::new(std::iter::from_fn(move || {
        let next = guarded(part, || {
            let batch = batches.next().transpose()?;
            batch.map(|batch| fit(&batch, &schema)).transpose().map_err(PartError::from)
        });
        next.transpose()
    })))
}

fn reader(part: &Part) -> Result<FileReader<BufReader<fs::File>>, MergeError> {
    let file = fs::File::open(&part.file).map_err(|source| part.fault(source))?;
    guarded(part, || Ok(FileReader::try_new(BufReader::new(file), None)?))
}

/// The decoder may panic on damaged files; such a panic is the part's fault.
fn guarded<T>(part: &Part, decode: impl FnOnce() -> Result<T, PartError>) -> Result<T, MergeError> {
    catch_unwind(AssertUnwindSafe(decode))
        .unwrap_or(Err(PartError::ArrowPanic))
        .map_err(|source| part.fault(source))
}
