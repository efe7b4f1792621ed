//! Links, and what else is neither file nor folder.

use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;

/// A folder with `inner/file`, `top` and one link; gives the archive's names and the warnings.
fn with_link(place: &str, target: &str) -> (Vec<String>, Vec<String>) {
    let outer = TempDir::new().unwrap();
    let folder = outer.path().join("model");
    write(outer.path(), "secret", "not ours");
    write(&folder, "inner/file", "i");
    write(&folder, "top", "t");
    symlink(target, folder.join(place)).unwrap();
    let (archive, warnings) = archive_of(&folder);
    for (path, node) in entries_in(&archive) {
        assert_ne!(node.content.as_deref(), Some(b"not ours".as_slice()), "{path:?} came from outside");
    }
    let plain = ["inner/", "inner/file", "top"];
    let names = names_in(&archive).into_iter().filter(|name| !plain.contains(&name.as_str())).collect();
    (names, warnings)
}

#[test]
fn links_inside_are_stored_as_what_they_point_to() {
    for (place, target, expected) in [
        ("l", "top", vec!["l"]),
        ("l", "./inner//file", vec!["l"]),
        ("l", "inner", vec!["l/", "l/file"]),
        ("l", "inner/", vec!["l/", "l/file"]),
        ("inner/l", "../top", vec!["inner/l"]),
        ("l", "inner/../inner/../top", vec!["l"]),
        ("l", "/opt/ml/model/top", vec!["l"]),
        ("l", "/opt/ml/model/inner", vec!["l/", "l/file"]),
        ("l", "/opt/../opt/ml/./model/inner/file", vec!["l"]),
        ("inner/l", "../../model/top", vec!["inner/l"]),
        ("inner/l", "../../../../opt/ml/model/top", vec!["inner/l"]),
    ] {
        assert_eq!(
            with_link(place, target),
            (expected.into_iter().map(String::from).collect(), vec![]),
            "{target}"
        );
    }
}

#[test]
fn links_that_lead_out_dangle_or_run_in_circles_are_named_and_left_out() {
    for (place, target, reason) in [
        ("l", "../secret", "it leads out of the folder"),
        ("l", "/etc/passwd", "it leads out of the folder"),
        ("l", "/opt/ml/output/data", "it leads out of the folder"),
        ("l", "/opt/ml/modelling", "it leads out of the folder"),
        ("l", "..", "it leads out of the folder"),
        ("l", "/", "it leads out of the folder"),
        ("l", "nothing", "it points to nothing"),
        ("l", "top/file", "it points to nothing"),
        ("l", "top/", "it points to nothing"),
        ("l", "top/../inner", "it points to nothing"),
        ("l", "l", "it points to itself or to a folder that holds it"),
        ("inner/l", "../inner", "it points to itself or to a folder that holds it"),
        ("inner/l", "..", "it points to itself or to a folder that holds it"),
        ("inner/l", "/opt/ml/model", "it points to itself or to a folder that holds it"),
    ] {
        let warning = format!("{place:?} is left out: {reason}");
        assert_eq!(with_link(place, target), (vec![], vec![warning]), "{target}");
    }
}

#[test]
fn links_to_links_are_followed_and_folders_that_link_to_each_other_end() {
    let folder = TempDir::new().unwrap();
    write(folder.path(), "a/file", "a");
    write(folder.path(), "b/file", "b");
    symlink("../b", folder.path().join("a/b")).unwrap();
    symlink("../a", folder.path().join("b/a")).unwrap();
    symlink("chain-2", folder.path().join("chain-1")).unwrap();
    symlink("a/b/file", folder.path().join("chain-2")).unwrap();
    let (archive, warnings) = archive_of(folder.path());
    let expected =
        ["a/", "a/b/", "a/b/file", "a/file", "b/", "b/a/", "b/a/file", "b/file", "chain-1", "chain-2"];
    assert_eq!(names_in(&archive), expected);
    let content = nodes_in(&archive)[b"chain-1".as_slice()].content.clone();
    assert_eq!(content.as_deref(), Some(b"b".as_slice()));
    assert_eq!(warnings.len(), 2, "{warnings:?}");
}

#[test]
fn what_is_neither_file_nor_folder_is_left_out_also_behind_a_link() {
    let folder = TempDir::new().unwrap();
    write(folder.path(), "file", "x");
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, folder.path().join("pipe"), fifo, 0o600.into(), 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(folder.path().join("socket")).unwrap();
    symlink("pipe", folder.path().join("to-pipe")).unwrap();
    let (archive, warnings) = archive_of(folder.path());
    assert_eq!(names_in(&archive), ["file"]);
    let expected = ["pipe", "socket", "to-pipe"]
        .map(|name| format!("{name:?} is left out: it is neither a file nor a folder"));
    assert_eq!(warnings, expected);
}

#[test]
fn hard_links_are_stored_as_files() {
    let folder = TempDir::new().unwrap();
    write(folder.path(), "one", "content");
    fs_err::hard_link(folder.path().join("one"), folder.path().join("two")).unwrap();
    let nodes = nodes_in(&archive_of(folder.path()).0);
    assert_eq!(nodes[b"one".as_slice()], nodes[b"two".as_slice()]);
}

#[test]
fn many_warnings_are_counted_instead_of_listed() {
    let folder = TempDir::new().unwrap();
    for number in 0..130 {
        symlink("nowhere", folder.path().join(format!("l{number:03}"))).unwrap();
    }
    let (_, warnings) = {
        let scratch = TempDir::new().unwrap();
        let part = part_of(folder.path(), "algo-1", scratch.path());
        (part.packed.entries, part.packed.warnings)
    };
    assert_eq!(warnings.len(), 101);
    assert_eq!(warnings[100], "30 more warnings like these");
}

#[test]
fn a_folder_too_deep_to_walk_is_named() {
    let folder = TempDir::new().unwrap();
    let mut path = folder.path().to_owned();
    (0..300).for_each(|_| path.push("d"));
    fs_err::create_dir_all(&path).unwrap();
    let (archive, warnings) = archive_of(folder.path());
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("more than 256 folders deep"));
    assert_eq!(names_in(&archive).len(), 257);
}
