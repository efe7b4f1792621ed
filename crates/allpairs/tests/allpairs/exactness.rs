//! Results against an oracle that computes every score by the definition and sorts all of them.

use crate::support::{bits, npy, npy_f64, oracle, oracle_score, run};
use proptest::prelude::*;
use std::io::Write;
use std::path::Path;
use zip::CompressionMethod;
use zip::write::SimpleFileOptions;

/// Numbers that bring float arithmetic to its limits, besides plain ones.
fn entry() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => (-4i8..=4).prop_map(f64::from),
        2 => -1.0..1.0f64,
        1 => prop::sample::select(vec![
            0.0, -0.0, 5e-324, -5e-324, 2.2e-308, 1e-300, -1e-300, 1e-30, 1e30, -1e30, 1e150, 1e300, -1e300,
            f64::MAX, f64::MIN, f64::MIN_POSITIVE, 1e-160,
        ]),
    ]
}

/// Rows of one length, among them zero rows, constant rows, copies, opposites, multiples and near-copies.
pub(crate) fn adversarial() -> impl Strategy<Value = Vec<Vec<f64>>> {
    (1usize..20, 1usize..40).prop_flat_map(|(columns, rows)| {
        let fresh = prop::collection::vec(entry(), columns);
        let step = (fresh, 0u8..10, any::<prop::sample::Index>());
        prop::collection::vec(step, rows).prop_map(|steps| {
            let mut matrix: Vec<Vec<f64>> = Vec::new();
            for (fresh, kind, index) in steps {
                let earlier = if matrix.is_empty() { fresh.clone() } else { index.get(&matrix).clone() };
                matrix.push(derived(fresh, kind, earlier));
            }
            matrix
        })
    })
}

fn derived(fresh: Vec<f64>, kind: u8, mut earlier: Vec<f64>) -> Vec<f64> {
    match kind {
        0 => earlier,
        1 => earlier.iter().map(|v| -v).collect(),
        2 => earlier.iter().map(|v| v * 0.5).collect(),
        3 => {
            earlier[0] = f64::from_bits(earlier[0].to_bits() ^ 1);
            if earlier[0].is_finite() { earlier } else { fresh }
        }
        4 => vec![0.0; fresh.len()],
        5 => vec![fresh[0]; fresh.len()],
        _ => fresh,
    }
}

fn channel(name: &str, bytes: &[u8]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs_err::write(folder.path().join(name), bytes).unwrap();
    folder
}

/// A compressed CSR archive that holds the rows, entries in falling order of their columns.
pub(crate) fn write_npz(path: &Path, rows: &[Vec<f64>]) {
    write_npz_by(CompressionMethod::Deflated, path, rows);
}

pub(crate) fn write_npz_by(method: CompressionMethod, path: &Path, rows: &[Vec<f64>]) {
    let (mut data, mut indices, mut indptr) = (Vec::new(), Vec::new(), vec![0i64]);
    for row in rows {
        for (column, value) in row.iter().enumerate().rev() {
            if *value != 0.0 || column % 3 == 0 {
                data.extend(value.to_le_bytes());
                indices.extend((column as i32).to_le_bytes());
            }
        }
        indptr.push((data.len() / 8) as i64);
    }
    let header = |descr: &str, shape: &str, bytes: &[u8]| {
        let two_dimensional = String::from_utf8(npy(descr, false, (0, 0), &[])[10..].to_vec()).unwrap();
        let text = two_dimensional.replace("(0, 0)", shape);
        let mut file = b"\x93NUMPY\x01\x00".to_vec();
        file.extend((text.len() as u16).to_le_bytes());
        file.extend(text.as_bytes());
        file.extend(bytes);
        file
    };
    let shape: Vec<u8> =
        [rows.len() as i64, rows[0].len() as i64].iter().flat_map(|v| v.to_le_bytes()).collect();
    let pointers: Vec<u8> = indptr.iter().flat_map(|v| v.to_le_bytes()).collect();
    let mut archive = zip::ZipWriter::new(fs_err::File::create(path).unwrap());
    let members = [
        ("indices", header("<i4", &format!("({},)", data.len() / 8), &indices)),
        ("indptr", header("<i8", &format!("({},)", indptr.len()), &pointers)),
        ("format", header("|S3", "()", b"csr")),
        ("shape", header("<i8", "(2,)", &shape)),
        ("data", header("<f8", &format!("({},)", data.len() / 8), &data)),
    ];
    for (name, bytes) in members {
        let options = SimpleFileOptions::default().compression_method(method);
        archive.start_file(format!("{name}.npy"), options).unwrap();
        archive.write_all(&bytes).unwrap();
    }
    archive.finish().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn adversarial_rows_get_exactly_the_neighbours_of_the_definition(
        rows in adversarial(),
        top_k in prop::option::of(1usize..45),
        threshold in prop::option::of(prop::sample::select(vec!["-1", "-0.25", "0", "0.5", "0.999", "1"])),
        hosts in 1usize..5,
        threads in 1usize..3,
    ) {
        let top_k = if threshold.is_none() { top_k.or(Some(10)) } else { top_k };
        let expected = bits(&oracle(&rows, top_k, threshold.map(|t| t.parse().unwrap())));
        let top_k = top_k.map(|k| k.to_string());
        let mut hyperparameters = vec![("metric", "cosine")];
        hyperparameters.extend(top_k.as_deref().map(|k| ("top_k", k)));
        hyperparameters.extend(threshold.map(|t| ("threshold", t)));

        let dense = channel("rows.npy", &npy_f64(&rows));
        prop_assert_eq!(&bits(&run(dense.path(), &hyperparameters, hosts, threads)), &expected);

        let sparse = tempfile::tempdir().unwrap();
        write_npz(&sparse.path().join("rows.npz"), &rows);
        prop_assert_eq!(&bits(&run(sparse.path(), &hyperparameters, hosts, threads)), &expected);
    }

    #[test]
    fn a_score_is_that_of_the_rows_divided_by_their_largest_entries(
        x in prop::collection::vec(-1.0..1.0f64, 5),
        y in prop::collection::vec(-1.0..1.0f64, 5),
        power in prop::sample::select(vec![-1000i32, -300, 0, 300, 1000]),
    ) {
        let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(a, b)| a * b).sum::<f64>();
        let expected = dot(&x, &y) / (dot(&x, &x) * dot(&y, &y)).sqrt();
        let huge: Vec<f64> = x.iter().map(|v| v * 2f64.powi(power)).collect();
        prop_assert!((f64::from(oracle_score(&huge, &y)) - expected).abs() < 1e-6);
        let channel = channel("rows.npy", &npy_f64(&[huge, y]));
        let found = run(channel.path(), &[], 1, 1);
        prop_assert!((f64::from(found[0].similarity) - expected).abs() < 1e-6);
    }
}

