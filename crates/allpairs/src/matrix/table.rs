//! Matrices in tables of typed columns: one number a column, one list of numbers in each row, or two lists,
//! `indices` and `values`, for sparse rows; besides, perhaps, a column of ids.

use super::ids::{Ids, id_column};
use super::{Content, OpenedFile, Reading};
use crate::dense::{Bytes, DenseFile};
use crate::element::Element;
use crate::problem::FileProblem;
use crate::sparse::{Indices, SparseFile, StoredCsr, Values};
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use std::path::Path;

/// Where the rows lie in the columns.
#[derive(Debug, Clone)]
enum Layout {
    Columns(Vec<usize>),
    Lists(usize),
    SparseLists { indices: usize, values: usize },
}

/// The rows decoded so far, one after the other.
#[derive(Debug)]
pub(crate) struct TableRows {
    layout: Layout,
    id: Option<usize>,
    /// The type in which all numbers are kept: theirs, if all have the same.
    element: Element,
    columns: Option<usize>,
    rows: usize,
    numbers: Vec<u8>,
    indices: Vec<i64>,
    indptr: Vec<i64>,
    ids: Vec<Ids>,
}

impl TableRows {
    /// Makes out the layout of a table.
    pub(crate) fn new(schema: &Schema, reading: &Reading) -> Result<Self, FileProblem> {
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        let id = id_column(&names, reading.id_column.as_deref())?;
        let others: Vec<usize> = (0..names.len()).filter(|at| Some(*at) != id).collect();
        let (layout, number_types) = layout(schema, others)?;
        Ok(Self {
            layout,
            id,
            element: common_element(&number_types),
            columns: None,
            rows: 0,
            numbers: Vec::new(),
            indices: Vec::new(),
            indptr: vec![0],
            ids: Vec::new(),
        })
    }

    /// Takes the next rows.
    pub(crate) fn push(&mut self, batch: &RecordBatch) -> Result<(), FileProblem> {
        if let Some(at) = self.id {
            self.push_ids(batch, at, self.rows)?;
        }
        match self.layout.clone() {
            Layout::Columns(columns) => {
                self.columns = Some(columns.len());
                self.put_columns(batch, &columns, (self.rows, 0))
            }
            Layout::Lists(column) => self.push_lists(batch, column),
            Layout::SparseLists { indices, values } => self.push_sparse(batch, indices, values),
        }?;
        self.rows += batch.num_rows();
        Ok(())
    }

    /// The columns that hold one number of each row, if rows lie in the table like that.
    pub(super) fn number_columns(&self) -> Option<&[usize]> {
        match &self.layout {
            Layout::Columns(columns) => Some(columns),
            Layout::Lists(_) | Layout::SparseLists { .. } => None,
        }
    }

    /// The column of ids.
    pub(super) fn id_column(&self) -> Option<usize> {
        self.id
    }

    pub(super) fn number_size(&self) -> usize {
        self.element.size()
    }

    /// Takes ids of the next rows, all that is in the batch. Their numbers are put in by [`Self::put_columns`].
    pub(super) fn push_ids(
        &mut self,
        batch: &RecordBatch,
        at: usize,
        first_row: usize,
    ) -> Result<(), FileProblem> {
        let ids = Ids::of_column(batch.column(at)).map_err(FileProblem::Arrow)?;
        if let Some(row) = ids.first_missing() {
            let column = batch.schema_ref().field(at).name().clone();
            return Err(FileProblem::NoId { row: (first_row + row) as u64, column });
        }
        self.ids.push(ids);
        Ok(())
    }

    /// Says that so many more rows are complete, of as many columns as the table has.
    pub(super) fn complete(&mut self, rows: usize) {
        self.rows += rows;
        self.columns = self.number_columns().map(<[usize]>::len);
    }

