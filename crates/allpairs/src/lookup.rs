//! One row's neighbours out of a file of pairs, without reading the rest.
//!
//! Row groups whose least and greatest row leave the row out are passed over, and for ids that are text those whose
//! filter knows that the id is not there. Of the others the column `row` is read first, and of the other columns what
//! belongs to the row.

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch, Scalar, StringArray};
use arrow::compute::cast;
use arrow::compute::kernels::cmp::eq;
use arrow::datatypes::{DataType, Float32Type, Int64Type};
use arrow::error::ArrowError;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowPredicateFn, ParquetRecordBatchReaderBuilder, RowFilter};
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::statistics::Statistics;
use serde::Serialize;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use thiserror::Error;

/// One neighbour as the file has it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Listed {
    /// Number or id of the neighbour.
    pub col: String,
    /// Its number, if the file has numbers.
    #[serde(skip)]
    pub number: Option<i64>,
    /// What is written for the pair.
    pub value: f32,
}

/// The neighbours of one row.
#[derive(Debug, Clone, PartialEq)]
pub struct RowOfPairs {
    /// Name of the last column: `similarity` or `distance`.
    pub measure: String,
    /// The neighbours in the order of the file.
    pub neighbours: Vec<Listed>,
}

/// A file that a row can not be looked up in.
#[derive(Debug, Error)]
pub enum LookupError {
    /// The file can not be opened; the source names it.
    #[error("the pairs can not be read")]
    Open(#[source] io::Error),
    /// Not a readable Parquet file.
    #[error("is not a readable Parquet file")]
    Parquet(#[from] parquet::errors::ParquetError),
    /// A part of it can not be decoded.
    #[error("can not be decoded")]
    Decode(#[from] ArrowError),
    /// The decoder gave up on the file.
    #[error("is a broken Parquet file: its decoder failed on it")]
    Broken,
    /// Not a file of pairs.
    #[error("has no pairs: it must have the columns `row`, `col` and `similarity` or `distance`")]
    Columns,
    /// The rows have numbers, and what is looked for is none.
    #[error("has rows with numbers, and `{row}` is none")]
    NotANumber {
        /// What is looked for.
        row: String,
    },
}

type Builder = ParquetRecordBatchReaderBuilder<std::fs::File>;

/// Looks a row up by its number or id.
///
/// # Errors
/// A file that is not one of pairs. A row without neighbours, or one that is not there, has an empty list.
pub fn neighbours_of(path: &Path, row: &str) -> Result<RowOfPairs, LookupError> {
    // The decoder is not meant for hostile files and panics on some.
    catch_unwind(AssertUnwindSafe(|| look_up(path, row))).unwrap_or(Err(LookupError::Broken))
}

fn look_up(path: &Path, row: &str) -> Result<RowOfPairs, LookupError> {
    let (file, _) = fs_err::File::open(path).map_err(LookupError::Open)?.into_parts();
    let builder = Builder::try_new(file)?;
    let names: Vec<&str> = builder.schema().fields().iter().map(|field| field.name().as_str()).collect();
    let (&["row", "col", measure], measure_type) =
        (names.as_slice(), builder.schema().fields().last().map(|field| field.data_type().clone()))
    else {
        return Err(LookupError::Columns);
    };
    if !matches!(measure, "similarity" | "distance") || measure_type != Some(DataType::Float32) {
        return Err(LookupError::Columns);
    }
    let measure = measure.to_owned();
    let wanted = Wanted::new(row, builder.schema().field(0).data_type())?;
    let mut groups = Vec::new();
    for group in 0..builder.metadata().num_row_groups() {
        if wanted.may_be_in(&builder, group)? {
            groups.push(group);
        }
    }
    let only_row = ProjectionMask::leaves(builder.parquet_schema(), [0]);
    let filter = ArrowPredicateFn::new(only_row, move |batch: RecordBatch| wanted.is_at(batch.column(0)));
    let found =
        builder.with_row_groups(groups).with_row_filter(RowFilter::new(vec![Box::new(filter)])).build()?;
    let mut neighbours = Vec::new();
    for batch in found {
        push_listed(&batch?, &mut neighbours)?;
    }
    Ok(RowOfPairs { measure, neighbours })
}

fn push_listed(batch: &RecordBatch, neighbours: &mut Vec<Listed>) -> Result<(), ArrowError> {
    let column = batch.column(1);
    let numbers =
        (*column.data_type() == DataType::Int64).then(|| column.as_primitive::<Int64Type>().clone());
    let texts = cast(column, &DataType::Utf8)?;
    let values = batch.column(2).as_primitive::<Float32Type>();
    neighbours.extend((0..batch.num_rows()).map(|at| Listed {
        col: texts.as_string::<i32>().value(at).to_owned(),
        number: numbers.as_ref().map(|numbers: &Int64Array| numbers.value(at)),
        value: values.value(at),
    }));
    Ok(())
}

/// The row that is looked for.
enum Wanted {
    Number(i64),
    Text(String),
}

impl Wanted {
    fn new(row: &str, data_type: &DataType) -> Result<Self, LookupError> {
        match data_type {
            DataType::Int64 => {
                row.parse().map(Self::Number).map_err(|_| LookupError::NotANumber { row: row.to_owned() })
            }
            DataType::Utf8 => Ok(Self::Text(row.to_owned())),
            _ => Err(LookupError::Columns),
        }
    }

    fn may_be_in(&self, builder: &Builder, group: usize) -> Result<bool, LookupError> {
        let statistics = builder.metadata().row_group(group);
        match self {
            Self::Number(number) => Ok(spans(statistics, *number)),
            Self::Text(text) => {
                let filter = builder.get_row_group_column_bloom_filter(group, 0)?;
                Ok(filter.is_none_or(|filter| filter.check(&text.as_str())))
            }
        }
    }

    fn is_at(&self, rows: &ArrayRef) -> Result<BooleanArray, ArrowError> {
        let wanted: Arc<dyn Array> = match self {
            Self::Number(number) => Arc::new(Int64Array::from(vec![*number])),
            Self::Text(text) => Arc::new(StringArray::from(vec![text.as_str()])),
        };
        eq(rows, &Scalar::new(wanted))
    }
}

/// Whether a number lies between the least and the greatest of a row group, as far as that is known.
fn spans(group: &RowGroupMetaData, number: i64) -> bool {
    let Some(Statistics::Int64(statistics)) = group.columns().first().and_then(|column| column.statistics())
    else {
        return true;
    };
    let (least, greatest) = (statistics.min_opt(), statistics.max_opt());
    least.is_none_or(|least| *least <= number) && greatest.is_none_or(|greatest| number <= *greatest)
}
