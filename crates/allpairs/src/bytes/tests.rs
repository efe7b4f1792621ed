use super::*;
use crate::dense::{Bytes, DenseFile, DenseMatrix};
use crate::element::Element;
use crate::machine::bytes::{Floors, Tile};
use crate::matrix::inspect;
use crate::score::{dot, score};
use proptest::prelude::*;
use std::sync::atomic::AtomicBool;

/// A matrix of numbers that lie in memory.
pub(crate) fn matrix(rows: &[Vec<f64>], element: Element, fortran_order: bool) -> DenseRows {
    let turned = (0..rows[0].len()).flat_map(|column| rows.iter().map(move |row| row[column]));
    let numbers: Vec<f64> =
        if fortran_order { turned.collect() } else { rows.iter().flatten().copied().collect() };
    let bytes = match element {
        Element::F32 => numbers.iter().flat_map(|value| (*value as f32).to_le_bytes()).collect(),
        _ => numbers.iter().flat_map(|value| value.to_le_bytes()).collect(),
    };
    let file = DenseFile {
        bytes: Bytes::Owned(bytes),
        encoding: element.little_endian(),
        fortran_order,
        ..DenseFile::empty("rows".as_ref(), rows.len(), rows[0].len())
    };
    inspect(DenseMatrix::join(vec![file]), true, &AtomicBool::new(false)).unwrap().0
}

/// The scores of all pairs.
pub(crate) fn scores(matrix: &DenseRows) -> Vec<Vec<f32>> {
    let stride = matrix.matrix.stride();
    let mut read = vec![0.0; matrix.norms.len() * stride];
    matrix.read(0..matrix.norms.len(), &mut read);
    let rows: Vec<(&[f64], f64)> = read.chunks_exact(stride).zip(matrix.norms.iter().copied()).collect();
    rows.iter().map(|(x, n)| rows.iter().map(|(y, m)| score(dot(x, y), *n, *m)).collect()).collect()
}

/// All pairs that pass, with their bounds.
fn passed(matrix: &DenseRows, kernel: Kernel, floors: &[f32]) -> Vec<(usize, usize, f32)> {
    let scales = Scales::measure(matrix).unwrap();
    let (mut rows, mut columns) = (RowPanels::new(kernel), ColumnPanels::new(kernel));
    // Twice, since what was packed before must be gone.
    for _ in 0..2 {
        rows.pack((matrix, &scales), 0..floors.len());
        columns.pack((matrix, &scales), 0..floors.len());
    }
    let padded = |width: usize| {
        let mut padded = floors.to_vec();
        padded.resize(floors.len().next_multiple_of(width), f32::INFINITY);
        padded
    };
    let (of_rows, of_columns) = (padded(kernel.rows()), padded(kernel.columns()));
    let (mut tile, mut found) = (Tile::new(), Vec::new());
    for i in 0..floors.len().div_ceil(kernel.rows()) {
        for j in 0..floors.len().div_ceil(kernel.columns()) {
            let (row, column) = (rows.panel(i), columns.panel(j));
            let (first, second) = (i * kernel.rows(), j * kernel.columns());
            let floors = Floors {
                rows: &of_rows[first..][..kernel.rows()],
                columns: &of_columns[second..][..kernel.columns()],
            };
            if kernel.compare(row, column, floors, &mut tile) {
                found.extend(
                    tile.passed(kernel).map(|(row, column, bound)| (first + row, second + column, bound)),
                );
            }
        }
    }
    found.retain(|(row, column, _)| (*row).max(*column) < floors.len());
    found.sort_by_key(|(row, column, _)| (*row, *column));
    found
}

/// Rows of many kinds: entries of one size, of many, one large among small ones, equal and nearly equal rows, zeros.
pub(crate) fn kinds(seed: u64, count: usize, columns: usize) -> Vec<Vec<f64>> {
    let mut state = seed | 1;
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as f64 / 2f64.powi(30) - 1.0
    };
    let mut rows: Vec<Vec<f64>> = Vec::new();
    for row in 0..count {
        let power = [0, 0, 30, -30, -126, 100, -149][row % 7];
        let size = 2f64.powi(power);
        let mut values: Vec<f64> = match row % 11 {
            0 => vec![0.0; columns],
            1 => vec![next(); columns],
            2 | 3 => (0..columns).map(|_| next() * 2f64.powf(20.0 * next())).collect(),
            // Halves of a step, which are the furthest from their numbers.
            4 => (0..columns).map(|_| (next() * 20.0).round() / 254.0).collect(),
            5..8 if row > 11 => rows[row - 4].iter().map(|value| value / size).collect(),
            8 if row > 11 => rows[row - 7].iter().map(|value| value / size * (1.0 + 1e-7 * next())).collect(),
            _ => (0..columns).map(|_| next()).collect(),
        };
        if matches!(row % 11, 3 | 4 | 9) {
            values[row % columns] = 1.0;
        }
        rows.push(values.iter().map(|value| f64::from((value * size) as f32)).map(finite).collect());
    }
    rows
}

