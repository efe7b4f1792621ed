//! Parts as tables of typed columns, by way of Arrow: all that has a Parquet file on one side, and the ways between
//! CSV and JSONL.

mod arrow_ipc;
mod combine;
mod csv;
mod jsonl;
mod order;
mod parquet;
mod schema;
mod write;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

use self::combine::Partial;
use self::write::TableWriter;
use crate::error::{MergeError, PartError};
use crate::format::Format;
use crate::join::{Joining, Tally};
use crate::options::Order;
use crate::part::Part;

/// Rows that are decoded and encoded at a time. Pages of a Parquet file are cut at multiples of it, so that a
/// change of it changes the bytes of results.
pub(crate) const BATCH_ROWS: usize = 1024;
/// Columns of a table that are accepted.
pub(crate) const MOST_COLUMNS: usize = 1 << 16;

/// The rows of one part, a batch at a time.
pub(crate) type Batches<'a> = Box<dyn Iterator<Item = Result<RecordBatch, MergeError>> + 'a>;

/// Parts with the columns that they share.
#[derive(Debug)]
pub(crate) struct Table<'a> {
    parts: &'a [Part],
    from: Format,
    pub(crate) schema: SchemaRef,
}

impl<'a> Table<'a> {
    /// Finds the columns: Parquet files say them, text is read through for its types.
    fn read_schema(parts: &'a [Part], from: Format) -> Result<Self, MergeError> {
        let schema = match from {
            Format::Parquet => schema::shared(parts, parquet::schema)?,
            Format::Arrow => schema::shared(parts, arrow_ipc::schema)?,
            Format::Csv => csv::infer(parts)?,
            Format::Jsonl => jsonl::infer(parts)?,
            Format::Npy | Format::Npz => return Err(MergeError::Conversion { from, to: Format::Parquet }),
        };
        Ok(Self { parts, from, schema: schema.into() })
    }

    /// Opens a part; its batches have the common schema.
    pub(crate) fn open(&self, part: &'a Part) -> Result<Batches<'a>, MergeError> {
        let schema = SchemaRef::clone(&self.schema);
        match self.from {
            Format::Parquet => parquet::open(part, schema),
            Format::Csv => csv::open(part, schema),
            Format::Arrow => arrow_ipc::open(part, schema),
            Format::Jsonl | Format::Npy | Format::Npz => jsonl::open(part, schema),
        }
    }

    /// Refuses rows without columns, such as JSON objects without keys: they would be lost without a word.
    fn check_columns(&self, to: Format) -> Result<(), MergeError> {
        if !self.schema.fields().is_empty() {
            return Ok(());
        }
        for part in self.parts {
            for batch in self.open(part)? {
                if batch?.num_rows() > 0 {
                    return Err(MergeError::NoColumns { part: part.name.clone(), to });
                }
            }
        }
        Ok(())
    }

    /// Refuses columns of one name where they become keys.
    fn check_names(&self, to: Format) -> Result<(), MergeError> {
        let mut names: Vec<&str> = self.schema.fields().iter().map(|field| field.name().as_str()).collect();
        names.sort_unstable();
        let twice = names.windows(2).find(|pair| pair[0] == pair[1]);
        match (twice, self.parts.first()) {
            (Some(pair), Some(part)) if to != Format::Csv => {
                Err(part.fault(PartError::DuplicateColumn { column: pair[0].to_owned() }))
            }
            _ => Ok(()),
        }
    }
}

/// Joins the parts as tables and returns the rows.
pub(crate) fn join(
    joining: &Joining<'_>,
    from: Format,
    to: Format,
    order: &Order,
) -> Result<u64, MergeError> {
    let table = Table::read_schema(joining.parts, from)?;
    table.check_columns(to)?;
    table.check_names(to)?;
    let mut writer = TableWriter::create(joining.scratch, &table.schema, to)?;
    let mut tally = Tally::new(joining);
    let partial = if from == Format::Parquet { Partial::of_parts(joining.parts)? } else { None };
    match (partial, order) {
        (Some(partial), order) => combine::combine(joining, &table, (partial, order), &mut |batch| {
            tally.add_rows(batch.num_rows() as u64);
            writer.write(batch)
        })?,
        (None, Order::Host) => {
            for part in joining.parts {
                for batch in table.open(part)? {
                    let batch = batch?;
                    tally.add_rows(batch.num_rows() as u64);
                    writer.write(batch)?;
                }
                tally.finish_part();
            }
        }
        (None, Order::Column(column)) => order::by_column(joining, &table, column, &mut |batch| {
            tally.add_rows(batch.num_rows() as u64);
            writer.write(batch)
        })?,
    }
    writer.finish()?;
    Ok(tally.finish(joining.parts.len()))
}
