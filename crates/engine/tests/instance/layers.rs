//! An instance over layers that lie over each other: one that is made here, and the machine's `/usr`,
//! which has all that a shell needs at the places where an image has it.

use std::path::{Path, PathBuf};

use fs_err as fs;
use rustix::fs::{CWD, FileType, Mode, XattrFlags, mknodat, setxattr};
use trainyard_engine::plan::{Identity, RuntimePlan};
use trainyard_engine::run::Outcome;

use super::case::{Case, User, users};

/// An instance that runs a script, and its upper layer.
fn case(user: User, script: &str) -> (Case, PathBuf) {
    let mut case = Case::sh(user, script);
    let layer = case.folder.path().join("layer");
    fs::create_dir_all(layer.join("made/inside")).unwrap();
    // A folder of the machine's root could not be written by an ordinary user.
    fs::create_dir(layer.join("etc")).unwrap();
    fs::write(layer.join("made/file"), "content\n").unwrap();
    fs::write(layer.join("made/inside/file"), "content\n").unwrap();
    case.plan.environment.insert("PATH".to_owned(), "/bin".to_owned());
    let layers = vec![layer.clone(), "/usr".into()];
    run_over(&mut case, layers, Identity { uid: 0, gid: 0, groups: Vec::new() });
    (case, layer)
}

fn run_over(case: &mut Case, layers: Vec<PathBuf>, user: Identity) {
    case.plan.runtime =
        RuntimePlan::Oci { layers, user, working_directory: "/made/working".into(), stop_signal: 15 };
}

fn tree(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(tree(&path));
        }
        found.push(path);
    }
    found.sort();
    found
}

#[test]
fn what_is_changed_in_an_image_is_private_and_forgotten() {
    for user in users() {
        let script = "cat /made/file; pwd; echo x > /made/new; echo y > /made/file; rm -r /made/inside
            echo z > /top; ls /made; cat /made/file /top; echo w > /opt/ml/model/w";
        let (case, layer) = case(user, script);
        let before = tree(&layer);
        for _ in 0..2 {
            let told = case.run();
            let expected = ["content", "/made/working", "file", "new", "working", "y", "z"];
            assert_eq!(told.completed(), expected);
            assert!(told.parts().model.is_some());
            fs::remove_dir_all(case.folder.path().join("run")).unwrap();
        }
        assert_eq!(tree(&layer), before);
        assert_eq!(fs::read_to_string(layer.join("made/file")).unwrap(), "content\n");
    }
}

#[test]
fn what_a_layer_deletes_is_not_seen() {
    for user in users() {
        let (mut case, below) = case(user, "ls /made /made/inside");
        let layer = case.folder.path().join("deletions");
        fs::create_dir_all(layer.join("made/inside")).unwrap();
        fs::write(layer.join("made/inside/other"), "").unwrap();
        mknodat(CWD, layer.join("made/file"), FileType::CharacterDevice, Mode::empty(), 0).unwrap();
        setxattr(layer.join("made/inside"), "user.overlay.opaque", b"y", XattrFlags::empty()).unwrap();
        let root = Identity { uid: 0, gid: 0, groups: Vec::new() };
        run_over(&mut case, vec![layer, below, "/usr".into()], root);
        let told = case.run();
        assert_eq!(told.completed(), ["/made:", "inside", "working", "", "/made/inside:", "other"]);
    }
}

#[test]
fn the_program_runs_as_the_user_of_the_image_where_there_is_more_than_one() {
    for user in users() {
        let script =
            "id -u; id -g; id -G; echo x > /opt/ml/model/x; stat -c %u /opt/ml/model; echo out > /dev/stdout
            echo x > /made/x || echo refused";
        let (mut case, layer) = case(user, script);
        let identity = Identity { uid: 1234, gid: 2345, groups: vec![3456, 4567] };
        run_over(&mut case, vec![layer, "/usr".into()], identity);
        let told = case.run();
        let lines = told.completed();
        if user == User::Own && rustix::process::getuid().is_root() {
            assert_eq!(lines, ["1234", "2345", "2345 3456 4567", "1234", "out", "refused"]);
        } else {
            assert_eq!((lines[0], lines[3], lines[4]), ("0", "0", "out"));
        }
    }
}

#[test]
fn places_of_an_instance_are_made_in_an_image_that_lacks_them() {
    for user in users() {
        let (case, _) =
            case(user, "cat /etc/hostname; ls -d /opt/ml /tmp /proc /sys /dev/shm; ls / | grep run");
        let told = case.run();
        let expected = ["algo-1", "/dev/shm", "/opt/ml", "/proc", "/sys", "/tmp"];
        assert_eq!(told.stdout(), expected, "{told:?}");
    }
}

#[test]
fn a_layer_that_is_not_there_any_more_is_told() {
    for user in users() {
        let (case, layer) = case(user, "true");
        fs::remove_dir_all(&layer).unwrap();
        let told = case.run();
        assert!(matches!(told.outcome(), Outcome::Broken { .. }), "{told:?}");
        assert!(told.explanation().contains(layer.to_str().unwrap()), "{}", told.explanation());
    }
}
