//! Inputs are there as the contract says, and nothing that an instance does reaches their sources.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use fs_err as fs;
use indexmap::IndexMap;
use trainyard_engine::plan::ObjectPlan;
use trainyard_engine::run::{Exit, Outcome, Report};

use super::case::{Case, Told, users};

#[test]
fn the_tree_is_what_the_contract_says() {
    for user in users() {
        let mut case = Case::sh(
            user,
            "cd /opt/ml; find . -printf '%y %m %U:%G %s %p\\n' | sed 's/^d \\(.*\\) [0-9]* /d \\1 /' | sort -k 5; cat input/config/x.json",
        );
        case.plan.config = IndexMap::from([("x.json".to_owned(), "{}".to_owned())]);
        case.channel("train", &[("a/b.csv", "12345")]);
        case.channel("empty", &[]);
        case.plan.channels[0].manifest = true;
        case.manifests.insert("train".to_owned(), "prefix\ns3://b/prefix/a/b.csv\n".to_owned());
        let told = case.run();
        let mut lines = told.completed();
        assert_eq!(lines.pop(), Some("{}"));
        lines.sort_unstable();
        let mut expected = vec![
            "d 755 0:0 .",
            "d 755 0:0 ./checkpoints",
            "d 755 0:0 ./input",
            "d 755 0:0 ./input/config",
            "d 755 0:0 ./input/data",
            "d 755 0:0 ./input/data/empty",
            "d 755 0:0 ./input/data/train",
            "d 755 0:0 ./input/data/train/a",
            "d 755 0:0 ./model",
            "d 755 0:0 ./output",
            "d 755 0:0 ./output/data",
            "d 755 0:0 ./output/metrics",
            "d 755 0:0 ./output/metrics/sagemaker",
            "d 755 0:0 ./output/profiler",
            "f 644 0:0 2 ./input/config/x.json",
            "f 644 0:0 29 ./input/data/train-manifest",
            "f 644 0:0 5 ./input/data/train/a/b.csv",
        ];
        expected.sort_unstable();
        assert_eq!(lines, expected);
        let all = |report: &Report| {
            matches!(report, Report::Staging { objects: 1, bytes: 5, of_objects: 1, of_bytes: 5, .. })
        };
        assert!(told.reports.iter().any(all), "{:?}", told.reports);
    }
}

#[test]
fn every_folder_of_the_tree_can_be_written() {
    for user in users() {
        let script = "cd /opt/ml && for d in . input input/config input/data input/data/train model output \
            output/data output/metrics/sagemaker output/profiler checkpoints; do echo x > $d/new || exit 1; done";
        let mut case = Case::sh(user, script);
        case.channel("train", &[("a", "a")]);
        case.run().completed();
    }
}

#[test]
fn whatever_a_job_does_to_its_inputs_the_sources_stay_as_they_are() {
    for user in users() {
        let script = "cd /opt/ml/input/data/train && echo more >> appended && : > truncated &&
            chmod 777 changed && mv renamed other && rm -r folder && touch new && chmod 700 . &&
            ln appended linked && echo x > linked && find . -type f | sort";
        let mut case = Case::sh(user, script);
        let files = ["appended", "truncated", "changed", "renamed", "folder/one", "folder/two"];
        let source = case.channel("train", &files.map(|file| (file, "content\n")));
        case.prepare();
        let before = files.map(|file| fs::metadata(source.join(file)).unwrap());
        let told = case.run();
        let left = ["./appended", "./changed", "./linked", "./new", "./other", "./truncated"];
        assert_eq!(told.completed(), left);
        for (file, before) in files.iter().zip(before) {
            let now = fs::metadata(source.join(file)).unwrap();
            assert_eq!(fs::read_to_string(source.join(file)).unwrap(), "content\n");
            assert_eq!(now.permissions(), before.permissions(), "{file}");
            assert_eq!(now.modified().unwrap(), before.modified().unwrap(), "{file}");
        }
    }
}

#[test]
fn a_job_may_remove_its_channels_as_a_whole() {
    for user in users() {
        let mut case = Case::sh(
            user,
            "cd /opt/ml/input/data && rm -r * && ls -A && mkdir one && ls -A one && echo empty",
        );
        let one = case.channel("one", &[("a", "a"), ("b/c", "c")]);
        let two = case.channel("two", &[("a", "a")]);
        case.plan.channels[1].replicated = false;
        case.channel("none", &[]);
        assert_eq!(case.run().completed(), ["empty"]);
        assert!(one.join("b/c").exists() && two.join("a").exists());
    }
}

#[test]
fn every_channel_has_its_own_objects() {
    for user in users() {
        let script =
            "cd /opt/ml/input/data && find . -type f | sort | while read f; do echo $f $(cat $f); done";
        let mut case = Case::sh(user, script);
        for name in ["one", "two", "three"] {
            case.channel(name, &[("a", name), ("b/c", name)]);
        }
        case.plan.channels[1].replicated = false;
        let expected = [
            "./one/a one",
            "./one/b/c one",
            "./three/a three",
            "./three/b/c three",
            "./two/a two",
            "./two/b/c two",
        ];
        assert_eq!(case.run().completed(), expected);
    }
}

#[test]
fn instances_share_one_copy_of_a_replicated_channel_and_do_not_see_each_others_changes() {
    for user in users() {
        let mut case =
            Case::sh(user, "cat /opt/ml/input/data/train/a; echo changed > /opt/ml/input/data/train/a");
        case.channel("train", &[("a", "a\n")]);
        assert_eq!(case.run().completed(), ["a"]);
        let base = case.folder.path().join("run/bases/all/complete/train/train/a");
        let first = fs::metadata(&base).unwrap().ino();
        case.plan.host = "algo-2".to_owned();
        assert_eq!(case.run().completed(), ["a"]);
        assert_eq!(fs::metadata(&base).unwrap().ino(), first);
    }
}

