//! An archive as an upload in parts: which of them instances have put there already, and what is to be put between.
//!
//! A store wants 5 MiB in every part but the last. An instance with less than that uploads nothing; what it has packed,
//! like the header, goes in one part with what follows it: with other small ones, or with the first piece of the next
//! instance, whose own copy of that piece is then left out. The first instance puts the header before its first piece,
//! so that where all are large nothing needs to be put but the tail.

use std::ops::Range;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::combine::{CombineError, Combined, PartFile, archive_tail, codec_of, survey};

/// A piece of a part that its instance has put into the upload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UploadedPiece {
    /// The part's number in the upload.
    pub number: u32,
    /// As the store has given it.
    pub etag: String,
    /// Bytes of the instance's part in it; the first piece of the first instance has the header before them.
    pub bytes: u64,
}

/// The least of a part that is not the last, in bytes (S3 user guide, multipart upload limits).
pub const LEAST: u64 = 5 << 20;
/// What an instance puts into one part, unless it has too much for its numbers.
const PIECE: u64 = 8 << 20;
/// The highest number of a part.
const LAST: u32 = 10_000;

/// The numbers of one instance, and the pieces that its part is cut into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Number and range of each piece; none for a part that is too small.
    pub pieces: Vec<(u32, Range<u64>)>,
}

/// The numbers that belong to an instance. The first of them is for what may come before it.
fn numbers(rank: usize, hosts: usize) -> Range<u32> {
    let each = (LAST - 1) / u32::try_from(hosts.max(1)).unwrap_or(LAST);
    let rank = u32::try_from(rank).unwrap_or(LAST);
    let first = 1 + rank.saturating_mul(each);
    first..first + each
}

impl Cut {
    /// Cuts a part of so many bytes, of the instance with this number (from 0) of so many.
    pub fn of(bytes: u64, rank: usize, hosts: usize) -> Self {
        let numbers = numbers(rank, hosts);
        let most = u64::from(numbers.end - numbers.start) - 1;
        if bytes < LEAST || most == 0 {
            return Self { pieces: Vec::new() };
        }
        let count = (bytes / PIECE).clamp(1, most);
        let at = |piece: u64| {
            u64::try_from(u128::from(bytes) * u128::from(piece) / u128::from(count)).unwrap_or(bytes)
        };
        let pieces =
            (numbers.start + 1..).zip(0..count).map(|(number, piece)| (number, at(piece)..at(piece + 1)));
        Self { pieces: pieces.collect() }
    }
}

/// One part of the upload that becomes the archive.
#[derive(Debug, PartialEq, Eq)]
pub enum UploadPart {
    /// An instance has put it there.
    There {
        /// Its number.
        number: u32,
        /// As the store has given it.
        etag: String,
    },
    /// It is still to be put there.
    Missing {
        /// Its number.
        number: u32,
        /// Its content, one after the other.
        content: Vec<Segment>,
    },
}

/// Bytes of the archive that no instance has uploaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// The header or the tail.
    Bytes(Vec<u8>),
    /// A range of a part file.
    File {
        /// The part file.
        path: PathBuf,
        /// In bytes.
        range: Range<u64>,
    },
}

impl Segment {
    fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File { range, .. } => range.end - range.start,
        }
    }
}

/// The part of one instance, and what of it is in the upload.
#[derive(Clone, Debug)]
pub struct HostPart {
    /// The part file.
    pub part: PartFile,
    /// The instance's number, from 0.
    pub rank: usize,
    /// In order; empty if the instance has uploaded nothing.
    pub uploaded: Vec<UploadedPiece>,
}

