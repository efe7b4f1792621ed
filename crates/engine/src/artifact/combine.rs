//! Joining parts into one archive: a header, the parts as they are, the end of the archive, and with gzip a
//! trailer whose checksum is combined from those of the parts (RFC 1952).

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::clash::{self, Clash};
use super::codec::Codec;
use super::header::END_OF_ARCHIVE;
use super::index::{IndexError, IndexReader, index_path};
use super::pack::PackedPart;

/// A part that lies in a file, its index beside it.
#[derive(Debug, Clone)]
pub struct PartFile {
    /// The instance that packed it.
    pub host: String,
    /// The part file.
    pub path: PathBuf,
    /// What packing it returned.
    pub packed: PackedPart,
}

/// What became of the parts.
#[derive(Debug, Clone)]
pub struct Combined {
    /// Length of the archive; none when no part had an entry, and so no archive was written.
    pub bytes: Option<u64>,
    /// Files that several instances wrote, in the order of their paths; at most 1,000 with different
    /// content and 1,000 with the same.
    pub clashes: Vec<Clash>,
    /// Clashes beyond those.
    pub clashes_not_listed: u64,
    /// The parts' warnings, each with its host before it.
    pub warnings: Vec<String>,
}

/// Parts could not be joined. Nothing is left at the destination.
#[derive(Debug, thiserror::Error)]
pub enum CombineError {
    /// A part cannot be read.
    #[error("cannot read the part of {host} at {path:?}")]
    Part {
        /// Whose part.
        host: String,
        /// The part file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A part file is not the one that was packed.
    #[error("the part of {host} at {path:?} has {found} bytes and should have {expected}")]
    PartLength {
        /// Whose part.
        host: String,
        /// The part file.
        path: PathBuf,
        /// Its length as packed.
        expected: u64,
        /// Its length now.
        found: u64,
    },
    /// An index cannot be read.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// The archive cannot be written.
    #[error("cannot write the archive {path:?}")]
    Write {
        /// Where the archive should lie.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Joins `parts`, which are in host order, into one archive at `destination`, whose folder exists.
///
/// The archive appears at once and whole, or not at all: it is written under a hidden name in the same
/// folder, brought to the disk and then renamed. An archive that was there before is replaced. Bytes of
/// parts are copied inside of the kernel, or shared, where the file system can.
pub fn combine(parts: &[PartFile], destination: &Path) -> Result<Combined, CombineError> {
    let mut combined = survey(parts)?;
    let parts: Vec<&PartFile> = parts.iter().filter(|part| part.packed.entries > 0).collect();
    if !parts.is_empty() {
        combined.bytes = Some(write_archive(&parts, destination)?);
    }
    Ok(combined)
}

/// What there is to say of an archive of these parts, without making it.
pub(super) fn survey(parts: &[PartFile]) -> Result<Combined, CombineError> {
    let warnings = all_warnings(parts);
    let parts: Vec<&PartFile> = parts.iter().filter(|part| part.packed.entries > 0).collect();
    let hosts: Vec<&str> = parts.iter().map(|part| part.host.as_str()).collect();
    let indexes =
        parts.iter().map(|part| IndexReader::open(index_path(&part.path))).collect::<Result<_, _>>()?;
    let clashes = clash::find(&hosts, indexes)?;
    Ok(Combined { bytes: None, clashes: clashes.listed, clashes_not_listed: clashes.not_listed, warnings })
}

fn all_warnings(parts: &[PartFile]) -> Vec<String> {
    let of_part = |part: &PartFile| {
        let host = part.host.clone();
        part.packed.warnings.iter().map(move |text| format!("{host}: {text}")).collect::<Vec<_>>()
    };
    parts.iter().flat_map(of_part).collect()
}

fn write_archive(parts: &[&PartFile], destination: &Path) -> Result<u64, CombineError> {
    let failed = |source: io::Error| CombineError::Write { path: destination.to_owned(), source };
    let (file, hidden) = create_hidden(destination).map_err(failed)?;
    let mut file = &file;
    let header = codec_of(parts).header();
    file.write_all(header).map_err(failed)?;
    for part in parts {
        append_part(part, file, destination)?;
    }
    let tail = archive_tail(parts).map_err(failed)?;
    file.write_all(&tail).map_err(failed)?;
    file.sync_all().map_err(failed)?;
    hidden.persist(destination).map_err(|error| failed(error.error))?;
    sync_folder(destination).map_err(failed)?;
    let parts_length: u64 = parts.iter().map(|part| part.packed.compressed_bytes).sum();
    Ok(header.len() as u64 + parts_length + tail.len() as u64)
}

/// A new file beside the destination, under a hidden name, that is removed when its path is dropped. The
/// name is always the same, so that what a killed run left is replaced by the next.
fn create_hidden(destination: &Path) -> io::Result<(File, tempfile::TempPath)> {
    let name = destination.file_name().ok_or(io::ErrorKind::IsADirectory)?;
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    hidden.push(".partial");
    let path = destination.with_file_name(hidden);
    match fs_err::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = fs_err::File::create_new(&path)?.into_parts().0;
    Ok((file, tempfile::TempPath::try_from_path(path)?))
}

/// Appends the bytes of a part. Both ends are plain files, which lets the copy stay in the kernel.
fn append_part(part: &PartFile, mut archive: &File, destination: &Path) -> Result<(), CombineError> {
    let failed = |source| CombineError::Part { host: part.host.clone(), path: part.path.clone(), source };
    let (mut file, _) = fs_err::File::open(&part.path).map_err(failed)?.into_parts();
    let found = file.metadata().map_err(failed)?.len();
    let expected = part.packed.compressed_bytes;
    let wrong_length = |found| CombineError::PartLength {
        host: part.host.clone(),
        path: part.path.clone(),
        expected,
        found,
    };
    if found != expected {
        return Err(wrong_length(found));
    }
    let copied = io::copy(&mut file, &mut archive)
        .map_err(|source| CombineError::Write { path: destination.to_owned(), source })?;
    if copied == expected { Ok(()) } else { Err(wrong_length(copied)) }
}

/// How all parts are compressed: they are of one job.
pub(super) fn codec_of(parts: &[&PartFile]) -> Codec {
    parts.first().map(|part| part.packed.codec).unwrap_or_default()
}

/// The end-of-archive blocks, compressed, and with gzip the trailer for everything.
pub(super) fn archive_tail(parts: &[&PartFile]) -> io::Result<Vec<u8>> {
    let mut crc = crc32fast::Hasher::new();
    for PackedPart { crc32, tar_bytes, .. } in parts.iter().map(|part| &part.packed) {
        crc.combine(&crc32fast::Hasher::new_with_initial_len(*crc32, *tar_bytes));
    }
    crc.update(&END_OF_ARCHIVE);
    let length: u64 = parts.iter().map(|part| part.packed.tar_bytes).sum();
    codec_of(parts).tail(&END_OF_ARCHIVE, crc.finalize(), length + END_OF_ARCHIVE.len() as u64)
}

fn sync_folder(destination: &Path) -> io::Result<()> {
    let folder = destination.parent().filter(|folder| !folder.as_os_str().is_empty());
    fs_err::File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}
