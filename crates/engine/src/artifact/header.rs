//! The tar header of one entry: POSIX.1-2001 `ustar` with a PAX extended header before it.
//!
//! The host of an entry stands in the PAX `comment` record, the only keyword of the standard that every
//! reader passes over in silence; GNU tar warns about keywords it does not know, vendor prefix or not.
//! A path that does not fit is given in a `path` record, or, where that record cannot hold it, in GNU's
//! long name entry, which all of them know too.

/// Everything in a tar archive comes in blocks of this size.
pub(super) const BLOCK: usize = 512;

/// The `comment` record of an entry is this followed by the host.
pub(super) const HOST_PREFIX: &str = "trainyard.host=";

/// Two empty blocks end an archive.
pub(super) const END_OF_ARCHIVE: [u8; 2 * BLOCK] = [0; 2 * BLOCK];

const NAME: std::ops::Range<usize> = 0..100;
const MODE: std::ops::Range<usize> = 100..108;
const UID: std::ops::Range<usize> = 108..116;
const GID: std::ops::Range<usize> = 116..124;
const SIZE: std::ops::Range<usize> = 124..136;
const MTIME: std::ops::Range<usize> = 136..148;
const CHECKSUM: std::ops::Range<usize> = 148..156;
const TYPE: usize = 156;
const MAGIC: std::ops::Range<usize> = 257..265;
const USER: std::ops::Range<usize> = 265..297;
const GROUP: std::ops::Range<usize> = 297..329;
const DEVICES: std::ops::Range<usize> = 329..345;
const PREFIX: std::ops::Range<usize> = 345..500;

/// What a header says. The owner is always root (0), whoever ran the instance.
pub(super) struct Header<'a> {
    /// A folder's ends in a slash.
    pub(super) path: &'a [u8],
    /// Bytes of content, 0 for a folder.
    pub(super) size: u64,
    /// Permission bits.
    pub(super) mode: u32,
    /// Seconds since 1970, and nanoseconds to be added to them.
    pub(super) modified: (i64, u32),
    /// The instance that the entry comes from.
    pub(super) host: &'a str,
}

impl Header<'_> {
    /// All header blocks of the entry.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(3 * BLOCK);
        let split = split_path(self.path);
        if split.is_none() && !fits_record(self.path) {
            let name = [self.path, b"\0"].concat();
            push_extension(&mut bytes, b'L', b"././@LongLink", &name);
        }
        let mut records = Vec::with_capacity(64);
        push_record(&mut records, "comment", &[HOST_PREFIX.as_bytes(), self.host.as_bytes()].concat());
        if split.is_none() && fits_record(self.path) {
            push_record(&mut records, "path", self.path);
        }
        if let Some(time) = self.exact_time() {
            push_record(&mut records, "mtime", time.as_bytes());
        }
        if octal(self.size, SIZE.len()).is_none() {
            push_record(&mut records, "size", self.size.to_string().as_bytes());
        }
        push_extension(&mut bytes, b'x', b"././@PaxHeader", &records);
        bytes.extend_from_slice(&self.block(split));
        bytes
    }

    fn block(&self, split: Option<(&[u8], &[u8])>) -> [u8; BLOCK] {
        let kind = if self.path.ends_with(b"/") { b'5' } else { b'0' };
        let mut block = blank_block(kind);
        let (prefix, name) = split.unwrap_or((b"", &self.path[..NAME.len().min(self.path.len())]));
        put(&mut block, NAME, name);
        put(&mut block, PREFIX, prefix);
        put_number(&mut block, MODE, u64::from(self.mode & 0o7777));
        put_number(&mut block, SIZE, self.size);
        put_number(&mut block, MTIME, self.whole_seconds().unwrap_or(0));
        seal(&mut block);
        block
    }

    fn whole_seconds(&self) -> Option<u64> {
        u64::try_from(self.modified.0).ok().filter(|&seconds| octal(seconds, MTIME.len()).is_some())
    }

    /// The time as a PAX record, when the header's whole seconds do not say it.
    fn exact_time(&self) -> Option<String> {
        let (seconds, nanos) = self.modified;
        if nanos == 0 && self.whole_seconds().is_some() {
            return None;
        }
        if seconds < 0 && nanos > 0 {
            // Nanoseconds count upwards also before 1970; the decimal fraction counts away from zero.
            return Some(format!("-{}.{:09}", -(seconds + 1), 1_000_000_000 - nanos));
        }
        Some(format!("{seconds}.{nanos:09}"))
    }
}

/// Bytes of zeros that fill up the last block of a content of `size` bytes.
pub(super) fn padding(size: u64) -> usize {
    let block = BLOCK as u64;
    ((block - size % block) % block) as usize
}

/// Prefix and name of the ustar header, if the path fits into them.
fn split_path(path: &[u8]) -> Option<(&[u8], &[u8])> {
    if path.len() <= NAME.len() {
        return Some((b"", path));
    }
    // The first slash that leaves a name short enough; the slash itself is not stored.
    let earliest = path.len() - NAME.len() - 1;
    let slash = earliest + path[earliest..path.len() - 1].iter().position(|&byte| byte == b'/')?;
    (slash > 0 && slash <= PREFIX.len()).then(|| (&path[..slash], &path[slash + 1..]))
}

