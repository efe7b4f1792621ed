//! Reading an archive as a stream: ours, or one that someone else packed. The archive may be hostile:
//! nothing in it makes the reader panic, hold more than one entry's names in memory, or give a path that
//! leads out of the folder it will be extracted to.

use std::io::{self, Read};

use super::codec::Unpacked;
use super::header::{BLOCK, HOST_PREFIX, padding};

mod extension;
mod field;

use extension::Extension;

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// A file with content.
    File,
    /// A folder.
    Folder,
    /// A link, device or FIFO: it has no content here.
    Other,
}

/// An archive is damaged, or holds what no archive of ours may hold. After an error nothing more can be
/// read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The archive cannot be read or decompressed, or ends too early.
    #[error("cannot read the archive at byte {offset} of the unpacked stream")]
    Io {
        /// Bytes of the tar stream before the place.
        offset: u64,
        /// Why.
        source: io::Error,
    },
    /// A header block is not one.
    #[error("the header at byte {offset} of the unpacked stream has a wrong {field}")]
    Header {
        /// Bytes of the tar stream before the header.
        offset: u64,
        /// What of it is wrong.
        field: &'static str,
    },
    /// A path that is absolute, empty or leads upwards.
    #[error("the archive holds the path {path:?}, which leads out of it")]
    UnsafePath {
        /// The path; bytes that are not UTF-8 are replaced.
        path: String,
    },
    /// An extended header too large to be one.
    #[error(
        "the extended header at byte {offset} of the unpacked stream has {size} bytes, at most {limit} are read"
    )]
    ExtensionSize {
        /// Bytes of the tar stream before it.
        offset: u64,
        /// Its size as stated.
        size: u64,
        /// The largest that is read.
        limit: u64,
    },
    /// A file stored with its holes left out.
    #[error("{path:?} is stored as a sparse file, which is not supported")]
    Sparse {
        /// Its path; bytes that are not UTF-8 are replaced.
        path: String,
    },
}

/// The largest extended header that is read: names and records of real archives take a few hundred bytes.
const EXTENSION_LIMIT: u64 = 256 * 1024;

/// A `.tar.gz` or `.tar.zst` that is being read from front to back.
pub struct ArchiveReader<R: Read> {
    tar: Unpacked<R>,
    /// Bytes of the tar stream taken so far.
    offset: u64,
    /// Content of the current entry that has not been read, and the padding after it.
    content_left: u64,
    padding_left: u64,
    global: Extension,
    ended: bool,
}

/// One entry; reading it gives its content. An error of that holds a [`ReadError`], to be told from those of whatever the
/// content is written to.
pub struct ArchiveEntry<'a, R: Read> {
    /// The instance that packed it, if the archive says so.
    pub host: Option<String>,
    /// Path below the root of the archive, without `./` in front or a slash at the end. Any bytes, but no
    /// component is empty or `..`.
    pub path: Vec<u8>,
    /// Bytes of content.
    pub size: u64,
    /// When it was last changed, in seconds since 1970; none if the archive does not say it.
    pub modified: Option<u64>,
    /// Who may do what with it: the nine lowest bits of its mode.
    pub mode: u32,
    /// What it is.
    pub kind: EntryKind,
    archive: &'a mut ArchiveReader<R>,
}

impl<R: Read> ArchiveReader<R> {
    /// Starts to read a tar archive that is compressed with gzip or zstd.
    pub fn new(archive: R) -> Self {
        Self {
            tar: Unpacked::new(archive),
            offset: 0,
            content_left: 0,
            padding_left: 0,
            global: Extension::default(),
            ended: false,
        }
    }

