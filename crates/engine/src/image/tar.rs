//! Reads tar archives of every common dialect: ustar, GNU, PAX, and sparse files of the last two.
//!
//! Nothing is believed: numbers in headers allocate no memory, and what extends a header has a limit.
//! The `tar` crate is not used for reading since it puts no limit on long names, and since a layer's
//! extended attributes and sparse files need the raw records anyway.

use std::io::{self, Read, Seek, SeekFrom};

mod field;
mod records;
mod sparse;

use records::Records;
pub(super) use sparse::Segments;

const BLOCK: usize = 512;

/// Most that may extend one header, in bytes; an extended attribute has at most 64 KiB.
const EXTENSION_LIMIT: u64 = 4 << 20;

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Folder,
    HardLink,
    Symlink,
    CharDevice,
    BlockDevice,
    Fifo,
}

/// All about an entry but its content.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) path: Vec<u8>,
    pub(super) kind: Kind,
    /// Target of a link.
    pub(super) link: Vec<u8>,
    /// Permissions with setuid, setgid and sticky.
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// Seconds and nanoseconds since 1970.
    pub(super) modified: (i64, u32),
    /// Bytes that follow in the archive.
    pub(super) stored: u64,
    /// Where the content starts in the archive.
    pub(super) offset: u64,
    pub(super) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Major and minor number.
    pub(super) device: (u32, u32),
    /// Where the content belongs, if the file has holes.
    pub(super) segments: Option<Segments>,
}

/// An archive that can't be read.
#[derive(Debug, thiserror::Error)]
pub enum TarError {
    /// The stream fails.
    #[error("the archive can't be read at byte {offset}")]
    Io {
        /// Where.
        offset: u64,
        /// Why.
        source: io::Error,
    },
    /// The stream ends inside an entry.
    #[error("the archive ends at byte {offset}, in the middle of an entry: it is cut off")]
    Truncated {
        /// Where.
        offset: u64,
    },
    /// A header is damaged, or it is no tar at all.
    #[error("the header at byte {offset} is damaged: {field} is wrong")]
    Header {
        /// Where.
        offset: u64,
        /// Which part of it.
        field: &'static str,
    },
    /// A long name or an attribute without end.
    #[error("what extends the header at byte {offset} takes {size} bytes; at most {limit} are allowed")]
    Extension {
        /// Where.
        offset: u64,
        /// What it takes.
        size: u64,
        /// What is allowed.
        limit: u64,
    },
    /// Not a file, folder, link, device or FIFO.
    #[error("{path:?} is of the unknown kind {flag:?}")]
    Kind {
        /// The entry's path.
        path: String,
        /// The letter for its kind.
        flag: char,
    },
}

/// The entries of an archive, one after the other.
pub(super) struct Entries<R> {
    reader: R,
    skip: fn(&mut R, u64) -> io::Result<()>,
    offset: u64,
    /// Bytes of the present entry that were not read yet, and those that fill up its last block.
    left: u64,
    padding: u64,
    global: Records,
}

