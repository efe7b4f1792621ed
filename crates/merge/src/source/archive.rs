//! Parts in a tar, plain or compressed with gzip or zstd, taken out entry by entry.
//!
//! Nothing is believed that the archive says about itself: entry sizes only end a copy, names only appear in
//! messages, and what the tar reader may gather between two entries (long names, PAX records) is bounded.

use std::cell::Cell;
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::rc::Rc;

use flate2::read::MultiGzDecoder;
use fs_err as fs;
use tar::EntryType;

use super::{LONGEST_PATH, Taken};
use crate::error::{ArchivePlace, MergeError};
use crate::host;
use crate::options::Progress;
use crate::part::Part;
use crate::scratch::{Scratch, Writing};
use crate::select::Selection;

/// Bytes that headers, long names and PAX records of one entry may take up.
const HEADERS_LIMIT: u64 = 1 << 20;
/// Bytes copied between two calls of progress.
const PROGRESS_STEP: u64 = 8 << 20;
const COPY_BUFFER: usize = 128 << 10;
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
/// RFC 8878, 3.1.1.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The largest window of zstd that is read, as a power of two: it is held in memory.
const LARGEST_WINDOW: u32 = 27;

/// Takes the parts out of the tar at `archive` and puts them into `scratch`, numbered.
pub(super) fn take_out(
    archive: &Path,
    selection: &Selection,
    scratch: &Scratch,
    progress: &dyn Fn(Progress),
) -> Result<Taken, MergeError> {
    let reader =
        open(archive).map_err(|source| MergeError::Open { archive: archive.to_path_buf(), source })?;
    let meter = Rc::new(Meter::default());
    let mut tar = tar::Archive::new(Metered { inner: reader, meter: Rc::clone(&meter) });
    let mut unpacking = Unpacking {
        archive,
        selection,
        scratch,
        progress,
        meter,
        place: ArchivePlace::Start,
        taken: Taken::default(),
        bytes: 0,
    };
    unpacking.entries(&mut tar)?;
    unpacking.rest(tar.into_inner())?;
    Ok(unpacking.taken)
}

fn open(archive: &Path) -> io::Result<Box<dyn Read>> {
    let mut file = BufReader::with_capacity(COPY_BUFFER, fs::File::open(archive)?);
    let start = io::BufRead::fill_buf(&mut file)?;
    if start.starts_with(&GZIP_MAGIC) {
        return Ok(Box::new(MultiGzDecoder::new(file)));
    }
    if start.starts_with(&ZSTD_MAGIC) {
        let mut decoder = zstd::Decoder::with_buffer(file)?;
        decoder.window_log_max(LARGEST_WINDOW)?;
        return Ok(Box::new(decoder));
    }
    Ok(Box::new(file))
}

/// One pass over an archive.
struct Unpacking<'a> {
    archive: &'a Path,
    selection: &'a Selection,
    scratch: &'a Scratch,
    progress: &'a dyn Fn(Progress),
    meter: Rc<Meter>,
    place: ArchivePlace,
    taken: Taken,
    bytes: u64,
}

