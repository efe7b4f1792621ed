//! How often which scores are in a result.

use crate::machine::{BINS, COUNTED_TOGETHER, PAIR_SHIFT, Pairs, Vectors, bin};
use serde::Serialize;
use std::fmt::Write;

/// Counts of scores by intervals of equal width, from −1 up; the last one includes 1.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Histogram {
    /// Where the first interval begins.
    pub first: f64,
    /// Width of an interval.
    pub width: f64,
    /// Scores in each interval.
    pub counts: Vec<u64>,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { first: -1.0, width: 2.0 / BINS as f64, counts: vec![0; BINS] }
    }
}

impl Histogram {
    pub(crate) fn count(&mut self, score: f32) {
        self.counts[bin(score)] += 1;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, other)| *count += other);
    }

    /// The counts as a picture, with this title.
    pub(crate) fn svg(&self, title: &str) -> String {
        const WIDTH: f64 = 640.0;
        const HEIGHT: f64 = 200.0;
        const LEFT: f64 = 20.0;
        const TOP: f64 = 40.0;
        let most = self.counts.iter().copied().max().unwrap_or(0).max(1);
        let step = WIDTH / self.counts.len() as f64;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 680 290\" font-family=\"sans-serif\" \
             font-size=\"12\">\n<rect width=\"680\" height=\"290\" fill=\"white\"/>\n<text x=\"20\" y=\"24\" \
             font-size=\"14\">{title}</text>\n"
        );
        for (bin, count) in self.counts.iter().enumerate() {
            let height = HEIGHT * *count as f64 / most as f64;
            let from = self.first + bin as f64 * self.width;
            // Writing to a string can not fail.
            let _ = writeln!(
                svg,
                "<rect x=\"{:.1}\" y=\"{:.2}\" width=\"{:.1}\" height=\"{height:.2}\" fill=\"#3b6ea5\"><title>{from:.2} \
                 to {:.2}: {count}</title></rect>",
                LEFT + bin as f64 * step,
                TOP + HEIGHT - height,
                step - 1.0,
                from + self.width,
            );
        }
        for (label, at) in [("-1", 0.0), ("-0.5", 0.25), ("0", 0.5), ("0.5", 0.75), ("1", 1.0)] {
            let x = LEFT + at * WIDTH;
            let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"258\" text-anchor=\"middle\">{label}</text>");
        }
        let _ = writeln!(
            svg,
            "<text x=\"340\" y=\"280\" text-anchor=\"middle\">similarity; the longest bar is {most} pairs</text>\n</svg>"
        );
        svg
    }
}

/// Counts many scores, two with each addition.
///
/// Scores of a matrix are mostly in a few intervals, so that counting one by one would wait for the last addition to
/// the same count.
#[derive(Debug)]
pub(crate) struct Counter {
    vectors: Vectors,
    of_pairs: Box<[u32; 1 << (2 * PAIR_SHIFT)]>,
    /// Scores in `of_pairs`.
    waiting: u32,
    histogram: Histogram,
}

impl Counter {
    pub(crate) fn new() -> Self {
        let of_pairs = Box::new([0; 1 << (2 * PAIR_SHIFT)]);
        Self { vectors: Vectors::best(), of_pairs, waiting: 0, histogram: Histogram::default() }
    }

    pub(crate) fn count(&mut self, scores: &[f32]) {
        let (together, rest) = scores.as_chunks::<COUNTED_TOGETHER>();
        let mut pairs: Pairs = [0; COUNTED_TOGETHER / 2];
        for scores in together {
            if self.waiting > u32::MAX - COUNTED_TOGETHER as u32 {
                self.settle();
            }
            self.waiting += COUNTED_TOGETHER as u32;
            self.vectors.bins(scores, &mut pairs);
            for pair in pairs {
                // Never beyond the table; the rest of the operation tells the compiler.
                self.of_pairs[usize::from(pair) % self.of_pairs.len()] += 1;
            }
        }
        rest.iter().for_each(|score| self.histogram.count(*score));
    }

    /// The counts of all scores.
    pub(crate) fn finish(mut self) -> Histogram {
        self.settle();
        self.histogram
    }

    fn settle(&mut self) {
        for (pair, count) in self.of_pairs.iter_mut().enumerate().filter(|(_, count)| **count > 0) {
            for bin in [pair % (1 << PAIR_SHIFT), pair >> PAIR_SHIFT] {
                self.histogram.counts[bin] += u64::from(*count);
            }
            *count = 0;
        }
        self.waiting = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_scores_are_counted_as_one_by_one() {
        let scores: Vec<f32> = (0..1000).map(|at| (at as f32 * 0.37).sin()).collect();
        let (mut counter, mut histogram) = (Counter::new(), Histogram::default());
        for part in [&scores[..3], &scores[3..900], &scores[900..]] {
            counter.count(part);
        }
        // Before the counts of pairs could overflow they are put into those of the intervals.
        counter.waiting = u32::MAX;
        counter.count(&scores[..128]);
        scores.iter().chain(&scores[..128]).for_each(|score| histogram.count(*score));
        assert_eq!(counter.waiting, 128);
        assert_eq!(counter.finish(), histogram);
    }

    #[test]
    fn every_score_is_in_one_interval_and_the_ends_count() {
        let mut histogram = Histogram::default();
        for score in [-1.0, -0.96, 0.0, 0.049, 0.05, 0.999, 1.0] {
            histogram.count(score);
        }
        let filled: Vec<_> = histogram.counts.iter().enumerate().filter(|(_, count)| **count > 0).collect();
        assert_eq!(filled, [(0, &2), (20, &2), (21, &1), (39, &2)]);
        let svg = histogram.svg("12 pairs");
        assert_eq!(svg.matches("<title>").count(), 40);
        assert!(svg.contains("0.95 to 1.00: 2") && svg.ends_with("</svg>\n"));
    }
}
