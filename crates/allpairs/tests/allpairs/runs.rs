//! Hosts, threads, stopping, reports and the contract tree.

use crate::support::{npy_f64, read_part, run, run_host};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use trainyard_allpairs::{Progress, TrainError, TrainInput, ZeroRows, train, train_here};

fn rows(count: usize) -> Vec<Vec<f64>> {
    (0..count)
        .map(|r| if r % 4 == 3 { vec![0.0; 2] } else { vec![(r as f64).sin(), (r as f64).cos()] })
        .collect()
}

fn channel(rows: &[Vec<f64>]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs_err::write(folder.path().join("m.npy"), npy_f64(rows)).unwrap();
    folder
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs_err::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn more_hosts_than_rows_leave_valid_empty_parts() {
    let channel = channel(&rows(3));
    let output = tempfile::tempdir().unwrap();
    let counts: Vec<u64> = (0..8)
        .map(|rank| {
            let report = run_host(channel.path(), &[], (rank, 8), 1, output.path()).unwrap();
            let part = output.path().join(format!("part-algo-{}.parquet", rank + 1));
            assert_eq!(read_part(&part).len() as u64, report.pairs);
            report.rows
        })
        .collect();
    assert_eq!(counts.iter().sum::<u64>(), 3);
    assert!(counts.contains(&0));
    assert_eq!(run(channel.path(), &[], 8, 1).len(), 6);
}

#[test]
fn one_row_alone_has_no_neighbour_and_one_column_has_only_signs() {
    assert_eq!(run(channel(&rows(1)).path(), &[], 1, 1), []);
    let signs = channel(&[vec![2.0], vec![-3.0], vec![0.0], vec![5.0]]);
    let found: Vec<_> = run(signs.path(), &[], 1, 1).iter().map(|p| (p.col, p.similarity)).collect();
    let expected = [
        (3, 1.0),
        (2, 0.0),
        (1, -1.0),
        (2, 0.0),
        (0, -1.0),
        (3, -1.0),
        (0, 0.0),
        (1, 0.0),
        (3, 0.0),
        (0, 1.0),
        (2, 0.0),
        (1, -1.0),
    ];
    assert_eq!(found, expected);
}

#[test]
fn the_report_lies_beside_the_part_and_lists_zero_rows() {
    let channel = channel(&rows(900));
    let output = tempfile::tempdir().unwrap();
    let report =
        run_host(channel.path(), &[("top_k", "3"), ("symmetric", "false")], (1, 2), 2, output.path())
            .unwrap();
    assert_eq!(names(output.path()), ["part-algo-2.parquet", "report-algo-2.json", "report-algo-2.svg"]);
    let first: Vec<u64> = (450..900).filter(|r| r % 4 == 3).take(100).collect();
    assert_eq!(report.zero_rows, ZeroRows { count: 113, first });
    let text = fs_err::read_to_string(output.path().join("report-algo-2.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let whole = |name: &str| json[name].as_u64().unwrap();
    assert_eq!(
        ["matrix_rows", "matrix_columns", "first_row", "rows", "pairs"].map(whole),
        [900, 2, 450, 450, 1350]
    );
    assert_eq!(json["zero_rows"]["count"], 113);
}

#[test]
fn progress_counts_up_to_all_rows() {
    let channel = channel(&rows(300));
    let output = tempfile::tempdir().unwrap();
    let seen = Mutex::new(Vec::new());
    train(&TrainInput {
        matrix: channel.path(),
        query: None,
        hyperparameters: &BTreeMap::new(),
        host: "algo-1",
        rank: 0,
        world_size: 1,
        output: output.path(),
        checkpoints: None,
        threads: None,
        stop: &AtomicBool::new(false),
        progress: &|progress| seen.lock().unwrap().push(progress),
        note: &|_| {},
    })
    .unwrap();
    let seen = seen.into_inner().unwrap();
    assert!(seen.windows(2).all(|pair| pair[0].rows_done <= pair[1].rows_done));
    assert_eq!(seen.last(), Some(&Progress { rows_done: 300, rows: 300, pairs: 3000 }));
}

#[test]
fn a_stop_ends_the_work_and_leaves_no_part() {
    let channel = channel(&rows(2000));
    let output = tempfile::tempdir().unwrap();
    let stop = AtomicBool::new(false);
    let outcome = train(&TrainInput {
        matrix: channel.path(),
        query: None,
        hyperparameters: &BTreeMap::new(),
        host: "algo-1",
        rank: 0,
        world_size: 1,
        output: output.path(),
        checkpoints: None,
        threads: None,
        stop: &stop,
        progress: &|_| stop.store(true, Ordering::Relaxed),
        note: &|_| {},
    });
    assert!(matches!(outcome, Err(TrainError::Stopped)), "{outcome:?}");
    assert!(names(output.path()).is_empty());
}

#[test]
fn a_host_that_does_not_fit_is_refused() {
    let channel = channel(&rows(3));
    let output = tempfile::tempdir().unwrap();
    let error = run_host(channel.path(), &[], (3, 3), 1, output.path()).unwrap_err();
    assert_eq!(error.to_string(), "host `algo-4` has number 3 of 3 hosts; numbers begin at 0");
}

fn contract(hyperparameters: &str, resources: &str) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for folder in ["input/config", "input/data/matrix"] {
        fs_err::create_dir_all(root.path().join(folder)).unwrap();
    }
    fs_err::write(root.path().join("input/config/hyperparameters.json"), hyperparameters).unwrap();
    fs_err::write(root.path().join("input/config/resourceconfig.json"), resources).unwrap();
    let channels = r#"{"matrix": {"TrainingInputMode": "File", "S3DistributionType": "FullyReplicated", "RecordWrapperType": "None"}}"#;
    fs_err::write(root.path().join("input/config/inputdataconfig.json"), channels).unwrap();
    fs_err::write(root.path().join("input/data/matrix/m.npy"), npy_f64(&rows(10))).unwrap();
    root
}

const TWO_HOSTS: &str =
    r#"{"current_host": "algo-2", "hosts": ["algo-1", "algo-2"], "network_interface_name": "eth0"}"#;

#[test]
fn a_contract_tree_is_all_that_the_work_needs() {
    let root = contract(r#"{"top_k": "2"}"#, TWO_HOSTS);
    let report = train_here(root.path(), &AtomicBool::new(false), &|_| {}, &|_| {}).unwrap();
    assert_eq!((report.first_row, report.rows, report.pairs), (5, 5, 10));
    assert_eq!(
        names(&root.path().join("model")),
        ["part-algo-2.parquet", "report-algo-2.json", "report-algo-2.svg"]
    );
    assert!(!root.path().join("output/failure").exists());
}

#[test]
fn pairs_are_shared_out_unless_the_job_asks_for_checkpoints() {
    let root = contract(r#"{"top_k": "2", "symmetric": "true"}"#, TWO_HOSTS);
    fs_err::create_dir(root.path().join("checkpoints")).unwrap();
    let kept = || {
        let notes = std::sync::Mutex::new(String::new());
        let note = |text: &str| notes.lock().unwrap().push_str(text);
        train_here(root.path(), &AtomicBool::new(false), &|_| {}, &note).unwrap();
        notes.into_inner().unwrap().contains("finished rows are kept as checkpoints")
    };
    assert!(!kept(), "a folder that nobody keeps is no wish");
    let wish = r#"{"LocalPath":"/opt/ml/checkpoints"}"#;
    fs_err::write(root.path().join("input/config/checkpointconfig.json"), wish).unwrap();
    assert!(kept());
}

#[test]
fn a_failure_in_a_contract_tree_is_written_down() {
    let table = [
        (
            contract(r#"{"top_k": "ten"}"#, TWO_HOSTS),
            "hyperparameter `top_k` is `ten`: it must be a whole number of at least 1",
        ),
        (contract(r#"{"top_k": 2}"#, TWO_HOSTS), "field `top_k`: 2 is not a string, \"2\" would be"),
        (
            contract("{}", r#"{"current_host": "x", "hosts": ["algo-1"]}"#),
            "resourceconfig.json: current_host `x` is not one of hosts [algo-1]",
        ),
    ];
    for (root, reason) in table {
        train_here(root.path(), &AtomicBool::new(false), &|_| {}, &|_| {}).unwrap_err();
        let text = fs_err::read_to_string(root.path().join("output/failure")).unwrap();
        assert!(text.ends_with(reason), "{text}");
    }
}
