//! Images in files of this machine: `docker save` archives and OCI layouts.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fs_err as fs;

pub(super) mod docker;
pub(super) mod oci;

use super::compression::{Compression, decompress};
use super::digest::Digest;
use super::manifest::DOCUMENT_LIMIT;
use super::tar::{Entries, Kind, TarError};

/// An archive of images has some files per layer, never this many.
const MOST_MEMBERS: usize = 100_000;

/// Files by their names: a folder, or a tar archive that is read at any place.
pub(super) struct Layout {
    path: PathBuf,
    files: Files,
}

enum Files {
    Folder,
    Archive { file: Arc<File>, members: HashMap<Vec<u8>, Member> },
}

#[derive(Clone)]
enum Member {
    File { offset: u64, size: u64 },
    Link(Vec<u8>),
}

/// One file of a layout.
pub(super) struct Content {
    reader: Box<dyn Read + Send>,
    pub(super) size: u64,
}

/// An archive or folder from which no image can be taken.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    /// It can't be read.
    #[error("can't read {}", path.display())]
    Read {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is no tar archive, or a damaged one.
    #[error("{} is no archive of an image", path.display())]
    Tar {
        /// Where.
        path: PathBuf,
        /// What is wrong.
        source: TarError,
    },
    /// It is compressed in a way that is not supported.
    #[error("{} is compressed with {compression}: only gzip and zstd are supported", path.display())]
    Compression {
        /// Where.
        path: PathBuf,
        /// What it is.
        compression: &'static str,
    },
    /// An archive of something else.
    #[error("{} has no {lacks}: {hint}", path.display())]
    NoImage {
        /// Where.
        path: PathBuf,
        /// What should be there.
        lacks: &'static str,
        /// What it may be instead.
        hint: &'static str,
    },
    /// More files than there can be.
    #[error("{} has more than {limit} files", path.display())]
    Members {
        /// Where.
        path: PathBuf,
        /// What is allowed.
        limit: usize,
    },
    /// A file that is pointed to and is not there, or not whole.
    #[error("{} is incomplete: {member} is missing", path.display())]
    Missing {
        /// Where.
        path: PathBuf,
        /// What is missing.
        member: String,
    },
    /// A file that is too large to be what it should be.
    #[error("{member} in {} has {size} bytes; at most {limit} are allowed", path.display())]
    TooLarge {
        /// Where.
        path: PathBuf,
        /// Which.
        member: String,
        /// Its size.
        size: u64,
        /// What is allowed.
        limit: u64,
    },
    /// A file that should be JSON.
    #[error("{member} in {} is damaged", path.display())]
    Json {
        /// Where.
        path: PathBuf,
        /// Which.
        member: String,
        /// Why.
        source: serde_json::Error,
    },
    /// A tag that is not there.
    #[error("{} has no image with the tag {tag:?}; it has {}", path.display(), list(there))]
    Tag {
        /// Where.
        path: PathBuf,
        /// What was asked for.
        tag: String,
        /// What there is.
        there: Vec<String>,
    },
    /// Several images and no tag to choose one.
    #[error("{} has several images: add a colon and one of {}", path.display(), list(there))]
    Ambiguous {
        /// Where.
        path: PathBuf,
        /// What there is.
        there: Vec<String>,
    },
    /// A file whose content is not what its name says.
    #[error("{member} in {} is damaged: its digest is {actual}", path.display())]
    Digest {
        /// Where.
        path: PathBuf,
        /// Which.
        member: String,
        /// What its content has.
        actual: Digest,
    },
}

fn list(tags: &[String]) -> String {
    if tags.is_empty() { "none with a tag".to_owned() } else { tags.join(", ") }
}

impl Layout {
    pub(super) fn folder(path: &Path) -> Self {
        Self { path: path.to_owned(), files: Files::Folder }
    }

    /// Lists an archive. One that is compressed is decompressed into a file without a name below
    /// `scratch`.
    pub(super) fn archive(path: &Path, scratch: &Path) -> Result<Self, LayoutError> {
        let read = |source| LayoutError::Read { path: path.to_owned(), source };
        let file = plain(path, scratch)?;
        let length = file.metadata().map_err(read)?.len();
        let members = members(path, &file, length)?;
        Ok(Self { path: path.to_owned(), files: Files::Archive { file: Arc::new(file), members } })
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.open(name).is_ok()
    }

    pub(super) fn open(&self, name: &str) -> Result<Content, LayoutError> {
        match &self.files {
            Files::Folder => self.open_file(name),
            Files::Archive { file, members } => {
                let found = find(members, &normal(name.as_bytes()));
                let (offset, size) = found.ok_or_else(|| self.missing(name))?;
                let section = Section { file: Arc::clone(file), offset, left: size };
                Ok(Content { reader: Box::new(section), size })
            }
        }
    }

