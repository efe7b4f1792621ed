//! How a program ends or why it does not start.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use fs_err as fs;
use trainyard_engine::plan::{Exposed, Role, RuntimePlan};
use trainyard_engine::run::{Exit, Outcome, Report, Stream};

use super::case::{Case, Told, User, users};

fn exit(told: &Told) -> Exit {
    match told.outcome() {
        Outcome::Failed { exit, .. } => *exit,
        other => panic!("{other:?}"),
    }
}

#[test]
fn exit_codes_and_signals_are_passed_on() {
    for user in users() {
        assert_eq!(exit(&Case::sh(user, "exit 3").run()), Exit::Code(3));
        assert_eq!(exit(&Case::sh(user, "exit 143").run()), Exit::Code(143));
        assert_eq!(exit(&Case::sh(user, "kill -SEGV $$").run()), Exit::Signal(11));
        assert_eq!(exit(&Case::sh(user, "kill -KILL $$").run()), Exit::Signal(9));
    }
}

#[test]
fn the_reports_of_a_good_end_come_in_order() {
    let told = Case::sh(users()[0], "true").run();
    let kinds: Vec<_> =
        told.reports.iter().filter(|report| !matches!(report, Report::Staging { .. })).collect();
    assert!(
        matches!(kinds[..], [Report::Training, Report::Exited(Exit::Code(0)), Report::Ended { .. }]),
        "{kinds:?}"
    );
}

#[test]
fn the_failure_file_explains_first() {
    for user in users() {
        let told =
            Case::sh(user, "echo my own reason > /opt/ml/output/failure; echo noise >&2; exit 1").run();
        assert_eq!(told.explanation(), "my own reason");
    }
}

#[test]
fn without_a_failure_file_the_last_error_lines_explain() {
    let told = Case::sh(users()[0], ": > /opt/ml/output/failure; seq 20 >&2; echo out; exit 1").run();
    assert_eq!(told.explanation(), "11\n12\n13\n14\n15\n16\n17\n18\n19\n20");
    let told = Case::sh(users()[0], "echo only this; exit 1").run();
    assert_eq!(told.explanation(), "only this");
}

#[test]
fn a_failure_file_that_leads_out_of_the_instance_is_not_read() {
    let script = "rm -r /opt/ml/output; ln -s /etc /opt/ml/output; ln -s /etc/passwd /opt/ml/failure; exit 1";
    let told = Case::sh(users()[0], script).run();
    assert_eq!(told.explanation(), "");
}

/// Runs a file with this content and mode as `/programs/train`.
fn train(user: User, content: &[u8], mode: u32) -> Told {
    let mut case = Case::new(user, &["train"]);
    let folder = case.folder.path().join("programs");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("train"), content).unwrap();
    fs::set_permissions(folder.join("train"), Permissions::from_mode(mode)).unwrap();
    case.plan.runtime = RuntimePlan::Host {
        exposed: vec![Exposed { source: folder, target: "/programs".into() }],
        working_directory: "/".into(),
    };
    case.plan.environment.insert("PATH".to_owned(), "/nowhere:/programs".to_owned());
    case.run()
}

#[track_caller]
fn does_not_start(told: &Told, code: i32, words: &[&str]) {
    assert_eq!(exit(told), Exit::Code(code), "{told:?}");
    for word in words {
        assert!(told.explanation().contains(word), "{word} in {}", told.explanation());
    }
    assert_eq!(told.lines(Stream::Stderr), [told.explanation()]);
    assert!(!told.reports.contains(&Report::Training));
}

#[test]
fn a_program_is_found_in_the_path_of_the_plan() {
    for user in users() {
        assert_eq!(train(user, b"#!/bin/sh\necho $0\n", 0o755).completed(), ["/programs/train"]);
    }
}

#[test]
fn why_a_program_does_not_start_is_told_apart() {
    for user in users() {
        let mut missing = Case::new(user, &["no-such-program"]);
        missing.plan.environment.insert("PATH".to_owned(), "/bin:/sbin".to_owned());
        does_not_start(&missing.run(), 127, &["no-such-program", "not found in PATH", "/bin:/sbin"]);
        does_not_start(&Case::new(user, &["/no/such"]).run(), 127, &["/no/such", "no such file"]);
        does_not_start(&Case::new(user, &["/usr"]).run(), 126, &["/usr", "is a folder"]);
        does_not_start(&train(user, b"#!/bin/sh\n", 0o644), 126, &["/programs/train", "not executable"]);
        does_not_start(&train(user, b"#!/no/python3 -u\n", 0o755), 127, &["interpreter", "\"/no/python3\""]);
        does_not_start(&train(user, b"#!/bin/sh\r\n", 0o755), 127, &["interpreter", "Windows"]);
        does_not_start(&train(user, b"echo no first line\n", 0o755), 126, &["exec format error", "#! line"]);
        does_not_start(&train(user, b"", 0o755), 126, &["exec format error", "empty"]);
        does_not_start(&train(user, &foreign(), 0o755), 126, &["exec format error", "built for s390x"]);
    }
}

