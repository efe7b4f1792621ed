//! Sparse matrices in the .npz form of `scipy.sparse.save_npz`: a ZIP archive with one .npy array for each
//! of `data`, `indices`, `indptr`, `shape` and `format`.

mod member;

use crate::element::{Element, decode};
use crate::npy::Encoding;
use crate::problem::FileProblem;
use crate::sparse::{Column, Columns, Indices, SparseFile, StoredCsr, Values, decode_short, narrow};
use fs_err::File;
use member::{Archive, Member, Source};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Does something with stored integers of 32 or 64 bits, as such of 64.
macro_rules! with_integers {
    ($bytes:expr, $encoding:expr, $numbers:ident => $done:expr) => {
        match ($encoding.element, $encoding.big_endian) {
            (Element::I32, false) => {
                let $numbers = $bytes.as_chunks().0.iter().map(|b| i64::from(i32::from_le_bytes(*b)));
                $done
            }
            (Element::I32, true) => {
                let $numbers = $bytes.as_chunks().0.iter().map(|b| i64::from(i32::from_be_bytes(*b)));
                $done
            }
            (_, false) => {
                let $numbers = $bytes.as_chunks().0.iter().map(|b| i64::from_le_bytes(*b));
                $done
            }
            (_, true) => {
                let $numbers = $bytes.as_chunks().0.iter().map(|b| i64::from_be_bytes(*b));
                $done
            }
        }
    };
}

/// Reads a CSR matrix.
pub(crate) fn read(path: &Path, stop: &AtomicBool) -> Result<SparseFile, FileProblem> {
    let outcome = read_rows(path, stop);
    if stop.load(Ordering::Relaxed) { Err(FileProblem::Stopped) } else { outcome }
}

fn read_rows(path: &Path, stop: &AtomicBool) -> Result<SparseFile, FileProblem> {
    let file = File::open(path).map_err(FileProblem::Io)?;
    let archive = Source::new(&file, stop).archive()?;
    check_format(&archive)?;
    let shape = integers(&archive, "shape")?;
    let &[rows, width] = shape.as_slice() else {
        return Err(FileProblem::Dimensions { shape: format!("{shape:?}") });
    };
    let indptr = integers(&archive, "indptr")?;
    let needed = u64::try_from(rows).unwrap_or(0).saturating_add(1);
    if rows < 0 || indptr.len() as u64 != needed {
        return Err(FileProblem::Length { member: "indptr", needed, found: indptr.len() as u64 });
    }
    let columns = u64::try_from(width).unwrap_or(0);
    // What lies before the first row is of no row.
    let begin = indptr.first().and_then(|begin| usize::try_from(*begin).ok()).unwrap_or(0);
    // Both at once: they may have to be decompressed, each by one thread.
    let (indices, values) = rayon::join(|| indices(&archive, (columns, begin)), || values(&archive));
    let (indices, (values, element)) = (indices?, values?);
    if values.len() != indices.columns.len() {
        let (needed, found) = (indices.columns.len() as u64, values.len() as u64);
        return Err(FileProblem::Length { member: "data", needed, found });
    }
    SparseFile::new(path, StoredCsr { columns, indptr, indices, values, element })
}

fn check_format(archive: &Archive) -> Result<(), FileProblem> {
    let format = Member::open(archive, "format")?.bytes()?;
    // One text of either one or four bytes a character; both read the same once the zeros are left out.
    let text: String = format.iter().take(64).filter(|b| **b != 0).map(|b| char::from(*b)).collect();
    if text == "csr" { Ok(()) } else { Err(FileProblem::NotCsr { format: text }) }
}

/// An array of whole numbers.
fn integers(archive: &Archive, name: &'static str) -> Result<Vec<i64>, FileProblem> {
    let member = Member::open(archive, name)?;
    let encoding = integer_encoding(&member)?;
    member.numbers(|_, bytes, out: &mut [i64]| {
        with_integers!(bytes, encoding, numbers => numbers.zip(out).for_each(|(number, out)| *out = number));
    })
}

fn integer_encoding(member: &Member) -> Result<Encoding, FileProblem> {
    let encoding = member.encoding()?;
    if matches!(encoding.element, Element::I32 | Element::I64) {
        return Ok(encoding);
    }
    Err(member.problem(FileProblem::ElementType { type_name: member.header.descr.clone() }))
}

/// The columns of all entries, below `width`; whatever is not is wrong from `begin` on.
fn indices(archive: &Archive, (width, begin): (u64, usize)) -> Result<Indices, FileProblem> {
    let member = Member::open(archive, "indices")?;
    if Columns::are_short(width) {
        let (columns, wrong) = numbered(member, (width, begin))?;
        return Ok(Indices { columns: Columns::Short(columns), wrong });
    }
    let (columns, wrong) = numbered(member, (width, begin))?;
    Ok(Indices { columns: Columns::Long(columns), wrong })
}

type Wrong = Option<(usize, i64)>;

/// The same in as many bits as are asked for.
fn numbered<C: Column>(member: Member, (width, begin): (u64, usize)) -> Result<(Vec<C>, Wrong), FileProblem> {
    let encoding = integer_encoding(&member)?;
    let wrong = Mutex::new(Wrong::None);
    let columns = member.numbers(|first, bytes, out: &mut [C]| {
        let counts = |at: usize| first + at >= begin;
        let of_piece = with_integers!(bytes, encoding, numbers => narrow(numbers, out, width, counts));
        if let Some((at, number)) = of_piece {
            let mut wrong = wrong.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            // The first one in the order of the file, however many threads there are.
            if wrong.is_none_or(|(other, _)| first + at < other) {
                *wrong = Some((first + at, number));
            }
        }
    })?;
    Ok((columns, wrong.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)))
}

/// The values of all entries, and the type that they are stored in.
fn values(archive: &Archive) -> Result<(Values, Element), FileProblem> {
    let member = Member::open(archive, "data")?;
    let Encoding { element, big_endian } = member.encoding()?;
    let values = if Values::are_short(element) {
        Values::Short(member.numbers(|_, bytes, out: &mut [f32]| decode_short(bytes, big_endian, out))?)
    } else {
        Values::Long(member.numbers(|_, bytes, out: &mut [f64]| decode(bytes, element, big_endian, out))?)
    };
    Ok((values, element))
}
