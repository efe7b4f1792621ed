//! The neighbours of a range of rows, block by block and in order.

mod dense;
mod sparse;

use crate::matrix::Matrix;
use crate::neighbours::Neighbour;
use crate::settings::Selection;
use rayon::prelude::*;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// Neighbours that the blocks under way may hold together, so that a large `top_k` takes smaller blocks.
const NEIGHBOURS_UNDER_WAY: usize = 1 << 24;

/// Rows of a block that are compared with all others at a time.
const BLOCK_ROWS: usize = 64;

/// Blocks under way at a time for each thread: enough to even out their times.
const BLOCKS_PER_THREAD: usize = 4;

/// What to look for.
#[derive(Debug)]
pub(crate) struct Search<'a> {
    pub(crate) matrix: &'a Matrix,
    pub(crate) selection: Selection,
    /// The rows whose neighbours are wanted.
    pub(crate) rows: Range<usize>,
    pub(crate) stop: &'a AtomicBool,
}

/// Why a search ended early.
#[derive(Debug)]
pub(crate) enum Ended<E> {
    /// The stop flag was set.
    Stopped,
    /// The taker of the neighbours failed.
    Taker(E),
}

impl Search<'_> {
    /// Hands the neighbours of each row to `take`, rows in order, on the current pool of threads.
    pub(crate) fn run<E>(
        &self,
        mut take: impl FnMut(usize, &[Neighbour]) -> Result<(), E> + Send,
    ) -> Result<(), Ended<E>> {
        let block = self.block_rows();
        let starts: Vec<usize> = self.rows.clone().step_by(block).collect();
        for wave in starts.chunks(rayon::current_num_threads() * BLOCKS_PER_THREAD) {
            let found: Vec<_> =
                wave.par_iter().map(|start| self.block(*start..self.rows.end.min(start + block))).collect();
            for (start, block) in wave.iter().zip(found) {
                let block = block.ok_or(Ended::Stopped)?;
                for (row, neighbours) in (*start..).zip(&block) {
                    take(row, neighbours).map_err(Ended::Taker)?;
                }
            }
        }
        Ok(())
    }

    fn block_rows(&self) -> usize {
        let all = self.matrix.rows();
        let in_a_list = self.selection.top_k.unwrap_or(all).min(all);
        let blocks = rayon::current_num_threads() * BLOCKS_PER_THREAD;
        (NEIGHBOURS_UNDER_WAY / (in_a_list * blocks)).clamp(1, BLOCK_ROWS)
    }

    /// The neighbours of each row of a block; `None` once the stop flag is set.
    fn block(&self, rows: Range<usize>) -> Option<Vec<Vec<Neighbour>>> {
        match self.matrix {
            Matrix::Dense(matrix) => dense::neighbours(matrix, rows, self),
            Matrix::Sparse(matrix) => sparse::neighbours(matrix, rows, self),
        }
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