impl<R: Read> Entries<R> {
    /// Reads everything, for streams.
    pub(super) fn streaming(reader: R) -> Self {
        Self::new(reader, |reader, count| {
            let skipped = io::copy(&mut reader.take(count), &mut io::sink())?;
            if skipped == count { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
        })
    }

    fn new(reader: R, skip: fn(&mut R, u64) -> io::Result<()>) -> Self {
        Self { reader, skip, offset: 0, left: 0, padding: 0, global: Records::default() }
    }

    /// The next entry, whether or not the content of the one before was read; none at the end.
    pub(super) fn next_entry(&mut self) -> Result<Option<Entry>, TarError> {
        self.pass_over(self.left + self.padding)?;
        (self.left, self.padding) = (0, 0);
        let mut records = self.global.clone();
        while let Some(block) = self.block()? {
            match field::flag(&block) {
                b'x' => records.add(&self.extension(&block)?).map_err(|field| self.damaged(field))?,
                b'g' => {
                    let extension = self.extension(&block)?;
                    self.global.add(&extension).map_err(|field| self.damaged(field))?;
                    records = self.global.clone();
                }
                b'L' => records.path = Some(until_zero(self.extension(&block)?)),
                b'K' => records.link = Some(until_zero(self.extension(&block)?)),
                _ => return self.entry(&block, records).map(Some),
            }
        }
        Ok(None)
    }

    fn entry(&mut self, block: &[u8; BLOCK], records: Records) -> Result<Entry, TarError> {
        let number = |found: Option<u64>, field| found.ok_or_else(|| self.damaged(field));
        let path = records.path.unwrap_or_else(|| field::path(block));
        let kind = kind(block, &path)?;
        // Larger ones are no sizes of files, and could not be counted with.
        let possible = |size: &u64| *size < 1 << 62;
        let stated = records.size.or_else(|| field::size(block)).filter(possible);
        let stated = number(stated, "the size")?;
        let id = |id: Option<u64>, field| u32::try_from(number(id, field)?).map_err(|_| self.damaged(field));
        let mut entry = Entry {
            kind,
            link: records.link.unwrap_or_else(|| field::link(block)),
            mode: id(field::mode(block), "the mode")? & 0o7777,
            uid: id(records.uid.or_else(|| field::uid(block)), "the owner")?,
            gid: id(records.gid.or_else(|| field::gid(block)), "the group")?,
            modified: records.modified.unwrap_or_else(|| field::modified(block)),
            // Links, folders and devices state sizes now and then, but have no content.
            stored: if kind == Kind::File { stated } else { 0 },
            offset: self.offset,
            xattrs: records.xattrs,
            device: field::device(block),
            segments: None,
            path,
        };
        self.left = entry.stored;
        self.padding = entry.stored.next_multiple_of(BLOCK as u64) - entry.stored;
        if kind == Kind::File {
            entry.segments = self.segments(block, &records.sparse)?;
        }
        (entry.stored, entry.offset) = (self.left, self.offset);
        Ok(entry)
    }

    /// The segments of a sparse file, which some dialects put before the content.
    fn segments(
        &mut self,
        block: &[u8; BLOCK],
        records: &sparse::Records,
    ) -> Result<Option<Segments>, TarError> {
        let (size, mut segments) = if field::flag(block) == b'S' {
            (field::real_size(block), self.gnu_segments(block)?)
        } else if records.in_content() {
            (records.size, self.content_segments()?)
        } else if let Some(listed) = records.listed() {
            (records.size, listed)
        } else {
            return Ok(None);
        };
        let size = size.ok_or_else(|| self.damaged("the size of a sparse file"))?;
        segments.retain(|&(_, length)| length > 0);
        let segments = Segments::new(segments, size, self.left);
        segments.map(Some).ok_or_else(|| self.damaged("the list of a sparse file's segments"))
    }

    /// Segments in the header and the blocks that continue it.
    fn gnu_segments(&mut self, block: &[u8; BLOCK]) -> Result<Vec<(u64, u64)>, TarError> {
        let mut segments = Vec::new();
        let wrong = "the list of a sparse file's segments";
        let mut more = sparse::add_gnu(&mut segments, &block[386..483]).ok_or_else(|| self.damaged(wrong))?;
        while more {
            if segments.len() > sparse::MOST_SEGMENTS {
                return Err(self.damaged(wrong));
            }
            let mut next = [0; BLOCK];
            self.fill(&mut next)?;
            more = sparse::add_gnu(&mut segments, &next[..505]).ok_or_else(|| self.damaged(wrong))?;
        }
        Ok(segments)
    }

    /// Segments as decimal numbers in the first blocks of the content (GNU's PAX dialect 1.0).
    fn content_segments(&mut self) -> Result<Vec<(u64, u64)>, TarError> {
        let wrong = "the list of a sparse file's segments";
        let mut list = sparse::DecimalList::default();
        while !list.is_complete() {
            let mut block = [0; BLOCK];
            self.left = self.left.checked_sub(BLOCK as u64).ok_or_else(|| self.damaged(wrong))?;
            self.fill(&mut block)?;
            list.add(&block).ok_or_else(|| self.damaged(wrong))?;
        }
        Ok(list.segments())
    }

    /// The next header; none at the end of the archive, with empty blocks or without.
    fn block(&mut self) -> Result<Option<[u8; BLOCK]>, TarError> {
        let mut block = [0; BLOCK];
        let count = self.read_up_to(&mut block)?;
        if count == 0 || (count == BLOCK && block.iter().all(|&byte| byte == 0)) {
            return Ok(None);
        }
        if count < BLOCK {
            return Err(TarError::Truncated { offset: self.offset });
        }
        if !field::checksum_holds(&block) {
            return Err(self.damaged("the checksum"));
        }
        Ok(Some(block))
    }

    fn extension(&mut self, block: &[u8; BLOCK]) -> Result<Vec<u8>, TarError> {
        let offset = self.offset - BLOCK as u64;
        let size = field::size(block).ok_or_else(|| self.damaged("the size"))?;
        if size > EXTENSION_LIMIT {
            return Err(TarError::Extension { offset, size, limit: EXTENSION_LIMIT });
        }
        let mut content = vec![0; usize::try_from(size).unwrap_or_default()];
        self.fill(&mut content)?;
        self.pass_over(size.next_multiple_of(BLOCK as u64) - size)?;
        Ok(content)
    }

    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), TarError> {
        if self.read_up_to(buffer)? < buffer.len() {
            return Err(TarError::Truncated { offset: self.offset });
        }
        Ok(())
    }