#[test]
fn copies_score_exactly_one_and_opposites_exactly_minus_one() {
    let row = |seed: usize| -> Vec<f64> { (0..100).map(|c| ((seed * 131 + c * 17) as f64).sin()).collect() };
    let mut rows: Vec<Vec<f64>> = (0..50).map(row).collect();
    rows.extend((0..50).map(row));
    rows.extend((0..50).map(|seed| row(seed).iter().map(|v| -v).collect::<Vec<f64>>()));
    let channel = channel("rows.npy", &npy_f64(&rows));
    let found = run(channel.path(), &[("top_k", "149")], 1, 2);
    for of_row in found.chunks(149) {
        let row = of_row[0].row;
        let same: Vec<i64> = of_row.iter().filter(|p| p.similarity == 1.0).map(|p| p.col).collect();
        let opposite: Vec<i64> = of_row.iter().filter(|p| p.similarity == -1.0).map(|p| p.col).collect();
        let expected_same = if row < 100 { vec![(row + 50) % 100] } else { vec![] };
        let expected_opposite = if row < 100 { vec![100 + row % 50] } else { vec![row - 100, row - 50] };
        assert_eq!((same, opposite), (expected_same, expected_opposite), "row {row}");
    }
}

#[test]
fn the_first_neighbours_of_a_longer_list_are_the_shorter_list() {
    let rows: Vec<Vec<f64>> = (0..200).map(|r| vec![f64::from(r % 3), f64::from(r % 5), 1.0]).collect();
    let channel = channel("rows.npy", &npy_f64(&rows));
    let long = run(channel.path(), &[("top_k", "150")], 1, 1);
    let short = run(channel.path(), &[("top_k", "7")], 1, 1);
    let prefixes: Vec<_> = long.chunks(150).flat_map(|of_row| of_row[..7].to_vec()).collect();
    assert_eq!(bits(&short), bits(&prefixes));
}

#[test]
fn float32_rows_score_as_the_same_rows_in_float64() {
    let rows: Vec<Vec<f64>> = (0..40)
        .map(|r| {
            (0..13).map(|c| f64::from(((r * 31 + c * 7) as f32).cos() * 10f32.powi(r % 9 * 8 - 37))).collect()
        })
        .collect();
    let narrow: Vec<u8> = rows.iter().flatten().flat_map(|v| (*v as f32).to_le_bytes()).collect();
    let narrow = channel("rows.npy", &npy("<f4", false, (40, 13), &narrow));
    let wide = channel("rows.npy", &npy_f64(&rows));
    assert_eq!(bits(&run(narrow.path(), &[], 1, 1)), bits(&run(wide.path(), &[], 1, 1)));
}

#[test]
fn thousands_of_equal_rows_are_listed_by_their_numbers() {
    let rows = vec![vec![0.1, 0.7, -0.3]; 3000];
    let channel = channel("rows.npy", &npy_f64(&rows));
    let found = run(channel.path(), &[("top_k", "3")], 2, 2);
    assert_eq!(found.len(), 9000);
    for of_row in found.chunks(3) {
        let expected: Vec<i64> = (0..4).filter(|col| *col != of_row[0].row).take(3).collect();
        assert_eq!(of_row.iter().map(|p| p.col).collect::<Vec<_>>(), expected);
        assert!(of_row.iter().all(|p| p.similarity == 1.0));
    }
}
