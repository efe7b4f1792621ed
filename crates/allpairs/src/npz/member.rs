//! One array of an archive, read by all threads at once where it is not compressed.

use crate::npy::{Encoding, Header};
use crate::problem::FileProblem;
use crc32fast::Hasher;
use fs_err::File;
use rayon::prelude::*;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use zip::{CompressionMethod, ZipArchive};

/// Bytes that are read at a time, a multiple of all numbers.
const PIECE: usize = 1 << 17;

/// So many times as long as what is compressed, what comes of it is at most (Deflate takes two bits for 258 bytes).
const MOST_GROWTH: u64 = 1032;

/// A file at a place of one's own, which can not be read any more once the flag is set.
#[derive(Clone)]
pub(super) struct Source<'a> {
    file: &'a File,
    at: u64,
    stop: &'a AtomicBool,
}

pub(super) type Archive<'a> = ZipArchive<Source<'a>>;

impl<'a> Source<'a> {
    pub(super) fn new(file: &'a File, stop: &'a AtomicBool) -> Self {
        Self { file, at: 0, stop }
    }

    pub(super) fn archive(self) -> Result<Archive<'a>, FileProblem> {
        ZipArchive::new(self).map_err(FileProblem::Zip)
    }

    fn check(&self) -> io::Result<()> {
        if self.stop.load(Ordering::Relaxed) { Err(io::Error::other("stopped")) } else { Ok(()) }
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read_exact_at(&self, out: &mut [u8], at: u64) -> io::Result<()> {
        self.check()?;
        self.file.file().read_exact_at(out, at)
    }
}

impl Read for Source<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.check()?;
        let count = self.file.file().read_at(out, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

impl Seek for Source<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let place = match to {
            SeekFrom::Start(place) => Some(place),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(by) => self.len()?.checked_add_signed(by),
        };
        self.at = place.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

/// An array of at most one dimension.
pub(super) struct Member<'a> {
    name: &'static str,
    archive: Archive<'a>,
    index: usize,
    pub(super) header: Header,
    /// Bytes of the array with its header, as the archive says.
    size: u64,
    /// Where it lies in the file, and its checksum, if it is not compressed.
    stored: Option<(u64, u32)>,
    /// The most bytes that can come of it.
    most: u64,
}

impl<'a> Member<'a> {
    pub(super) fn open(archive: &Archive<'a>, name: &'static str) -> Result<Self, FileProblem> {
        let mut archive = archive.clone();
        let in_member = |problem| FileProblem::Member { member: name, problem: Box::new(problem) };
        let index =
            archive.index_for_name(&format!("{name}.npy")).ok_or(FileProblem::Missing { member: name })?;
        let mut file = archive.by_index(index).map_err(FileProblem::Zip)?;
        let header = header(&mut file).map_err(FileProblem::Io)?.map_err(in_member)?;
        if header.shape.len() > 1 {
            return Err(in_member(FileProblem::Dimensions { shape: header.shape_text() }));
        }
        let (size, compressed) = (file.size(), file.compressed_size());
        let plain =
            file.compression() == CompressionMethod::Stored && !file.encrypted() && size == compressed;
        let (start, checksum) = (file.data_start(), file.crc32());
        drop(file);
        let length = archive.clone().into_inner().len().map_err(FileProblem::Io)?;
        let fits = |start: &u64| plain && start.checked_add(size).is_some_and(|end| end <= length);
        let stored = start.filter(fits).map(|start| (start, checksum));
        let most = compressed.min(length).saturating_mul(MOST_GROWTH);
        Ok(Self { name, archive, index, header, size, stored, most })
    }

    pub(super) fn problem(&self, problem: FileProblem) -> FileProblem {
        FileProblem::Member { member: self.name, problem: Box::new(problem) }
    }

    pub(super) fn encoding(&self) -> Result<Encoding, FileProblem> {
        self.header.encoding().map_err(|problem| self.problem(problem))
    }

    /// All bytes behind the header.
    pub(super) fn bytes(mut self) -> Result<Vec<u8>, FileProblem> {
        let mut bytes = Vec::new();
        let mut file = self.archive.by_index(self.index).map_err(FileProblem::Zip)?;
        file.read_to_end(&mut bytes).map_err(FileProblem::Io)?;
        bytes.drain(..self.header.start.min(bytes.len()));
        Ok(bytes)
    }

