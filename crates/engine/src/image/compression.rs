//! How layers and archives are compressed, told by their first bytes: media types are often wrong.

use std::io::{self, BufRead, Read};

use flate2::bufread::MultiGzDecoder;

/// A compression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compression {
    None,
    Gzip,
    Zstd,
    /// One that container images never have.
    Unsupported(&'static str),
}

impl Compression {
    /// From the magic numbers of RFC 1952, RFC 8878 and others.
    pub(super) fn of(start: &[u8]) -> Self {
        match start {
            [0x1f, 0x8b, ..] => Self::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Self::Zstd,
            // A frame that is to be skipped may come first.
            [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Self::Zstd,
            [0xfd, b'7', b'z', b'X', b'Z', ..] => Self::Unsupported("xz"),
            [b'B', b'Z', b'h', ..] => Self::Unsupported("bzip2"),
            _ => Self::None,
        }
    }
}

/// The decompressed content, whatever the compression. Memory is bounded: zstd windows of more than
/// 128 MiB are refused.
pub(super) fn decompress<'a>(mut reader: impl BufRead + 'a) -> io::Result<Box<dyn Read + 'a>> {
    Ok(match Compression::of(reader.fill_buf()?) {
        Compression::None => Box::new(reader),
        Compression::Gzip => Box::new(MultiGzDecoder::new(reader)),
        Compression::Zstd => {
            let mut decoder = zstd::Decoder::with_buffer(reader)?;
            decoder.window_log_max(27)?;
            Box::new(decoder)
        }
        Compression::Unsupported(name) => {
            return Err(io::Error::new(io::ErrorKind::Unsupported, Unsupported(name)));
        }
    })
}

#[derive(Debug, thiserror::Error)]
#[error("it is compressed with {0}, not with gzip or zstd")]
struct Unsupported(&'static str);
