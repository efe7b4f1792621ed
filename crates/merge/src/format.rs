//! The file formats that can be merged.

use std::path::Path;

use serde::Serialize;

use crate::error::MergeError;

/// A format of parts and results, known by its ending (upper or lower case).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// `.parquet`
    Parquet,
    /// `.csv`: comma-separated, the first row a header.
    Csv,
    /// `.jsonl`: one JSON object a line.
    Jsonl,
    /// `.arrow`: Arrow's file format.
    Arrow,
    /// `.npz`: one sparse matrix in CSR form, as SciPy writes it.
    Npz,
    /// `.npy`: one NumPy array, whose first axis counts the rows.
    Npy,
}

/// All formats with their endings.
const ENDINGS: [(&str, Format); 6] = [
    ("parquet", Format::Parquet),
    ("csv", Format::Csv),
    ("jsonl", Format::Jsonl),
    ("arrow", Format::Arrow),
    ("npy", Format::Npy),
    ("npz", Format::Npz),
];

impl Format {
    /// The format of a file name, if its ending is that of one.
    pub fn of_name(name: &str) -> Option<Self> {
        let (_, ending) = name.rsplit_once('.')?;
        ENDINGS.iter().find(|(known, _)| ending.eq_ignore_ascii_case(known)).map(|(_, format)| *format)
    }

    pub(crate) fn of_output(output: &Path) -> Result<Self, MergeError> {
        output
            .file_name()
            .and_then(|name| Self::of_name(&name.to_string_lossy()))
            .ok_or_else(|| MergeError::OutputFormat { output: output.to_path_buf() })
    }
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Parquet => ".parquet",
            Self::Csv => ".csv",
            Self::Jsonl => ".jsonl",
            Self::Arrow => ".arrow",
            Self::Npy => ".npy",
            Self::Npz => ".npz",
        })
    }
}
