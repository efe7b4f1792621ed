//! Real matrices with answers computed elsewhere: the handwritten digits, and larger ones if they are there.

use crate::support::{Pair, bits, run, run_host};
use std::path::{Path, PathBuf};

const HOSTS: [usize; 5] = [1, 2, 3, 7, 12];

fn answers(path: &Path) -> Vec<Pair> {
    let text = fs_err::read_to_string(path).unwrap();
    let pair = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        Pair {
            row: fields[0].parse().unwrap(),
            col: fields[1].parse().unwrap(),
            similarity: fields[2].parse().unwrap(),
        }
    };
    text.lines().skip(1).map(pair).collect()
}

fn assert_same(found: &[Pair], answers: &[Pair]) {
    assert_eq!(found.len(), answers.len());
    for (found, answer) in found.iter().zip(answers) {
        assert_eq!((found.row, found.col), (answer.row, answer.col), "{found:?} {answer:?}");
        assert_eq!(found.similarity.to_bits(), answer.similarity.to_bits(), "{found:?} {answer:?}");
    }
}

/// A folder that holds one of the committed files only.
fn channel(file: &Path) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs_err::copy(file, folder.path().join(file.file_name().unwrap())).unwrap();
    folder
}

fn digits() -> tempfile::TempDir {
    channel(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/digits/digits.npy"))
}

#[test]
fn digits_have_the_known_neighbours_however_many_hosts_and_threads() {
    let channel = digits();
    let answers = answers(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/digits-top10.csv"));
    assert_eq!(answers.len(), 17_970);
    let one = run(channel.path(), &[("top_k", "10")], 1, 1);
    assert_same(&one, &answers);
    for hosts in HOSTS {
        for threads in [1, 2] {
            for symmetric in ["true", "false"] {
                let found = run(channel.path(), &[("symmetric", symmetric)], hosts, threads);
                assert_eq!(
                    bits(&found),
                    bits(&one),
                    "{hosts} hosts, {threads} threads, symmetric {symmetric}"
                );
            }
        }
    }
}

#[test]
fn a_part_is_the_same_bytes_for_any_number_of_threads() {
    let channel = digits();
    let part = |threads| {
        let output = tempfile::tempdir().unwrap();
        run_host(channel.path(), &[("threshold", "0.8")], (1, 3), threads, output.path()).unwrap();
        fs_err::read(output.path().join("part-algo-2.parquet")).unwrap()
    };
    assert_eq!(part(1), part(2));
    assert_eq!(part(1), part(5));
}

/// The larger matrices are no part of the sources; the folder that holds them is named from outside.
fn large(name: &str) -> Option<PathBuf> {
    let Some(folder) = std::env::var_os("TRAINYARD_LARGE_MATRICES") else {
        eprintln!("skipped: TRAINYARD_LARGE_MATRICES names no folder with {name}");
        return None;
    };
    Some(Path::new(&folder).join(name))
}

fn assert_sample(found: &[Pair], sample: &[Pair]) {
    let mut rows: Vec<i64> = sample.iter().map(|pair| pair.row).collect();
    rows.dedup();
    let found: Vec<Pair> =
        found.iter().filter(|pair| rows.binary_search(&pair.row).is_ok()).copied().collect();
    assert_same(&found, sample);
}

/// Compares a result with those of other numbers of hosts and threads, bit for bit.
fn assert_same_for_all_hosts(channel: &Path, settings: &[(&str, &str)], expected: &[Pair]) {
    for hosts in HOSTS {
        for (threads, symmetric) in [(1, "true"), (2, "true"), (1, "false"), (2, "false")] {
            let found = run(channel, &[settings, &[("symmetric", symmetric)]].concat(), hosts, threads);
            assert!(
                bits(&found) == bits(expected),
                "{hosts} hosts, {threads} threads, symmetric {symmetric}"
            );
        }
    }
}

#[test]
fn word_pieces_have_the_known_neighbours() {
    let Some(file) = large("wordpieces.npy") else { return };
    let channel = channel(&file);
    let found = run(channel.path(), &[("top_k", "10")], 1, 2);
    assert_sample(&found, &answers(&file.with_file_name("wordpieces-top10-sample.csv")));
    assert_same_for_all_hosts(channel.path(), &[("top_k", "10")], &found);
}

#[test]
fn word_pieces_have_the_known_number_of_pairs_above_a_threshold() {
    let Some(file) = large("wordpieces.npy") else { return };
    let channel = channel(&file);
    let found = run(channel.path(), &[("threshold", "0.7")], 1, 2);
    assert_eq!(found.iter().filter(|pair| pair.row < pair.col).count(), 1_610_484);
    assert_eq!(found.len(), 2 * 1_610_484);
    assert_same_for_all_hosts(channel.path(), &[("threshold", "0.7")], &found);
}

#[test]
fn wordnet_has_the_known_neighbours() {
    let Some(file) = large("wordnet-tfidf.npz") else { return };
    let channel = channel(&file);
    let found = run(channel.path(), &[("top_k", "10"), ("threshold", "0.3")], 1, 2);
    assert_sample(&found, &answers(&file.with_file_name("wordnet-top10-min0.3-sample.csv")));
    assert_same_for_all_hosts(channel.path(), &[("top_k", "10"), ("threshold", "0.3")], &found);
}
