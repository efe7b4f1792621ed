//! Strips into a file, on a thread of its own.
//!
//! A large file does not go through the page cache: copying into it would take as long as computing, and would push
//! out what others have there. The system wants whole blocks then, in memory that begins at one: what is left of a
//! strip waits in front of the next one, and what is left in the end is written in the ordinary way.

use super::room::Room;
use crate::npy;
use crate::output::{PartError, unfinished};
use fs_err::File;
use fs_err::os::unix::fs::FileExt as _;
use rustix::fs::{Mode, OFlags};
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

/// Bytes of a block of the disk, or a multiple of it.
const BLOCK: usize = 4096;

/// Numbers in a block.
const BLOCK_NUMBERS: usize = BLOCK / size_of::<f32>();

/// Bytes that are written at a time. Measured with 2 to 32 MiB: longer ones leave the disk waiting for the first block of
/// each, as the system looks up all pages before it begins.
const PIECE: usize = 4 << 20;

/// Files of fewer bytes go through the page cache, where they are likely to be read from soon.
const LARGE: u64 = 256 << 20;

/// Writes strips while others are computed.
pub(super) struct StripWriter {
    path: PathBuf,
    unfinished: PathBuf,
    full: Option<SyncSender<Strip>>,
    empty: Mutex<Receiver<Strip>>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

/// Memory for strips.
#[derive(Debug, Clone, Copy)]
pub(super) struct Strips {
    pub(super) count: usize,
    /// The most scores of a strip.
    pub(super) scores: usize,
}

/// Scores on their way to the file, behind the rest of the strip before.
pub(super) struct Strip {
    room: Room,
    number: usize,
    /// Numbers in front of the scores.
    waiting: usize,
    scores: usize,
}

impl Strip {
    /// Makes it the strip of that number, before which there are so many scores in the file.
    pub(super) fn begin(&mut self, number: usize, before: usize, scores: usize) {
        (self.number, self.waiting, self.scores) = (number, before % BLOCK_NUMBERS, scores);
    }

    pub(super) fn scores(&mut self) -> &mut [f32] {
        &mut self.room[self.waiting..][..self.scores]
    }
}

impl StripWriter {
    /// Begins a file of so many rows and columns.
    pub(super) fn create(path: &Path, shape: (usize, usize), strips: Strips) -> Result<Self, PartError> {
        let large = 4 * shape.0 as u64 * shape.1 as u64 >= LARGE;
        Self::create_in(path, shape, strips, large)
    }

    fn create_in(
        path: &Path,
        (rows, columns): (usize, usize),
        strips: Strips,
        direct: bool,
    ) -> Result<Self, PartError> {
        let unfinished = unfinished(path);
        let file = File::create(&unfinished)?;
        let header = npy::header("<f4", &format!("({rows}, {columns})"), if direct { BLOCK } else { 64 });
        file.write_all_at(&header, 0)?;
        let mut writing = Writing { file, blocks: None, rest: Vec::new(), at: header.len() as u64 };
        if direct {
            // Not every file system can; those that can not say so here.
            let flags = OFlags::WRONLY | OFlags::DIRECT | OFlags::CLOEXEC;
            writing.blocks = rustix::fs::open(&unfinished, flags, Mode::empty()).ok().map(Into::into);
        }
        let (full, to_write) = sync_channel(strips.count);
        let (written, empty) = sync_channel(strips.count);
        for _ in 0..strips.count {
            let room = Room::new(BLOCK_NUMBERS + strips.scores)?;
            // There is room for all.
            let _ = written.send(Strip { room, number: 0, waiting: 0, scores: 0 });
        }
        let thread = std::thread::spawn(move || writing.all(&to_write, &written));
        let (full, empty) = (Some(full), Mutex::new(empty));
        Ok(Self { path: path.to_owned(), unfinished, full, empty, thread: Some(thread) })
    }

    /// A strip to be filled; waits for one to be written if there is none. None if the file can not be written, which
    /// [`Self::finish`] explains.
    pub(super) fn empty(&self) -> Option<Strip> {
        self.empty.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
    }

    /// Hands a strip over to be written once all before it are.
    pub(super) fn write(&self, strip: Strip) {
        // If nobody takes it, nobody hands out an empty one either.
        let _ = self.full.as_ref().map(|full| full.send(strip));
    }