#[test]
fn a_shard_is_gone_when_its_instance_has_ended() {
    let mut case = Case::sh(users()[0], "cat /opt/ml/input/data/train/a");
    case.channel("train", &[("a", "a\n")]);
    case.plan.channels[0].replicated = false;
    assert_eq!(case.run().completed(), ["a"]);
    let bases: Vec<_> = fs::read_dir(case.folder.path().join("run/bases")).unwrap().collect();
    assert!(bases.is_empty(), "{bases:?}");
}

#[test]
fn a_file_that_only_its_owner_may_read_is_readable_inside() {
    for user in users() {
        let mut case = Case::sh(user, "cat /opt/ml/input/data/train/a");
        let source = case.channel("train", &[("a", "a\n")]);
        fs::set_permissions(source.join("a"), std::fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(case.run().completed(), ["a"]);
    }
}

#[track_caller]
fn fails_to_stage(told: &Told, words: &[&str]) {
    assert!(matches!(told.outcome(), Outcome::StagingFailed { .. }), "{told:?}");
    for word in words {
        assert!(told.explanation().contains(word), "{word} in {}", told.explanation());
    }
}

#[test]
fn a_source_that_has_changed_since_the_plan_is_named_with_both_sizes() {
    for user in users() {
        let mut case = Case::sh(user, "true");
        let source = case.channel("train", &[("a", "12345"), ("b", "1")]);
        fs::write(source.join("a"), "123").unwrap();
        let path = source.join("a");
        fails_to_stage(&case.run(), &["\"train\"", path.to_str().unwrap(), "5 bytes", "it has 3"]);
        fs::remove_file(&path).unwrap();
        case.plan.host = "algo-2".to_owned();
        fails_to_stage(&case.run(), &[path.to_str().unwrap(), "5 bytes", "gone"]);
        fs::create_dir(&path).unwrap();
        case.plan.host = "algo-3".to_owned();
        fails_to_stage(&case.run(), &[path.to_str().unwrap(), "not a file"]);
    }
}

#[test]
fn a_source_that_may_not_be_read_is_told_from_one_that_is_gone() {
    let Some(user) = users().into_iter().find(|user| *user == super::case::User::Ordinary) else { return };
    let mut case = Case::sh(user, "true");
    case.channel("train", &[]);
    let source = std::path::PathBuf::from("/etc/shadow");
    case.plan.channels[0].objects =
        vec![ObjectPlan { source: source.into(), relative: "a".to_owned(), size: 1 }];
    fails_to_stage(&case.run(), &["/etc/shadow", "permission denied"]);
}

#[test]
fn an_object_can_not_leave_the_folder_of_its_channel() {
    for relative in ["../escaped", "/escaped", "a/../../escaped", "a/", ""] {
        let mut case = Case::sh(users()[0], "true");
        case.channel("train", &[("a", "12345")]);
        case.plan.channels[0].objects[0].relative = relative.to_owned();
        fails_to_stage(&case.run(), &["leads out", relative]);
    }
}

#[test]
fn two_objects_for_one_place_are_named() {
    let mut case = Case::sh(users()[0], "true");
    case.channel("train", &[("a", "12345"), ("b", "1")]);
    case.plan.channels[0].objects[1].relative = "a/b".to_owned();
    fails_to_stage(&case.run(), &["a/b", "in the way"]);
}

#[test]
fn where_overlays_are_refused_each_instance_gets_a_copy() {
    for user in users() {
        let script = "cat /opt/ml/input/data/train/a; echo changed > /opt/ml/input/data/train/a";
        let mut case = Case::sh(user, script);
        let source = case.channel("train", &[("a", "a\n"), ("b/c", "")]);
        // A folder of an overlay can't hold the changes of another one.
        let told = case.run_on(
            "mkdir up; mount -t tmpfs none up; mkdir up/u up/w
            mount -t overlay none -o lowerdir=run,upperdir=up/u,workdir=up/w,userxattr other",
        );
        assert_eq!(told.completed(), ["a"]);
        assert_eq!(fs::read_to_string(source.join("a")).unwrap(), "a\n");
    }
}

/// A run directory on a disk of four megabytes.
const SMALL: &str = "mount -t tmpfs -o size=4m none other; cp -a run/. other/";

#[test]
fn a_disk_that_is_too_small_for_the_inputs_is_named_with_what_is_needed() {
    for user in users() {
        let mut case = Case::sh(user, "true");
        case.channel("train", &[("a", &"x".repeat(5_000_000)), ("b", "1")]);
        fails_to_stage(&case.run_on(SMALL), &["too small", "(5000001 bytes) are needed", "are free"]);
    }
}

#[test]
fn a_disk_that_is_full_when_outputs_are_packed_is_named() {
    for user in users() {
        let told = Case::sh(user, "head -c 3500000 /dev/urandom > /opt/ml/model/weights").run_on(SMALL);
        assert!(matches!(told.outcome(), Outcome::CollectingFailed { .. }), "{told:?}");
        assert!(told.explanation().contains("No space left on device"), "{}", told.explanation());
    }
}

#[test]
fn a_job_goes_on_when_its_log_finds_no_room_and_the_loss_is_told() {
    for user in users() {
        let script = "head -c 3000000 /dev/zero > /tmp/fill; seq 100000";
        let told = Case::sh(user, script).run_on(SMALL);
        assert!(told.reports.contains(&Report::Exited(Exit::Code(0))), "{:?}", told.reports);
        let lost =
            told.warnings().iter().any(|warning| warning.contains("lost") && warning.contains("space"));
        assert!(lost, "{:?}", told.warnings());
    }
}