    fn read_up_to(&mut self, buffer: &mut [u8]) -> Result<usize, TarError> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.reader.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(TarError::Io { offset: self.offset, source }),
            }
        }
        self.offset += filled as u64;
        Ok(filled)
    }

    fn pass_over(&mut self, count: u64) -> Result<(), TarError> {
        let offset = self.offset;
        (self.skip)(&mut self.reader, count).map_err(|source| match source.kind() {
            io::ErrorKind::UnexpectedEof => TarError::Truncated { offset },
            _ => TarError::Io { offset, source },
        })?;
        self.offset += count;
        Ok(())
    }

    /// Reads content of the present entry; as much as fits, or nothing at its end.
    pub(super) fn read_content(&mut self, buffer: &mut [u8]) -> Result<usize, TarError> {
        let wanted = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let count = self.read_up_to(&mut buffer[..wanted])?;
        if count < wanted {
            return Err(TarError::Truncated { offset: self.offset });
        }
        self.left -= count as u64;
        Ok(count)
    }

    fn damaged(&self, field: &'static str) -> TarError {
        TarError::Header { offset: self.offset.saturating_sub(BLOCK as u64), field }
    }
}

impl<R: Read + Seek> Entries<R> {
    /// Jumps over contents, for files.
    pub(super) fn seeking(reader: R) -> Self {
        Self::new(reader, |reader, count| {
            let count = i64::try_from(count).map_err(|_| io::ErrorKind::UnexpectedEof)?;
            reader.seek(SeekFrom::Current(count)).map(drop)
        })
    }
}

fn kind(block: &[u8; BLOCK], path: &[u8]) -> Result<Kind, TarError> {
    Ok(match field::flag(block) {
        b'0' | b'\0' | b'7' if path.ends_with(b"/") => Kind::Folder,
        b'0' | b'\0' | b'7' | b'S' => Kind::File,
        b'1' => Kind::HardLink,
        b'2' => Kind::Symlink,
        b'3' => Kind::CharDevice,
        b'4' => Kind::BlockDevice,
        b'5' => Kind::Folder,
        b'6' => Kind::Fifo,
        flag => {
            let path = String::from_utf8_lossy(path).into_owned();
            return Err(TarError::Kind { path, flag: char::from(flag) });
        }
    })
}

fn until_zero(mut bytes: Vec<u8>) -> Vec<u8> {
    if let Some(end) = bytes.iter().position(|&byte| byte == 0) {
        bytes.truncate(end);
    }
    bytes
}
