//! Matrices in HDF5 files: one dataset of two dimensions, named by its path unless it is the only one.

use super::{Decoding, Reading};
use crate::dense::{Bytes, DenseFile};
use crate::element::Element;
use crate::problem::FileProblem;
use hdf5_pure::{DType, Dataset, Error, File, Group};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Bytes that are decoded at a time.
const PIECE_BYTES: u64 = 16 << 20;

/// A dataset that claims to be longer than this, and so many times as long as its file, is no honest one: whatever was
/// never written reads as zeros, so that a few kilobytes may claim any length.
const MOST_UNPACKED: u64 = 64 << 20;
const MOST_RATIO: u64 = 4096;

/// Groups within groups that are looked into for a dataset.
const DEPTH: usize = 8;

/// Reads a whole dataset into memory.
pub(super) fn read(path: &Path, decoding: Decoding) -> Result<DenseFile, FileProblem> {
    // The decoder may panic on hostile files.
    catch_unwind(AssertUnwindSafe(|| read_rows(path, decoding)))
        .unwrap_or(Err(FileProblem::Broken { format: "HDF5" }))
}

fn read_rows(path: &Path, decoding: Decoding) -> Result<DenseFile, FileProblem> {
    let length = fs_err::metadata(path).map_err(FileProblem::Io)?.len();
    let file = File::open_streaming(path).map_err(broken)?;
    let dataset = choose(&file, decoding.reading)?;
    let shape = dataset.shape().map_err(broken)?;
    let &[rows, columns] = shape.as_slice() else {
        return Err(FileProblem::Dimensions { shape: format!("{shape:?}") });
    };
    if columns == 0 {
        return Err(FileProblem::NoColumns);
    }
    let dtype = dataset.dtype().map_err(broken)?;
    let element = element(&dtype).ok_or_else(|| FileProblem::ElementType { type_name: dtype.to_string() })?;
    let row_bytes = columns.saturating_mul(element.size() as u64);
    let claimed = rows.saturating_mul(row_bytes);
    if claimed > MOST_UNPACKED.max(MOST_RATIO.saturating_mul(length)) {
        return Err(FileProblem::Broken { format: "HDF5" });
    }
    let mut bytes = Vec::new();
    let step = (PIECE_BYTES / row_bytes).max(1);
    let mut next = 0;
    while next < rows {
        decoding.go_on()?;
        let count = step.min(rows - next);
        append(&mut bytes, &dataset, element, (next, count)).map_err(broken)?;
        next += count;
    }
    if bytes.len() as u64 != claimed {
        return Err(FileProblem::Broken { format: "HDF5" });
    }
    // Both are at most the length of what was read now.
    let (rows, columns) = (rows as usize, columns as usize);
    let encoding = element.little_endian();
    Ok(DenseFile { bytes: Bytes::Owned(bytes), encoding, ..DenseFile::empty(path, rows, columns) })
}

fn broken(source: Error) -> FileProblem {
    FileProblem::Hdf5(source.to_string())
}

fn choose(file: &File, reading: &Reading) -> Result<Dataset, FileProblem> {
    let mut found = Vec::new();
    list(&file.root(), "", DEPTH, &mut found).map_err(broken)?;
    found.sort();
    let name = match (&reading.tensor, found.as_slice()) {
        (Some(asked), all) => all.iter().find(|name| *name == asked.trim_start_matches('/')),
        (None, [only]) => Some(only),
        (None, _) => None,
    };
    match name {
        Some(name) => file.dataset(name).map_err(broken),
        None => {
            let names: Vec<String> = found.iter().take(20).map(|name| format!("`{name}`")).collect();
            Err(FileProblem::Tensor { names: names.join(", ") })
        }
    }
}

/// The paths of all datasets of two dimensions below a group.
fn list(group: &Group, path: &str, depth: usize, found: &mut Vec<String>) -> Result<(), Error> {
    for name in group.datasets()? {
        if group.dataset(&name)?.shape()?.len() == 2 {
            found.push(format!("{path}{name}"));
        }
    }
    if depth > 0 {
        for name in group.groups()? {
            list(&group.group(&name)?, &format!("{path}{name}/"), depth - 1, found)?;
        }
    }
    Ok(())
}

fn element(dtype: &DType) -> Option<Element> {
    Some(match dtype {
        DType::F32 => Element::F32,
        DType::F64 => Element::F64,
        DType::I8 => Element::I8,
        DType::I16 => Element::I16,
        DType::I32 => Element::I32,
        DType::I64 => Element::I64,
        DType::U8 => Element::U8,
        DType::U16 => Element::U16,
        DType::U32 => Element::U32,
        DType::U64 => Element::U64,
        _ => return None,
    })
}

/// Decodes some rows, whatever their order of bytes.
fn append(bytes: &mut Vec<u8>, dataset: &Dataset, element: Element, rows: (u64, u64)) -> Result<(), Error> {
    macro_rules! take {
        ($read:ident) => {
            dataset
                .$read(rows.0, rows.1)?
                .iter()
                .for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()))
        };
    }
    match element {
        Element::I8 => take!(read_i8_rows),
        Element::I16 => take!(read_i16_rows),
        Element::I32 => take!(read_i32_rows),
        Element::I64 => take!(read_i64_rows),
        Element::U8 => take!(read_u8_rows),
        Element::U16 => take!(read_u16_rows),
        Element::U32 => take!(read_u32_rows),
        Element::U64 => take!(read_u64_rows),
        Element::F32 => take!(read_f32_rows),
        // There is no other type here.
        Element::F64 | Element::F16 | Element::Bf16 => take!(read_f64_rows),
    }
    Ok(())
}
