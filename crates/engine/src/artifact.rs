//! What an instance hands back and how it becomes `model.tar.gz` and `output.tar.gz`, or the same with zstd.
//!
//! Each instance packs its folder into a *part file*: the raw deflate stream of its tar entries, cut at a
//! byte boundary, without gzip header or trailer and without a last-block mark. Such parts can be joined
//! in any order (RFC 1951 blocks stand alone when no distance reaches back over the seam), and their
//! CRC-32 values can be combined, so the archive is made without compressing anything a second time and
//! without bytes going through user space. The result is one ordinary single-member gzip. With zstd a part is a row of
//! frames, which may follow each other in any case.
//!
//! Beside each part lies an *index*: its paths in archive order with a hash of their content, from which
//! clashes between instances are found without reading the parts.
//!
//! A model that is to be plain files goes the same way, stored and not compressed, and is unpacked in the end.

mod assemble;
mod clash;
mod codec;
mod combine;
mod deflate;
mod folder;
mod header;
mod index;
mod largest;
mod links;
mod noise;
mod pack;
mod read;
mod remove;
mod tree;
mod walk;
mod warnings;

pub use assemble::{Cut, HostPart, LEAST, Segment, UploadPart, UploadedPiece, assemble};
pub use clash::Clash;
pub use codec::Codec;
pub use combine::{CombineError, Combined, PartFile, combine};
pub use index::{IndexError, index_path};
pub use largest::largest;
pub use pack::{PackError, PackOptions, PackedPart, pack};
pub use read::{ArchiveEntry, ArchiveReader, EntryKind, ReadError};
pub use remove::{RemoveError, remove_tree};
pub use tree::{Tree, UnpackError, unpack};

#[cfg(test)]
mod tests;