/// Records are UTF-8, which libarchive converts to the user's locale and complains where it cannot; and not
/// every reader takes the length of a record at its word: some end it at the first newline.
fn fits_record(path: &[u8]) -> bool {
    path.is_ascii() && !path.contains(&b'\n')
}

fn push_extension(bytes: &mut Vec<u8>, kind: u8, name: &[u8], content: &[u8]) {
    let mut block = blank_block(kind);
    put(&mut block, NAME, name);
    put_number(&mut block, MODE, 0o644);
    put_number(&mut block, SIZE, content.len() as u64);
    put_number(&mut block, MTIME, 0);
    seal(&mut block);
    bytes.extend_from_slice(&block);
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len() + padding(content.len() as u64), 0);
}

/// One PAX record, `LENGTH KEYWORD=VALUE` and a newline, where the length counts itself.
fn push_record(records: &mut Vec<u8>, keyword: &str, value: &[u8]) {
    let rest = keyword.len() + value.len() + 3;
    let mut length = rest + 1;
    while rest + length.to_string().len() != length {
        length = rest + length.to_string().len();
    }
    records.extend_from_slice(format!("{length} {keyword}=").as_bytes());
    records.extend_from_slice(value);
    records.push(b'\n');
}

fn blank_block(kind: u8) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    block[TYPE] = kind;
    put(&mut block, MAGIC, b"ustar\x0000");
    put(&mut block, USER, b"root");
    put(&mut block, GROUP, b"root");
    put(&mut block, DEVICES, b"0000000\x000000000\0");
    put_number(&mut block, UID, 0);
    put_number(&mut block, GID, 0);
    block
}

fn put(block: &mut [u8; BLOCK], field: std::ops::Range<usize>, value: &[u8]) {
    block[field][..value.len()].copy_from_slice(value);
}

/// Octal if it fits; else the binary form that all readers of large archives know (the PAX record says it
/// again for the others).
fn put_number(block: &mut [u8; BLOCK], field: std::ops::Range<usize>, value: u64) {
    let width = field.len();
    let slot = &mut block[field];
    if let Some(text) = octal(value, width) {
        slot[..text.len()].copy_from_slice(text.as_bytes());
    } else {
        slot[0] = 0x80;
        slot[width - 8..].copy_from_slice(&value.to_be_bytes());
    }
}

/// Octal digits that leave room for the zero at the end of a field of `width` bytes.
fn octal(value: u64, width: usize) -> Option<String> {
    let text = format!("{value:0digits$o}", digits = width - 1);
    (text.len() < width).then_some(text)
}

fn seal(block: &mut [u8; BLOCK]) {
    block[CHECKSUM].fill(b' ');
    let sum: u64 = block.iter().map(|&byte| u64::from(byte)).sum();
    let text = format!("{sum:06o}\0 ");
    block[CHECKSUM].copy_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(path: &[u8], size: u64) -> Vec<u8> {
        Header { path, size, mode: 0o644, modified: (1, 0), host: "algo-1" }.to_bytes()
    }

    #[test]
    fn sizes_beyond_eight_gibibytes_stand_in_the_header_and_in_a_record() {
        for (size, with_record) in [(0, false), ((1 << 33) - 1, false), (1 << 33, true), (1 << 45, true)] {
            let bytes = header(b"f", size);
            let last = tar::Header::from_byte_slice(&bytes[bytes.len() - BLOCK..]);
            assert_eq!(last.size().unwrap(), size);
            let record = format!(" size={size}\n");
            assert_eq!(String::from_utf8_lossy(&bytes[..2 * BLOCK]).contains(&record), with_record, "{size}");
        }
    }

    #[test]
    fn paths_are_split_records_or_long_names() {
        let (long, fits, deep) =
            ("l".repeat(101), format!("{}/{}", "p".repeat(155), "n".repeat(100)), "d/".repeat(78));
        let too_deep = format!("{}/{}", "p".repeat(156), "n".repeat(100));
        for (path, kinds) in [
            ("short", "x0"),
            (&fits, "x0"),
            (&deep, "x5"),
            (&long, "x0"),
            (&too_deep, "x0"),
            (&format!("{long}ü"), "Lx0"),
            (&format!("{long}\n"), "Lx0"),
        ] {
            let bytes = header(path.as_bytes(), 0);
            let with_record = String::from_utf8_lossy(&bytes).contains(&format!(" path={path}\n"));
            assert_eq!(with_record, path == long || path == too_deep, "{path}");
            let headers = bytes.chunks(BLOCK).filter(|block| block[MAGIC] == *b"ustar\x0000");
            assert_eq!(headers.map(|block| char::from(block[TYPE])).collect::<String>(), kinds, "{path}");
        }
    }

    #[test]
    fn a_record_counts_its_own_length() {
        for (length, expected) in [(1, "6 k=v\n".len()), (92, 98), (93, 99), (94, 101), (95, 102)] {
            let mut records = Vec::new();
            push_record(&mut records, "k", &vec![b'v'; length]);
            assert_eq!(records.len(), expected);
            assert!(records.starts_with(format!("{expected} k=v").as_bytes()));
        }
    }
}
