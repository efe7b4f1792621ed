//! What can be asked for beside the nearest rows, against an oracle that computes every score by the definition.

use crate::exactness::{adversarial, write_npz};
use crate::formats::read_labels;
use crate::inputs::channel;
use crate::support::{Pair, bits, npy_f64, oracle, oracle_score, read_part, run, run_host};
use proptest::prelude::*;
use std::collections::{BTreeMap, HashSet};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use trainyard_allpairs::{Checkpoints, TrainError, TrainInput, TrainReport, neighbours_of, train};

/// A run with everything that can be given.
struct Given<'a> {
    matrix: &'a Path,
    query: Option<&'a Path>,
    hyperparameters: &'a [(&'a str, &'a str)],
    share: (usize, usize),
    checkpoints: Option<Checkpoints<'a>>,
    output: &'a Path,
}

impl Given<'_> {
    fn run(&self) -> Result<TrainReport, TrainError> {
        let pairs = self.hyperparameters.iter();
        let hyperparameters: BTreeMap<_, _> =
            pairs.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        train(&TrainInput {
            matrix: self.matrix,
            query: self.query,
            hyperparameters: &hyperparameters,
            host: &format!("algo-{}", self.share.0 + 1),
            rank: self.share.0,
            world_size: self.share.1,
            output: self.output,
            checkpoints: self.checkpoints,
            threads: NonZeroUsize::new(2),
            stop: &AtomicBool::new(false),
            progress: &|_| {},
            note: &|_| {},
        })
    }
}

fn matrix(rows: &[Vec<f64>]) -> tempfile::TempDir {
    channel(&[("m.npy", &npy_f64(rows))])
}

/// The pairs of a query by the rules, from all scores.
fn query_oracle(query: &[Vec<f64>], rows: &[Vec<f64>], top_k: usize, threshold: f32) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for (row, x) in query.iter().enumerate() {
        let mut of_row: Vec<Pair> = rows
            .iter()
            .enumerate()
            .map(|(col, y)| Pair { row: row as i64, col: col as i64, similarity: oracle_score(x, y) })
            .filter(|pair| pair.similarity >= threshold)
            .collect();
        of_row.sort_by(|a, b| b.similarity.total_cmp(&a.similarity).then(a.col.cmp(&b.col)));
        of_row.truncate(top_k);
        pairs.extend(of_row);
    }
    pairs
}

/// A matrix of floats as NumPy reads it.
fn read_npy(path: &Path) -> (usize, usize, Vec<f32>) {
    let bytes = fs_err::read(path).unwrap();
    let end = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let header = std::str::from_utf8(&bytes[10..end]).unwrap();
    assert!(header.starts_with("{'descr': '<f4', 'fortran_order': False, 'shape': ("), "{header}");
    let shape = header.split_once("'shape': (").unwrap().1.split_once(')').unwrap().0;
    let (rows, columns) = shape.split_once(", ").unwrap();
    let numbers = bytes[end..].as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    (rows.parse().unwrap(), columns.parse().unwrap(), numbers)
}

