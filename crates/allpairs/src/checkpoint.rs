//! Finished blocks of rows, kept so that a later attempt goes on behind them.
//!
//! One block is one file: a mark, the fingerprint of all that the result depends on, the block's rows, for each row
//! its number of neighbours and these, and a hash of all before it. The cut into blocks is part of the fingerprint.

use crate::neighbours::Neighbour;
use crate::train::TrainError;
use std::io::{self, BufWriter, Write};
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::{Path, PathBuf};
use thiserror::Error;
use trainyard_toolkit::checkpoint;
use xxhash_rust::xxh3::{Xxh3, xxh3_64, xxh3_128};

/// What a block's file begins with; its last character is the version of the format.
const MARK: &[u8; 8] = b"allpair1";

/// Multiplications of a block: about a minute's worth on one processor.
const BLOCK_WORK: u64 = 1 << 42;

/// Where finished blocks are kept.
#[derive(Debug, Clone, Copy)]
pub struct Checkpoints<'a> {
    /// The folder. Each host has one of its own in it.
    pub folder: &'a Path,
    /// Rows of a block; as many as take about a minute if `None`.
    pub block_rows: Option<NonZeroUsize>,
}

/// A checkpoint that can not be taken up.
#[derive(Debug, Error)]
pub enum CheckpointError {
    /// The folder can not be read or written; the source names the path.
    #[error("the checkpoint can not be read or written")]
    Io(#[from] io::Error),
    /// Of another matrix, other settings, or another number of instances.
    #[error(
        "the checkpoint {} was made of another matrix, with other settings or for another number of instances; it is \
         not mixed with this result: remove it, or ask for the same as before",
        path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// Not whole, or changed since.
    #[error("the checkpoint {} is damaged: remove it", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
    },
}

/// Saves the neighbours of the next row of a block.
pub(crate) type Save<'a> = dyn FnMut(&[Neighbour]) -> io::Result<()> + Send + 'a;

/// The blocks of one host.
pub(crate) struct Blocks {
    folder: PathBuf,
    fingerprint: u128,
    pub(crate) rows: Range<usize>,
    block_rows: usize,
}

impl Blocks {
    /// Cuts rows into blocks; `row_work` is how many multiplications one row takes, `everything` names all that the
    /// result depends on.
    pub(crate) fn new(
        checkpoints: &Checkpoints,
        host: &str,
        rows: Range<usize>,
        row_work: u64,
        everything: &str,
    ) -> Self {
        let by_work = (BLOCK_WORK / row_work.max(1)).max(1);
        let block_rows = checkpoints.block_rows.map_or(by_work as usize, NonZeroUsize::get);
        let fingerprint = xxh3_128(format!("{everything} {rows:?} {block_rows}").as_bytes());
        Self { folder: checkpoints.folder.join(format!("allpairs-{host}")), fingerprint, rows, block_rows }
    }

    /// All blocks in their order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Range<usize>> {
        let (block, end) = (self.block_rows, self.rows.end);
        self.rows.clone().step_by(block).map(move |start| start..end.min(start.saturating_add(block)))
    }

    /// The neighbours of a block that is finished already.
    pub(crate) fn take_up(&self, rows: &Range<usize>) -> Result<Option<Stored>, CheckpointError> {
        let path = self.folder.join(format!("checkpoint-{}", rows.start));
        let bytes = match fs_err::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let stored = Stored { bytes, first: rows.start };
        match stored.bytes.get(..40) {
            Some(head) if head[..8] == *MARK && head[8..24] != self.fingerprint.to_le_bytes() => {
                Err(CheckpointError::Foreign { path })
            }
            Some(head) if head == self.head(rows) && stored.is_whole(rows.len()) => Ok(Some(stored)),
            _ => Err(CheckpointError::Damaged { path }),
        }
    }

    /// Saves a block while `fill` finds its neighbours.
    pub(crate) fn save(
        &self,
        rows: &Range<usize>,
        fill: impl FnOnce(&mut Save) -> Result<(), TrainError>,
    ) -> Result<(), TrainError> {
        let mut failed = None;
        let saved = checkpoint::save(&self.folder, rows.start as u64, |file| {
            let mut file = Hashed { file: BufWriter::new(file), hash: Xxh3::new() };
            file.write(&self.head(rows))?;
            match fill(&mut |neighbours| file.put(neighbours)) {
                Ok(()) => {}
                Err(error) => {
                    failed = Some(error);
                    return Err(io::Error::other("the block was not finished"));
                }
            }
            let hash = file.hash.digest().to_le_bytes();
            file.write(&hash)?;
            file.file.flush()
        });
        match (failed, saved) {
            (Some(error), _) => Err(error),
            (None, Err(error)) => Err(CheckpointError::Io(error).into()),
            (None, Ok(_)) => Ok(()),
        }
    }

    fn head(&self, rows: &Range<usize>) -> [u8; 40] {
        let mut head = [0; 40];
        head[..8].copy_from_slice(MARK);
        head[8..24].copy_from_slice(&self.fingerprint.to_le_bytes());
        head[24..32].copy_from_slice(&(rows.start as u64).to_le_bytes());
        head[32..].copy_from_slice(&(rows.end as u64).to_le_bytes());
        head
    }
}

struct Hashed<W: Write> {
    file: BufWriter<W>,
    hash: Xxh3,
}

impl<W: Write> Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hash.update(bytes);
        self.file.write_all(bytes)
    }

    fn put(&mut self, neighbours: &[Neighbour]) -> io::Result<()> {
        // Rows are numbered in 32 bits, and a row has each other row at most once.
        self.write(&(neighbours.len() as u32).to_le_bytes())?;
        for neighbour in neighbours {
            self.write(&neighbour.column.to_le_bytes())?;
            self.write(&neighbour.similarity.to_le_bytes())?;
        }
        Ok(())
    }
}

/// A finished block.
pub(crate) struct Stored {
    bytes: Vec<u8>,
    first: usize,
}

impl Stored {
    /// Whether the hash is right and the lists are those of so many rows.
    fn is_whole(&self, rows: usize) -> bool {
        let Some((before, hash)) = self.bytes.split_last_chunk::<8>() else { return false };
        xxh3_64(before) == u64::from_le_bytes(*hash) && self.lists().count() == rows
    }

    /// Each row of the block with its neighbours.
    pub(crate) fn lists(&self) -> impl Iterator<Item = (usize, Vec<Neighbour>)> {
        let mut rest = self.bytes.get(40..self.bytes.len().saturating_sub(8)).unwrap_or_default();
        let mut row = self.first;
        std::iter::from_fn(move || {
            let (count, after) = rest.split_first_chunk::<4>()?;
            let (list, after) = after.split_at_checked(8 * u32::from_le_bytes(*count) as usize)?;
            rest = after;
            row += 1;
            Some((row - 1, list.as_chunks::<8>().0.iter().map(neighbour).collect()))
        })
    }
}

fn neighbour(bytes: &[u8; 8]) -> Neighbour {
    let [a, b, c, d, e, f, g, h] = *bytes;
    Neighbour { column: u32::from_le_bytes([a, b, c, d]), similarity: f32::from_le_bytes([e, f, g, h]) }
}
