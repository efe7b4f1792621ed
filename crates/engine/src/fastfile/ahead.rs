//! How far to read ahead of a program that reads an open file.

use std::ops::Range;

/// The kernel's requests may overtake each other: so many blocks before the one that comes next are no jump.
const BEHIND: u64 = 8;
/// Nor are so many after it.
const BEFORE: u64 = 2;
/// Read ahead where a program goes on reading for the first time.
const FIRST: u64 = 2;

/// Where a program is in an open file, counted in blocks.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// After the last block that it has read.
    read: u64,
    /// After the last block that was asked of the store.
    asked: u64,
    /// How many were read ahead last; 0 as long as nothing is known.
    window: u64,
}

impl Ahead {
    /// Which blocks to ask for beyond those that are read now, of an object of `count` blocks: the double each time
    /// as long as the program reads on, at most `most`, and none once it is anywhere else.
    pub(super) fn beyond(&mut self, read: &Range<u64>, count: u64, most: u64) -> Range<u64> {
        let goes_on = read.start <= self.read + BEFORE && read.start + BEHIND >= self.read;
        if !goes_on || self.read == 0 {
            *self = Self { read: read.end, asked: read.end, window: 0 };
            return read.end..read.end;
        }
        if read.end > self.read {
            self.read = read.end;
            self.asked = self.asked.max(read.end);
            // Once half of what was read ahead is used.
            if self.asked - self.read <= self.window / 2 {
                self.window = (self.window * 2).max(FIRST).min(most);
                let from = self.asked;
                self.asked = (self.read + self.window).max(from).min(count.max(from));
                return from..self.asked;
            }
        }
        self.asked..self.asked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_reads_on_is_read_ahead_for_ever_further_and_never_twice() {
        let (mut ahead, mut asked, mut longest) = (Ahead::default(), 1, 0);
        for block in 0..1000 {
            let beyond = ahead.beyond(&(block..block + 1), 1000, 64);
            assert!(block < 2 || asked > block, "{block} is asked for before it is read");
            asked = asked.max(block + 1);
            assert!(beyond.is_empty() || beyond.start == asked, "{beyond:?} after {asked}");
            asked = asked.max(beyond.end);
            assert!(asked <= (block + 1 + 64).min(1000));
            longest = longest.max(beyond.end - beyond.start);
        }
        assert!(longest >= 32, "{longest}");
        assert_eq!(asked, 1000);
    }

    #[test]
    fn who_jumps_is_not_read_ahead_for() {
        let mut ahead = Ahead::default();
        for block in [0, 500, 20, 900, 40, 0, 700] {
            assert!(ahead.beyond(&(block..block + 1), 1000, 64).is_empty(), "{block}");
        }
    }

    #[test]
    fn requests_that_overtake_each_other_are_no_jumps() {
        let mut ahead = Ahead::default();
        for block in [0, 1, 3, 2, 5, 4] {
            ahead.beyond(&(block..block + 1), 1000, 64);
        }
        assert!(ahead.window >= FIRST);
    }

    #[test]
    fn the_window_may_become_smaller() {
        let mut ahead = Ahead::default();
        for (block, most) in (0..100).zip([64, 1, 0].into_iter().cycle()) {
            let beyond = ahead.beyond(&(block..block + 1), 50, most);
            assert!(beyond.start <= beyond.end && beyond.end <= 101, "{beyond:?}");
        }
    }
}