/// The header of a program for a mainframe.
fn foreign() -> Vec<u8> {
    let mut header = b"\x7fELF\x02\x02\x01".to_vec();
    header.resize(64, 0);
    header[16] = 2;
    header[18] = 22;
    header
}

#[test]
fn a_working_directory_that_is_not_there_is_named() {
    let mut case = Case::new(users()[0], &["true"]);
    case.plan.runtime = RuntimePlan::Host { exposed: Vec::new(), working_directory: "/not/there".into() };
    does_not_start(&case.run(), 126, &["/not/there", "working directory"]);
}

#[test]
fn model_and_output_are_handed_back_also_after_a_failure() {
    for user in users() {
        let case = Case::sh(user, "echo m > /opt/ml/model/m; echo o > /opt/ml/output/data/o; exit 1");
        let told = case.run();
        let parts = told.parts();
        let (model, output) = (parts.model.as_ref().unwrap(), parts.output.as_ref().unwrap());
        assert_eq!((model.entries, output.entries), (1, 1));
        let directory = case.folder.path().join("run/instances/algo-1");
        assert_eq!(fs::metadata(directory.join("model.part")).unwrap().len(), model.compressed_bytes);
    }
}

#[test]
fn folders_without_entries_hand_back_nothing() {
    let case = Case::sh(users()[0], "true");
    let told = case.run();
    assert_eq!((&told.parts().model, &told.parts().output), (&None, &None));
    assert!(!case.folder.path().join("run/instances/algo-1/model.part").exists());
}

#[test]
fn large_files_in_the_wrong_place_are_named() {
    let script =
        "truncate -s 5M /opt/ml/output/weights.bin; truncate -s 9M /tmp/model.pt; echo x > /tmp/small";
    let told = Case::sh(users()[0], script).run();
    let [warning] = told.warnings()[..] else { panic!("{told:?}") };
    assert!(warning.contains("/tmp/model.pt (9 MB), /opt/ml/output/weights.bin (5 MB)"), "{warning}");
}

#[test]
fn a_model_folder_that_was_replaced_by_a_link_is_not_followed() {
    let told = Case::sh(users()[0], "rmdir /opt/ml/model; ln -s /etc /opt/ml/model").run();
    assert!(matches!(told.outcome(), Outcome::CollectingFailed { .. }), "{told:?}");
    assert!(told.explanation().contains("/opt/ml/model"), "{}", told.explanation());
}

#[test]
fn a_merging_instance_hands_back_its_one_file_as_it_is() {
    for user in users() {
        let mut case = Case::sh(user, "echo merged > /opt/ml/model/result.csv");
        case.plan.role = Role::Merge;
        let told = case.run();
        assert_eq!((told.outcome(), &told.parts().model), (&Outcome::Completed, &None));
        let merged = case.folder.path().join("run/instances/algo-1/merged");
        assert_eq!(fs::read_to_string(merged).unwrap(), "merged\n");
    }
}

#[test]
fn a_merging_instance_without_a_file_has_failed_to_collect() {
    let mut case = Case::sh(users()[0], "true");
    case.plan.role = Role::Merge;
    assert!(matches!(case.run().outcome(), Outcome::CollectingFailed { .. }));
}

#[test]
fn what_nobody_may_read_is_removed_all_the_same() {
    for user in users() {
        // The harness looks for what is left.
        let script = "mkdir -p /tmp/a/b /opt/ml/code/c; echo x > /tmp/a/b/c; chmod 0 /tmp/a/b /tmp/a /opt/ml/code
            rm /opt/ml/input/data/train/a; mkdir /opt/ml/input/data/train/a; chmod 0 /opt/ml/input/data/train/a";
        let mut case = Case::sh(user, script);
        case.channel("train", &[("a", "a")]);
        case.run().completed();
    }
}
