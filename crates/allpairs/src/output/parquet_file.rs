//! Pairs as a Parquet file.
//!
//! Rows are sorted, and row groups and pages carry their least and greatest row: whoever looks for one row reads the
//! footer, the page index and one or two pages of each column.
//!
//! Columns are encoded by as many threads as there are. What a column's bytes are depends on its values alone.

use arrow::array::ArrayRef;
use arrow::datatypes::SchemaRef;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::{ArrowColumnWriter, ArrowRowGroupWriterFactory, compute_leaves};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{DEFAULT_WRITE_BATCH_SIZE, EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use rayon::prelude::*;
use std::fs::File;
use std::ops::Range;

/// Pairs of a row group, the last one excepted. By count, never by bytes, so that the cut is the same everywhere.
const ROW_GROUP_PAIRS: usize = 16 * super::table::BATCH_PAIRS;

/// What the columns `row` and `col` hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Labels {
    /// Numbers of rows.
    Rows,
    /// Ids that are numbers.
    Numbers,
    /// Ids that are texts.
    Texts,
}

/// How columns are encoded.
///
/// Numbers of rows are small, and those of the column `row` repeat themselves or grow by one: differences take the
/// fewest bytes, and half of the time of a dictionary. Ids may be any numbers. In the column `row` most differences are
/// zero all the same; in the column `col` they are as long as the numbers, which are in a dictionary only once, as long
/// as they are not too many.
///
/// Ids that are text come in the order of the rows, not in their own, so that their least and greatest value tell
/// little; a filter tells in which row groups an id is.
fn properties([row, col]: [Labels; 2]) -> WriterProperties {
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_max_row_group_row_count(Some(ROW_GROUP_PAIRS))
        .set_max_row_group_bytes(None)
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_column_dictionary_enabled("similarity".into(), false)
        .set_column_dictionary_enabled("distance".into(), false)
        .set_column_bloom_filter_enabled("row".into(), row == Labels::Texts);
    for (name, labels, dictionary) in [("row", row, false), ("col", col, col == Labels::Numbers)] {
        if labels != Labels::Texts {
            properties = properties
                .set_column_dictionary_enabled(name.into(), dictionary)
                .set_column_encoding(name.into(), Encoding::DELTA_BINARY_PACKED);
        }
    }
    properties.build()
}

/// Pairs that are encoded at a time: their arrays stay in the second-level cache. The writer divides what it gets by the
/// same size, after which pages may be cut, so that no byte depends on it.
const ENCODED_TOGETHER: usize = 8 * DEFAULT_WRITE_BATCH_SIZE;

/// Makes the values of a column for some pairs.
pub(super) type Column<'a> = Box<dyn Fn(Range<usize>) -> ArrayRef + Sync + 'a>;

/// A file that is begun with the first pairs. What encodes them takes some megabytes, the program's own text above all,
/// which nothing needs before.
pub(super) struct ParquetFile {
    schema: SchemaRef,
    labels: [Labels; 2],
    metadata: Vec<KeyValue>,
    file: File,
    begun: Option<Begun>,
}

struct Begun {
    writer: SerializedFileWriter<File>,
    groups: ArrowRowGroupWriterFactory,
    /// Encoders of the columns of the row group that is being written, and the pairs that they have.
    columns: Vec<ArrowColumnWriter>,
    pairs: usize,
}

impl ParquetFile {
    pub(super) fn new(file: File, schema: &SchemaRef, labels: [Labels; 2]) -> Self {
        let (schema, metadata) = (SchemaRef::clone(schema), Vec::new());
        Self { schema, labels, metadata, file, begun: None }
    }

    pub(super) fn add_metadata(&mut self, (key, value): (String, Option<String>)) {
        self.metadata.push(KeyValue::new(key, value));
    }

    /// Adds some pairs; a row group must not end between them.
    pub(super) fn write(&mut self, columns: &[Column], pairs: usize) -> Result<(), ParquetError> {
        let schema = SchemaRef::clone(&self.schema);
        self.begun()?.write(&schema, columns, pairs)
    }

    /// Completes the file.
    pub(super) fn finish(&mut self) -> Result<(), ParquetError> {
        self.begun()?.finish()
    }

    fn begun(&mut self) -> Result<&mut Begun, ParquetError> {
        let begun = match self.begun.take() {
            Some(begun) => begun,
            None => self.begin()?,
        };
        Ok(self.begun.insert(begun))
    }

    fn begin(&mut self) -> Result<Begun, ParquetError> {
        let (file, schema) = (self.file.try_clone()?, SchemaRef::clone(&self.schema));
        // It puts Arrow's schema into the file.
        let writer = ArrowWriter::try_new(file, schema, Some(properties(self.labels)))?;
        let (mut writer, groups) = writer.into_serialized_writer()?;
        self.metadata.drain(..).for_each(|pair| writer.append_key_value_metadata(pair));
        Ok(Begun { writer, groups, columns: Vec::new(), pairs: 0 })
    }
}

impl Begun {
    fn write(&mut self, schema: &SchemaRef, columns: &[Column], pairs: usize) -> Result<(), ParquetError> {
        if self.columns.is_empty() {
            self.columns = self.groups.create_column_writers(self.writer.flushed_row_groups().len())?;
        }
        let fields = schema.fields();
        let together = self.columns.par_iter_mut().zip(columns).zip(fields.as_ref());
        together.try_for_each(|((writer, column), field)| {
            (0..pairs).step_by(ENCODED_TOGETHER).try_for_each(|first| {
                let values = column(first..pairs.min(first + ENCODED_TOGETHER));
                compute_leaves(field, &values)?.iter().try_for_each(|leaf| writer.write(leaf))
            })
        })?;
        self.pairs += pairs;
        if self.pairs >= ROW_GROUP_PAIRS { self.end_group() } else { Ok(()) }
    }

    fn end_group(&mut self) -> Result<(), ParquetError> {
        self.pairs = 0;
        let columns = std::mem::take(&mut self.columns).into_par_iter().map(ArrowColumnWriter::close);
        let columns: Vec<_> = columns.collect::<Result<_, _>>()?;
        let mut group = self.writer.next_row_group()?;
        columns.into_iter().try_for_each(|column| column.append_to_row_group(&mut group))?;
        group.close()?;
        Ok(())
    }

    fn finish(&mut self) -> Result<(), ParquetError> {
        if self.pairs > 0 {
            self.end_group()?;
        }
        self.writer.finish()?;
        Ok(())
    }
}
