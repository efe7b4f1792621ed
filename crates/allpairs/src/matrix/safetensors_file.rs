//! Matrices in safetensors files: one tensor of two dimensions, named unless it is the only one.

use super::Reading;
use crate::dense::{Bytes, DenseFile};
use crate::element::Element;
use crate::machine::map_file;
use crate::problem::FileProblem;
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorInfo};
use std::path::Path;

/// Maps a file; the numbers stay where they are.
pub(super) fn open(path: &Path, reading: &Reading) -> Result<DenseFile, FileProblem> {
    let map = map_file(path).map_err(FileProblem::Io)?;
    let (header, metadata) = SafeTensors::read_metadata(&map).map_err(FileProblem::Safetensors)?;
    let tensors = metadata.tensors();
    let tensor = choose(tensors.iter().map(|(name, tensor)| (name.as_str(), *tensor)), reading)?;
    let &[rows, columns] = tensor.shape.as_slice() else {
        return Err(FileProblem::Dimensions { shape: format!("{:?}", tensor.shape) });
    };
    if columns == 0 {
        return Err(FileProblem::NoColumns);
    }
    let element = element(tensor.dtype)
        .ok_or_else(|| FileProblem::ElementType { type_name: format!("{:?}", tensor.dtype) })?;
    // The length of the header stands before it in 8 bytes; offsets count from behind both.
    let start = 8 + header + tensor.data_offsets.0;
    let encoding = element.little_endian();
    Ok(DenseFile { bytes: Bytes::Mapped(map), start, encoding, ..DenseFile::empty(path, rows, columns) })
}

fn choose<'a>(
    tensors: impl Iterator<Item = (&'a str, &'a TensorInfo)>,
    reading: &Reading,
) -> Result<&'a TensorInfo, FileProblem> {
    let mut tensors: Vec<_> = tensors.collect();
    tensors.sort_by_key(|(name, _)| *name);
    if let Some(asked) = &reading.tensor
        && let Some((_, tensor)) = tensors.iter().find(|(name, _)| name == asked)
    {
        return Ok(tensor);
    }
    tensors.retain(|(_, tensor)| tensor.shape.len() == 2);
    match tensors.as_slice() {
        [(_, only)] if reading.tensor.is_none() => Ok(only),
        several => {
            let names: Vec<String> = several.iter().take(20).map(|(name, _)| format!("`{name}`")).collect();
            Err(FileProblem::Tensor { names: names.join(", ") })
        }
    }
}

fn element(dtype: Dtype) -> Option<Element> {
    Some(match dtype {
        Dtype::I8 => Element::I8,
        Dtype::I16 => Element::I16,
        Dtype::I32 => Element::I32,
        Dtype::I64 => Element::I64,
        Dtype::U8 => Element::U8,
        Dtype::U16 => Element::U16,
        Dtype::U32 => Element::U32,
        Dtype::U64 => Element::U64,
        Dtype::F16 => Element::F16,
        Dtype::BF16 => Element::Bf16,
        Dtype::F32 => Element::F32,
        Dtype::F64 => Element::F64,
        _ => return None,
    })
}
