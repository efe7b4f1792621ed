//! Files with holes: GNU's old dialect and its three PAX dialects (0.0, 0.1, 1.0; manual of GNU tar,
//! "Storing Sparse Files").

use super::field::number;
use super::records::decimal;

/// A file may have no more segments than this.
pub(super) const MOST_SEGMENTS: usize = 1 << 20;

/// Where the content of a sparse file belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::image) struct Segments {
    /// Offset and length of each, in order and without overlaps.
    pub(in crate::image) segments: Vec<(u64, u64)>,
    /// The size of the file with its holes, in bytes.
    pub(in crate::image) size: u64,
}

impl Segments {
    /// None if they overlap, do not fit the file, or are not the `stored` bytes.
    pub(super) fn new(segments: Vec<(u64, u64)>, size: u64, stored: u64) -> Option<Self> {
        let (mut end, mut sum) = (0_u64, 0_u64);
        for &(offset, length) in &segments {
            if offset < end {
                return None;
            }
            end = offset.checked_add(length)?;
            sum = sum.checked_add(length)?;
        }
        (end <= size && sum == stored && i64::try_from(size).is_ok()).then_some(Self { segments, size })
    }
}

/// What PAX records say about holes.
#[derive(Clone, Debug, Default)]
pub(super) struct Records {
    major: Option<u64>,
    pub(super) size: Option<u64>,
    numbers: Option<Vec<u64>>,
}

impl Records {
    /// Takes a record if it is about holes; none if it is and is wrong.
    pub(super) fn set(&mut self, key: &[u8], value: &[u8]) -> Option<()> {
        match key {
            b"GNU.sparse.major" => self.major = Some(decimal(value)?),
            b"GNU.sparse.realsize" | b"GNU.sparse.size" => self.size = Some(decimal(value)?),
            b"GNU.sparse.offset" | b"GNU.sparse.numbytes" => {
                let numbers = self.numbers.get_or_insert_default();
                numbers.push(decimal(value)?);
            }
            b"GNU.sparse.map" if value.is_empty() => self.numbers = Some(Vec::new()),
            b"GNU.sparse.map" => {
                self.numbers = Some(value.split(|&byte| byte == b',').map(decimal).collect::<Option<_>>()?);
            }
            _ => {}
        }
        Some(())
    }

    /// Whether the list stands before the content.
    pub(super) fn in_content(&self) -> bool {
        self.major == Some(1)
    }

    /// The list, if it stands in the records.
    pub(super) fn listed(&self) -> Option<Vec<(u64, u64)>> {
        self.numbers.as_deref().map(pairs)
    }
}

/// A number too many is left out; the sum of the lengths is compared later.
fn pairs(numbers: &[u64]) -> Vec<(u64, u64)> {
    numbers.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect()
}

/// Adds the segments of a header of the old dialect, which ends with whether there are more; none if
/// a number is wrong.
pub(super) fn add_gnu(segments: &mut Vec<(u64, u64)>, list: &[u8]) -> Option<bool> {
    let (&more, list) = list.split_last()?;
    for segment in list.chunks_exact(24).take_while(|segment| segment[0] != 0) {
        segments.push((number(&segment[..12])?, number(&segment[12..])?));
    }
    Some(more != 0)
}

/// Decimal numbers on lines of their own, the first of which tells how many pairs follow.
#[derive(Default)]
pub(super) struct DecimalList {
    numbers: Vec<u64>,
    line: Vec<u8>,
}

impl DecimalList {
    pub(super) fn is_complete(&self) -> bool {
        let wanted = self.numbers.first().and_then(|count| count.checked_mul(2)?.checked_add(1));
        wanted.is_some_and(|wanted| self.numbers.len() as u64 >= wanted)
    }

    /// None if a line is no number, or there are too many.
    pub(super) fn add(&mut self, block: &[u8]) -> Option<()> {
        for &byte in block {
            if self.is_complete() {
                break;
            }
            if byte == b'\n' {
                self.numbers.push(decimal(&std::mem::take(&mut self.line))?);
            } else {
                self.line.push(byte);
            }
            if self.line.len() > 20 || self.numbers.len() > 2 * MOST_SEGMENTS {
                return None;
            }
        }
        Some(())
    }

    pub(super) fn segments(&self) -> Vec<(u64, u64)> {
        pairs(self.numbers.get(1..).unwrap_or_default())
    }
}
