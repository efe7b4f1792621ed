//! Dense rows against dense rows, every score computed as it is defined.

use super::Search;
use crate::dense::DenseRows;
use crate::neighbours::{Best, Neighbour};
use crate::score::{LANES, combine, dot, score};
use std::ops::Range;

/// Bytes of the rows on the other side that are kept in float64 at a time: they stay in the second-level cache.
const TILE_BYTES: usize = 256 << 10;

/// Neighbours of each row of the block; `None` once the search is stopped.
pub(super) fn neighbours(
    matrix: &DenseRows,
    rows: Range<usize>,
    search: &Search,
) -> Option<Vec<Vec<Neighbour>>> {
    let stride = matrix.matrix.stride();
    let mut own = vec![0.0; rows.len() * stride];
    matrix.read(rows.clone(), &mut own);
    let tile_rows = (TILE_BYTES / (stride * size_of::<f64>())).max(2);
    let mut others = vec![0.0; tile_rows * stride];
    let mut lists: Vec<_> = rows.clone().map(|_| Best::new(&search.selection)).collect();
    for begin in search.others.clone().step_by(tile_rows) {
        if search.stopped() {
            return None;
        }
        let tile = begin..search.others.end.min(begin + tile_rows);
        matrix.read(tile.clone(), &mut others);
        for ((row, values), list) in rows.clone().zip(own.chunks_exact(stride)).zip(&mut lists) {
            let other = &others[..tile.len() * stride];
            score_row(&Row { matrix, number: row, values }, tile.clone(), other, list);
        }
    }
    Some(lists.into_iter().map(Best::finish).collect())
}

struct Row<'a> {
    matrix: &'a DenseRows,
    number: usize,
    values: &'a [f64],
}

fn score_row(row: &Row, tile: Range<usize>, others: &[f64], list: &mut Best) {
    let norms = &row.matrix.norms;
    let mut offer = |other: usize, dot: f64| {
        if other != row.number {
            let similarity = score(dot, norms[row.number], norms[other]);
            list.offer(Neighbour { column: other as u32, similarity });
        }
    };
    let pairs = others.chunks_exact(2 * row.values.len());
    let last = pairs.remainder();
    for (at, pair) in pairs.enumerate() {
        let (first, second) = pair.split_at(row.values.len());
        let dots = dot_with_two(row.values, first, second);
        offer(tile.start + 2 * at, dots[0]);
        offer(tile.start + 2 * at + 1, dots[1]);
    }
    if !last.is_empty() {
        offer(tile.end - 1, dot(row.values, last));
    }
}

/// Two dot products of one row, in the order of the definition; together they load the row only once.
fn dot_with_two(row: &[f64], first: &[f64], second: &[f64]) -> [f64; 2] {
    let mut sums = [[0.0; LANES]; 2];
    let others = first.as_chunks::<LANES>().0.iter().zip(second.as_chunks::<LANES>().0);
    for (x, (y, z)) in row.as_chunks::<LANES>().0.iter().zip(others) {
        for lane in 0..LANES {
            sums[0][lane] += x[lane] * y[lane];
            sums[1][lane] += x[lane] * z[lane];
        }
    }
    [combine(&sums[0]), combine(&sums[1])]
}