    /// The next entry, whether or not the one before was read to its end; none at the end of the archive,
    /// when the checksum of the whole has been found right. The root folder itself is passed over.
    pub fn next_entry(&mut self) -> Result<Option<ArchiveEntry<'_, R>>, ReadError> {
        while !self.ended {
            self.skip(self.content_left + self.padding_left)?;
            (self.content_left, self.padding_left) = (0, 0);
            let mut extension = self.global.clone();
            let Some(block) = self.header_after_extensions(&mut extension)? else {
                self.skip_to_end()?;
                break;
            };
            if let Some((path, size, kind)) = self.open_entry(&block, &extension)? {
                let host = extension.comment.as_deref().and_then(host_of_comment);
                let (modified, mode) = (field::modified(&block), field::mode(&block));
                return Ok(Some(ArchiveEntry { host, path, size, modified, mode, kind, archive: self }));
            }
        }
        Ok(None)
    }

    /// Reads extended headers into `extension` until the header of an entry comes; none at the end.
    fn header_after_extensions(
        &mut self,
        extension: &mut Extension,
    ) -> Result<Option<[u8; BLOCK]>, ReadError> {
        while let Some(block) = self.header()? {
            match field::type_flag(&block) {
                b'x' => {
                    let content = self.extension_content(&block)?;
                    self.apply(extension, &content)?;
                }
                b'g' => {
                    let content = self.extension_content(&block)?;
                    let mut global = std::mem::take(&mut self.global);
                    self.apply(&mut global, &content)?;
                    *extension = global.clone();
                    self.global = global;
                }
                b'L' => extension.path = Some(until_zero(self.extension_content(&block)?)),
                b'K' => drop(self.extension_content(&block)?),
                _ => return Ok(Some(block)),
            }
        }
        Ok(None)
    }

    fn apply(&self, extension: &mut Extension, content: &[u8]) -> Result<(), ReadError> {
        extension.apply(content).map_err(|field| ReadError::Header { offset: self.offset, field })
    }

    /// The next header block; none when the archive ends, with empty blocks or without.
    fn header(&mut self) -> Result<Option<[u8; BLOCK]>, ReadError> {
        let mut block = [0; BLOCK];
        let offset = self.offset;
        let count = self.read_up_to(&mut block)?;
        if count == 0 || (count == BLOCK && block.iter().all(|&byte| byte == 0)) {
            return Ok(None);
        }
        if count < BLOCK {
            return Err(ReadError::Io { offset, source: io::ErrorKind::UnexpectedEof.into() });
        }
        if !field::checksum_holds(&block) {
            return Err(ReadError::Header { offset, field: "checksum" });
        }
        Ok(Some(block))
    }

    fn extension_content(&mut self, block: &[u8; BLOCK]) -> Result<Vec<u8>, ReadError> {
        let offset = self.offset - BLOCK as u64;
        let size = field::size(block).ok_or(ReadError::Header { offset, field: "size" })?;
        if size > EXTENSION_LIMIT {
            return Err(ReadError::ExtensionSize { offset, size, limit: EXTENSION_LIMIT });
        }
        let mut content = vec![0; usize::try_from(size).unwrap_or(0)];
        if self.read_up_to(&mut content)? < content.len() {
            return Err(ReadError::Io { offset, source: io::ErrorKind::UnexpectedEof.into() });
        }
        self.skip(padding(size) as u64)?;
        Ok(content)
    }

    /// Path, size and kind of the entry; none for the root folder.
    fn open_entry(
        &mut self,
        block: &[u8; BLOCK],
        extension: &Extension,
    ) -> Result<Option<(Vec<u8>, u64, EntryKind)>, ReadError> {
        let offset = self.offset - BLOCK as u64;
        let flag = field::type_flag(block);
        let full_path = extension.path.clone().unwrap_or_else(|| field::path(block));
        if flag == b'S' || extension.sparse {
            return Err(ReadError::Sparse { path: String::from_utf8_lossy(&full_path).into_owned() });
        }
        let stated = extension.size.or_else(|| field::size(block));
        let stated = stated.ok_or(ReadError::Header { offset, field: "size" })?;
        let kind = match flag {
            b'0' | b'\0' | b'7' if full_path.ends_with(b"/") => EntryKind::Folder,
            b'0' | b'\0' | b'7' => EntryKind::File,
            b'5' => EntryKind::Folder,
            _ => EntryKind::Other,
        };
        // Links, devices and FIFOs state sizes now and then, but have no content (POSIX, `ustar`).
        let size = if matches!(flag, b'1'..=b'6') { 0 } else { stated };
        (self.content_left, self.padding_left) = (size, padding(size) as u64);
        let path = safe_path(&full_path)?;
        if path.is_empty() {
            return if kind == EntryKind::Folder { Ok(None) } else { Err(unsafe_path(&full_path)) };
        }
        Ok(Some((path, size, kind)))
    }

    /// Reads until `buffer` is full or the stream ends.
    fn read_up_to(&mut self, buffer: &mut [u8]) -> Result<usize, ReadError> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.tar.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(ReadError::Io { offset: self.offset, source }),
            }
        }
        self.offset += filled as u64;
        Ok(filled)
    }

    fn skip(&mut self, count: u64) -> Result<(), ReadError> {
        let skipped = io::copy(&mut self.tar.by_ref().take(count), &mut io::sink())
            .map_err(|source| ReadError::Io { offset: self.offset, source })?;
        self.offset += skipped;
        if skipped < count {
            return Err(ReadError::Io { offset: self.offset, source: io::ErrorKind::UnexpectedEof.into() });
        }
        Ok(())
    }

    /// Reads what comes after the end-of-archive mark, so that the checksum is compared.
    fn skip_to_end(&mut self) -> Result<(), ReadError> {
        self.ended = true;
        io::copy(&mut self.tar, &mut io::sink())
            .map_err(|source| ReadError::Io { offset: self.offset, source })?;
        Ok(())
    }
}

impl<R: Read> Read for ArchiveEntry<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.archive.content_left;
        let wanted = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        if wanted == 0 {
            return Ok(0);
        }
        let offset = self.archive.offset;
        let count = match self.archive.tar.read(&mut buffer[..wanted]) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            read => read,
        };
        let count = count.map_err(|source| match source.kind() {
            io::ErrorKind::Interrupted => source,
            kind => io::Error::new(kind, ReadError::Io { offset, source }),
        })?;
        self.archive.content_left -= count as u64;
        self.archive.offset += count as u64;
        Ok(count)
    }
}

fn host_of_comment(comment: &[u8]) -> Option<String> {
    let host = comment.strip_prefix(HOST_PREFIX.as_bytes())?;
    String::from_utf8(host.to_vec()).ok()
}

fn until_zero(mut bytes: Vec<u8>) -> Vec<u8> {
    if let Some(end) = bytes.iter().position(|&byte| byte == 0) {
        bytes.truncate(end);
    }
    bytes
}

/// The path without `.` components and slashes too many; empty for the root.
fn safe_path(path: &[u8]) -> Result<Vec<u8>, ReadError> {
    let mut components = path.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".");
    if path.is_empty() || path[0] == b'/' || path.contains(&0) || components.clone().any(|part| part == b"..")
    {
        return Err(unsafe_path(path));
    }
    let mut safe = components.next().unwrap_or_default().to_vec();
    for component in components {
        safe.push(b'/');
        safe.extend_from_slice(component);
    }
    Ok(safe)
}

fn unsafe_path(path: &[u8]) -> ReadError {
    ReadError::UnsafePath { path: String::from_utf8_lossy(path).into_owned() }
}