/// Plans the upload that joins `parts`, which are in host order, of a job with so many hosts.
///
/// # Errors
/// An index can't be read.
pub fn assemble(parts: &[HostPart], hosts: usize) -> Result<(Combined, Vec<UploadPart>), CombineError> {
    let files: Vec<_> = parts.iter().map(|part| part.part.clone()).collect();
    let mut combined = survey(&files)?;
    let parts: Vec<_> = parts.iter().filter(|part| part.part.packed.entries > 0).collect();
    if parts.is_empty() {
        return Ok((combined, Vec::new()));
    }
    let files: Vec<_> = parts.iter().map(|part| &part.part).collect();
    let tail = archive_tail(&files)
        .map_err(|source| CombineError::Write { path: PathBuf::from("the end of the archive"), source })?;
    let lengths: u64 = files.iter().map(|part| part.packed.compressed_bytes).sum();
    let header = codec_of(&files).header();
    combined.bytes = Some(header.len() as u64 + lengths + tail.len() as u64);
    let mut assembly = Assembly { parts: Vec::new(), pending: vec![Segment::Bytes(header.to_vec())] };
    for part in parts {
        assembly.add(part, numbers(part.rank, hosts));
    }
    assembly.pending.push(Segment::Bytes(tail));
    assembly.put(LAST);
    Ok((combined, assembly.parts))
}

struct Assembly {
    parts: Vec<UploadPart>,
    /// What is to be put with what follows.
    pending: Vec<Segment>,
}

impl Assembly {
    fn pending_bytes(&self) -> u64 {
        self.pending.iter().map(Segment::len).sum()
    }

    fn put(&mut self, number: u32) {
        let content = std::mem::take(&mut self.pending);
        self.parts.push(UploadPart::Missing { number, content });
    }

    fn add(&mut self, part: &HostPart, numbers: Range<u32>) {
        let header_is_there = part.rank == 0 && !part.uploaded.is_empty();
        let mut uploaded = part.uploaded.iter();
        let file = |range| Segment::File { path: part.part.path.clone(), range };
        if header_is_there {
            self.pending.clear();
        } else if self.pending.is_empty() && !part.uploaded.is_empty() {
            // Nothing comes before it.
        } else if let Some(first) = uploaded.next() {
            self.pending.push(file(0..first.bytes));
            self.put(numbers.start);
        } else {
            self.add_from_file(part, numbers);
        }
        let there =
            |piece: &UploadedPiece| UploadPart::There { number: piece.number, etag: piece.etag.clone() };
        self.parts.extend(uploaded.map(there));
    }

