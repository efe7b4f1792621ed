//! Columns of parts: what is kept of them, and whether two parts have the same.
//!
//! Kept are names, types and whether nulls may be there. Metadata is dropped, since it can differ from part to part
//! (pandas puts the range of row numbers there), and dictionaries are resolved, since they are a way of storing.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema};

use crate::error::{MergeError, PartError, SchemaDifference};
use crate::part::Part;

/// A schema without metadata and dictionaries.
pub(super) fn plain(schema: &Schema) -> Schema {
    Schema::new(schema.fields().iter().map(|field| plain_field(field)).collect::<Fields>())
}

fn plain_field(field: &Field) -> FieldRef {
    Arc::new(Field::new(field.name(), plain_type(field.data_type()), field.is_nullable()))
}

fn plain_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Dictionary(_, values) => plain_type(values),
        DataType::RunEndEncoded(_, values) => plain_type(values.data_type()),
        DataType::List(item) => DataType::List(plain_field(item)),
        DataType::LargeList(item) => DataType::LargeList(plain_field(item)),
        DataType::FixedSizeList(item, length) => DataType::FixedSizeList(plain_field(item), *length),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(|field| plain_field(field)).collect()),
        other => other.clone(),
    }
}

/// The columns that all parts share.
pub(super) fn shared(
    parts: &[Part],
    schema: impl Fn(&Part) -> Result<Schema, MergeError>,
) -> Result<Schema, MergeError> {
    let mut shared: Option<(Schema, &Part)> = None;
    for part in parts {
        let found = schema(part)?;
        shared = Some(match shared {
            None => (found, part),
            Some((expected, first)) => {
                let widened = widen(&expected, &found).map_err(|difference| {
                    part.fault(PartError::Schema { first: first.name.clone(), difference })
                })?;
                (widened, first)
            }
        });
    }
    Ok(shared.map_or_else(Schema::empty, |(schema, _)| schema))
}

/// The columns that hold the rows of both, or the first difference.
fn widen(expected: &Schema, found: &Schema) -> Result<Schema, SchemaDifference> {
    let (known, here) = (expected.fields(), found.fields());
    let mut fields = Vec::with_capacity(known.len());
    for (i, (a, b)) in known.iter().zip(here).enumerate() {
        let widened = if a.name() == b.name() { widen_field(a, b) } else { None };
        fields.push(widened.ok_or_else(|| difference(expected, found, i))?);
    }
    if known.len() != here.len() {
        return Err(difference(expected, found, fields.len()));
    }
    Ok(Schema::new(fields))
}

/// What is different at place `i`, in the words that help most: a column that is nowhere is missing.
fn difference(expected: &Schema, found: &Schema, i: usize) -> SchemaDifference {
    let a = expected.fields().get(i).filter(|field| found.field_with_name(field.name()).is_err());
    let b = found.fields().get(i).filter(|field| expected.field_with_name(field.name()).is_err());
    match (a, b, expected.fields().get(i), found.fields().get(i)) {
        (Some(missing), None, ..) => SchemaDifference::Missing { column: text(missing) },
        (None, Some(extra), ..) => SchemaDifference::Extra { column: text(extra) },
        (_, _, Some(a), Some(b)) => SchemaDifference::Column { at: i + 1, expected: text(a), found: text(b) },
        (_, _, Some(missing), None) => SchemaDifference::Missing { column: text(missing) },
        (_, _, None, extra) => SchemaDifference::Extra { column: extra.map_or_else(String::new, text) },
    }
}

fn text(field: &FieldRef) -> String {
    format!("{} ({})", field.name(), field.data_type())
}

fn widen_field(a: &Field, b: &Field) -> Option<FieldRef> {
    let data_type = widen_type(a.data_type(), b.data_type())?;
    Some(Arc::new(Field::new(a.name(), data_type, a.is_nullable() || b.is_nullable())))
}

/// The names inside lists are a habit of the writer and may differ.
fn widen_type(a: &DataType, b: &DataType) -> Option<DataType> {
    match (a, b) {
        (DataType::List(a), DataType::List(b)) => widen_field(a, b).map(DataType::List),
        (DataType::LargeList(a), DataType::LargeList(b)) => widen_field(a, b).map(DataType::LargeList),
        (DataType::FixedSizeList(a, n), DataType::FixedSizeList(b, m)) if n == m => {
            widen_field(a, b).map(|item| DataType::FixedSizeList(item, *n))
        }
        (DataType::Struct(a), DataType::Struct(b)) if a.len() == b.len() => a
            .iter()
            .zip(b)
            .map(|(a, b)| if a.name() == b.name() { widen_field(a, b) } else { None })
            .collect::<Option<Fields>>()
            .map(DataType::Struct),
        _ => (a == b).then(|| a.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(columns: &[(&str, DataType, bool)]) -> Schema {
        let fields =
            columns.iter().map(|(name, data_type, null)| Field::new(*name, data_type.clone(), *null));
        Schema::new(fields.collect::<Fields>())
    }

    #[test]
    fn a_column_is_nullable_if_it_is_in_any_part() {
        let a = schema(&[("row", DataType::Int64, false), ("col", DataType::Int64, true)]);
        let b = schema(&[("row", DataType::Int64, true), ("col", DataType::Int64, false)]);
        let both = schema(&[("row", DataType::Int64, true), ("col", DataType::Int64, true)]);
        assert_eq!(widen(&a, &b).unwrap(), both);
    }

    #[test]
    fn the_first_difference_is_named() {
        let a = schema(&[("row", DataType::Int64, false), ("col", DataType::Int64, false)]);
        let table = [
            (schema(&[("row", DataType::Int64, false)]), "column col (Int64) is missing"),
            (
                schema(&[
                    ("row", DataType::Int64, false),
                    ("col", DataType::Int64, false),
                    ("x", DataType::Utf8, true),
                ]),
                "column x (Utf8) is too many",
            ),
            (
                schema(&[("row", DataType::Int64, false), ("col", DataType::Int32, false)]),
                "column 2 is col (Int32) instead of col (Int64)",
            ),
            (
                schema(&[("col", DataType::Int64, false), ("row", DataType::Int64, false)]),
                "column 1 is col (Int64) instead of row (Int64)",
            ),
            (schema(&[]), "column row (Int64) is missing"),
        ];
        for (b, expected) in table {
            assert_eq!(widen(&a, &b).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn a_dictionary_is_the_type_of_its_values() {
        let stored = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
        let list = DataType::List(Arc::new(Field::new("item", stored.clone(), true)));
        let plain = plain(&schema(&[("a", stored, true), ("b", list, true)]));
        assert_eq!(plain.field(0).data_type(), &DataType::Utf8);
        assert_eq!(plain.field(1).data_type(), &DataType::new_list(DataType::Utf8, true));
    }
}
