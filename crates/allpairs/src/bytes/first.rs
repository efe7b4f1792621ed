//! Floors to begin with: scores that as many rows as are wanted certainly reach, known from a sample of the rows.
//!
//! Without them whatever comes first passes, and since bytes have a wide margin, several times as much as with narrow
//! sums does so until the floors are high. Sampled rows are dealt out to places, and of each place the greatest score
//! is kept that a pair has at least; so different places are different rows, and the k-th best place is a floor. It is
//! a little lower than the k-th best of the sample, since some of the best share a place.

use super::{ColumnPanels, RowPanels, Scales};
use crate::dense::DenseRows;
use crate::machine::bytes::Kernel;
use std::ops::Range;

/// Sampled rows for each that is wanted. With 50 or 200 a search took about as long.
const FOR_EACH: usize = 150;

/// The part of all rows that a sample is at most.
const PART: usize = 12;

/// Rows of one side that are packed at a time.
const PACKED_ROWS: usize = 96;

/// A sample of the rows that a search compares with.
#[derive(Debug)]
pub(crate) struct Sample {
    kernel: Kernel,
    panels: Vec<ColumnPanels>,
    wanted: usize,
    /// Places that sampled rows are dealt out to, in panels.
    groups: usize,
}

impl Sample {
    /// A sample of these rows; `None` if there are too few of them for what is wanted.
    pub(crate) fn of(
        (matrix, scales): (&DenseRows, &Scales),
        kernel: Kernel,
        others: &Range<usize>,
        wanted: usize,
    ) -> Option<Self> {
        let width = kernel.columns();
        let count = (others.len() / PART).min(wanted.saturating_mul(FOR_EACH)) / width;
        let groups = (2 * wanted).div_ceil(width).max(1);
        if count < 4 * groups {
            return None;
        }
        let sampled = |at: usize| {
            let first = others.start + (others.len() - width) / count * at;
            let mut panel = ColumnPanels::new(kernel);
            panel.pack((matrix, scales), first..first + width);
            panel
        };
        Some(Self { kernel, panels: (0..count).map(sampled).collect(), wanted, groups })
    }

    /// For each of these rows a score that as many others as are wanted reach.
    pub(crate) fn floors(&self, (matrix, scales): (&DenseRows, &Scales), rows: Range<usize>) -> Vec<f32> {
        let height = self.kernel.rows();
        let mut own = RowPanels::new(self.kernel);
        let mut greatest = vec![0.0; self.groups * height * self.kernel.columns()];
        let mut floors = Vec::with_capacity(rows.len().next_multiple_of(height));
        for start in rows.clone().step_by(PACKED_ROWS) {
            let end = rows.end.min(start + PACKED_ROWS);
            own.pack((matrix, scales), start..end);
            for at in 0..(end - start).div_ceil(height) {
                self.raise(&own, at, &mut greatest);
                floors.extend((0..height).map(|row| self.floor(row, &greatest)));
            }
        }
        floors.truncate(rows.len());
        floors
    }

    fn raise(&self, own: &RowPanels, at: usize, greatest: &mut [f32]) {
        greatest.fill(f32::NEG_INFINITY);
        let size = greatest.len() / self.groups;
        for (number, panel) in self.panels.iter().enumerate() {
            let group = &mut greatest[number % self.groups * size..][..size];
            self.kernel.raise(own.panel(at), panel.panel(0), group);
        }
    }

    fn floor(&self, row: usize, greatest: &[f32]) -> f32 {
        let width = self.kernel.columns();
        let groups = greatest.chunks_exact(width).skip(row).step_by(self.kernel.rows());
        let mut places: Vec<f32> = groups.flatten().copied().collect();
        // One more than wanted, since the row itself may be in the sample.
        *places.select_nth_unstable_by(self.wanted, |a, b| b.total_cmp(a)).1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::tests::{kinds, matrix, scores};
    use crate::element::Element;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(8))]

        #[test]
        fn as_many_rows_as_are_wanted_reach_a_first_floor(
            seed in any::<u64>(), columns in 1usize..40, wanted in 1usize..40, count in 400usize..1700,
        ) {
            let matrix = matrix(&kinds(seed, count, columns), Element::F32, false);
            let scales = Scales::measure(&matrix).unwrap();
            let scores = scores(&matrix);
            for kernel in Kernel::available() {
                let Some(sample) = Sample::of((&matrix, &scales), kernel, &(0..count), wanted) else { continue };
                let floors = sample.floors((&matrix, &scales), 0..count);
                prop_assert_eq!(floors.len(), count);
                for (row, floor) in floors.into_iter().enumerate() {
                    let others = scores[row].iter().enumerate().filter(|(other, _)| *other != row);
                    let reaching = others.filter(|(_, score)| **score >= floor).count();
                    prop_assert!(floor > -2.0 && reaching >= wanted, "{kernel:?}: {reaching} reach {floor}");
                }
            }
        }
    }

    #[test]
    fn a_first_floor_is_about_the_score_of_the_last_row_that_is_wanted_from_the_sample() {
        let rows: Vec<Vec<f64>> =
            (0..9600).map(|row| vec![1.0, f64::from(row * 7919 % 9600) / 9600.0]).collect();
        let matrix = matrix(&rows, Element::F32, false);
        let scales = Scales::measure(&matrix).unwrap();
        for kernel in Kernel::available() {
            let sample = Sample::of((&matrix, &scales), kernel, &(0..9600), 5).unwrap();
            let floors = sample.floors((&matrix, &scales), 17..120);
            // Of 750 rows the fifth best is nearer than a fiftieth.
            assert!(floors.iter().all(|floor| *floor > 0.98), "{kernel:?}: {floors:?}");
        }
    }

    #[test]
    fn a_row_that_is_in_the_sample_does_not_count_for_itself() {
        for kernel in Kernel::available() {
            let width = kernel.columns();
            // The first rows, which are sampled, are the same, and no other is like them.
            let angle = |row: usize| if row < width { 0.0 } else { 0.5 + row as f64 / 4000.0 };
            let rows: Vec<Vec<f64>> = (0..4000).map(|row| vec![angle(row).cos(), angle(row).sin()]).collect();
            let matrix = matrix(&rows, Element::F32, false);
            let scales = Scales::measure(&matrix).unwrap();
            let floors = |wanted: usize| {
                let sample = Sample::of((&matrix, &scales), kernel, &(0..4000), wanted).unwrap();
                sample.floors((&matrix, &scales), 0..width)
            };
            assert!(floors(width - 1).iter().all(|floor| *floor > 0.9), "{kernel:?}");
            assert!(floors(width).iter().all(|floor| *floor < 0.9), "{kernel:?}");
        }
    }
}