    /// All numbers; `decode` is told which number is the first of some bytes, and puts as many as there are in place.
    pub(super) fn numbers<T: Copy + Default + Send>(
        self,
        decode: impl Fn(usize, &[u8], &mut [T]) + Sync,
    ) -> Result<Vec<T>, FileProblem> {
        let size = self.encoding()?.element.size();
        match self.stored {
            Some(place) => {
                self.check_size(self.size.saturating_sub(self.header.start as u64))?;
                self.stored_numbers((size, place), decode)
            }
            None => self.unpacked_numbers(size, decode),
        }
    }

    /// Numbers that lie in the file as they are.
    fn stored_numbers<T: Copy + Default + Send>(
        &self,
        (size, (start, checksum)): (usize, (u64, u32)),
        decode: impl Fn(usize, &[u8], &mut [T]) + Sync,
    ) -> Result<Vec<T>, FileProblem> {
        let source = self.archive.clone().into_inner();
        let mut head = vec![0; self.header.start];
        source.read_exact_at(&mut head, start).map_err(FileProblem::Io)?;
        let first_byte = start + head.len() as u64;
        // There are as many bytes in the file.
        let count = (self.size as usize - head.len()) / size;
        let mut numbers = vec![T::default(); count];
        let read = |bytes: &mut Vec<u8>, (piece, numbers): (usize, &mut [T])| {
            let first = piece * (PIECE / size);
            bytes.resize(numbers.len() * size, 0);
            source.read_exact_at(bytes, first_byte + (first * size) as u64)?;
            decode(first, bytes, numbers);
            let mut checksum = Hasher::new();
            checksum.update(bytes);
            Ok(checksum)
        };
        let pieces = numbers.par_chunks_mut(PIECE / size).enumerate().map_init(Vec::new, read);
        let checksums: Vec<Hasher> = pieces.collect::<io::Result<_>>().map_err(FileProblem::Io)?;
        let mut found = Hasher::new();
        found.update(&head);
        checksums.iter().for_each(|of_piece| found.combine(of_piece));
        if found.finalize() == checksum {
            return Ok(numbers);
        }
        Err(FileProblem::Io(io::Error::new(io::ErrorKind::InvalidData, "Invalid checksum")))
    }

    /// Numbers that are decompressed on the way; room is made for no more than can come.
    fn unpacked_numbers<T: Copy + Default>(
        mut self,
        size: usize,
        decode: impl Fn(usize, &[u8], &mut [T]),
    ) -> Result<Vec<T>, FileProblem> {
        let start = self.header.start;
        let claimed = self.header.count().unwrap_or(u64::MAX).min(self.most / size as u64);
        let mut numbers = Vec::new();
        // Without it, room is made as numbers come.
        let _ = numbers.try_reserve_exact(usize::try_from(claimed).unwrap_or(0));
        let mut file = self.archive.by_index(self.index).map_err(FileProblem::Zip)?;
        io::copy(&mut file.by_ref().take(start as u64), &mut io::sink()).map_err(FileProblem::Io)?;
        let (mut piece, mut found) = (Vec::with_capacity(PIECE), 0);
        loop {
            piece.clear();
            file.by_ref().take(PIECE as u64).read_to_end(&mut piece).map_err(FileProblem::Io)?;
            if piece.is_empty() {
                break;
            }
            found += piece.len() as u64;
            let first = numbers.len();
            numbers.resize(first + piece.len() / size, T::default());
            decode(first, &piece, &mut numbers[first..]);
        }
        drop(file);
        self.check_size(found)?;
        Ok(numbers)
    }

    fn check_size(&self, found: u64) -> Result<(), FileProblem> {
        let element = self.encoding()?.element;
        let needed = u128::from(self.header.count().unwrap_or(u64::MAX)) * element.size() as u128;
        if needed == u128::from(found) {
            return Ok(());
        }
        Err(self.problem(FileProblem::Size { shape: self.header.shape_text(), needed, found }))
    }
}

/// Reads as much of an array as it takes to know its header.
fn header(array: &mut impl Read) -> io::Result<Result<Header, FileProblem>> {
    let (mut bytes, mut more) = (Vec::new(), 256);
    loop {
        let read = array.by_ref().take(more).read_to_end(&mut bytes)?;
        match Header::parse(&bytes) {
            Err(FileProblem::NpyHeaderCut) if read as u64 == more => more = bytes.len() as u64,
            outcome => return Ok(outcome),
        }
    }
}
