//! Packing: one folder of one instance becomes a part file and its index.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use glob::Pattern;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use super::codec::Codec;
use super::deflate::{self, Closed, DeflateError, Effort, Input};
use super::folder::{Folder, LIST};
use super::header::{Header, padding};
use super::index::{IndexEntry, IndexKind, IndexWriter, index_path};
use super::walk::{Entry, Walk, WalkError, shown};

/// How a folder is packed.
#[derive(Debug, Clone)]
pub struct PackOptions {
    /// Where the instance saw the folder, such as `/opt/ml/model`: absolute links are read against it.
    pub container_path: String,
    /// How it is compressed.
    pub codec: Codec,
    /// Effort of the compression, 0 (none; with zstd the least) to 9; what is above counts as 9.
    pub level: u32,
    /// What is left out: patterns of paths below the folder, or without a slash of names at any depth.
    pub ignore: Vec<Pattern>,
    /// Threads that compress, at least one; reading and writing take little beside them.
    pub threads: usize,
}

/// What is to be known about a part in order to join it with others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackedPart {
    /// Files and folders in the part. Without any, no archive is due.
    pub entries: u64,
    /// Length of the tar entries, a multiple of 512.
    pub tar_bytes: u64,
    /// Length of the part file.
    pub compressed_bytes: u64,
    /// CRC-32 of the tar entries.
    pub crc32: u32,
    /// How it is compressed.
    pub codec: Codec,
    /// What was left out or changed meanwhile, for the person who reads the job's description.
    pub warnings: Vec<String>,
}