    /// All of a part that is in the file alone: it is small, or of an earlier attempt.
    fn add_from_file(&mut self, part: &HostPart, numbers: Range<u32>) {
        let length = part.part.packed.compressed_bytes;
        let most = PIECE.max(length.div_ceil(u64::from(numbers.end - numbers.start).max(2) - 1));
        let (mut at, mut number) = (0, numbers.start);
        while at < length {
            let end = (at + most).min(length);
            self.pending.push(Segment::File { path: part.part.path.clone(), range: at..end });
            at = end;
            if self.pending_bytes() >= LEAST && number < numbers.end {
                self.put(number);
                number += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Codec;
    use super::*;
    use crate::artifact::PackedPart;

    const MIB: u64 = 1 << 20;

    fn host_part(rank: usize, hosts: usize, bytes: u64, uploads: bool) -> HostPart {
        let packed = PackedPart {
            entries: u64::from(bytes > 0),
            tar_bytes: 512,
            compressed_bytes: bytes,
            crc32: 1,
            codec: Codec::Gzip,
            warnings: Vec::new(),
        };
        let part = PartFile { host: format!("algo-{}", rank + 1), path: format!("/{rank}").into(), packed };
        let cut = if uploads { Cut::of(bytes, rank, hosts).pieces } else { Vec::new() };
        let piece = |(number, range): (u32, Range<u64>)| UploadedPiece {
            number,
            etag: format!("{rank}:{}", range.start),
            bytes: range.end - range.start,
        };
        HostPart { part, rank, uploaded: cut.into_iter().map(piece).collect() }
    }

    /// What `assemble` does but for the indexes, of which there are none here.
    fn assembled(parts: &[HostPart], hosts: usize) -> Vec<UploadPart> {
        let mut assembly =
            Assembly { parts: Vec::new(), pending: vec![Segment::Bytes(Codec::Gzip.header().to_vec())] };
        for part in parts.iter().filter(|part| part.part.packed.entries > 0) {
            assembly.add(part, numbers(part.rank, hosts));
        }
        assembly.pending.push(Segment::Bytes(vec![0; 30]));
        assembly.put(LAST);
        assembly.parts
    }

    /// Whose bytes are in the archive, in order: (host, start, end), with the header and the tail as `None`.
    fn content(parts: &[HostPart], assembled: &[UploadPart]) -> Vec<Option<(String, u64, u64)>> {
        let mut content = Vec::new();
        for part in assembled {
            match part {
                UploadPart::There { etag, .. } => {
                    let (rank, start) = etag.split_once(':').unwrap();
                    let start: u64 = start.parse().unwrap();
                    let whose = parts.iter().find(|part| part.rank.to_string() == rank).unwrap();
                    let piece = whose.uploaded.iter().find(|piece| piece.etag == *etag).unwrap();
                    if etag == "0:0" {
                        content.push(None);
                    }
                    content.push(Some((format!("/{rank}"), start, start + piece.bytes)));
                }
                UploadPart::Missing { content: segments, .. } => {
                    content.extend(segments.iter().map(|segment| match segment {
                        Segment::Bytes(_) => None,
                        Segment::File { path, range } => {
                            Some((path.to_string_lossy().into_owned(), range.start, range.end))
                        }
                    }));
                }
            }
        }
        content
    }

    proptest! {
        #[test]
        fn every_byte_is_there_once_in_order_in_parts_that_stores_take(
            hosts in prop::collection::vec((prop_oneof![Just(0), 1..LEAST, LEAST..100 * MIB], any::<bool>()), 1..12),
        ) {
            let count = hosts.len();
            let parts: Vec<_> = hosts.iter().enumerate()
                .map(|(rank, &(bytes, uploads))| host_part(rank, count, bytes, uploads)).collect();
            let assembled = assembled(&parts, count);
            let content = content(&parts, &assembled);
            prop_assert_eq!(content.first(), Some(&None), "the header comes first");
            prop_assert_eq!(content.last(), Some(&None), "the tail comes last");
            let mut ranges = content[1..content.len() - 1].iter();
            for part in parts.iter().filter(|part| part.part.packed.entries > 0) {
                let mut at = 0;
                while at < part.part.packed.compressed_bytes {
                    let (path, start, end) = ranges.next().unwrap().clone().unwrap();
                    prop_assert_eq!((path, start), (format!("/{}", part.rank), at));
                    at = end;
                }
                prop_assert_eq!(at, part.part.packed.compressed_bytes);
            }
            prop_assert_eq!(ranges.next(), None);
            let mut last = 0;
            for (index, part) in assembled.iter().enumerate() {
                let (number, bytes) = match part {
                    UploadPart::There { number, .. } => (*number, LEAST),
                    UploadPart::Missing { number, content } => (*number, content.iter().map(Segment::len).sum()),
                };
                prop_assert!(number > last && number <= LAST);
                prop_assert!(bytes >= LEAST || index == assembled.len() - 1);
                last = number;
            }
        }

        #[test]
        fn a_part_is_cut_into_pieces_that_stores_take(bytes in 0..u64::MAX >> 16, rank in 0..64_usize) {
            let cut = Cut::of(bytes, rank, 64).pieces;
            prop_assert_eq!(cut.is_empty(), bytes < LEAST);
            let own = numbers(rank, 64);
            let mut at = 0;
            for (number, range) in &cut {
                prop_assert!(own.contains(number) && *number > own.start);
                prop_assert_eq!(range.start, at);
                prop_assert!(range.end - range.start >= LEAST);
                at = range.end;
            }
            prop_assert!(cut.is_empty() || at == bytes);
        }
    }

    #[test]
    fn where_all_are_large_only_the_tail_is_missing() {
        let parts = [host_part(0, 2, 20 * MIB, true), host_part(1, 2, 9 * MIB, true)];
        let missing: Vec<_> = assembled(&parts, 2)
            .into_iter()
            .filter_map(|part| match part {
                UploadPart::Missing { number, content } => Some((number, content.len())),
                UploadPart::There { .. } => None,
            })
            .collect();
        assert_eq!(missing, [(LAST, 1)]);
    }
}
