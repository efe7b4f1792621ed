//! What a caller asks of a merge, and what it hears while the merge runs.

/// Bytes a merge may hold in memory for rows that it sorts, unless told otherwise: 256 MiB.
pub const DEFAULT_MEMORY: usize = 256 << 20;

/// How parts are chosen and ordered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergeOptions {
    /// Which entries of the archive are parts, such as `part-*.parquet`: a pattern that the entry's path or its
    /// base name fits (`*` also spans `/`). Without one, every file with the ending of a [`crate::Format`].
    pub glob: Option<String>,
    /// In what sequence the rows are written.
    pub order: Order,
    /// Bytes of rows held in memory while sorting. Readers and writers need a few MiB more, and a Parquet row
    /// group (at most 128 MiB) is always held whole.
    pub memory: usize,
}

impl Default for MergeOptions {
    fn default() -> Self {
        Self { glob: None, order: Order::Host, memory: DEFAULT_MEMORY }
    }
}

/// The sequence of the merged rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Order {
    /// Part after part: by the host's number, then by the path's bytes.
    #[default]
    Host,
    /// By the values of the named column, ascending: numbers by value, text by bytes, nulls last. Rows of equal
    /// value keep the sequence that [`Order::Host`] gives them.
    Column(String),
}

/// How far a merge has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Parts are being taken out of the archive.
    Taken {
        /// Parts found so far.
        parts: usize,
        /// Their bytes so far.
        bytes: u64,
    },
    /// Rows are being written to the output.
    Joined {
        /// Parts written to their end; stays 0 up to the end when rows are ordered by a column.
        parts: usize,
        /// Rows written so far.
        rows: u64,
    },
}