    /// Completes the file and gives it its name.
    pub(super) fn finish(mut self) -> Result<(), PartError> {
        self.join()?;
        Ok(fs_err::rename(&self.unfinished, &self.path)?)
    }

    fn join(&mut self) -> io::Result<()> {
        self.full = None;
        let Some(thread) = self.thread.take() else { return Ok(()) };
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the writing thread failed")))
    }
}

impl Drop for StripWriter {
    fn drop(&mut self) {
        let _ = self.join();
        // Gone already if the file was finished; nobody is left to tell if it can not be removed.
        let _ = fs_err::remove_file(&self.unfinished);
    }
}

/// The file on the thread that writes.
struct Writing {
    file: File,
    /// The same file, past the page cache.
    blocks: Option<std::fs::File>,
    /// What does not fill a block yet.
    rest: Vec<f32>,
    at: u64,
}

impl Writing {
    /// Writes strips in the order of their numbers and hands them back.
    fn all(mut self, to_write: &Receiver<Strip>, written: &SyncSender<Strip>) -> io::Result<()> {
        let (mut early, mut next) = (BTreeMap::new(), 0);
        for strip in to_write {
            early.insert(strip.number, strip);
            while let Some(mut strip) = early.remove(&next) {
                self.put(&mut strip)?;
                next += 1;
                // Nobody waits for the last ones.
                let _ = written.send(strip);
            }
        }
        self.file.write_all_at(bytemuck::cast_slice(&self.rest), self.at)
    }

    fn put(&mut self, strip: &mut Strip) -> io::Result<()> {
        let numbers = &mut strip.room[..strip.waiting + strip.scores];
        numbers[..strip.waiting].copy_from_slice(&self.rest);
        let (whole, rest) = numbers.split_at(numbers.len() / BLOCK_NUMBERS * BLOCK_NUMBERS);
        self.rest = rest.to_vec();
        for piece in bytemuck::cast_slice::<f32, u8>(whole).chunks(PIECE) {
            self.put_blocks(piece)?;
            self.at += piece.len() as u64;
        }
        Ok(())
    }

    fn put_blocks(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self.blocks.as_ref().map(|blocks| blocks.write_all_at(bytes, self.at)) {
            // Some file systems open a file like this, but do not write to it.
            Some(Err(error)) if error.kind() == io::ErrorKind::InvalidInput => self.blocks = None,
            Some(written) => return written,
            None => {}
        }
        self.file.write_all_at(bytes, self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strips_of_any_size_and_order_make_the_same_file_past_the_cache_or_through_it() {
        let folder = tempfile::tempdir().unwrap();
        for strips in [&[1][..], &[3, 1021, 5000, 1], &[1024, 1024], &[700, 700, 700], &[100_000, 7]] {
            let total: usize = strips.iter().sum();
            let numbers: Vec<f32> = (0..total).map(|at| at as f32).collect();
            for direct in [false, true] {
                let path = folder.path().join("all.npy");
                let room = Strips { count: strips.len(), scores: *strips.iter().max().unwrap() };
                let writer = StripWriter::create_in(&path, (1, total), room, direct).unwrap();
                for (number, count) in strips.iter().enumerate().rev() {
                    let before = strips[..number].iter().sum();
                    let mut strip = writer.empty().unwrap();
                    strip.begin(number, before, *count);
                    strip.scores().copy_from_slice(&numbers[before..before + count]);
                    writer.write(strip);
                }
                writer.finish().unwrap();
                let bytes = fs_err::read(&path).unwrap();
                let header = bytes.len() - 4 * total;
                assert_eq!(header, if direct { BLOCK } else { 128 });
                assert_eq!(&bytes[header..], bytemuck::cast_slice::<f32, u8>(&numbers), "{strips:?}");
            }
        }
        assert_eq!(fs_err::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_disk_that_is_full_ends_the_filling_of_strips_and_is_named_in_the_end() {
        let (path, writes) = (Path::new("/dev/full"), Strips { count: 2, scores: 3000 });
        let file = File::options().write(true).open(path).unwrap();
        let writing = Writing { file, blocks: None, rest: Vec::new(), at: 0 };
        let (full, to_write) = sync_channel(2);
        let (written, empty) = sync_channel(2);
        let room = Room::new(writes.scores).unwrap();
        full.send(Strip { room, number: 0, waiting: 0, scores: writes.scores }).unwrap();
        drop(full);
        let error = writing.all(&to_write, &written).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        drop(written);
        assert!(empty.recv().is_err());
    }
}