    /// Rows that are complete.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    fn check_nulls(&self, batch: &RecordBatch, at: usize, first_row: usize) -> Result<(), FileProblem> {
        let column = batch.column(at);
        if column.null_count() == 0 {
            return Ok(());
        }
        match (0..column.len()).find(|row| column.is_null(*row)) {
            Some(row) => Err(null(batch, at, first_row + row)),
            None => Ok(()),
        }
    }

    /// Puts numbers into rows: those of some columns of the batch, to where the first row and the first of these columns
    /// have their place. Rows are added as they come.
    pub(super) fn put_columns(
        &mut self,
        batch: &RecordBatch,
        columns: &[usize],
        (first_row, first_column): (usize, usize),
    ) -> Result<(), FileProblem> {
        columns.iter().try_for_each(|at| self.check_nulls(batch, *at, first_row))?;
        let data_type = arrow_type(self.element);
        let arrays: Vec<ArrayRef> = columns
            .iter()
            .map(|at| cast(batch.column(*at), &data_type))
            .collect::<Result<_, _>>()
            .map_err(FileProblem::Arrow)?;
        let stored: Vec<_> = arrays.iter().map(|array| array.to_data()).collect();
        let parts: Vec<&[u8]> = stored.iter().map(|array| number_bytes(array, self.element)).collect();
        let size = self.element.size();
        let width = self.number_columns().map_or(columns.len(), <[usize]>::len);
        let end = (first_row + batch.num_rows()) * width * size;
        self.numbers.resize(self.numbers.len().max(end), 0);
        let rows = &mut self.numbers[first_row * width * size..end];
        match size {
            1 => put::<1>(rows, width, first_column, &parts),
            2 => put::<2>(rows, width, first_column, &parts),
            4 => put::<4>(rows, width, first_column, &parts),
            _ => put::<8>(rows, width, first_column, &parts),
        }
        Ok(())
    }

    fn push_lists(&mut self, batch: &RecordBatch, column: usize) -> Result<(), FileProblem> {
        self.check_nulls(batch, column, self.rows)?;
        let lists = self.lists(batch, column, &arrow_type(self.element))?;
        let offsets = lists.as_list::<i64>().value_offsets();
        for (row, bounds) in offsets.windows(2).enumerate() {
            let found = (bounds[1] - bounds[0]) as usize;
            let needed = *self.columns.get_or_insert(found);
            if found != needed {
                let row = (self.rows + row) as u64;
                return Err(FileProblem::ListLength { row, needed: needed as u64, found: found as u64 });
            }
        }
        self.push_numbers(&lists);
        Ok(())
    }

    fn push_sparse(&mut self, batch: &RecordBatch, indices: usize, values: usize) -> Result<(), FileProblem> {
        self.check_nulls(batch, indices, self.rows)?;
        self.check_nulls(batch, values, self.rows)?;
        let index_lists = self.lists(batch, indices, &DataType::Int64)?;
        let value_lists = self.lists(batch, values, &arrow_type(self.element))?;
        let (index_lists, value_offsets) =
            (index_lists.as_list::<i64>(), value_lists.as_list::<i64>().value_offsets());
        let index_offsets = index_lists.value_offsets();
        for row in 0..batch.num_rows() {
            let length = |offsets: &[i64]| (offsets[row + 1] - offsets[row]) as u64;
            let (indices, values) = (length(index_offsets), length(value_offsets));
            if indices != values {
                return Err(FileProblem::SparseLists { row: (self.rows + row) as u64, indices, values });
            }
            let end = self.indptr.last().copied().unwrap_or(0);
            self.indptr.push(end + indices as i64);
        }
        let (first, last) = (index_offsets[0] as usize, index_offsets[batch.num_rows()] as usize);
        let numbers = index_lists.values().as_primitive::<Int64Type>();
        self.indices.extend_from_slice(&numbers.values()[first..last]);
        self.push_numbers(&value_lists);
        Ok(())
    }

    /// A column as lists of one type, with no gap in any of them.
    fn lists(&self, batch: &RecordBatch, column: usize, item: &DataType) -> Result<ArrayRef, FileProblem> {
        let wanted = DataType::LargeList(Field::new_list_field(item.clone(), true).into());
        let lists = cast(batch.column(column), &wanted).map_err(FileProblem::Arrow)?;
        let (offsets, values) = (lists.as_list::<i64>().value_offsets(), lists.as_list::<i64>().values());
        if values.null_count() > 0 {
            let gap = |row: &usize| (offsets[*row]..offsets[row + 1]).any(|at| values.is_null(at as usize));
            if let Some(row) = (0..lists.len()).find(gap) {
                return Err(null(batch, column, self.rows + row));
            }
        }
        Ok(lists)
    }

    fn push_numbers(&mut self, lists: &ArrayRef) {
        let lists = lists.as_list::<i64>();
        let offsets = lists.value_offsets();
        let (first, last) = (offsets[0] as usize, offsets[lists.len()] as usize);
        let stored = lists.values().to_data();
        let size = self.element.size();
        self.numbers.extend_from_slice(&number_bytes(&stored, self.element)[first * size..last * size]);
    }

    /// The file that the rows make up.
    pub(crate) fn finish(self, path: &Path) -> Result<OpenedFile, FileProblem> {
        let ids = Ids::join(&self.ids).map_err(FileProblem::Arrow)?;
        let (content, width_known) = match self.layout {
            Layout::SparseLists { .. } => (Content::Sparse(self.sparse(path)?), false),
            Layout::Columns(_) | Layout::Lists(_) => (Content::Dense(self.dense(path)?), true),
        };
        Ok(OpenedFile { content, ids, width_known })
    }

    fn dense(self, path: &Path) -> Result<DenseFile, FileProblem> {
        let columns = match self.columns {
            None | Some(0) => return Err(FileProblem::NoColumns),
            Some(columns) => columns,
        };
        let encoding = self.element.little_endian();
        let bytes = Bytes::Owned(self.numbers);
        Ok(DenseFile { bytes, encoding, ..DenseFile::empty(path, self.rows, columns) })
    }

    fn sparse(self, path: &Path) -> Result<SparseFile, FileProblem> {
        let greatest = self.indices.iter().copied().max().unwrap_or(0).max(0);
        let columns = greatest as u64 + 1;
        let indices = Indices::new(&self.indices, (columns, 0));
        drop(self.indices);
        let values = Values::decoded(&self.numbers, self.element.little_endian());
        drop(self.numbers);
        SparseFile::new(
            path,
            StoredCsr { columns, indptr: self.indptr, indices, values, element: self.element },
        )
    }
}