impl Unpacking<'_> {
    fn entries<R: Read>(&mut self, tar: &mut tar::Archive<R>) -> Result<(), MergeError> {
        let mut entries = tar.entries().map_err(|source| self.broken(source))?;
        loop {
            self.meter.allow(HEADERS_LIMIT);
            match entries.next() {
                Some(entry) => self.entry(entry.map_err(|source| self.broken(source))?)?,
                None => break,
            }
        }
        // Without this an archive cut between two entries would look whole.
        if self.meter.ended.get() {
            return Err(self.broken(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "it ends without the empty block that closes a tar",
            )));
        }
        Ok(())
    }

    fn entry<R: Read>(&mut self, mut entry: tar::Entry<'_, R>) -> Result<(), MergeError> {
        let path_bytes = entry_path(&entry).map_err(|source| self.broken(source))?;
        let path = String::from_utf8_lossy(&path_bytes).into_owned();
        let host = entry_host(&mut entry).map_err(|source| self.broken(source))?;
        self.place = ArchivePlace::In(path.clone());
        self.meter.allow(u64::MAX);
        let wanted = self.selection.wants(&path);
        match entry.header().entry_type() {
            EntryType::Regular | EntryType::Continuous if path_bytes.ends_with(b"/") => {}
            EntryType::Regular | EntryType::Continuous if wanted => {
                self.part(&mut entry, path_bytes, host)?
            }
            EntryType::GNUSparse if wanted => {
                let part = Part::new(path_bytes, host, self.scratch.part(0)).name;
                return Err(MergeError::Sparse { part });
            }
            EntryType::Link | EntryType::Symlink if wanted => self.taken.report.warn_of_link(path.clone()),
            EntryType::Directory | EntryType::XGlobalHeader => {}
            _ => self.taken.report.skipped.add(path.clone()),
        }
        // What is left of the entry is read here, where it may be of any length.
        io::copy(&mut entry, &mut io::sink()).map_err(|source| self.broken(source))?;
        self.place = ArchivePlace::After(path);
        Ok(())
    }

    fn part<R: Read>(
        &mut self,
        entry: &mut tar::Entry<'_, R>,
        path_bytes: Vec<u8>,
        host: Option<String>,
    ) -> Result<(), MergeError> {
        let file = self.scratch.part(self.taken.parts.len());
        let mut writing = Writing::create(file.clone())?;
        let mut left = entry.size();
        let mut buffer = vec![0; COPY_BUFFER];
        let mut unreported = 0;
        while left > 0 {
            let count = entry.read(&mut buffer).map_err(|source| self.broken(source))?;
            if count == 0 {
                return Err(self.broken(io::ErrorKind::UnexpectedEof.into()));
            }
            writing.put(&buffer[..count])?;
            left -= count as u64;
            unreported += count as u64;
            if unreported >= PROGRESS_STEP {
                self.advance(std::mem::take(&mut unreported));
            }
        }
        writing.finish()?;
        self.taken.parts.push(Part::new(path_bytes, host, file));
        self.advance(unreported);
        Ok(())
    }

    fn advance(&mut self, bytes: u64) {
        self.bytes += bytes;
        (self.progress)(Progress::Taken { parts: self.taken.parts.len(), bytes: self.bytes });
    }

    /// Reads what follows the last entry: gzip's checksum stands at the very end.
    fn rest(&mut self, mut reader: impl Read) -> Result<(), MergeError> {
        self.meter.allow(u64::MAX);
        io::copy(&mut reader, &mut io::sink()).map(drop).map_err(|source| self.broken(source))
    }

    fn broken(&self, source: io::Error) -> MergeError {
        MergeError::BrokenArchive {
            archive: self.archive.to_path_buf(),
            place: self.place.clone(),
            offset: self.meter.read.get(),
            source,
        }
    }
}

/// The entry's path without a leading `./`.
fn entry_path<R: Read>(entry: &tar::Entry<'_, R>) -> io::Result<Vec<u8>> {
    let path = entry.path_bytes();
    if path.len() > LONGEST_PATH {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a path is longer than 4096 bytes"));
    }
    Ok(path.strip_prefix(b"./").unwrap_or(&path).to_vec())
}

/// The host that the entry's PAX records name.
fn entry_host<R: Read>(entry: &mut tar::Entry<'_, R>) -> io::Result<Option<String>> {
    let Some(records) = entry.pax_extensions()? else { return Ok(None) };
    let mut named = None;
    for record in records {
        let record = record?;
        if record.key_bytes() == b"comment" {
            named = record.value().ok().and_then(host::from_comment).map(str::to_owned);
        }
    }
    Ok(named.filter(|host| host.len() <= LONGEST_PATH))
}

/// Counts what the tar reader takes, and bounds it.
#[derive(Debug, Default)]
struct Meter {
    read: Cell<u64>,
    allowed: Cell<u64>,
    ended: Cell<bool>,
}

impl Meter {
    fn allow(&self, bytes: u64) {
        self.allowed.set(bytes);
    }
}

struct Metered<R> {
    inner: R,
    meter: Rc<Meter>,
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let allowed = self.meter.allowed.get();
        let wanted = buf.len().min(usize::try_from(allowed).unwrap_or(usize::MAX));
        if wanted == 0 && !buf.is_empty() {
            let message = "the headers of one entry are longer than 1 MiB";
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        let count = self.inner.read(&mut buf[..wanted])?;
        self.meter.read.set(self.meter.read.get() + count as u64);
        self.meter.allowed.set(allowed - count as u64);
        self.meter.ended.set(count == 0 && wanted > 0);
        Ok(count)
    }
}
