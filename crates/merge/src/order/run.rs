//! Sorted runs on disk: rows one after the other, each with the lengths of key and body before it.

use std::io::{self, BufReader, Read};
use std::ops::Range;
use std::path::PathBuf;

use fs_err as fs;

use super::{Block, Rows};
use crate::error::{MergeError, unwritable};
use crate::scratch::{Scratch, Writing};

const BUFFER: usize = 64 << 10;

/// Makes runs in the scratch folder.
pub(super) struct Runs<'a> {
    scratch: &'a Scratch,
    next: usize,
}

impl<'a> Runs<'a> {
    pub(super) fn new(scratch: &'a Scratch) -> Self {
        Self { scratch, next: 0 }
    }

    pub(super) fn path(&self, n: usize) -> PathBuf {
        self.scratch.run(n)
    }

    /// A new, empty run and its number.
    pub(super) fn create(&mut self) -> Result<(usize, Writing), MergeError> {
        let n = self.next;
        self.next += 1;
        Ok((n, Writing::create(self.path(n))?))
    }

    /// Writes all rows as sorted runs of at most about `memory` bytes each, and returns their numbers.
    pub(super) fn spill(&mut self, mut rows: Rows<'_>, memory: usize) -> Result<Range<usize>, MergeError> {
        let first = self.next;
        let mut gathered = Block::default();
        let mut block = Block::default();
        loop {
            block.clear();
            rows(&mut block)?;
            let over = gathered.size() + block.size() > memory;
            if (over || block.is_empty()) && !gathered.is_empty() {
                self.write(&mut gathered)?;
            }
            if block.is_empty() {
                return Ok(first..self.next);
            }
            gathered.append(&block);
        }
    }

    fn write(&mut self, rows: &mut Block) -> Result<(), MergeError> {
        rows.sort();
        let (_, mut writing) = self.create()?;
        for i in 0..rows.len() {
            put(&mut writing, rows.key(i), rows.body(i))?;
        }
        rows.clear();
        writing.finish()
    }
}

/// Appends one row to a run.
pub(super) fn put(writing: &mut Writing, key: &[u8], body: &[u8]) -> Result<(), MergeError> {
    writing.put(&(key.len() as u64).to_le_bytes())?;
    writing.put(&(body.len() as u64).to_le_bytes())?;
    writing.put(key)?;
    writing.put(body)
}

/// Reads a run back.
pub(super) fn read(path: PathBuf) -> Result<Rows<'static>, MergeError> {
    let file = fs::File::open(&path).map_err(|source| unwritable(&path, source))?;
    let mut reader = BufReader::with_capacity(BUFFER, file);
    let (mut key, mut body) = (Vec::new(), Vec::new());
    Ok(Box::new(move |block| {
        while !block.is_full() {
            match read_row(&mut reader, &mut key, &mut body) {
                Ok(true) => block.push(&key, &body),
                Ok(false) => break,
                Err(source) => return Err(unwritable(&path, source)),
            }
        }
        Ok(())
    }))
}

fn read_row(reader: &mut impl io::BufRead, key: &mut Vec<u8>, body: &mut Vec<u8>) -> io::Result<bool> {
    if reader.fill_buf()?.is_empty() {
        return Ok(false);
    }
    let mut lengths = [[0; 8]; 2];
    for length in &mut lengths {
        reader.read_exact(length)?;
    }
    for (bytes, length) in [key, body].into_iter().zip(lengths) {
        let length = u64::from_le_bytes(length);
        bytes.clear();
        if reader.take(length).read_to_end(bytes)? as u64 != length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(true)
}
