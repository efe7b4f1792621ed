//! Sparse matrices in the .npz form of `scipy.sparse.save_npz`: a ZIP archive with one .npy array for each
//! of `data`, `indices`, `indptr`, `shape` and `format`.

use crate::element::Element;
use crate::npy::Header;
use crate::problem::FileProblem;
use crate::sparse::{Numbers, SparseFile, StoredCsr};
use fs_err::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use zip::ZipArchive;
use zip::result::ZipError;

/// One array of the archive, read whole.
struct Array {
    header: Header,
    bytes: Vec<u8>,
}

impl Array {
    fn numbers(self, member: &'static str) -> Result<Numbers, FileProblem> {
        let in_member = |problem| FileProblem::Member { member, problem: Box::new(problem) };
        let encoding = self.header.encoding().map_err(in_member)?;
        Ok(Numbers { bytes: self.bytes, encoding })
    }
}

/// A file that can not be read any more once the flag is set.
struct Stoppable<'a> {
    file: File,
    stop: &'a AtomicBool,
}

impl Read for Stoppable<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.stop.load(Ordering::Relaxed) { Err(io::Error::other("stopped")) } else { self.file.read(out) }
    }
}

impl Seek for Stoppable<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

type Archive<'a> = ZipArchive<Stoppable<'a>>;

/// Reads a CSR matrix.
pub(crate) fn read(path: &Path, stop: &AtomicBool) -> Result<SparseFile, FileProblem> {
    let outcome = read_rows(path, stop);
    if stop.load(Ordering::Relaxed) { Err(FileProblem::Stopped) } else { outcome }
}

fn read_rows(path: &Path, stop: &AtomicBool) -> Result<SparseFile, FileProblem> {
    let file = File::open(path).map_err(FileProblem::Io)?;
    let mut archive = ZipArchive::new(Stoppable { file, stop }).map_err(FileProblem::Zip)?;
    check_format(&mut archive)?;
    let all = |numbers: Numbers| numbers.integers(0..numbers.len());
    let shape = all(integers(&mut archive, "shape")?);
    let &[rows, columns] = shape.as_slice() else {
        return Err(FileProblem::Dimensions { shape: format!("{shape:?}") });
    };
    let indptr = all(integers(&mut archive, "indptr")?);
    let needed = u64::try_from(rows).unwrap_or(0).saturating_add(1);
    if rows < 0 || indptr.len() as u64 != needed {
        return Err(FileProblem::Length { member: "indptr", needed, found: indptr.len() as u64 });
    }
    let indices = integers(&mut archive, "indices")?;
    let values = array(&mut archive, "data")?.numbers("data")?;
    if values.len() != indices.len() {
        let (needed, found) = (indices.len() as u64, values.len() as u64);
        return Err(FileProblem::Length { member: "data", needed, found });
    }
    let columns = u64::try_from(columns).unwrap_or(0);
    SparseFile::new(path, StoredCsr { columns, indptr, indices, values })
}

fn check_format(archive: &mut Archive) -> Result<(), FileProblem> {
    let format = array(archive, "format")?;
    // One text of either one or four bytes a character; both read the same once the zeros are left out.
    let text: String = format.bytes.iter().take(64).filter(|b| **b != 0).map(|b| char::from(*b)).collect();
    if text == "csr" { Ok(()) } else { Err(FileProblem::NotCsr { format: text }) }
}

fn integers(archive: &mut Archive, member: &'static str) -> Result<Numbers, FileProblem> {
    let array = array(archive, member)?;
    let type_name = array.header.descr.clone();
    let numbers = array.numbers(member)?;
    if matches!(numbers.encoding.element, Element::I32 | Element::I64) {
        return Ok(numbers);
    }
    Err(FileProblem::Member { member, problem: Box::new(FileProblem::ElementType { type_name }) })
}

/// Reads an array of at most one dimension; room is made as the bytes arrive, not as the header claims.
fn array(archive: &mut Archive, member: &'static str) -> Result<Array, FileProblem> {
    let mut bytes = Vec::new();
    match archive.by_name(&format!("{member}.npy")) {
        Ok(mut file) => file.read_to_end(&mut bytes).map_err(FileProblem::Io)?,
        Err(ZipError::FileNotFound) => return Err(FileProblem::Missing { member }),
        Err(source) => return Err(FileProblem::Zip(source)),
    };
    let in_member = |problem| FileProblem::Member { member, problem: Box::new(problem) };
    let header = Header::parse(&bytes).map_err(in_member)?;
    if header.shape.len() > 1 {
        return Err(in_member(FileProblem::Dimensions { shape: header.shape_text() }));
    }
    bytes.drain(..header.start);
    check_size(&header, bytes.len() as u64).map_err(in_member)?;
    Ok(Array { header, bytes })
}

fn check_size(header: &Header, found: u64) -> Result<(), FileProblem> {
    // Texts have no number type; theirs is the only array whose size is not checked.
    let Ok(encoding) = header.encoding() else { return Ok(()) };
    let needed = u128::from(header.count().unwrap_or(u64::MAX)) * encoding.element.size() as u128;
    if needed == u128::from(found) {
        return Ok(());
    }
    Err(FileProblem::Size { shape: header.shape_text(), needed, found })
}
