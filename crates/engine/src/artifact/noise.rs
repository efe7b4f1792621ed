//! Telling noise from content before it is compressed.
//!
//! What is compressed or encrypted already (images, archives, most columnar files) looks like random
//! bytes, and deflate takes as long to find nothing in it as it takes for text. It is stored as it is
//! when its bytes are spread evenly and hardly any four of them come again within a window.

use super::deflate::WINDOW;

/// Judged at once: large against the cost of changing over, small against files.
const CHUNK: usize = 32 * 1024;
/// Fewer than one repeated place in 512 bytes: deflate would save a fraction of a percent.
const FEW_REPEATS: usize = CHUNK / 512;
/// More slots than a window has places, so that most are still there when they come again.
const SLOT_BITS: u32 = 16;

/// A stretch of one kind.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// Where it ends; it begins where the one before it ends.
    pub(super) end: usize,
    pub(super) noise: bool,
}

/// Cuts `block` from `from` on into runs; what is before `from` is what matches may reach back to.
pub(super) fn runs(block: &[u8], from: usize) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut repeats = None;
    let mut start = from;
    while start < block.len() {
        let end = block.len().min(start + CHUNK);
        let noise = is_even(&block[start..end])
            && repeats.get_or_insert_with(Repeats::new).count(block, start, end) < FEW_REPEATS;
        match runs.last_mut() {
            Some(run) if run.noise == noise => run.end = end,
            _ => runs.push(Run { end, noise }),
        }
        start = end;
    }
    runs
}

/// Whether all byte values are about equally frequent. The sum of the squared counts of n random bytes is
/// n²/256 + n on average; 2% above that leaves a fifth of a percent for a better code. A chunk too small to
/// tell is not called even.
fn is_even(chunk: &[u8]) -> bool {
    if chunk.len() < CHUNK / 2 {
        return false;
    }
    // Several tables, because counting the same byte twice in a row would wait for the first time.
    let mut tables = [[0_u32; 256]; 4];
    for four in chunk.chunks_exact(4) {
        for (table, &byte) in tables.iter_mut().zip(four) {
            table[usize::from(byte)] += 1;
        }
    }
    let count = |byte: usize| tables.iter().map(|table| u64::from(table[byte])).sum::<u64>();
    let squares: u64 = (0..256).map(|byte| count(byte) * count(byte)).sum();
    let n = chunk.len() as u64;
    squares * 100 <= (n * n / 256) * 102 + n * 100
}

/// The groups of four bytes that came before, as many as there are slots for.
struct Repeats {
    slots: Vec<u32>,
    seen_to: usize,
}

impl Repeats {
    fn new() -> Self {
        Self { slots: vec![0; 1 << SLOT_BITS], seen_to: 0 }
    }

    /// In how many places from `start` to `end` a group begins that came before.
    fn count(&mut self, block: &[u8], start: usize, end: usize) -> usize {
        let unseen = self.seen_to.max(start.saturating_sub(WINDOW));
        self.look(&block[unseen..start]);
        self.seen_to = end;
        self.look(&block[start..end])
    }

    fn look(&mut self, bytes: &[u8]) -> usize {
        let mut repeats = 0;
        for group in bytes.windows(4) {
            let value = u32::from_le_bytes([group[0], group[1], group[2], group[3]]);
            let slot = &mut self.slots[(value.wrapping_mul(0x9e37_79b1) >> (32 - SLOT_BITS)) as usize];
            repeats += usize::from(*slot == value);
            *slot = value;
        }
        repeats
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes without any order that deflate could find.
    fn noise(seed: u64, length: usize) -> Vec<u8> {
        let mut state = seed;
        let next = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (mixed ^ (mixed >> 31)).to_le_bytes()
        };
        std::iter::repeat_with(next).flatten().take(length).collect()
    }

    #[test]
    fn random_bytes_are_noise() {
        let block = noise(1, 9 * CHUNK);
        assert_eq!(runs(&block, 0), [Run { end: 9 * CHUNK, noise: true }]);
        assert_eq!(runs(&block, 100), [Run { end: 9 * CHUNK, noise: true }]);
    }

    #[test]
    fn text_numbers_and_floats_are_not() {
        let text = b"the quick brown fox ".repeat(5000);
        let numbers: Vec<u8> = (0..40_000_u32).flat_map(|i| (i * 7919).to_le_bytes()).collect();
        let floats: Vec<u8> = (1..40_000_u16).flat_map(|i| (1.0 / f32::from(i)).to_le_bytes()).collect();
        for block in [text, numbers, floats] {
            assert_eq!(runs(&block, 0), [Run { end: block.len(), noise: false }]);
        }
    }

    #[test]
    fn even_bytes_that_come_again_within_the_window_are_not_noise() {
        let counting: Vec<u8> = (0..=255).cycle().take(CHUNK).collect();
        assert_eq!(runs(&counting, 0), [Run { end: CHUNK, noise: false }]);
        let again = [noise(2, CHUNK), noise(2, CHUNK)].concat();
        assert_eq!(runs(&again, CHUNK), [Run { end: 2 * CHUNK, noise: false }]);
        let half = [noise(3, CHUNK / 2), noise(4, CHUNK), noise(3, CHUNK / 2)].concat();
        assert_eq!(runs(&half, CHUNK), [Run { end: 2 * CHUNK, noise: false }]);
    }

    #[test]
    fn runs_change_where_the_content_does() {
        let block = [noise(5, 2 * CHUNK), vec![0; CHUNK], noise(6, CHUNK), vec![1; 100]].concat();
        let expected = [(2, true), (3, false), (4, true)].map(|(end, noise)| Run { end: end * CHUNK, noise });
        let runs = runs(&block, 0);
        assert_eq!(runs[..3], expected);
        assert_eq!(runs[3..], [Run { end: block.len(), noise: false }]);
    }
}
