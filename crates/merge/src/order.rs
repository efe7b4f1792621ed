//! Rows in the order of a key, whatever the rows are: bounded memory, stable, streams that are sorted already
//! read only once more.
//!
//! A *row* is a key and a body, both bytes; keys compare as bytes. A part whose keys ascend is a *stream* as it
//! is. Any other is cut into *runs*: as much of it as fits the memory, sorted, on disk. Streams are then merged;
//! equal keys come from the earlier stream first, which makes the whole a stable sort of all rows.

mod block;
mod kway;
mod run;

use fs_err as fs;

pub(crate) use self::block::Block;
use self::kway::{Cursor, merge};
use self::run::Runs;
use crate::error::{MergeError, unwritable};
use crate::join::Joining;
use crate::part::Part;

/// What rows are read for: with [`Want::Keys`] the bodies may be left empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Want {
    /// To see whether they are in order.
    Keys,
    /// To be written.
    Rows,
}

/// A source of rows: fills an empty block with the next ones, and leaves it empty when there are no more.
pub(crate) type Rows<'a> = Box<dyn FnMut(&mut Block) -> Result<(), MergeError> + 'a>;

/// Opens a part as rows.
pub(crate) type Open<'a> = dyn Fn(&'a Part, Want) -> Result<Rows<'a>, MergeError> + 'a;

/// Memory that one open stream is taken to need: its block and what its reader holds.
const STREAM_MEMORY: usize = 4 << 20;
/// Streams open at once, which bounds open files.
const MOST_STREAMS: usize = 64;

/// A sorted sequence of rows on disk.
enum Stream<'a> {
    Part(&'a Part),
    Run(usize),
}

/// Hands the bodies of all rows of all parts to `write`, by key.
pub(crate) fn in_order<'a>(
    joining: &Joining<'a>,
    open: &Open<'a>,
    write: &mut dyn FnMut(&[u8]) -> Result<(), MergeError>,
) -> Result<(), MergeError> {
    let mut runs = Runs::new(joining.scratch);
    let mut streams = Vec::new();
    for part in joining.parts {
        if is_sorted(open(part, Want::Keys)?)? {
            streams.push(Stream::Part(part));
        } else {
            let spilled = runs.spill(open(part, Want::Rows)?, joining.memory)?;
            streams.extend(spilled.map(Stream::Run));
        }
    }
    let fan_in = (joining.memory / STREAM_MEMORY).clamp(2, MOST_STREAMS);
    while streams.len() > fan_in {
        streams = merge_groups(streams, fan_in, open, &mut runs)?;
    }
    merge(cursors(&streams, open, &runs)?, &mut |_, body| write(body))
}

/// Merges neighbouring streams into runs, so that fewer are left.
fn merge_groups<'a>(
    mut streams: Vec<Stream<'a>>,
    fan_in: usize,
    open: &Open<'a>,
    runs: &mut Runs<'_>,
) -> Result<Vec<Stream<'a>>, MergeError> {
    let mut merged = Vec::new();
    while !streams.is_empty() {
        let rest = streams.split_off(fan_in.min(streams.len()));
        let group = std::mem::replace(&mut streams, rest);
        let (run, mut writing) = runs.create()?;
        merge(cursors(&group, open, runs)?, &mut |key, body| run::put(&mut writing, key, body))?;
        writing.finish()?;
        for stream in &group {
            if let Stream::Run(n) = stream {
                let path = runs.path(*n);
                fs::remove_file(&path).map_err(|source| unwritable(path, source))?;
            }
        }
        merged.push(Stream::Run(run));
    }
    Ok(merged)
}

fn cursors<'a>(
    streams: &[Stream<'a>],
    open: &Open<'a>,
    runs: &Runs<'_>,
) -> Result<Vec<Cursor<'a>>, MergeError> {
    let mut cursors = Vec::with_capacity(streams.len());
    for stream in streams {
        let rows = match stream {
            Stream::Part(part) => open(part, Want::Rows)?,
            Stream::Run(n) => run::read(runs.path(*n))?,
        };
        cursors.extend(Cursor::start(rows)?);
    }
    Ok(cursors)
}

fn is_sorted(mut rows: Rows<'_>) -> Result<bool, MergeError> {
    let mut block = Block::default();
    let mut last: Option<Vec<u8>> = None;
    loop {
        block.clear();
        rows(&mut block)?;
        if block.is_empty() {
            return Ok(true);
        }
        let begins_well = last.as_deref().is_none_or(|last| last <= block.key(0));
        if !begins_well || !(1..block.len()).all(|i| block.key(i - 1) <= block.key(i)) {
            return Ok(false);
        }
        last = Some(block.key(block.len() - 1).to_vec());
    }
}

#[cfg(test)]
mod tests;
