//! Pairs in order of their rows, from parts and from disk, read side by side.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{BufReader, Read};

use fs_err as fs;

use super::pair::{BYTES, Pair, pairs};
use crate::error::{MergeError, PartError, unwritable};
use crate::join::Joining;
use crate::part::Part;
use crate::scratch::{Scratch, Writing};
use crate::table::{Batches, Table};

/// Bytes that are read from disk at a time.
const BUFFER: usize = 64 << 10;

/// Puts the next pairs behind those that are there; none if there are no more.
type Refill<'a> = Box<dyn FnMut(&mut Vec<Pair>) -> Result<(), MergeError> + 'a>;

/// Pairs in order of their rows.
struct Stream<'a> {
    refill: Refill<'a>,
    pairs: Vec<Pair>,
    at: usize,
}

impl<'a> Stream<'a> {
    fn new(refill: Refill<'a>) -> Self {
        Self { refill, pairs: Vec::new(), at: 0 }
    }

    /// The row of the next pair.
    fn row(&mut self) -> Result<Option<i64>, MergeError> {
        if self.at == self.pairs.len() {
            self.pairs.clear();
            self.at = 0;
            (self.refill)(&mut self.pairs)?;
        }
        Ok(self.pairs.get(self.at).map(|pair| pair.row))
    }
}

/// All streams.
pub(super) struct Streams<'a> {
    streams: Vec<Stream<'a>>,
    /// The next row of each stream that has one.
    next: BinaryHeap<Reverse<(i64, usize)>>,
}

impl<'a> Streams<'a> {
    /// Opens the parts; where each pair is there `once`, also their turned pairs.
    pub(super) fn open(joining: &Joining<'a>, table: &Table<'a>, once: bool) -> Result<Self, MergeError> {
        let mut streams = Vec::new();
        for part in joining.parts {
            streams.push(Stream::new(of_part(part, table.open(part)?)));
        }
        if once {
            streams.extend(turned(joining, table)?);
        }
        let mut next = BinaryHeap::new();
        for (at, stream) in streams.iter_mut().enumerate() {
            next.extend(stream.row()?.map(|row| Reverse((row, at))));
        }
        Ok(Self { streams, next })
    }

    /// Gathers all pairs of the next row; `false` if there is none.
    pub(super) fn next_row(&mut self, list: &mut Vec<Pair>) -> Result<bool, MergeError> {
        let Some(&Reverse((row, _))) = self.next.peek() else { return Ok(false) };
        while let Some(&Reverse((next, at))) = self.next.peek() {
            if next != row {
                break;
            }
            self.next.pop();
            let stream = &mut self.streams[at];
            while stream.row()? == Some(row) {
                list.push(stream.pairs[stream.at]);
                stream.at += 1;
            }
            self.next.extend(stream.row()?.map(|row| Reverse((row, at))));
        }
        Ok(true)
    }
}

/// The pairs of a part, which must be in order.
fn of_part<'a>(part: &'a Part, mut batches: Batches<'a>) -> Refill<'a> {
    let mut last = i64::MIN;
    Box::new(move |out| {
        // A batch can be empty without being the last.
        while out.is_empty() {
            let Some(batch) = batches.next().transpose()? else { break };
            out.extend(pairs(&batch));
            if !out.is_sorted_by_key(|pair| pair.row) || out.first().is_some_and(|pair| pair.row < last) {
                return Err(part.fault(PartError::ListsUnordered));
            }
            last = out.last().map_or(last, |pair| pair.row);
        }
        Ok(())
    })
}

/// All pairs of all parts for their other rows: as many as the memory holds at a time are sorted and put on disk.
fn turned<'a>(joining: &Joining<'a>, table: &Table<'a>) -> Result<Vec<Stream<'a>>, MergeError> {
    let most = (joining.memory / size_of::<Pair>()).max(1);
    let (mut held, mut runs) = (Vec::new(), Vec::new());
    for part in joining.parts {
        for batch in table.open(part)? {
            for pair in pairs(&batch?) {
                held.push(pair.turned());
                if held.len() == most {
                    runs.push(spill(joining.scratch, runs.len(), &mut held)?);
                }
            }
        }
    }
    held.sort_unstable_by_key(|pair| (pair.row, pair.column));
    runs.push(Stream { refill: Box::new(|_| Ok(())), pairs: held, at: 0 });
    Ok(runs)
}

fn spill<'a>(scratch: &Scratch, number: usize, held: &mut Vec<Pair>) -> Result<Stream<'a>, MergeError> {
    held.sort_unstable_by_key(|pair| (pair.row, pair.column));
    let path = scratch.run(number);
    let mut writing = Writing::create(path.clone())?;
    for pair in held.drain(..) {
        writing.put(&pair.to_bytes())?;
    }
    writing.finish()?;
    let file = fs::File::open(&path).map_err(|source| unwritable(&path, source))?;
    let mut file = BufReader::with_capacity(BUFFER, file);
    let mut left = fs::metadata(&path).map_err(|source| unwritable(&path, source))?.len() / BYTES as u64;
    Ok(Stream::new(Box::new(move |out| {
        for _ in 0..left.min((BUFFER / BYTES) as u64) {
            let mut bytes = [0; BYTES];
            file.read_exact(&mut bytes).map_err(|source| unwritable(&path, source))?;
            out.push(Pair::from_bytes(&bytes));
            left -= 1;
        }
        Ok(())
    })))
}