fn null(batch: &RecordBatch, column: usize, row: usize) -> FileProblem {
    FileProblem::Null { row: row as u64, column: batch.schema_ref().field(column).name().clone() }
}

/// Puts numbers of `N` bytes from some columns into rows of so many of them.
fn put<const N: usize>(rows: &mut [u8], width: usize, first_column: usize, parts: &[&[u8]]) {
    let parts: Vec<&[[u8; N]]> = parts.iter().map(|part| part.as_chunks::<N>().0).collect();
    let rows = rows.as_chunks_mut::<N>().0.chunks_exact_mut(width);
    for (at, row) in rows.enumerate() {
        row[first_column..].iter_mut().zip(&parts).for_each(|(out, part)| *out = part[at]);
    }
}

/// The stored numbers of an array that has no nulls.
fn number_bytes(array: &arrow::array::ArrayData, element: Element) -> &[u8] {
    let size = element.size();
    &array.buffers()[0].as_slice()[array.offset() * size..][..array.len() * size]
}

fn layout(schema: &Schema, others: Vec<usize>) -> Result<(Layout, Vec<DataType>), FileProblem> {
    let fields = schema.fields();
    let named =
        |names: [&str; 2]| others.iter().copied().find(|at| names.contains(&fields[*at].name().as_str()));
    let item = |at: usize| match fields[at].data_type() {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            Some(item.data_type().clone())
        }
        _ => None,
    };
    let number = |at: usize, found: Option<DataType>| {
        found.filter(|found| element(found).is_some()).ok_or_else(|| column_type(&fields[at]))
    };
    match *others.as_slice() {
        [only] if item(only).is_some() => Ok((Layout::Lists(only), vec![number(only, item(only))?])),
        [first, second] if item(first).is_some() && item(second).is_some() => {
            let found = (named(["indices", "index"]), named(["values", "value"]));
            let (Some(indices), Some(values)) = found else { return Err(column_type(&fields[first])) };
            if !item(indices).is_some_and(|item| item.is_integer()) {
                return Err(column_type(&fields[indices]));
            }
            Ok((Layout::SparseLists { indices, values }, vec![number(values, item(values))?]))
        }
        _ => {
            let types = others
                .iter()
                .map(|at| number(*at, Some(fields[*at].data_type().clone())))
                .collect::<Result<_, _>>()?;
            Ok((Layout::Columns(others), types))
        }
    }
}

fn column_type(field: &Field) -> FileProblem {
    FileProblem::ColumnType { column: field.name().clone(), type_name: field.data_type().to_string() }
}

fn element(data_type: &DataType) -> Option<Element> {
    ELEMENTS.iter().find(|(_, known)| known == data_type).map(|(element, _)| *element)
}

fn arrow_type(element: Element) -> DataType {
    let known = ELEMENTS.iter().find(|(known, _)| *known == element);
    known.map_or(DataType::Float64, |(_, data_type)| data_type.clone())
}

const ELEMENTS: [(Element, DataType); 11] = [
    (Element::I8, DataType::Int8),
    (Element::I16, DataType::Int16),
    (Element::I32, DataType::Int32),
    (Element::I64, DataType::Int64),
    (Element::U8, DataType::UInt8),
    (Element::U16, DataType::UInt16),
    (Element::U32, DataType::UInt32),
    (Element::U64, DataType::UInt64),
    (Element::F16, DataType::Float16),
    (Element::F32, DataType::Float32),
    (Element::F64, DataType::Float64),
];

/// The type of all numbers if they have one, else the narrower float that holds them exactly (64-bit integers
/// are rounded).
fn common_element(types: &[DataType]) -> Element {
    use DataType as T;
    let narrow =
        |t: &DataType| matches!(t, T::Float16 | T::Float32 | T::Int8 | T::Int16 | T::UInt8 | T::UInt16);
    match types {
        [first, rest @ ..] if rest.iter().all(|other| other == first) => {
            element(first).unwrap_or(Element::F64)
        }
        mixed if mixed.iter().all(narrow) => Element::F32,
        _ => Element::F64,
    }
}
