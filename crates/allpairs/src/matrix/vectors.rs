//! Vectors as the TEXMEX data sets store them: each row its length as a 32-bit integer and then its numbers.
//!
//! Format: <http://corpus-texmex.irisa.fr/>, `.fvecs` (float32), `.ivecs` (int32), `.bvecs` (bytes).

use crate::dense::{Bytes, DenseFile};
use crate::element::Element;
use crate::machine::map_file;
use crate::problem::FileProblem;
use std::path::Path;

/// Bytes of a row's length.
const HEAD: usize = 4;

/// Maps a file; the numbers stay where they are.
pub(super) fn open(path: &Path, element: Element) -> Result<DenseFile, FileProblem> {
    let map = map_file(path).map_err(FileProblem::Io)?;
    let Some(columns) = length(&map, 0) else {
        return if map.is_empty() { Err(FileProblem::NoColumns) } else { Err(cut(&map, 0, 0)) };
    };
    if columns <= 0 {
        return Err(wrong_length(0, 0, columns, "a length is at least 1".to_owned()));
    }
    let columns = columns as usize;
    let row_bytes = columns.saturating_mul(element.size()).saturating_add(HEAD);
    let rows = map.len() / row_bytes;
    for row in 0..rows {
        let found = length(&map, row * row_bytes).unwrap_or(0);
        if usize::try_from(found) != Ok(columns) {
            let needed = format!("the rows before it have {columns} numbers");
            return Err(wrong_length(row, row * row_bytes, found, needed));
        }
    }
    if !map.len().is_multiple_of(row_bytes) {
        return Err(cut(&map, rows, rows * row_bytes));
    }
    let encoding = element.little_endian();
    Ok(DenseFile {
        bytes: Bytes::Mapped(map),
        encoding,
        row_head: HEAD,
        ..DenseFile::empty(path, rows, columns)
    })
}

fn length(file: &[u8], at: usize) -> Option<i32> {
    file.get(at..)?.first_chunk().map(|bytes| i32::from_le_bytes(*bytes))
}

fn wrong_length(row: usize, at: usize, found: i32, needed: String) -> FileProblem {
    let what = format!("claims {found} numbers");
    FileProblem::Vectors { row: row as u64, at: at as u64, what, needed }
}

fn cut(file: &[u8], row: usize, at: usize) -> FileProblem {
    let what = format!("has only {} bytes", file.len() - at);
    FileProblem::Vectors { row: row as u64, at: at as u64, what, needed: "the file is cut".to_owned() }
}
