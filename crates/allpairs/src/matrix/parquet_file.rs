//! Matrices in Parquet files.

use super::table::TableRows;
use super::{Decoding, OpenedFile};
use crate::problem::FileProblem;
use arrow::array::RecordBatch;
use fs_err::File;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ParquetRecordBatchReaderBuilder};
use parquet::errors::ParquetError;
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
    let file = File::open(path).map_err(FileProblem::Io)?;
    let bytes = file.metadata().map_err(FileProblem::Io)?.len();
    let metadata =
        ArrowReaderMetadata::load(file.file(), Default::default()).map_err(FileProblem::Parquet)?;
    let mut rows = TableRows::new(metadata.schema(), decoding.reading)?;
    let table = Table { file: &file, metadata, decoding };
    if table.is_worth_its_columns(&rows, bytes) {
        for group in 0..table.metadata.metadata().num_row_groups() {
            table.read_by_columns(group, &mut rows)?;
        }
    } else {
        table.read(None, None, |batch| rows.push(batch))?;
    }
    rows.finish(path)
}

/// Bytes of a row that are put in at a time: a line of the cache.
const LINE: usize = 64;

/// Rows that claim to be more bytes than this, and so many times as many as the file has, are read as they come.
const MOST_UNPACKED: u64 = 1 << 30;
const MOST_RATIO: u64 = 4096;

/// An opened file.
struct Table<'a> {
    file: &'a File,
    metadata: ArrowReaderMetadata,
    decoding: Decoding<'a>,
}

impl Table<'_> {
    /// Whether reading by columns saves memory. It makes room for all rows that the file claims once some of their
    /// columns are there, so that claim must not be too bold.
    fn is_worth_its_columns(&self, rows: &TableRows, file_bytes: u64) -> bool {
        let Some(columns) = rows.number_columns() else { return false };
        let row_bytes = (columns.len() * rows.number_size()) as u64;
        let groups = self.metadata.metadata().row_groups().iter();
        let claims = groups.map(|group| u64::try_from(group.num_rows()).unwrap_or(u64::MAX));
        let claimed = claims.fold(0u64, u64::saturating_add);
        row_bytes > LINE as u64
            && claimed.saturating_mul(row_bytes) <= MOST_UNPACKED.max(MOST_RATIO.saturating_mul(file_bytes))
    }

    /// Reads some columns at a time. Of every column that is read a whole page is unpacked at least; in files that have
    /// many, all their pages together are as much as a row group.
    fn read_by_columns(&self, group: usize, rows: &mut TableRows) -> Result<(), FileProblem> {
        let claimed = self.metadata.metadata().row_group(group).num_rows();
        let first_row = rows.rows();
        let check = |found: usize, complete: bool| {
            let fits =
                i64::try_from(found).is_ok_and(|found| found == claimed || (found < claimed && !complete));
            let text =
                || format!("a column of row group {group} does not have {claimed} rows, as the others do");
            if fits { Ok(()) } else { Err(FileProblem::Parquet(ParquetError::General(text()))) }
        };
        if let Some(id) = rows.id_column() {
            let mut found = 0;
            self.read(Some(group), Some(&[id]), |batch| {
                found += batch.num_rows();
                check(found, false)?;
                rows.push_ids(batch, 0, first_row + found - batch.num_rows())
            })?;
            check(found, true)?;
        }
        let columns = rows.number_columns().unwrap_or_default().to_vec();
        let together = LINE / rows.number_size();
        for (at, columns) in columns.chunks(together).enumerate() {
            let mut found = 0;
            let places: Vec<usize> = (0..columns.len()).collect();
            self.read(Some(group), Some(columns), |batch| {
                let place = (first_row + found, at * together);
                found += batch.num_rows();
                check(found, false)?;
                rows.put_columns(batch, &places, place)
            })?;
            check(found, true)?;
        }
        rows.complete(claimed as usize);
        Ok(())
    }

    /// Hands over batches of one row group or all, of these columns (which ascend) or all.
    fn read(
        &self,
        group: Option<usize>,
        columns: Option<&[usize]>,
        mut take: impl FnMut(&RecordBatch) -> Result<(), FileProblem>,
    ) -> Result<(), FileProblem> {
        let file = self.file.file().try_clone().map_err(FileProblem::Io)?;
        let mut builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, self.metadata.clone());
        if let Some(group) = group {
            builder = builder.with_row_groups(vec![group]);
        }
        if let Some(columns) = columns {
            let mask = ProjectionMask::roots(builder.parquet_schema(), columns.iter().copied());
            builder = builder.with_projection(mask);
        }
        for batch in builder.with_batch_size(BATCH_ROWS).build().map_err(FileProblem::Parquet)? {
            self.decoding.go_on()?;
            take(&batch.map_err(FileProblem::Arrow)?)?;
        }
        Ok(())
    }
}
