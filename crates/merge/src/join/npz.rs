//! Sparse matrices as `scipy.sparse.save_npz` writes them, one above the other.
//!
//! A part is a ZIP archive with the arrays `data`, `indices`, `indptr`, `shape` and `format`. Entries are copied as
//! they are; only where each row begins is written anew.

use std::io::{self, Read, Write};

use fs_err as fs;
use zip::result::ZipError;
use zip::write::{SimpleFileOptions, StreamWriter};
use zip::{ZipArchive, ZipWriter};

use super::npy::header::Header;
use super::{Joining, Tally};
use crate::error::{MergeError, NpyFault, PartError};
use crate::part::Part;
use crate::scratch::Writing;

type Archive = ZipArchive<fs::File>;

/// What is known of a part before its entries are copied.
struct Csr {
    columns: i64,
    /// Where each row ends among the entries of the part.
    ends: Vec<i64>,
    indices: Header,
    numbers: Header,
}

pub(super) fn join(joining: &Joining<'_>) -> Result<u64, MergeError> {
    let mut tally = Tally::new(joining);
    let mut whole: Option<Csr> = None;
    for part in joining.parts {
        let found = read(part).map_err(|source| part.fault(source))?;
        tally.add_rows(found.ends.len() as u64);
        match (&mut whole, joining.parts.first()) {
            (Some(whole), Some(first)) => append(whole, found, first).map_err(|source| part.fault(source))?,
            _ => whole = Some(found),
        }
    }
    let writing = joining.scratch.result()?;
    let Some(whole) = whole else { return writing.finish().map(|()| 0) };
    write(joining, writing, &whole, &mut tally)?;
    Ok(tally.rows)
}

/// Puts the rows of a part below those before it.
fn append(whole: &mut Csr, part: Csr, first: &Part) -> Result<(), PartError> {
    let row = |csr: &Csr| {
        format!("{} columns, {}, {}", csr.columns, csr.numbers.rows_text(), csr.indices.rows_text())
    };
    let same = whole.columns == part.columns
        && whole.numbers.same_rows(&part.numbers)
        && whole.indices.same_rows(&part.indices);
    if !same {
        return Err(PartError::NpyRows {
            first: first.name.clone(),
            expected: row(whole),
            found: row(&part),
        });
    }
    let entries = whole.ends.last().copied().unwrap_or(0);
    for end in part.ends {
        whole.ends.push(end.checked_add(entries).ok_or(NpyFault::TooManyRows)?);
    }
    let add = |whole: &mut Header, part: &Header| {
        whole.rows = whole.rows.checked_add(part.rows).ok_or(NpyFault::TooManyRows)?;
        Ok::<(), PartError>(())
    };
    add(&mut whole.indices, &part.indices)?;
    add(&mut whole.numbers, &part.numbers)
}

fn read(part: &Part) -> Result<Csr, PartError> {
    let mut archive = open(part)?;
    let mut format = String::new();
    let (_, mut member) = member(&mut archive, "format")?;
    // A text of four characters at most, of one or four bytes each.
    (&mut member).take(16).read_to_string(&mut format)?;
    drop(member);
    if format.replace('\0', "") != "csr" {
        return Err(PartError::NotCsr { format: format.replace('\0', "") });
    }
    let shape = integers(&mut archive, "shape")?;
    let &[rows, columns] = shape.as_slice() else { return Err(PartError::BrokenCsr) };
    let mut ends = integers(&mut archive, "indptr")?;
    let indices = self::member(&mut archive, "indices")?.0;
    let numbers = self::member(&mut archive, "data")?.0;
    let right = usize::try_from(rows).ok().and_then(|rows| rows.checked_add(1)) == Some(ends.len())
        && ends.first() == Some(&0)
        && ends.is_sorted()
        && ends.last().and_then(|end| u64::try_from(*end).ok()) == Some(indices.rows)
        && indices.rows == numbers.rows;
    if !right {
        return Err(PartError::BrokenCsr);
    }
    ends.remove(0);
    Ok(Csr { columns, ends, indices, numbers })
}

fn open(part: &Part) -> Result<Archive, PartError> {
    Ok(ZipArchive::new(fs::File::open(&part.file)?)?)
}

