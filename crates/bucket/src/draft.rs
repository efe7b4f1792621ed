//! Content on its way into a bucket.

use std::io::{self, Write};

use md5::{Digest, Md5};
use tempfile::NamedTempFile;

/// The content of an object or a part while it arrives. It is nowhere to be seen until it is put, and gone
/// when it is dropped.
#[derive(Debug)]
pub struct Draft {
    pub(crate) file: NamedTempFile,
    md5: Md5,
    size: u64,
}

impl Draft {
    pub(crate) fn new(file: NamedTempFile) -> Self {
        Self { file, md5: Md5::new(), size: 0 }
    }

    /// In bytes, so far.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The MD5 of the content so far.
    pub fn md5(&self) -> [u8; 16] {
        self.md5.clone().finalize().into()
    }
}

impl Write for Draft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.md5.update(&bytes[..written]);
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// A checksum as S3 writes it in an ETag.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // A String takes everything.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The ETag of content that is nobody's parts.
pub(crate) fn etag(md5: &[u8]) -> String {
    hex(md5)
}

/// The ETag of an object whose parts have these (as observed; the S3 user guide only says that it is no MD5).
pub(crate) fn etag_of_parts(etags: &[[u8; 16]]) -> String {
    let mut all = Md5::new();
    etags.iter().for_each(|md5| all.update(md5));
    format!("{}-{}", hex(&all.finalize()), etags.len())
}

/// The MD5 that an ETag of a part stands for.
pub(crate) fn md5_of(etag: &str) -> Option<[u8; 16]> {
    let digits = etag.as_bytes();
    let mut md5 = [0; 16];
    if digits.len() != 32 {
        return None;
    }
    for (byte, pair) in md5.iter_mut().zip(digits.chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(md5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn etags_are_those_of_s3() {
        // RFC 1321, A.5; the second as md5sum computes it of the two sums.
        let md5 = md5_of("900150983cd24fb0d6963f7d28e17f72").unwrap();
        assert_eq!(etag(&md5), "900150983cd24fb0d6963f7d28e17f72");
        assert_eq!(etag_of_parts(&[md5]), "af5da9f45af7a300e3aded972f8ff687-1");
        for wrong in ["", "9001", "g00150983cd24fb0d6963f7d28e17f72", "\u{e4}00150983cd24fb0d6963f7d28e17f7"]
        {
            assert_eq!(md5_of(wrong), None, "{wrong}");
        }
    }
}