fn finite(value: f64) -> f64 {
    if value.is_finite() { value } else { 1.0 }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn no_pair_is_dropped_that_reaches_a_floor(
        seed in any::<u64>(), count in 1usize..80, columns in 1usize..100, short in any::<bool>(), k in 0usize..4,
    ) {
        let element = if short { Element::F32 } else { Element::F64 };
        let matrix = matrix(&kinds(seed, count, columns), element, false);
        let scores = scores(&matrix);
        // Each row's floor is one of its scores, so that ties are among what is looked for.
        let floors: Vec<f32> = scores
            .iter()
            .enumerate()
            .map(|(row, scores)| match (row + k) % 5 {
                0 => f32::INFINITY,
                1 => f32::NEG_INFINITY,
                _ => {
                    let mut sorted = scores.clone();
                    sorted.sort_by(|a, b| b.total_cmp(a));
                    sorted[k.min(sorted.len() - 1)]
                }
            })
            .collect();
        let scales = Scales::measure(&matrix).unwrap();
        let mut first = None;
        for kernel in Kernel::available() {
            let found = passed(&matrix, kernel, &floors);
            for (i, scores) in scores.iter().enumerate() {
                for (j, score) in scores.iter().enumerate() {
                    let at = found.binary_search_by_key(&(i, j), |(row, column, _)| (*row, *column));
                    match at {
                        Ok(at) => {
                            let bound = found[at].2;
                            prop_assert!(bound >= *score, "{bound} < {score}");
                            let least = scales.least(Margin::sum_above(bound), i, j);
                            prop_assert!(f64::from(least) <= f64::from(*score) * 32767.0 * 32767.0, "{bound} is far above {score}");
                        }
                        Err(_) => prop_assert!(*score < floors[i].min(floors[j]), "{kernel:?} drops {i}, {j}: {score}"),
                    }
                }
            }
            let bits: Vec<_> = found.iter().map(|(row, column, bound)| (*row, *column, bound.to_bits())).collect();
            prop_assert_eq!(first.get_or_insert_with(|| bits.clone()), &bits, "{:?}", kernel);
        }
    }

    #[test]
    fn rows_that_are_not_held_are_packed_like_those_that_are(
        seed in any::<u64>(), count in 1usize..40, columns in 1usize..70, element in 0usize..3,
    ) {
        let (element, fortran_order) = [(Element::F32, false), (Element::F64, false), (Element::F64, true)][element];
        let held = matrix(&kinds(seed, count, columns), element, fortran_order);
        let mut made = matrix(&kinds(seed, count, columns), element, fortran_order);
        prop_assert!(made.held.take().is_some());
        for kernel in Kernel::available() {
            let floors = vec![f32::NEG_INFINITY; count];
            let bits = |matrix| -> Vec<_> {
                passed(matrix, kernel, &floors).iter().map(|(row, column, bound)| (*row, *column, bound.to_bits())).collect()
            };
            prop_assert_eq!(bits(&held), bits(&made));
        }
    }
}

#[test]
fn errors_are_those_of_the_numbers() {
    let scale = Scale::of(&[19660, -26214, 0, 0, 0, 0, 0, 0], Vectors::best(), 1e-5);
    // 127 · 2¹⁵ / 26214
    assert_eq!(scale.multiplier, 158);
    assert!((f64::from(scale.step()) - 32768.0 / 158.0 / 32767.0).abs() < 1e-9);
    // They are 94.797 and -126.399 steps.
    let lost = 0.203f64.hypot(0.399) * f64::from(scale.step());
    let expected = (lost + 1e-5) * (1.0 + 2f64.powi(-12)) + 2f64.powi(-20);
    assert!((f64::from(scale.error) - expected).abs() < 1e-5, "{scale:?}");
    assert_eq!(Scale::of(&[0; 8], Vectors::best(), 1e-5), Scale::default());
}

#[test]
fn sums_of_the_most_columns_do_not_overflow() {
    for sign in [1.0, -1.0] {
        let rows = vec![vec![1.0; MOST_COLUMNS], vec![sign; MOST_COLUMNS]];
        let matrix = matrix(&rows, Element::F32, false);
        for kernel in Kernel::available() {
            let found = passed(&matrix, kernel, &[f32::NEG_INFINITY; 2]);
            let bound = f64::from(found[1].2);
            // So many equal numbers are 90.5 in 16-bit integers, which is off by some of a hundredth.
            assert!((0.0..0.03).contains(&(bound - sign)), "{kernel:?}: {found:?}");
        }
    }
    assert!(
        Scales::new(Vec::new(), MOST_COLUMNS).is_some()
            && Scales::new(Vec::new(), MOST_COLUMNS + 1).is_none()
    );
}
