//! The two forms in which an archive is compressed. In both it can be cut where its parts meet.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use serde::{Deserialize, Serialize};

use super::deflate::closing_block;

/// Deflate, no name, no time, no hint at the level, unknown system: the same bytes on every machine.
pub(super) const GZIP_HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];

/// A frame of no bytes (RFC 8878, 3.1.1): a single segment of size 0, and one last raw block that is empty. It is not
/// needed; with it archives of both forms begin with bytes that belong to no part.
const ZSTD_HEADER: [u8; 9] = [0x28, 0xb5, 0x2f, 0xfd, 0x20, 0, 1, 0, 0];

/// What frames begin with (RFC 8878, 3.1.1).
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// The largest window that is read, as a power of two: that of the highest levels without `--long`.
const LARGEST_WINDOW: u32 = 27;

/// How an archive is compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Codec {
    /// One gzip member.
    #[default]
    Gzip,
    /// One zstd frame after the other, each of which stands alone.
    Zstd,
}

impl Codec {
    /// What an archive begins with, before the first part.
    pub fn header(self) -> &'static [u8] {
        match self {
            Self::Gzip => &GZIP_HEADER,
            Self::Zstd => &ZSTD_HEADER,
        }
    }

    /// The name of an archive, such as `model.tar.gz`.
    pub fn named(self, name: &str) -> String {
        match self {
            Self::Gzip => format!("{name}.tar.gz"),
            Self::Zstd => format!("{name}.tar.zst"),
        }
    }

    /// What an archive ends with, after the last part: `end`, compressed, and what there is to compare. `crc32` and
    /// `length` are those of all that was compressed, `end` with it.
    pub(super) fn tail(self, end: &[u8], crc32: u32, length: u64) -> io::Result<Vec<u8>> {
        match self {
            Self::Gzip => {
                let mut tail = closing_block(end)?;
                tail.extend_from_slice(&crc32.to_le_bytes());
                // The length modulo 2³².
                tail.extend_from_slice(&length.to_le_bytes()[..4]);
                Ok(tail)
            }
            Self::Zstd => zstd_frames(1)?.compress(end),
        }
    }
}

/// What makes frames, each with its own checksum; `level` is 0 to 9, of which 0 counts as 1.
pub(super) fn zstd_frames(level: u32) -> io::Result<zstd::bulk::Compressor<'static>> {
    let level = i32::try_from(level.clamp(1, 9)).unwrap_or(1);
    let mut compressor = zstd::bulk::Compressor::new(level)?;
    compressor.include_checksum(true)?;
    Ok(compressor)
}

/// The unpacked stream of an archive, whose codec is told by its first bytes.
pub(super) enum Unpacked<R: Read> {
    /// Nothing has been read yet; none only for a moment.
    New(Option<BufReader<R>>),
    Gzip(Box<MultiGzDecoder<BufReader<R>>>),
    Zstd(zstd::Decoder<'static, BufReader<R>>),
}

impl<R: Read> Unpacked<R> {
    pub(super) fn new(archive: R) -> Self {
        Self::New(Some(BufReader::with_capacity(64 * 1024, archive)))
    }

    fn begin(mut reader: BufReader<R>) -> io::Result<Self> {
        if !reader.fill_buf()?.starts_with(&ZSTD_MAGIC) {
            return Ok(Self::Gzip(Box::new(MultiGzDecoder::new(reader))));
        }
        let mut decoder = zstd::Decoder::with_buffer(reader)?;
        decoder.window_log_max(LARGEST_WINDOW)?;
        Ok(Self::Zstd(decoder))
    }
}

impl<R: Read> Read for Unpacked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Self::New(reader) = self {
            let reader = reader.take().ok_or(io::ErrorKind::BrokenPipe)?;
            *self = Self::begin(reader)?;
        }
        match self {
            Self::New(_) => Ok(0),
            Self::Gzip(gzip) => gzip.read(buffer),
            Self::Zstd(zstd) => zstd.read(buffer),
        }
    }
}
