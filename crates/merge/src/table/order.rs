//! Tables in the order of a column: the rows as bytes, by Arrow's row format.
//!
//! The key's bytes compare as its values do. The body is the whole row in the same format, from which the columns
//! are made again once the rows are in order.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, PrimitiveArray, RecordBatch};
use arrow::compute::{SortOptions, cast};
use arrow::datatypes::{DataType, Float64Type, SchemaRef};
use arrow::error::ArrowError;
use arrow::row::{RowConverter, SortField};

use super::{BATCH_ROWS, Table};
use crate::error::MergeError;
use crate::join::Joining;
use crate::order::{Rows, Want, in_order};
use crate::part::Part;
use crate::report::NAMES_SHOWN;

/// Bytes of rows that are gathered before they become columns early.
const BATCH_BYTES: usize = 8 << 20;

/// Hands all rows to `write` as batches, by the column.
pub(super) fn by_column<'a>(
    joining: &Joining<'a>,
    table: &Table<'a>,
    column: &str,
    write: &mut dyn FnMut(RecordBatch) -> Result<(), MergeError>,
) -> Result<(), MergeError> {
    if table.schema.fields().is_empty() {
        return Ok(());
    }
    let key = KeyColumn::find(&table.schema, column)?;
    let mut gathered = Gathered::new(&table.schema).map_err(|source| key.fault(source))?;
    in_order(joining, &|part, want| rows(table, part, &key, want), &mut |body| {
        gathered.push(body);
        if gathered.is_full() { write(gathered.take().map_err(|source| key.fault(source))?) } else { Ok(()) }
    })?;
    write(gathered.take().map_err(|source| key.fault(source))?)
}

/// A part's rows with their keys.
fn rows<'a>(table: &Table<'a>, part: &'a Part, key: &KeyColumn, want: Want) -> Result<Rows<'a>, MergeError> {
    let mut batches = table.open(part)?;
    let at = key.at;
    let keys = RowConverter::new(vec![key.sort_field()]).map_err(|source| key.fault(source))?;
    let bodies = body_converter(&table.schema).map_err(|source| key.fault(source))?;
    Ok(Box::new(move |block| {
        // A batch can be empty without being the last.
        while !block.is_full() {
            let Some(batch) = batches.next().transpose()? else { break };
            let encoded = normal(batch.column(at)).and_then(|column| {
                let bodies =
                    (want == Want::Rows).then(|| bodies.convert_columns(batch.columns())).transpose()?;
                Ok((keys.convert_columns(&[column])?, bodies))
            });
            let (keys, bodies) = encoded.map_err(|source| part.fault(source))?;
            for i in 0..batch.num_rows() {
                let body = bodies.as_ref().map_or(&[][..], |bodies| bodies.row(i).data());
                block.push(keys.row(i).data(), body);
            }
        }
        Ok(())
    }))
}

fn body_converter(schema: &SchemaRef) -> Result<RowConverter, ArrowError> {
    let fields = schema.fields().iter().map(|field| SortField::new(field.data_type().clone()));
    RowConverter::new(fields.collect())
}

/// The column that orders the rows.
struct KeyColumn {
    name: String,
    at: usize,
    column_type: DataType,
}

impl KeyColumn {
    fn find(schema: &SchemaRef, column: &str) -> Result<Self, MergeError> {
        let Some((at, field)) = schema.column_with_name(column) else {
            let columns =
                schema.fields().iter().map(|field| field.name().clone()).take(NAMES_SHOWN).collect();
            return Err(MergeError::NoColumn { column: column.to_owned(), columns });
        };
        let column_type = field.data_type().clone();
        if column_type.is_nested() {
            return Err(MergeError::NoOrder {
                column: column.to_owned(),
                column_type: column_type.to_string(),
            });
        }
        Ok(Self { name: column.to_owned(), at, column_type })
    }

    /// Ascending, nulls last.
    fn sort_field(&self) -> SortField {
        let column_type =
            if self.column_type.is_floating() { DataType::Float64 } else { self.column_type.clone() };
        SortField::new_with_options(column_type, SortOptions { descending: false, nulls_first: false })
    }

    fn fault(&self, source: ArrowError) -> MergeError {
        MergeError::Sort { column: self.name.clone(), source }
    }
}

/// Floats with one zero and one NaN, which is above all others; other columns as they are.
fn normal(column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    if !column.data_type().is_floating() {
        return Ok(ArrayRef::clone(column));
    }
    let wide = cast(column, &DataType::Float64)?;
    let normal: PrimitiveArray<Float64Type> = wide
        .as_primitive::<Float64Type>()
        .unary(|value: f64| if value.is_nan() { f64::NAN } else { value + 0.0 });
    Ok(Arc::new(normal))
}

/// Bodies on their way back into columns.
struct Gathered {
    converter: RowConverter,
    schema: SchemaRef,
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Gathered {
    fn new(schema: &SchemaRef) -> Result<Self, ArrowError> {
        let converter = body_converter(schema)?;
        Ok(Self { converter, schema: SchemaRef::clone(schema), bytes: Vec::new(), ends: Vec::new() })
    }

    fn push(&mut self, body: &[u8]) {
        self.bytes.extend_from_slice(body);
        self.ends.push(self.bytes.len());
    }

    fn is_full(&self) -> bool {
        self.ends.len() == BATCH_ROWS || self.bytes.len() > BATCH_BYTES
    }

    fn take(&mut self) -> Result<RecordBatch, ArrowError> {
        let parser = self.converter.parser();
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let rows = starts.zip(&self.ends).map(|(start, &end)| parser.parse(&self.bytes[start..end]));
        let columns = self.converter.convert_rows(rows)?;
        self.bytes.clear();
        self.ends.clear();
        RecordBatch::try_new(SchemaRef::clone(&self.schema), columns)
    }
}
