//! How pairs are laid out in a Parquet file.
//!
//! Rows are sorted, and row groups and pages carry their least and greatest row: whoever looks for one row reads the
//! footer, the page index and one or two pages of each column.

use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties};

/// Pairs of a row group, the last one excepted. By count, never by bytes, so that the cut is the same everywhere.
const ROW_GROUP_PAIRS: usize = 1 << 20;

/// Properties of a file of pairs.
///
/// Ids that are text come in the order of the rows, not in their own, so that their least and greatest value tell
/// little; a filter tells in which row groups an id is.
pub(super) fn properties(text_ids: bool) -> WriterProperties {
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_max_row_group_row_count(Some(ROW_GROUP_PAIRS))
        .set_max_row_group_bytes(None)
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_column_dictionary_enabled("similarity".into(), false)
        .set_column_dictionary_enabled("distance".into(), false);
    if text_ids {
        return properties.set_column_bloom_filter_enabled("row".into(), true).build();
    }
    // Almost all values of numbers differ; a dictionary of them would be built only to be thrown away.
    properties.set_column_dictionary_enabled("col".into(), false).build()
}
