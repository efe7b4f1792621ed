//! Hosts that share out pairs: their merged result is that of hosts that share out rows, byte for byte.

use crate::support::{merged, npy_f64, read_part, run_host};
use std::path::Path;
use trainyard_allpairs::TrainReport;

/// Rows in clusters: copies, multiples, near-copies, zero rows; half of the entries are zero.
fn rows(count: usize, columns: usize) -> Vec<Vec<f64>> {
    let entry = |row: usize, column: usize| {
        let seed = (row % 23) * 7919 + column * 104_729;
        if seed.is_multiple_of(2) { 0.0 } else { ((seed % 1009) as f64 - 504.0) / 97.0 }
    };
    let row = |row: usize| {
        let factor = if row % 31 == 30 { 0.0 } else { [1.0, 0.5, 1.0 + 1e-9, 3.0][row / 23 % 4] };
        let nudge = if row.is_multiple_of(5) { 1e-7 } else { 0.0 };
        (0..columns).map(|column| entry(row, column) * (factor + nudge * column as f64)).collect()
    };
    (0..count).map(row).collect()
}

fn channel(sparse: bool) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let rows = rows(400, 13);
    if sparse {
        crate::exactness::write_npz(&folder.path().join("rows.npz"), &rows);
    } else {
        fs_err::write(folder.path().join("rows.npy"), npy_f64(&rows)).unwrap();
    }
    folder
}

/// The bytes of the merged result and the reports of all hosts.
fn result(matrix: &Path, settings: &[(&str, &str)], hosts: usize) -> (Vec<u8>, Vec<TrainReport>) {
    let output = tempfile::tempdir().unwrap();
    let report = |rank| run_host(matrix, settings, (rank, hosts), 1 + rank % 2, output.path()).unwrap();
    let reports = (0..hosts).map(report).collect();
    (fs_err::read(merged(output.path())).unwrap(), reports)
}

const TASKS: [&[(&str, &str)]; 4] = [
    &[("top_k", "7")],
    &[("top_k", "20"), ("threshold", "0.3")],
    &[("threshold", "0.9")],
    &[("threshold", "0.35")],
];

#[test]
fn merged_bytes_are_the_same_for_any_number_of_hosts_symmetric_or_not() {
    for sparse in [false, true] {
        let channel = channel(sparse);
        for task in TASKS {
            let (expected, _) = result(channel.path(), task, 1);
            for hosts in [2, 3, 4, 7] {
                for symmetric in ["true", "false"] {
                    let task = [task, &[("symmetric", symmetric)]].concat();
                    let (found, reports) = result(channel.path(), &task, hosts);
                    assert!(found == expected, "{task:?}, {hosts} hosts, sparse {sparse}");
                    assert!(
                        reports.iter().all(|report| report.symmetric == (symmetric == "true")),
                        "{task:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn hosts_share_out_pairs_unless_something_speaks_against_it() {
    let channel = channel(false);
    let symmetric = |settings: &[(&str, &str)], hosts| {
        let output = tempfile::tempdir().unwrap();
        run_host(channel.path(), settings, (0, hosts), 1, output.path()).unwrap().symmetric
    };
    assert!(symmetric(&[("top_k", "3")], 2));
    assert!(symmetric(&[("threshold", "0.5")], 70));
    assert!(!symmetric(&[("top_k", "3")], 1), "one host");
    assert!(!symmetric(&[("top_k", "3")], 65), "many lists");
    assert!(symmetric(&[("top_k", "3"), ("symmetric", "true")], 65), "asked for");
    assert!(!symmetric(&[("top_k", "3"), ("symmetric", "false")], 2), "asked not to");
    assert!(!symmetric(&[("top_k", "300")], 2), "most pairs are wanted");
    assert!(!symmetric(&[("threshold", "-0.5")], 2), "most pairs are wanted");
    assert!(!symmetric(&[("top_k", "3"), ("mutual", "true")], 2), "whole lists are needed");
    assert!(!symmetric(&[("top_k", "3"), ("format", "csv"), ("symmetric", "true")], 2), "not Parquet");
}

#[test]
fn a_pair_above_a_threshold_is_written_by_one_host_for_one_row() {
    let channel = channel(false);
    let output = tempfile::tempdir().unwrap();
    let mut seen = Vec::new();
    for rank in 0..4 {
        run_host(channel.path(), &[("threshold", "0.8")], (rank, 4), 1, output.path()).unwrap();
        let part = read_part(&output.path().join(format!("part-algo-{}.parquet", rank + 1)));
        seen.extend(part.iter().map(|pair| (pair.row.min(pair.col), pair.row.max(pair.col))));
    }
    let count = seen.len();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), count);
    assert_eq!(2 * count, read_part(&merged(output.path())).len());
}

#[test]
fn lists_are_not_combined_while_those_of_a_host_are_missing() {
    let channel = channel(false);
    let output = tempfile::tempdir().unwrap();
    for rank in [0, 2] {
        run_host(channel.path(), &[("top_k", "3")], (rank, 3), 1, output.path()).unwrap();
    }
    let merge = || {
        let options = trainyard_merge::MergeOptions::default();
        let result = output.path().join("merged.parquet");
        std::fs::remove_file(output.path().join("report-algo-1.json")).ok();
        trainyard_merge::merge(output.path(), &result, &options, &|_| {}).unwrap_err()
    };
    assert_eq!(
        merge().to_string(),
        "the parts hold lists that are to be combined, and those of instance 2 of 3 are missing"
    );
    run_host(channel.path(), &[("top_k", "4")], (1, 3), 1, output.path()).unwrap();
    let error = merge();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains("other settings"), "{error}: {source}");
}