/// A folder could not be packed.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// The folder itself cannot be read; it may be a link or a file.
    #[error("cannot open {path:?} as a folder")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Something in the folder cannot be read, for a reason beyond its mode.
    #[error("cannot read {path:?} in order to pack it")]
    Read {
        /// Its path below the folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The part or its index cannot be written.
    #[error("cannot write {path:?}")]
    Write {
        /// The part or the index.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The compression refused its input, which is a defect.
    #[error("cannot compress the content of {path:?}")]
    Compress {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Packs the content of `folder` as the part of `host` into the file `part`, and an index beside it.
///
/// Paths in the archive are relative to the folder, in the order of their bytes; modes and times are kept,
/// the owner is always root. What the folder's owner may not read is made readable for the moment. A folder
/// that is not there counts as empty, with a warning. `progress` is told the tar bytes read since its
/// last call. After an error neither file is left.
pub fn pack(
    folder: &Path,
    host: &str,
    part: &Path,
    options: &PackOptions,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<PackedPart, PackError> {
    let outputs = Outputs::new(part);
    let packed = pack_into(folder, host, &outputs, options, progress)?;
    outputs.keep();
    Ok(packed)
}

fn pack_into(
    folder: &Path,
    host: &str,
    outputs: &Outputs,
    options: &PackOptions,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<PackedPart, PackError> {
    let mut part = create(&outputs.part)?;
    let index = IndexWriter::new(create(&outputs.index)?);
    let root = match Folder::open_root(folder, LIST) {
        Ok(root) => root,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(missing(folder, options.codec)),
        Err(source) => return Err(PackError::Folder { path: folder.to_owned(), source }),
    };
    let walk = Walk::new(root, &options.container_path, &options.ignore).map_err(read_failed)?;
    let mut packer = Packer { walk, host, index, entries: 0 };
    let effort = Effort { codec: options.codec, level: options.level, threads: options.threads };
    let (packed, deflated) = deflate::deflate(effort, &mut part, progress, |input| packer.pack_all(input))
        .map_err(|error| deflate_failed(error, &outputs.part, folder))?;
    packed.map_err(|stopped| stopped.into_error(outputs))?;
    packer.index.finish().map_err(|source| write_failed(&outputs.index, source))?;
    Ok(PackedPart {
        entries: packer.entries,
        tar_bytes: deflated.input_bytes,
        compressed_bytes: deflated.output_bytes,
        crc32: deflated.crc32,
        codec: options.codec,
        warnings: packer.walk.warnings.finish(),
    })
}

fn missing(folder: &Path, codec: Codec) -> PackedPart {
    let warning = format!("{folder:?} is no longer there; nothing of it is archived");
    PackedPart { entries: 0, tar_bytes: 0, compressed_bytes: 0, crc32: 0, codec, warnings: vec![warning] }
}

fn create(path: &Path) -> Result<File, PackError> {
    let file = fs_err::File::create(path).map_err(|source| write_failed(path, source))?;
    Ok(file.into_parts().0)
}

fn write_failed(path: &Path, source: io::Error) -> PackError {
    PackError::Write { path: path.to_owned(), source }
}

fn read_failed(WalkError { path, source }: WalkError) -> PackError {
    PackError::Read { path, source }
}

fn deflate_failed(error: DeflateError, part: &Path, folder: &Path) -> PackError {
    match error {
        DeflateError::Write(source) => write_failed(part, source),
        DeflateError::Deflate(error) => PackError::Compress { path: folder.to_owned(), source: error.into() },
        DeflateError::Zstd(source) => PackError::Compress { path: folder.to_owned(), source },
    }
}

/// The two files that are written, removed again unless they are kept.
struct Outputs {
    part: PathBuf,
    index: PathBuf,
    kept: bool,
}

impl Outputs {
    fn new(part: &Path) -> Self {
        Self { part: part.to_owned(), index: index_path(part), kept: false }
    }

    fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Outputs {
    fn drop(&mut self) {
        if !self.kept {
            // Either may not have come to be.
            let _ = fs_err::remove_file(&self.part);
            let _ = fs_err::remove_file(&self.index);
        }
    }
}

/// Why the entries did not all go through.
enum Stopped {
    Read(WalkError),
    Index(io::Error),
    Closed,
}

impl From<Closed> for Stopped {
    fn from(Closed: Closed) -> Self {
        Self::Closed
    }
}

impl Stopped {
    fn into_error(self, outputs: &Outputs) -> PackError {
        match self {
            Self::Read(error) => read_failed(error),
            Self::Index(source) => write_failed(&outputs.index, source),
            // The writer's own reason has been returned before this is asked for.
            Self::Closed => write_failed(&outputs.part, io::ErrorKind::BrokenPipe.into()),
        }
    }
}

struct Packer<'a> {
    walk: Walk,
    host: &'a str,
    index: IndexWriter,
    entries: u64,
}

impl Packer<'_> {
    fn pack_all(&mut self, input: &mut Input<'_>) -> Result<(), Stopped> {
        while let Some(entry) = self.walk.next_entry().map_err(Stopped::Read)? {
            self.pack_entry(entry, input)?;
            self.entries += 1;
        }
        Ok(())
    }

    fn pack_entry(&mut self, mut entry: Entry, input: &mut Input<'_>) -> Result<(), Stopped> {
        let metadata = &entry.metadata;
        let size = if entry.file.is_some() { metadata.size() } else { 0 };
        let header = Header {
            path: &entry.path,
            size,
            mode: metadata.mode(),
            modified: (metadata.mtime(), u32::try_from(metadata.mtime_nsec()).unwrap_or(0)),
            host: self.host,
        };
        input.write(&header.to_bytes())?;
        let (hash, kind) = match entry.file.take() {
            Some(file) => (Some(self.pack_content(file, size, &entry.path, input)?), IndexKind::File),
            None => (None, IndexKind::Folder),
        };
        let line = IndexEntry { path: entry.path, size, hash, kind };
        self.index.write(&line).map_err(Stopped::Index)
    }

    /// Packs exactly `size` bytes, whatever the file has become since its header was written. Gives the
    /// hash of what was packed.
    fn pack_content(
        &mut self,
        mut file: File,
        size: u64,
        path: &[u8],
        input: &mut Input<'_>,
    ) -> Result<String, Stopped> {
        let mut hash = Xxh3::new();
        let mut left = size;
        while left > 0 {
            let read = input.write_from(left, |room| retry(|| file.read(room)))?;
            let bytes =
                read.map_err(|source| Stopped::Read(WalkError { path: shown(path).into(), source }))?;
            if bytes.is_empty() {
                break;
            }
            hash.update(bytes);
            left -= bytes.len() as u64;
        }
        self.warn_if_resized(&mut file, left, path);
        pad(left, input, &mut hash)?;
        input.write_zeros(padding(size) as u64)?;
        Ok(format!("{:032x}", hash.digest128()))
    }

    fn warn_if_resized(&mut self, file: &mut File, left: u64, path: &[u8]) {
        let path = shown(path);
        if left > 0 {
            let text = format!("{path:?} shrank while it was packed; {left} zero bytes stand for the rest");
            self.walk.warnings.push(text);
        } else if matches!(retry(|| file.read(&mut [0])), Ok(1)) {
            self.walk.warnings.push(format!("{path:?} grew while it was packed; the new bytes are left out"));
        }
    }
}

/// Puts in `count` zeros in place of content that is gone.
fn pad(mut count: u64, input: &mut Input<'_>, hash: &mut Xxh3) -> Result<(), Closed> {
    let zeros = [0; 4096];
    while count > 0 {
        let now = zeros.len().min(usize::try_from(count).unwrap_or(usize::MAX));
        input.write(&zeros[..now])?;
        hash.update(&zeros[..now]);
        count -= now as u64;
    }
    Ok(())
}

fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
