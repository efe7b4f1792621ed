//! One line of a list.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{AsArray, Float32Array, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Float32Type, Int64Type, SchemaRef};
use arrow::error::ArrowError;

use crate::error::{MergeError, PartError};
use crate::part::Part;

/// Types of the three columns: a row, its neighbour, their score.
const TYPES: [DataType; 3] = [DataType::Int64, DataType::Int64, DataType::Float32];

/// Bytes of a pair on disk.
pub(super) const BYTES: usize = 20;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Pair {
    pub(super) row: i64,
    pub(super) column: i64,
    pub(super) score: f32,
}

impl Pair {
    /// The order in a list: the higher score first, of equal ones the lower row number.
    pub(super) fn rank(&self, other: &Self) -> Ordering {
        other.score.total_cmp(&self.score).then(self.column.cmp(&other.column))
    }

    /// The same pair for its other row.
    pub(super) fn turned(self) -> Self {
        Self { row: self.column, column: self.row, score: self.score }
    }

    pub(super) fn to_bytes(self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(&self.row.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.column.to_le_bytes());
        bytes[16..].copy_from_slice(&self.score.to_le_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8; BYTES]) -> Self {
        let [row, column] = [0, 8].map(|at| i64::from_le_bytes(std::array::from_fn(|i| bytes[at + i])));
        let score = f32::from_le_bytes(std::array::from_fn(|i| bytes[16 + i]));
        Self { row, column, score }
    }
}

pub(super) fn check_columns(first: &Part, schema: &SchemaRef) -> Result<(), MergeError> {
    let fits = schema.fields().iter().map(|field| field.data_type()).eq(TYPES.iter())
        && schema.fields().iter().all(|field| !field.is_nullable());
    if fits { Ok(()) } else { Err(first.fault(PartError::ListColumns)) }
}

/// The pairs of a batch of such columns.
pub(super) fn pairs(batch: &RecordBatch) -> impl Iterator<Item = Pair> {
    let rows = batch.column(0).as_primitive::<Int64Type>().values().iter();
    let columns = batch.column(1).as_primitive::<Int64Type>().values().iter();
    let scores = batch.column(2).as_primitive::<Float32Type>().values().iter();
    rows.zip(columns).zip(scores).map(|((row, column), score)| Pair {
        row: *row,
        column: *column,
        score: *score,
    })
}

pub(super) fn batch(pairs: &[Pair], schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let rows: Int64Array = pairs.iter().map(|pair| pair.row).collect::<Vec<_>>().into();
    let columns: Int64Array = pairs.iter().map(|pair| pair.column).collect::<Vec<_>>().into();
    let scores: Float32Array = pairs.iter().map(|pair| pair.score).collect::<Vec<_>>().into();
    RecordBatch::try_new(SchemaRef::clone(schema), vec![Arc::new(rows), Arc::new(columns), Arc::new(scores)])
}