    fn open_file(&self, name: &str) -> Result<Content, LayoutError> {
        let path = self.path.join(name);
        match fs::File::open(&path).and_then(|file| Ok((file.metadata()?, file))) {
            Ok((found, file)) if found.is_file() => Ok(Content { reader: Box::new(file), size: found.len() }),
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(LayoutError::Read { path, source })
            }
            _ => Err(self.missing(name)),
        }
    }

    /// The whole of a small file.
    pub(super) fn document(&self, name: &str) -> Result<Vec<u8>, LayoutError> {
        let content = self.open(name)?;
        let (size, limit) = (content.size, DOCUMENT_LIMIT);
        if size > limit {
            let member = name.to_owned();
            return Err(LayoutError::TooLarge { path: self.path.clone(), member, size, limit });
        }
        let mut bytes = Vec::new();
        let read = content.reader.take(limit).read_to_end(&mut bytes);
        read.map_err(|source| LayoutError::Read { path: self.path.clone(), source })?;
        Ok(bytes)
    }

    /// A document that is named by its digest.
    pub(super) fn blob(&self, digest: &Digest) -> Result<Vec<u8>, LayoutError> {
        let member = blob_name(digest);
        let bytes = self.document(&member)?;
        let actual = Digest::of(&bytes);
        if actual != *digest {
            return Err(LayoutError::Digest { path: self.path.clone(), member, actual });
        }
        Ok(bytes)
    }

    fn json<T: serde::de::DeserializeOwned>(&self, name: &str) -> Result<T, LayoutError> {
        serde_json::from_slice(&self.document(name)?).map_err(|source| LayoutError::Json {
            path: self.path.clone(),
            member: name.to_owned(),
            source,
        })
    }

    fn missing(&self, name: &str) -> LayoutError {
        LayoutError::Missing { path: self.path.clone(), member: name.to_owned() }
    }
}

impl Read for Content {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reader.read(buffer)
    }
}

pub(super) fn blob_name(digest: &Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

/// A part of a file that several threads read at once.
struct Section {
    file: Arc<File>,
    offset: u64,
    left: u64,
}

impl Read for Section {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let count = self.file.read_at(&mut buffer[..wanted], self.offset)?;
        self.offset += count as u64;
        self.left -= count as u64;
        Ok(count)
    }
}

/// The archive itself, or its decompressed content.
fn plain(path: &Path, scratch: &Path) -> Result<File, LayoutError> {
    let read = |source| LayoutError::Read { path: path.to_owned(), source };
    let mut file = fs::File::open(path).map_err(read)?.into_file();
    let mut start = Vec::new();
    (&mut file).take(8).read_to_end(&mut start).map_err(read)?;
    file.rewind().map_err(read)?;
    match Compression::of(&start) {
        Compression::None => Ok(file),
        Compression::Unsupported(compression) => {
            Err(LayoutError::Compression { path: path.to_owned(), compression })
        }
        Compression::Gzip | Compression::Zstd => {
            let mut whole = tempfile::tempfile_in(scratch).map_err(read)?;
            let mut reader = decompress(io::BufReader::new(file)).map_err(read)?;
            io::copy(&mut reader, &mut whole).and_then(|_| whole.flush()).map_err(read)?;
            whole.rewind().map_err(read)?;
            Ok(whole)
        }
    }
}

fn members(path: &Path, file: &File, length: u64) -> Result<HashMap<Vec<u8>, Member>, LayoutError> {
    let tar = |source| LayoutError::Tar { path: path.to_owned(), source };
    let mut members = HashMap::new();
    let mut entries = Entries::seeking(file);
    while let Some(entry) = entries.next_entry().map_err(tar)? {
        let name = normal(&entry.path);
        let (offset, size) = (entry.offset, entry.stored);
        let member = match entry.kind {
            // What is cut off is missed only if it is needed.
            Kind::File
                if entry.segments.is_none() && offset.checked_add(size).is_some_and(|end| end <= length) =>
            {
                Member::File { offset, size }
            }
            Kind::HardLink => Member::Link(normal(&entry.link)),
            // Older `docker save` writes a layer once and links to it.
            Kind::Symlink => {
                let folder =
                    name.iter().rposition(|&byte| byte == b'/').map_or(&b""[..], |slash| &name[..slash]);
                Member::Link(normal(&[folder, &entry.link].join(&b'/')))
            }
            _ => continue,
        };
        members.insert(name, member);
        if members.len() > MOST_MEMBERS {
            return Err(LayoutError::Members { path: path.to_owned(), limit: MOST_MEMBERS });
        }
    }
    Ok(members)
}

fn find(members: &HashMap<Vec<u8>, Member>, name: &[u8]) -> Option<(u64, u64)> {
    let mut name = name;
    // More links than that lead in a circle.
    for _ in 0..8 {
        match members.get(name)? {
            Member::File { offset, size } => return Some((*offset, *size)),
            Member::Link(target) => name = target,
        }
    }
    None
}

/// A name without `.`, `..` and slashes too many; these are only names in a list.
fn normal(name: &[u8]) -> Vec<u8> {
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in name.split(|&byte| byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    parts.join(&b'/')
}
