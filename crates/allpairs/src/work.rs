//! From the search to the file: which of the neighbours that are found are written, and in which form.

use crate::checkpoint::{Blocks, CheckpointError};
use crate::histogram::Histogram;
use crate::matrix::Loaded;
use crate::neighbours::Neighbour;
use crate::output::PairWriter;
use crate::search::{Ended, Search};
use crate::settings::{Listing, Selection};
use crate::symmetric::Partial;
use crate::train::{Progress, TrainError};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What to look for, and who is told how far it is.
pub(crate) struct Work<'a> {
    pub(crate) loaded: &'a Loaded,
    pub(crate) selection: Selection,
    pub(crate) listing: Listing,
    pub(crate) mutual: bool,
    /// Set if hosts share out pairs.
    pub(crate) partial: Option<Partial>,
    /// The rows whose pairs are written.
    pub(crate) rows: Range<usize>,
    pub(crate) blocks: Option<Blocks>,
    pub(crate) stop: &'a AtomicBool,
    pub(crate) progress: &'a (dyn Fn(Progress) + Sync),
    pub(crate) note: &'a (dyn Fn(&str) + Sync),
}

/// What was written.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) pairs: u64,
    pub(crate) scores: Histogram,
    /// Whether the lists are to be combined with those of other hosts.
    pub(crate) symmetric: bool,
}

/// Takes the neighbours of a row.
type Taker<'a> = dyn FnMut(usize, &[Neighbour]) -> Result<(), TrainError> + Send + 'a;

impl Work<'_> {
    /// Finds the pairs and writes them.
    pub(crate) fn run(&self, writer: &mut PairWriter) -> Result<Tally, TrainError> {
        let written = AtomicU64::new(0);
        let mut tally = Tally { symmetric: self.partial.is_some(), ..Tally::default() };
        let first_other = self.others().start as u32;
        let mut kept = Vec::new();
        let mut write = |row: usize, neighbours: &[Neighbour]| {
            kept.clear();
            let listed = |n: &&Neighbour| self.listing == Listing::Twice || n.column as usize > row;
            kept.extend(
                neighbours.iter().filter(listed).map(|n| Neighbour { column: n.column - first_other, ..*n }),
            );
            kept.iter().for_each(|neighbour| tally.scores.count(neighbour.similarity));
            tally.pairs += kept.len() as u64;
            written.store(tally.pairs, Ordering::Relaxed);
            Ok(writer.push(row, &kept)?)
        };
        if self.mutual { self.mutual_lists(&written, &mut write) } else { self.lists(&written, &mut write) }?;
        Ok(tally)
    }

    /// The rows that may be neighbours: those of the matrix, which come behind those of the query.
    fn others(&self) -> Range<usize> {
        self.loaded.query_rows..self.loaded.matrix.rows()
    }

    /// The rows that are searched for.
    fn searched(&self) -> Range<usize> {
        if self.mutual { self.others() } else { self.rows.clone() }
    }

    /// Hands over the neighbours of all rows that are searched for, in order.
    fn lists(&self, written: &AtomicU64, take: &mut Taker) -> Result<(), TrainError> {
        let Some(blocks) = &self.blocks else { return self.search(self.searched(), written, take) };
        let mut taken_up = 0;
        for rows in blocks.iter() {
            if let Some(stored) = blocks.take_up(&rows)? {
                taken_up += rows.len();
                stored.lists().try_for_each(|(row, neighbours)| take(row, &neighbours))?;
                continue;
            }
            if taken_up > 0 {
                (self.note)(&format!(
                    "{taken_up} rows were finished before and are taken from the checkpoints"
                ));
                taken_up = 0;
            }
            blocks.save(&rows, |save| {
                self.search(rows.clone(), written, &mut |row, neighbours| {
                    save(neighbours).map_err(CheckpointError::Io)?;
                    take(row, neighbours)
                })
            })?;
        }
        Ok(())
    }

    fn search(&self, rows: Range<usize>, written: &AtomicU64, take: &mut Taker) -> Result<(), TrainError> {
        let all = self.searched();
        let before = (rows.start - all.start) as u64;
        let most_done = AtomicU64::new(0);
        let done = |rows_done: usize| {
            // A search that begins anew in another way does not show less than was shown before.
            let rows_done = rows_done as u64;
            let rows_done = before + most_done.fetch_max(rows_done, Ordering::Relaxed).max(rows_done);
            let pairs = written.load(Ordering::Relaxed);
            (self.progress)(Progress { rows_done, rows: all.len() as u64, pairs });
        };
        let (matrix, others) = (&self.loaded.matrix, self.others());
        let count = rows.len();
        let search = Search { matrix, selection: self.selection, rows, others, stop: self.stop, done: &done };
        let outcome = match self.partial {
            Some(Partial { host, hosts, .. }) => search.run_symmetric((host, hosts), take),
            None => search.run(take),
        };
        match outcome {
            Ok(()) => {
                done(count);
                Ok(())
            }
            Err(Ended::Stopped) => Err(TrainError::Stopped),
            Err(Ended::Taker(error)) => Err(error),
        }
    }

    /// Hands over the neighbours of own rows that have them as neighbours, too.
    fn mutual_lists(&self, written: &AtomicU64, take: &mut Taker) -> Result<(), TrainError> {
        let (mut ends, mut all) = (vec![0], Vec::new());
        self.lists(written, &mut |_, neighbours| {
            all.extend_from_slice(neighbours);
            ends.push(all.len());
            Ok(())
        })?;
        let list = |row: usize| &all[ends[row]..ends[row + 1]];
        let mut mutual = Vec::new();
        for row in self.rows.clone() {
            mutual.clear();
            mutual.extend(list(row).iter().filter(|neighbour| {
                // Scores are the same from both sides, so the place of the row in that list is known.
                let back = Neighbour { column: row as u32, similarity: neighbour.similarity };
                list(neighbour.column as usize).binary_search_by(|other| other.rank(&back)).is_ok()
            }));
            take(row, &mutual)?;
        }
        Ok(())
    }
}