/// An array of the archive, standing before its first value.
fn member<'a>(
    archive: &'a mut Archive,
    name: &'static str,
) -> Result<(Header, impl Read + use<'a>), PartError> {
    let mut file = match archive.by_name(&format!("{name}.npy")) {
        Err(ZipError::FileNotFound) => return Err(PartError::NoArray { name }),
        found => found?,
    };
    let (header, _) = match Header::read(&mut file) {
        // The format is the only array without an axis.
        Err(PartError::Npy(NpyFault::Scalar)) if name == "format" => (Header::of_vector("|S3", 0), 0),
        found => found?,
    };
    Ok((header, file))
}

/// Whole numbers of 32 or 64 bits; room is made as they arrive, not as the header claims.
fn integers(archive: &mut Archive, name: &'static str) -> Result<Vec<i64>, PartError> {
    let (header, values) = member(archive, name)?;
    let mut bytes = Vec::new();
    values.take(u64::try_from(header.bytes()).unwrap_or(u64::MAX)).read_to_end(&mut bytes)?;
    let numbers: Vec<i64> = match header.rows_text().as_str() {
        "<i8" => bytes.as_chunks::<8>().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect(),
        "<i4" => bytes.as_chunks::<4>().0.iter().map(|bytes| i64::from(i32::from_le_bytes(*bytes))).collect(),
        _ => return Err(PartError::BrokenCsr),
    };
    if numbers.len() as u64 == header.rows { Ok(numbers) } else { Err(PartError::BrokenCsr) }
}

fn write(
    joining: &Joining<'_>,
    writing: Writing,
    whole: &Csr,
    tally: &mut Tally<'_>,
) -> Result<(), MergeError> {
    let mut output = Output { joining, archive: ZipWriter::new_stream(writing) };
    output.begin("indices", &whole.indices)?;
    output.copy("indices")?;
    let starts: Vec<u8> = std::iter::once(&0).chain(&whole.ends).flat_map(|end| end.to_le_bytes()).collect();
    output.begin("indptr", &Header::of_vector("<i8", whole.ends.len() as u64 + 1))?;
    output.put(&starts)?;
    output.start("format")?;
    output.put(&Header::scalar("|S3"))?;
    output.put(b"csr")?;
    output.begin("shape", &Header::of_vector("<i8", 2))?;
    output.put(&(whole.ends.len() as i64).to_le_bytes())?;
    output.put(&whole.columns.to_le_bytes())?;
    output.begin("data", &whole.numbers)?;
    output.copy("data")?;
    joining.parts.iter().for_each(|_| tally.finish_part());
    let failed = |error: ZipError| joining.scratch.failed(error.into());
    output.archive.finish().map_err(failed)?.into_inner().finish()
}

/// The result while it is written.
struct Output<'a> {
    joining: &'a Joining<'a>,
    archive: ZipWriter<StreamWriter<Writing>>,
}

impl Output<'_> {
    fn start(&mut self, name: &str) -> Result<(), MergeError> {
        let options = SimpleFileOptions::default().large_file(true);
        let started = self.archive.start_file(format!("{name}.npy"), options);
        started.map_err(|error| self.joining.scratch.failed(error.into()))
    }

    fn begin(&mut self, name: &str, header: &Header) -> Result<(), MergeError> {
        self.start(name)?;
        self.put(&header.encode())
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), MergeError> {
        self.archive.write_all(bytes).map_err(|error| self.joining.scratch.failed(error))
    }

    /// Copies an array of all parts.
    fn copy(&mut self, name: &'static str) -> Result<(), MergeError> {
        let mut buffer = vec![0; 128 << 10];
        for part in self.joining.parts {
            let mut archive = open(part).map_err(|source| part.fault(source))?;
            let (header, mut values) = member(&mut archive, name).map_err(|source| part.fault(source))?;
            let mut left = header.bytes();
            while left > 0 {
                let most = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                let count = values.read(&mut buffer[..most]).map_err(|source| part.fault(source))?;
                if count == 0 {
                    return Err(part.fault(io::Error::from(io::ErrorKind::UnexpectedEof)));
                }
                self.put(&buffer[..count])?;
                left -= count as u128;
            }
        }
        Ok(())
    }
}
