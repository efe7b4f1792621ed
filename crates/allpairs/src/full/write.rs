//! Strips into a file, on a thread of its own.
//!
//! A large file does not go through the page cache: copying into it would take as long as computing, and would push
//! out what others have there. The system wants whole blocks then, in memory that begins at one: what is left of a
//! strip waits in front of the next one, and what is left in the end is written in the ordinary way.

use crate::npy;
use crate::output::{PartError, unfinished};
use fs_err::File;
use fs_err::os::unix::fs::FileExt as _;
use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// Bytes of a block of the disk, or a multiple of it.
const BLOCK: usize = 4096;

/// Numbers in a block.
const BLOCK_NUMBERS: usize = BLOCK / size_of::<f32>();

/// Files of fewer bytes go through the page cache, where they are likely to be read from soon.
const LARGE: u64 = 256 << 20;

/// Writes strips while others are computed.
pub(super) struct StripWriter {
    path: PathBuf,
    unfinished: PathBuf,
    /// Numbers that the next strip is to leave room for in front of it.
    waiting: usize,
    full: Option<SyncSender<Strip>>,
    empty: Receiver<Strip>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

/// Scores on their way to the file, behind the rest of the strip before.
pub(super) struct Strip {
    room: Vec<f32>,
    /// Where in the room a block begins.
    block: usize,
    /// Numbers from there to the scores.
    waiting: usize,
    scores: usize,
}

impl Strip {
    pub(super) fn scores(&mut self) -> &mut [f32] {
        &mut self.room[self.block + self.waiting..][..self.scores]
    }

    fn make_room(&mut self, waiting: usize, scores: usize) {
        self.room.resize(BLOCK_NUMBERS + waiting + scores, 0.0);
        // A number of numbers, and less than a block of them.
        self.block = self.room.as_ptr().align_offset(BLOCK);
        (self.waiting, self.scores) = (waiting, scores);
    }
}

impl StripWriter {
    /// Begins a file of so many rows and columns.
    pub(super) fn create(path: &Path, shape: (usize, usize)) -> Result<Self, PartError> {
        let large = 4 * shape.0 as u64 * shape.1 as u64 >= LARGE;
        Self::create_in(path, shape, large)
    }

    fn create_in(path: &Path, (rows, columns): (usize, usize), direct: bool) -> Result<Self, PartError> {
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
        let (full, to_write) = sync_channel::<Strip>(1);
        let (written, empty) = sync_channel(2);
        for _ in 0..2 {
            // There is room for both.
            let _ = written.send(Strip { room: Vec::new(), block: 0, waiting: 0, scores: 0 });
        }
        let thread = std::thread::spawn(move || {
            for mut strip in to_write {
                writing.put(&mut strip)?;
                // Nobody waits for the last ones.
                let _ = written.send(strip);
            }
            writing.finish()
        });
        let full = Some(full);
        Ok(Self { path: path.to_owned(), unfinished, waiting: 0, full, empty, thread: Some(thread) })
    }

    /// Room for so many scores; waits for a strip to be written if there is none.
    pub(super) fn buffer(&mut self, scores: usize) -> Result<Strip, PartError> {
        match self.empty.recv() {
            Ok(mut strip) => {
                strip.make_room(self.waiting, scores);
                self.waiting = (self.waiting + scores) % BLOCK_NUMBERS;
                Ok(strip)
            }
            Err(_) => Err(self.failure()),
        }
    }

    /// Hands a strip over to be written, in the order in which they were asked for.
    pub(super) fn write(&mut self, strip: Strip) -> Result<(), PartError> {
        let sent = self.full.as_ref().map(|full| full.send(strip));
        if matches!(sent, Some(Ok(()))) { Ok(()) } else { Err(self.failure()) }
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

    fn failure(&mut self) -> PartError {
        match self.join() {
            Err(error) => PartError::Io(error),
            Ok(()) => PartError::Io(io::Error::other("the writing thread ended early")),
        }
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
    fn put(&mut self, strip: &mut Strip) -> io::Result<()> {
        let numbers = &mut strip.room[strip.block..][..strip.waiting + strip.scores];
        numbers[..strip.waiting].copy_from_slice(&self.rest);
        let (whole, rest) = numbers.split_at(numbers.len() / BLOCK_NUMBERS * BLOCK_NUMBERS);
        self.rest = rest.to_vec();
        let bytes: &[u8] = bytemuck::cast_slice(whole);
        let direct = self.blocks.as_ref().map(|blocks| blocks.write_all_at(bytes, self.at));
        match direct {
            Some(Ok(())) => {}
            // Some file systems open a file like this, but do not write to it.
            Some(Err(error)) if error.kind() == io::ErrorKind::InvalidInput => {
                self.blocks = None;
                self.file.write_all_at(bytes, self.at)?;
            }
            Some(Err(error)) => return Err(error),
            None => self.file.write_all_at(bytes, self.at)?,
        }
        self.at += bytes.len() as u64;
        Ok(())
    }

    fn finish(self) -> io::Result<()> {
        self.file.write_all_at(bytemuck::cast_slice(&self.rest), self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strips_of_any_size_make_the_same_file_past_the_cache_or_through_it() {
        let folder = tempfile::tempdir().unwrap();
        for strips in [&[1][..], &[3, 1021, 5000, 1], &[1024, 1024], &[700, 700, 700], &[100_000, 7]] {
            let total: usize = strips.iter().sum();
            let numbers: Vec<f32> = (0..total).map(|at| at as f32).collect();
            for direct in [false, true] {
                let path = folder.path().join("all.npy");
                let mut writer = StripWriter::create_in(&path, (1, total), direct).unwrap();
                let mut next = 0;
                for count in strips {
                    let mut strip = writer.buffer(*count).unwrap();
                    strip.scores().copy_from_slice(&numbers[next..next + count]);
                    writer.write(strip).unwrap();
                    next += count;
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
}
