//! CSV parts as records, with a bound on their length.

use std::io::{self, Read};

use csv::{ByteRecord, Reader, ReaderBuilder};
use fs_err as fs;

use crate::error::{MergeError, PartError};
use crate::part::Part;

/// The longest record of text that is read, in bytes: a quote that is never closed must not fill the memory.
pub(crate) const RECORD_LIMIT: u64 = 64 << 20;

/// An open part whose header is read.
pub(crate) struct CsvPart<'a> {
    part: &'a Part,
    reader: Reader<Limited>,
    /// The first row; without fields if the part is empty.
    pub(crate) header: ByteRecord,
}

impl<'a> CsvPart<'a> {
    pub(crate) fn open(part: &'a Part) -> Result<Self, MergeError> {
        let file = fs::File::open(&part.file).map_err(|source| part.fault(source))?;
        let limited = Limited { inner: file, left: RECORD_LIMIT };
        let reader = ReaderBuilder::new().buffer_capacity(64 << 10).from_reader(limited);
        let mut opened = Self { part, reader, header: ByteRecord::new() };
        let header = opened.reader.byte_headers().cloned();
        opened.header = header.map_err(|source| opened.fault(source))?;
        Ok(opened)
    }

    /// Reads the next row; `false` at the end.
    pub(crate) fn next(&mut self, record: &mut ByteRecord) -> Result<bool, MergeError> {
        self.reader.get_mut().left = RECORD_LIMIT;
        self.reader.read_byte_record(record).map_err(|source| self.fault(source))
    }

    fn fault(&self, source: csv::Error) -> MergeError {
        let line = self.reader.position().line();
        if source.is_io_error() && self.reader.get_ref().left == 0 {
            return self.part.fault(PartError::RecordTooLong { line, limit: RECORD_LIMIT });
        }
        match source.is_io_error() {
            true => self.part.fault(io::Error::from(source)),
            false => self.part.fault(source),
        }
    }
}

/// The header that all parts share, and the part that has it first; `None` if all parts are empty.
pub(crate) fn shared_header(parts: &[Part]) -> Result<Option<(ByteRecord, &Part)>, MergeError> {
    let mut shared: Option<(ByteRecord, &Part)> = None;
    for part in parts {
        let header = CsvPart::open(part)?.header;
        match &shared {
            _ if header.is_empty() => {}
            None => shared = Some((header, part)),
            Some((expected, first)) if *expected != header => {
                return Err(part.fault(PartError::Header {
                    first: first.name.clone(),
                    expected: header_text(expected),
                    found: header_text(&header),
                }));
            }
            Some(_) => {}
        }
    }
    Ok(shared)
}

/// A header's names as text.
pub(crate) fn names(header: &ByteRecord) -> Vec<String> {
    header.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect()
}

fn header_text(header: &ByteRecord) -> String {
    names(header).join(",")
}

/// A reader that fails when one record takes too many bytes.
struct Limited {
    inner: fs::File,
    left: u64,
}

impl Read for Limited {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let count = self.inner.read(buf)?;
        self.left = self.left.saturating_sub(count as u64);
        Ok(count)
    }
}
