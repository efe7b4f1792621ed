//! CSV parts as tables: types are found by reading all parts, before any row is written.
//!
//! A column is `Int64` if every field is a whole number that an `i64` holds, `Float64` if every field is a number,
//! else `Utf8`. Whole numbers that would not come back as they are (leading zeros, a plus sign, beyond 64 bits) make the
//! column text; in a column of fractions they are rounded to a float as all others are. An empty field is null.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Builder, Int64Builder, RecordBatch, StringBuilder};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use csv::ByteRecord;

use super::{BATCH_ROWS, Batches, MOST_COLUMNS};
use crate::csv_part::{CsvPart, names, shared_header};
use crate::error::{MergeError, PartError};
use crate::number::Number;
use crate::part::Part;

/// Bytes of fields that a batch gathers before it is handed over early.
const BATCH_BYTES: usize = 8 << 20;

/// The narrowest type that fits all fields seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Empty,
    Int,
    Float,
    Text,
}

impl Kind {
    fn of(field: &[u8]) -> Self {
        if field.is_empty() {
            return Self::Empty;
        }
        match Number::parse(field) {
            Some(_) if is_padded(field) => Self::Text,
            Some(Number::Int(value)) if i64::try_from(value).is_ok() => Self::Int,
            Some(Number::Float(_)) if !is_digits(field) => Self::Float,
            Some(_) | None => Self::Text,
        }
    }

    fn arrow_type(self) -> DataType {
        match self {
            Self::Int => DataType::Int64,
            Self::Float => DataType::Float64,
            Self::Empty | Self::Text => DataType::Utf8,
        }
    }
}

/// `007` and `+7` name something; as a number they would come back as `7`.
fn is_padded(field: &[u8]) -> bool {
    let digits = field.strip_prefix(b"-").unwrap_or(field);
    match digits {
        [b'0', next, ..] => next.is_ascii_digit(),
        [b'+', ..] => true,
        _ => false,
    }
}

fn is_digits(field: &[u8]) -> bool {
    field.strip_prefix(b"-").unwrap_or(field).iter().all(u8::is_ascii_digit)
}

/// Finds names and types of the columns.
pub(super) fn infer(parts: &[Part]) -> Result<Schema, MergeError> {
    let Some((header, first)) = shared_header(parts)? else { return Ok(Schema::empty()) };
    if std::str::from_utf8(header.as_slice()).is_err() {
        return Err(first.fault(PartError::NotUtf8 { line: 1 }));
    }
    if header.len() > MOST_COLUMNS {
        return Err(first.fault(PartError::TooManyColumns { line: 1, limit: MOST_COLUMNS }));
    }
    let mut kinds = vec![Kind::Empty; header.len()];
    let mut record = ByteRecord::new();
    for part in parts {
        let mut csv = CsvPart::open(part)?;
        while csv.next(&mut record)? {
            for (kind, field) in kinds.iter_mut().zip(&record) {
                if *kind < Kind::Text {
                    *kind = (*kind).max(Kind::of(field));
                }
            }
        }
    }
    let fields = names(&header).into_iter().zip(kinds);
    Ok(Schema::new(fields.map(|(name, kind)| Field::new(name, kind.arrow_type(), true)).collect::<Vec<_>>()))
}

/// Opens a part for its rows.
pub(super) fn open(part: &Part, schema: SchemaRef) -> Result<Batches<'_>, MergeError> {
    let mut csv = CsvPart::open(part)?;
    Ok(Box::new(std::iter::from_fn(move || next_batch(part, &mut csv, &schema).transpose())))
}

fn next_batch(
    part: &Part,
    csv: &mut CsvPart<'_>,
    schema: &SchemaRef,
) -> Result<Option<RecordBatch>, MergeError> {
    let mut columns: Vec<Column> =
        schema.fields().iter().map(|field| Column::new(field.data_type())).collect();
    let mut record = ByteRecord::new();
    let (mut rows, mut bytes) = (0, 0);
    while rows < BATCH_ROWS && bytes < BATCH_BYTES && csv.next(&mut record)? {
        for (column, field) in columns.iter_mut().zip(&record) {
            let line = record.position().map_or(0, csv::Position::line);
            let text = std::str::from_utf8(field).map_err(|_| part.fault(PartError::NotUtf8 { line }))?;
            column.push(text);
        }
        rows += 1;
        bytes += record.as_slice().len();
    }
    if rows == 0 {
        return Ok(None);
    }
    let arrays = columns.into_iter().map(Column::finish).collect();
    let batch = RecordBatch::try_new(SchemaRef::clone(schema), arrays);
    batch.map(Some).map_err(|source| part.fault(source))
}

/// A column of a batch while its rows are read.
enum Column {
    Int(Int64Builder),
    Float(Float64Builder),
    Text(StringBuilder),
}

impl Column {
    fn new(data_type: &DataType) -> Self {
        match data_type {
            DataType::Int64 => Self::Int(Int64Builder::new()),
            DataType::Float64 => Self::Float(Float64Builder::new()),
            _ => Self::Text(StringBuilder::new()),
        }
    }

    fn push(&mut self, field: &str) {
        match self {
            Self::Int(column) => column.append_option(field.trim_ascii().parse().ok()),
            Self::Float(column) => column.append_option(field.trim_ascii().parse().ok()),
            Self::Text(column) => column.append_option(Some(field).filter(|field| !field.is_empty())),
        }
    }

    fn finish(self) -> ArrayRef {
        match self {
            Self::Int(mut column) => Arc::new(column.finish()),
            Self::Float(mut column) => Arc::new(column.finish()),
            Self::Text(mut column) => Arc::new(column.finish()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_would_lose_digits_as_a_number_is_text() {
        let table = [
            ("", Kind::Empty),
            ("7", Kind::Int),
            ("-7", Kind::Int),
            (" 7 ", Kind::Int),
            ("0", Kind::Int),
            ("007", Kind::Text),
            ("-007", Kind::Text),
            ("+7", Kind::Text),
            ("0.5", Kind::Float),
            ("1e9", Kind::Float),
            ("nan", Kind::Float),
            ("9223372036854775807", Kind::Int),
            ("9223372036854775808", Kind::Text),
            ("99999999999999999999999999999999999999999999", Kind::Text),
            ("x", Kind::Text),
        ];
        for (field, kind) in table {
            assert_eq!(Kind::of(field.as_bytes()), kind, "{field:?}");
        }
    }
}
