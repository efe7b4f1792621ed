//! Matrices in Parquet files: all columns numbers, or one column with a list of numbers in each row.

use crate::dense::{Bytes, DenseFile};
use crate::element::Element;
use crate::problem::FileProblem;
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Float64Type, Schema};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Rows that are decoded at a time.
const BATCH_ROWS: usize = 1024;

/// Reads a whole file into memory.
pub(crate) fn read(path: &Path) -> Result<DenseFile, FileProblem> {
    // The decoder is not meant for hostile files and panics on some.
    catch_unwind(AssertUnwindSafe(|| read_rows(path))).unwrap_or(Err(FileProblem::ParquetBroken))
}

fn read_rows(path: &Path) -> Result<DenseFile, FileProblem> {
    let (file, _) = fs_err::File::open(path).map_err(FileProblem::Io)?.into_parts();
    let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(FileProblem::Parquet)?;
    let layout = Layout::of(builder.schema())?;
    let mut matrix = Decoded { layout, columns: None, rows: 0, bytes: Vec::new() };
    for batch in builder.with_batch_size(BATCH_ROWS).build().map_err(FileProblem::Parquet)? {
        matrix.push(&batch.map_err(FileProblem::Arrow)?)?;
    }
    let columns = matrix.columns.unwrap_or(0);
    if columns == 0 {
        return Err(FileProblem::NoColumns);
    }
    Ok(DenseFile {
        path: path.to_owned(),
        bytes: Bytes::Owned(matrix.bytes),
        start: 0,
        encoding: matrix.layout.element.little_endian(),
        fortran_order: false,
        rows: matrix.rows,
        columns,
    })
}

/// How the numbers lie in the file.
#[derive(Debug, Clone, Copy)]
struct Layout {
    /// One column of lists rather than one column each.
    lists: bool,
    /// The narrowest float that holds all numbers of the file exactly (64-bit integers are rounded).
    element: Element,
}

impl Layout {
    fn of(schema: &Schema) -> Result<Self, FileProblem> {
        if let [only] = schema.fields().as_ref()
            && let DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) =
                only.data_type()
        {
            return match float_for(item.data_type()) {
                Some(element) => Ok(Self { lists: true, element }),
                None => Err(column_type(only)),
            };
        }
        let mut element = Element::F32;
        for field in schema.fields() {
            if float_for(field.data_type()).ok_or_else(|| column_type(field))? == Element::F64 {
                element = Element::F64;
            }
        }
        Ok(Self { lists: false, element })
    }
}

fn column_type(field: &Field) -> FileProblem {
    FileProblem::ColumnType { column: field.name().clone(), type_name: field.data_type().to_string() }
}

fn float_for(data_type: &DataType) -> Option<Element> {
    use DataType as T;
    match data_type {
        T::Float16 | T::Float32 | T::Int8 | T::Int16 | T::UInt8 | T::UInt16 => Some(Element::F32),
        T::Float64 | T::Int32 | T::Int64 | T::UInt32 | T::UInt64 => Some(Element::F64),
        _ => None,
    }
}

/// The rows decoded so far, one after the other.
struct Decoded {
    layout: Layout,
    columns: Option<usize>,
    rows: usize,
    bytes: Vec<u8>,
}

impl Decoded {
    fn push(&mut self, batch: &RecordBatch) -> Result<(), FileProblem> {
        for (column, field) in batch.columns().iter().zip(batch.schema_ref().fields()) {
            self.check_nulls(column.as_ref(), field.name())?;
        }
        if self.layout.lists { self.push_lists(batch) } else { self.push_columns(batch) }
    }

    fn check_nulls(&self, column: &dyn Array, name: &str) -> Result<(), FileProblem> {
        match (0..column.len()).find(|row| column.is_null(*row)) {
            Some(row) => Err(FileProblem::Null { row: (self.rows + row) as u64, column: name.to_owned() }),
            None => Ok(()),
        }
    }

    fn push_columns(&mut self, batch: &RecordBatch) -> Result<(), FileProblem> {
        let columns: Vec<ArrayRef> = batch
            .columns()
            .iter()
            .map(|c| cast(c, &DataType::Float64))
            .collect::<Result<_, _>>()
            .map_err(FileProblem::Arrow)?;
        let columns: Vec<&[f64]> =
            columns.iter().map(|c| c.as_primitive::<Float64Type>().values().as_ref()).collect();
        self.columns = Some(columns.len());
        for row in 0..batch.num_rows() {
            columns.iter().for_each(|column| self.push_number(column[row]));
        }
        self.rows += batch.num_rows();
        Ok(())
    }

    fn push_lists(&mut self, batch: &RecordBatch) -> Result<(), FileProblem> {
        let item = Field::new_list_field(DataType::Float64, true);
        let lists = cast(batch.column(0), &DataType::LargeList(item.into())).map_err(FileProblem::Arrow)?;
        let lists = lists.as_list::<i64>();
        let name = batch.schema_ref().field(0).name().clone();
        for row in 0..lists.len() {
            let numbers = lists.value(row);
            let needed = *self.columns.get_or_insert(numbers.len());
            if numbers.len() != needed {
                let (row, needed, found) = (self.rows as u64, needed as u64, numbers.len() as u64);
                return Err(FileProblem::ListLength { row, needed, found });
            }
            if numbers.null_count() > 0 {
                return Err(FileProblem::Null { row: self.rows as u64, column: name });
            }
            numbers.as_primitive::<Float64Type>().values().iter().for_each(|value| self.push_number(*value));
            self.rows += 1;
        }
        Ok(())
    }

    fn push_number(&mut self, value: f64) {
        if self.layout.element == Element::F32 {
            self.bytes.extend_from_slice(&(value as f32).to_le_bytes());
        } else {
            self.bytes.extend_from_slice(&value.to_le_bytes());
        }
    }
}