fn full(rows: &[Vec<f64>], hyperparameters: &[(&str, &str)], hosts: usize) -> Vec<f32> {
    let (folder, output) = (matrix(rows), tempfile::tempdir().unwrap());
    let mut all = Vec::new();
    for rank in 0..hosts {
        let given = [&[("full", "true")], hyperparameters].concat();
        let report = run_host(folder.path(), &given, (rank, hosts), 2, output.path()).unwrap();
        let (height, width, scores) = read_npy(&output.path().join(format!("part-algo-{}.npy", rank + 1)));
        assert_eq!((height as u64, width), (report.rows, rows.len()));
        assert_eq!(report.pairs, scores.len() as u64);
        assert_eq!(report.scores.counts.iter().sum::<u64>(), report.pairs);
        all.extend(scores);
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_pair_is_listed_once_with_its_lower_row(rows in adversarial(), hosts in 1usize..4) {
        let threshold = 0.25;
        let mut expected = oracle(&rows, None, Some(threshold));
        expected.retain(|pair| pair.row < pair.col);
        let found = run(matrix(&rows).path(), &[("threshold", "0.25"), ("pairs", "once")], hosts, 1);
        prop_assert_eq!(bits(&found), bits(&expected));
    }

    #[test]
    fn mutual_pairs_are_in_both_lists(rows in adversarial(), top_k in 1usize..5, hosts in 1usize..4, once in any::<bool>()) {
        let mut expected = oracle(&rows, Some(top_k), None);
        let all: HashSet<_> = expected.iter().map(|pair| (pair.row, pair.col)).collect();
        expected.retain(|pair| all.contains(&(pair.col, pair.row)) && (!once || pair.row < pair.col));
        let listing = if once { "once" } else { "twice" };
        let given = [("top_k", &*top_k.to_string()), ("mutual", "true"), ("pairs", listing)];
        prop_assert_eq!(bits(&run(matrix(&rows).path(), &given, hosts, 1)), bits(&expected));
    }

    #[test]
    fn rows_of_a_query_meet_those_of_the_matrix_and_no_others(
        rows in adversarial(), cut in any::<prop::sample::Index>(), top_k in 1usize..5, hosts in 1usize..4,
        threshold in prop::sample::select(vec!["-1", "0", "0.5"]),
    ) {
        let (query, rows) = rows.split_at(cut.index(rows.len()));
        if query.is_empty() {
            return Ok(());
        }
        let expected = query_oracle(query, rows, top_k, threshold.parse().unwrap());
        let (folder, of_query) = (matrix(rows), matrix(query));
        let output = tempfile::tempdir().unwrap();
        let mut found = Vec::new();
        for rank in 0..hosts {
            let given = [("top_k", &*top_k.to_string()), ("threshold", threshold)];
            let report = Given {
                matrix: folder.path(), query: Some(of_query.path()), hyperparameters: &given, share: (rank, hosts),
                checkpoints: None, output: output.path(),
            }.run().unwrap();
            prop_assert_eq!(report.query_rows, Some(query.len() as u64));
            prop_assert_eq!(report.compared_pairs, report.rows * rows.len() as u64);
            found.extend(read_part(&output.path().join(format!("part-algo-{}.parquet", rank + 1))));
        }
        prop_assert_eq!(bits(&found), bits(&expected));
    }

    #[test]
    fn the_whole_matrix_has_every_score_to_float32(rows in adversarial(), hosts in 1usize..4) {
        let found = full(&rows, &[], hosts);
        prop_assert_eq!(found.len(), rows.len() * rows.len());
        for (at, score) in found.iter().enumerate() {
            let (x, y) = (&rows[at / rows.len()], &rows[at % rows.len()]);
            let exact = oracle_score(x, y);
            prop_assert!((score - exact).abs() <= 4e-6 && score.abs() <= 1.0, "{} instead of {}", score, exact);
            if exact.abs() == 1.0 && x.iter().zip(y).all(|(x, y)| x == y) {
                prop_assert_eq!(*score, 1.0);
            }
        }
        let distances = full(&rows, &[("output", "distance")], 1);
        let expected: Vec<f32> = found.iter().map(|score| (1.0 - f64::from(*score)) as f32).collect();
        prop_assert_eq!(distances, expected);
    }
}

#[test]
fn distances_are_from_zero_to_two_in_the_order_of_the_scores() {
    let rows = [vec![1.0, 0.0], vec![2.0, 0.0], vec![-3.0, 0.0], vec![1.0, 1.0], vec![0.0, 0.0]];
    let (folder, output) = (matrix(&rows), tempfile::tempdir().unwrap());
    let given = [("output", "distance"), ("top_k", "4")];
    run_host(folder.path(), &given, (0, 1), 1, output.path()).unwrap();
    let found = neighbours_of(&output.path().join("part-algo-1.parquet"), "0").unwrap();
    assert_eq!(found.measure, "distance");
    let listed: Vec<_> = found.neighbours.iter().map(|n| (n.number.unwrap(), n.value)).collect();
    let root_half = (1.0 - f64::from(0.5f64.sqrt() as f32)) as f32;
    assert_eq!(listed, [(1, 0.0), (3, root_half), (4, 1.0), (2, 2.0)]);
}

#[test]
fn the_whole_matrix_is_the_same_bytes_for_any_number_of_hosts_and_threads() {
    let sine = |r: i32, c: i32| f64::from(((r * 37 + c * 11) as f32).sin());
    let rows: Vec<Vec<f64>> = (0..301).map(|r| (0..37).map(|c| sine(r, c)).collect()).collect();
    let one = full(&rows, &[], 1);
    for hosts in [2, 3, 7] {
        assert!(full(&rows, &[], hosts) == one, "{hosts} hosts");
    }
    let (dense, sparse) = (matrix(&rows), tempfile::tempdir().unwrap());
    write_npz(&sparse.path().join("m.npz"), &rows);
    for folder in [&dense, &sparse] {
        let of_threads = [1, 2, 5].map(|threads| {
            let output = tempfile::tempdir().unwrap();
            let report =
                run_host(folder.path(), &[("full", "true")], (0, 1), threads, output.path()).unwrap();
            (fs_err::read(output.path().join("part-algo-1.npy")).unwrap(), report.scores)
        });
        assert!(of_threads.iter().all(|of| *of == of_threads[0]));
    }
}

#[test]
fn a_stop_ends_the_writing_of_the_whole_matrix_and_leaves_nothing() {
    let rows: Vec<Vec<f64>> = (0..500).map(|r| vec![f64::from(r), 1.0]).collect();
    let (folder, output) = (matrix(&rows), tempfile::tempdir().unwrap());
    let stop = AtomicBool::new(false);
    let ended = train(&TrainInput {
        matrix: folder.path(),
        query: None,
        hyperparameters: &BTreeMap::from([("full".to_owned(), "true".to_owned())]),
        host: "algo-1",
        rank: 0,
        world_size: 1,
        output: output.path(),
        checkpoints: None,
        threads: NonZeroUsize::new(2),
        stop: &stop,
        progress: &|_| stop.store(true, Ordering::Relaxed),
        note: &|_| {},
    });
    assert!(matches!(ended, Err(TrainError::Stopped)));
    assert_eq!(fs_err::read_dir(output.path()).unwrap().count(), 0);
}

#[test]
fn a_whole_matrix_above_the_limit_is_refused_with_its_size() {
    let rows = vec![1u8; 60_000];
    let folder = channel(&[("m.npy", &crate::support::npy("|i1", false, (60_000, 1), &rows))]);
    let output = tempfile::tempdir().unwrap();
    let error = run_host(folder.path(), &[("full", "true")], (0, 1), 1, output.path()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "all scores of 60000 x 60000 rows take 14400000000 bytes (13.4 GiB) on this instance, which is above the \
         limit of 10 GiB: `force` writes them all the same"
    );
    assert_eq!(fs_err::read_dir(output.path()).unwrap().count(), 0);
}

#[test]
fn a_query_with_ids_meets_a_matrix_with_ids() {
    let folder = channel(&[("m.csv", b"id,x,y\na,1,0\nb,0,1\nc,-1,0\n")]);
    let query = channel(&[("q.csv", b"id,x,y\n7,2,0\n9,1,5\n")]);
    let output = tempfile::tempdir().unwrap();
    let given = Given {
        matrix: folder.path(),
        query: Some(query.path()),
        hyperparameters: &[("top_k", "2")],
        share: (0, 1),
        checkpoints: None,
        output: output.path(),
    };
    given.run().unwrap();
    let pair = |row: &str, col: &str| (row.to_owned(), col.to_owned());
    let expected = [pair("7", "a"), pair("7", "b"), pair("9", "b"), pair("9", "a")];
    assert_eq!(read_labels(&output.path().join("part-algo-1.parquet")), expected);
    let refused = Given { hyperparameters: &[("mutual", "true")], ..given }.run().unwrap_err().to_string();
    assert!(
        refused.starts_with("hyperparameter `mutual` does not go with the channel `query`: "),
        "{refused}"
    );
}

#[test]
fn a_row_that_is_not_finite_is_named_in_the_matrix_it_is_in() {
    let (good, bad) = (channel(&[("m.csv", b"1,2\n3,4\n")]), channel(&[("q.csv", b"1,2\n3,inf\n")]));
    let output = tempfile::tempdir().unwrap();
    let given = |matrix, query| Given {
        matrix,
        query: Some(query),
        hyperparameters: &[],
        share: (0, 1),
        checkpoints: None,
        output: output.path(),
    };
    let message = given(good.path(), bad.path()).run().unwrap_err().to_string();
    assert!(message.starts_with("row 1 of the query, column 1 is infinite"), "{message}");
    let message = given(bad.path(), good.path()).run().unwrap_err().to_string();
    assert!(message.starts_with("row 1 of the matrix, column 1 is infinite"), "{message}");
}

#[test]
fn a_stop_ends_the_decoding_of_every_kind_of_file() {
    let table = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tables");
    for name in ["pandas-index.parquet", "lz4.feather", "numpy.csv", "fortran.npy", "../csr-i4.npz"] {
        let folder = channel(&[(name.trim_start_matches("../"), &fs_err::read(table.join(name)).unwrap())]);
        let output = tempfile::tempdir().unwrap();
        let outcome = train(&TrainInput {
            matrix: folder.path(),
            query: None,
            hyperparameters: &BTreeMap::new(),
            host: "algo-1",
            rank: 0,
            world_size: 1,
            output: output.path(),
            checkpoints: None,
            threads: None,
            stop: &AtomicBool::new(true),
            progress: &|_| {},
            note: &|_| {},
        });
        assert!(matches!(outcome, Err(TrainError::Stopped)), "{name}: {outcome:?}");
        assert_eq!(fs_err::read_dir(output.path()).unwrap().count(), 0);
    }
}

fn clustered(count: usize) -> Vec<Vec<f64>> {
    (0..count)
        .map(|r| (0..9).map(|c| f64::from(((r % 17 * 31 + c * 7 + r / 40) as f32).cos())).collect())
        .collect()
}

#[test]
fn work_goes_on_behind_the_blocks_that_are_finished_with_the_same_bytes() {
    let folder = matrix(&clustered(230));
    let kept = tempfile::tempdir().unwrap();
    let checkpoints = |rows| Some(Checkpoints { folder: kept.path(), block_rows: NonZeroUsize::new(rows) });
    // Whole lists are compared: those of hosts that share out pairs are made whole by the merge only.
    let asked: [&[(&str, &str)]; 3] = [
        &[("top_k", "3"), ("symmetric", "false")],
        &[("threshold", "0.9"), ("symmetric", "false")],
        &[("top_k", "3"), ("mutual", "true")],
    ];
    for hyperparameters in asked {
        let part = |checkpoints| {
            let output = tempfile::tempdir().unwrap();
            let given = Given {
                matrix: folder.path(),
                query: None,
                hyperparameters,
                share: (1, 2),
                checkpoints,
                output: output.path(),
            };
            given.run().map(|report| {
                (report.pairs, fs_err::read(output.path().join("part-algo-2.parquet")).unwrap())
            })
        };
        let without = part(None).unwrap();
        assert_eq!(part(checkpoints(50)).unwrap(), without);
        let blocks = kept.path().join("allpairs-algo-2");
        let count = if hyperparameters[1].0 == "mutual" { 5 } else { 3 };
        assert_eq!(fs_err::read_dir(&blocks).unwrap().count(), count);
        // As after a stop: one block is missing, the others are taken up.
        let last = fs_err::read_dir(&blocks).unwrap().map(|entry| entry.unwrap().path()).max().unwrap();
        fs_err::remove_file(&last).unwrap();
        assert_eq!(part(checkpoints(50)).unwrap(), without);
        assert!(last.exists());

        let error = part(checkpoints(40)).unwrap_err().to_string();
        assert!(
            error.contains("was made of another matrix, with other settings or for another number"),
            "{error}"
        );
        let mut damaged = fs_err::read(&last).unwrap();
        let middle = damaged.len() / 2 + 20;
        damaged[middle] ^= 1;
        fs_err::write(&last, damaged).unwrap();
        let error = part(checkpoints(50)).unwrap_err().to_string();
        assert!(error.ends_with("is damaged: remove it"), "{error}");
        fs_err::remove_dir_all(&blocks).unwrap();
    }
}

#[test]
fn the_checkpoint_of_another_matrix_is_refused() {
    let kept = tempfile::tempdir().unwrap();
    let output = tempfile::tempdir().unwrap();
    let run = |rows: &[Vec<f64>]| {
        let folder = matrix(rows);
        let checkpoints = Some(Checkpoints { folder: kept.path(), block_rows: NonZeroUsize::new(9) });
        Given {
            matrix: folder.path(),
            query: None,
            hyperparameters: &[],
            share: (0, 1),
            checkpoints,
            output: output.path(),
        }
        .run()
    };
    let mut rows = clustered(30);
    run(&rows).unwrap();
    rows[29][0] = f64::from_bits(rows[29][0].to_bits() ^ 1);
    assert!(matches!(run(&rows), Err(TrainError::Checkpoint(_))));
}
