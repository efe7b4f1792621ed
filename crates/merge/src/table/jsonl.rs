//! JSONL parts as tables: types are found by reading all parts, before any row is written.
//!
//! Columns come in the order in which their keys are first seen. Whole numbers that an `i64` holds are `Int64`,
//! mixed with others `Float64`; scalars of several kinds, and whole numbers beyond an `i64`, become text. Arrays are
//! lists, objects are structs, and neither mixes with anything else.

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::json::ReaderBuilder;
use arrow::json::reader::Decoder;
use serde_json::{Map, Value};

use super::{BATCH_ROWS, Batches, MOST_COLUMNS};
use crate::error::{MergeError, PartError};
use crate::json_lines::JsonLines;
use crate::part::Part;

/// Bytes of lines that a batch gathers before it is handed over early.
const BATCH_BYTES: usize = 8 << 20;

/// The narrowest type that fits all values seen at one key.
#[derive(Debug, Clone, PartialEq)]
enum Kind {
    Null,
    Bool,
    Int,
    Float,
    Text,
    List(Box<Kind>),
    Object(Keys),
}

/// Keys with their kinds, in the order of their first line.
type Keys = indexmap::IndexMap<String, Kind>;

/// Two kinds that no column can hold together.
struct Clash {
    expected: &'static str,
    found: &'static str,
}

impl Kind {
    fn name(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool | Self::Int | Self::Float | Self::Text => "a plain value",
            Self::List(_) => "an array",
            Self::Object(_) => "an object",
        }
    }

    /// Widens the kind so that it fits `value` too.
    fn admit(&mut self, value: &Value) -> Result<(), Clash> {
        match (&mut *self, value) {
            (_, Value::Null) => {}
            (Self::List(item), Value::Array(values)) => {
                return values.iter().try_for_each(|value| item.admit(value));
            }
            (Self::Object(keys), Value::Object(object)) => return admit_all(keys, object),
            (Self::Null, _) => {
                *self = Self::empty_for(value);
                if matches!(self, Self::List(_) | Self::Object(_)) {
                    return self.admit(value);
                }
            }
            (Self::List(_) | Self::Object(_), _) | (_, Value::Array(_) | Value::Object(_)) => {
                return Err(Clash { expected: self.name(), found: Self::empty_for(value).name() });
            }
            (kind, _) => {
                let found = Self::empty_for(value);
                *self = match (&*kind, found) {
                    (known, found) if *known == found => found,
                    (Self::Int | Self::Float, Self::Int | Self::Float) => Self::Float,
                    _ => Self::Text,
                };
            }
        }
        Ok(())
    }

    /// The kind of a value; of arrays and objects without what is in them.
    fn empty_for(value: &Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(_) => Self::Bool,
            Value::Number(number) if number.is_i64() => Self::Int,
            Value::Number(number) if number.is_u64() => Self::Text,
            Value::Number(_) => Self::Float,
            Value::String(_) => Self::Text,
            Value::Array(_) => Self::List(Box::new(Self::Null)),
            Value::Object(_) => Self::Object(Keys::new()),
        }
    }

    fn arrow_type(&self) -> DataType {
        match self {
            Self::Null | Self::Text => DataType::Utf8,
            Self::Bool => DataType::Boolean,
            Self::Int => DataType::Int64,
            Self::Float => DataType::Float64,
            Self::List(item) => DataType::new_list(item.arrow_type(), true),
            Self::Object(keys) => DataType::Struct(fields(keys)),
        }
    }
}

fn admit_all(keys: &mut Keys, object: &Map<String, Value>) -> Result<(), Clash> {
    for (key, value) in object {
        match keys.get_mut(key) {
            Some(kind) => kind.admit(value)?,
            None => {
                let mut kind = Kind::Null;
                kind.admit(value)?;
                keys.insert(key.clone(), kind);
            }
        }
    }
    Ok(())
}

fn fields(keys: &Keys) -> Fields {
    keys.iter().map(|(name, kind)| Field::new(name, kind.arrow_type(), true)).collect()
}

/// Finds names and types of the columns.
pub(super) fn infer(parts: &[Part]) -> Result<Schema, MergeError> {
    let mut keys = Keys::new();
    for part in parts {
        let mut lines = JsonLines::open(part)?;
        while lines.next()? {
            let line = lines.number();
            for (column, value) in lines.object()? {
                let kind = keys.entry(column.clone()).or_insert(Kind::Null);
                kind.admit(&value).map_err(|Clash { expected, found }| {
                    lines.fault(PartError::JsonKind { line, column, expected, found })
                })?;
            }
            if keys.len() > MOST_COLUMNS {
                return Err(lines.fault(PartError::TooManyColumns { line, limit: MOST_COLUMNS }));
            }
        }
    }
    Ok(Schema::new(fields(&keys)))
}

/// Opens a part for its rows.
pub(super) fn open(part: &Part, schema: SchemaRef) -> Result<Batches<'_>, MergeError> {
    let mut lines = JsonLines::open(part)?;
    let builder = ReaderBuilder::new(SchemaRef::clone(&schema));
    let builder = builder.with_batch_size(BATCH_ROWS).with_coerce_primitive(true);
    let mut decoder = builder.build_decoder().map_err(|source| part.fault(source))?;
    Ok(Box::new(std::iter::from_fn(move || next_batch(part, &mut lines, &mut decoder, &schema).transpose())))
}

fn next_batch(
    part: &Part,
    lines: &mut JsonLines<'_>,
    decoder: &mut Decoder,
    schema: &SchemaRef,
) -> Result<Option<RecordBatch>, MergeError> {
    let (mut rows, mut bytes) = (0, 0);
    while rows < BATCH_ROWS && bytes < BATCH_BYTES && lines.next()? {
        let text = lines.text();
        decode(decoder, text).map_err(|source| part.fault(source))?;
        rows += 1;
        bytes += text.len();
    }
    let batch = match rows {
        0 => Ok(None),
        // The decoder forgets how many objects without keys there were.
        _ if schema.fields().is_empty() => {
            let count = RecordBatchOptions::new().with_row_count(Some(rows));
            RecordBatch::try_new_with_options(SchemaRef::clone(schema), Vec::new(), &count).map(Some)
        }
        _ => decoder.flush(),
    };
    batch.map_err(|source| part.fault(source))
}

/// Feeds one line.
fn decode(decoder: &mut Decoder, line: &str) -> Result<(), ArrowError> {
    decoder.decode(line.as_bytes())?;
    decoder.decode(b"\n").map(drop)
}
