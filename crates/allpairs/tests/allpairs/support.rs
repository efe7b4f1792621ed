//! Matrices as files, runs of any number of hosts, and a plain oracle to compare them with.

use arrow::array::{Array, AsArray};
use arrow::datatypes::{Float32Type, Int64Type};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use trainyard_allpairs::{TrainError, TrainInput, TrainReport, train};
use trainyard_merge::{MergeOptions, merge};

/// One line of a result.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Pair {
    pub(crate) row: i64,
    pub(crate) col: i64,
    pub(crate) similarity: f32,
}

/// The bytes of a .npy file.
pub(crate) fn npy(descr: &str, fortran_order: bool, shape: (usize, usize), numbers: &[u8]) -> Vec<u8> {
    let order = if fortran_order { "True" } else { "False" };
    let text =
        format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': ({}, {}), }}\n", shape.0, shape.1);
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend_from_slice(&(text.len() as u16).to_le_bytes());
    file.extend_from_slice(text.as_bytes());
    file.extend_from_slice(numbers);
    file
}

/// A matrix of float64 as a .npy file.
pub(crate) fn npy_f64(rows: &[Vec<f64>]) -> Vec<u8> {
    let numbers: Vec<u8> = rows.iter().flatten().flat_map(|v| v.to_le_bytes()).collect();
    npy("<f8", false, (rows.len(), rows.first().map_or(0, Vec::len)), &numbers)
}

/// Runs one host.
pub(crate) fn run_host(
    matrix: &Path,
    hyperparameters: &[(&str, &str)],
    (rank, world_size): (usize, usize),
    threads: usize,
    output: &Path,
) -> Result<TrainReport, TrainError> {
    let map: BTreeMap<String, String> =
        hyperparameters.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    train(&TrainInput {
        matrix,
        query: None,
        hyperparameters: &map,
        host: &format!("algo-{}", rank + 1),
        rank,
        world_size,
        output,
        checkpoints: None,
        threads: NonZeroUsize::new(threads),
        stop: &AtomicBool::new(false),
        progress: &|_| {},
        note: &|_| {},
    })
}

/// Runs all hosts and merges their parts.
pub(crate) fn run(
    matrix: &Path,
    hyperparameters: &[(&str, &str)],
    hosts: usize,
    threads: usize,
) -> Vec<Pair> {
    let output = tempfile::tempdir().unwrap();
    let mut pairs = Vec::new();
    for rank in 0..hosts {
        let report = run_host(matrix, hyperparameters, (rank, hosts), threads, output.path()).unwrap();
        let part = read_part(&output.path().join(format!("part-algo-{}.parquet", rank + 1)));
        assert_eq!(report.pairs, part.len() as u64);
        pairs.extend(part);
    }
    if hosts == 1 { pairs } else { read_part(&merged(output.path())) }
}

/// Merges the parts in a folder and returns the result.
pub(crate) fn merged(parts: &Path) -> std::path::PathBuf {
    let result = parts.join("merged.parquet");
    let options = MergeOptions { glob: Some("part-*.parquet".into()), ..MergeOptions::default() };
    merge(parts, &result, &options, &|_| {}).unwrap();
    result
}

/// Reads a part back.
pub(crate) fn read_part(path: &Path) -> Vec<Pair> {
    let file = fs_err::File::open(path).unwrap().into_parts().0;
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap();
    let mut pairs = Vec::new();
    for batch in reader {
        let batch = batch.unwrap();
        let names: Vec<_> = batch.schema_ref().fields().iter().map(|f| f.name().clone()).collect();
        assert_eq!(names, ["row", "col", "similarity"]);
        let (row, col) =
            (batch.column(0).as_primitive::<Int64Type>(), batch.column(1).as_primitive::<Int64Type>());
        let similarity = batch.column(2).as_primitive::<Float32Type>();
        for at in 0..batch.num_rows() {
            pairs.push(Pair { row: row.value(at), col: col.value(at), similarity: similarity.value(at) });
        }
        assert_eq!(row.null_count(), 0);
    }
    pairs
}

/// Bits of a result, to be compared without the leniency of floating-point equality.
pub(crate) fn bits(pairs: &[Pair]) -> Vec<(i64, i64, u32)> {
    pairs.iter().map(|p| (p.row, p.col, p.similarity.to_bits())).collect()
}

/// The documented score, written down anew: lanes by column, no tiles, no tricks.
pub(crate) fn oracle_score(x: &[f64], y: &[f64]) -> f32 {
    fn scaled(row: &[f64]) -> Vec<f64> {
        let mut row = row.to_vec();
        let largest = |row: &[f64]| row.iter().fold(0.0f64, |m, v| m.max(v.abs()));
        while largest(&row) >= 2.0 {
            row.iter_mut().for_each(|v| *v *= 0.5);
        }
        while largest(&row) < 1.0 && largest(&row) > 0.0 {
            row.iter_mut().for_each(|v| *v *= 2.0);
        }
        row
    }
    fn dot(x: &[f64], y: &[f64]) -> f64 {
        let lane = |l: usize| {
            let mut sum = 0.0;
            for c in (l..x.len()).step_by(8) {
                let product = x[c] * y[c];
                sum += product;
            }
            sum
        };
        ((lane(0) + lane(4)) + (lane(2) + lane(6))) + ((lane(1) + lane(5)) + (lane(3) + lane(7)))
    }
    let (x, y) = (scaled(x), scaled(y));
    let norms = dot(&x, &x).sqrt() * dot(&y, &y).sqrt();
    if norms == 0.0 { 0.0 } else { (dot(&x, &y) / norms).clamp(-1.0, 1.0) as f32 + 0.0 }
}

/// The neighbours of all rows by the rules, from all scores.
pub(crate) fn oracle(rows: &[Vec<f64>], top_k: Option<usize>, threshold: Option<f32>) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for (row, x) in rows.iter().enumerate() {
        let mut of_row: Vec<Pair> = rows
            .iter()
            .enumerate()
            .filter(|(col, _)| *col != row)
            .map(|(col, y)| Pair { row: row as i64, col: col as i64, similarity: oracle_score(x, y) })
            .filter(|pair| threshold.is_none_or(|t| pair.similarity >= t))
            .collect();
        of_row.sort_by(|a, b| b.similarity.partial_cmp(&a.similarity).unwrap().then(a.col.cmp(&b.col)));
        of_row.truncate(top_k.unwrap_or(usize::MAX));
        pairs.extend(of_row);
    }
    pairs
}
