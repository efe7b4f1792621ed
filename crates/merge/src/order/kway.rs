//! The merge of sorted streams.

use super::{Block, Rows};
use crate::error::MergeError;

/// Takes a row's key and body.
pub(super) type WriteRow<'a> = dyn FnMut(&[u8], &[u8]) -> Result<(), MergeError> + 'a;

/// A stream and the row it stands at.
pub(super) struct Cursor<'a> {
    rows: Rows<'a>,
    block: Block,
    at: usize,
}

impl<'a> Cursor<'a> {
    /// Stands at the first row, if there is one.
    pub(super) fn start(rows: Rows<'a>) -> Result<Option<Self>, MergeError> {
        let mut cursor = Self { rows, block: Block::default(), at: 0 };
        Ok(cursor.fill()?.then_some(cursor))
    }

    fn key(&self) -> &[u8] {
        self.block.key(self.at)
    }

    /// Goes to the next row; `false` if there is none.
    fn advance(&mut self) -> Result<bool, MergeError> {
        self.at += 1;
        if self.at < self.block.len() { Ok(true) } else { self.fill() }
    }

    fn fill(&mut self) -> Result<bool, MergeError> {
        self.at = 0;
        self.block.clear();
        (self.rows)(&mut self.block)?;
        Ok(!self.block.is_empty())
    }
}

/// Hands all rows to `write`, smallest key first, of equal keys the one from the earlier cursor.
pub(super) fn merge(mut cursors: Vec<Cursor<'_>>, write: &mut WriteRow<'_>) -> Result<(), MergeError> {
    let mut heap: Vec<usize> = (0..cursors.len()).collect();
    for at in (0..heap.len() / 2).rev() {
        sift_down(&mut heap, at, &cursors);
    }
    while let Some(&top) = heap.first() {
        let cursor = &mut cursors[top];
        write(cursor.key(), cursor.block.body(cursor.at))?;
        if !cursor.advance()? {
            heap.swap_remove(0);
        }
        sift_down(&mut heap, 0, &cursors);
    }
    Ok(())
}

/// Restores the heap below `at`. The standard heap can not compare by what its items only point at.
fn sift_down(heap: &mut [usize], mut at: usize, cursors: &[Cursor<'_>]) {
    let before = |a: usize, b: usize| (cursors[a].key(), a) < (cursors[b].key(), b);
    loop {
        let (left, right) = (2 * at + 1, 2 * at + 2);
        let mut least = at;
        for child in [left, right] {
            if child < heap.len() && before(heap[child], heap[least]) {
                least = child;
            }
        }
        if least == at {
            return;
        }
        heap.swap(at, least);
        at = least;
    }
}
