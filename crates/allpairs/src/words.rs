//! All rows in 16-bit integers (see [`crate::quantised`]), held in memory where there is room for them.
//!
//! They are what bytes are made of and what candidates are looked at more closely in, both again and again. Held, they take
//! half of what rows of float32 do, and of the files nothing has to be in memory but what is scored. Where there is no room
//! they are made from the files each time.

use crate::dense::{DenseMatrix, DenseRows};
use crate::machine::Vectors;
use crate::memory;
use crate::quantised::factor;

/// Bytes of a stored number from which on rows are held: of smaller ones they would take twice the file.
const LEAST_BYTES: usize = 2;

/// Whether there is room for all rows of a matrix in 16-bit integers: they may take half of the memory.
pub(crate) fn have_room(matrix: &DenseMatrix) -> bool {
    let bytes = (matrix.rows() as u64).saturating_mul((matrix.stride() * size_of::<i16>()) as u64);
    let is_wide = matrix.bytes_of_number() >= LEAST_BYTES;
    is_wide && memory::available().is_some_and(|available| bytes <= available / 2)
}

/// One thread's room for rows that are not held.
#[derive(Debug, Default)]
pub(crate) struct Room {
    read: Vec<f64>,
    words: Vec<i16>,
}

/// Some rows in 16-bit integers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Words<'a> {
    numbers: &'a [i16],
    /// The place of each of them; without, they lie one after the other.
    places: Option<&'a [u32]>,
    stride: usize,
}

impl<'a> Words<'a> {
    /// The row at this place of those that were asked for.
    #[inline]
    pub(crate) fn row(self, at: usize) -> &'a [i16] {
        let at = self.places.map_or(at, |places| places[at] as usize);
        &self.numbers[at * self.stride..][..self.stride]
    }
}

impl DenseRows {
    /// Rows in 16-bit integers, [`DenseMatrix::stride`] numbers each.
    #[inline]
    pub(crate) fn words<'a>(&'a self, rows: &'a [u32], room: &'a mut Room) -> Words<'a> {
        let stride = self.matrix.stride();
        if let Some(held) = &self.held {
            return Words { numbers: held, places: Some(rows), stride };
        }
        self.quantise(rows, room);
        Words { numbers: &room.words, places: None, stride }
    }

    /// A row in 16-bit integers if it is held.
    #[inline]
    pub(crate) fn held(&self, row: usize) -> Option<&[i16]> {
        let stride = self.matrix.stride();
        self.held.as_ref().map(|held| &held[row * stride..][..stride])
    }

    fn quantise(&self, rows: &[u32], Room { read, words }: &mut Room) {
        let (stride, vectors) = (self.matrix.stride(), Vectors::best());
        words.clear();
        words.resize(rows.len() * stride, 0);
        // Rows that lie in columns are read together; of others one stays in the nearest cache.
        let together = if self.lie_together_in_columns(rows) { rows.len() } else { 1 };
        read.clear();
        read.resize(together * stride, 0.0);
        for (rows, words) in rows.chunks(together).zip(words.chunks_mut(together * stride)) {
            let first = rows[0] as usize;
            let factor = |row: usize| factor(self.norms[row]);
            if let Some(stored) = self.stored_row(first) {
                vectors.quantise_stored(stored, factor(first), words);
                continue;
            }
            self.read(first..first + rows.len(), read);
            let numbers = read.chunks_exact(stride).zip(words.chunks_exact_mut(stride));
            for (row, (read, words)) in (first..).zip(numbers) {
                vectors.quantise(read, factor(row), words);
            }
        }
    }

    /// Whether rows follow one another in a file that is stored column by column.
    fn lie_together_in_columns(&self, rows: &[u32]) -> bool {
        let follow = rows.is_sorted_by(|one, next| one + 1 == *next);
        let ends = rows.first().zip(rows.last()).filter(|_| follow);
        ends.is_some_and(|(first, last)| self.matrix.lie_in_columns(*first as usize..*last as usize + 1))
    }
}
