//! Removing scratch trees.

use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::super::remove_tree;
use super::*;

#[test]
fn a_tree_is_removed_and_what_its_links_point_to_stays() {
    let outer = TempDir::new().unwrap();
    write(outer.path(), "kept/file", "x");
    let tree = outer.path().join("tree");
    write(&tree, "a/b/c/file", "x");
    write(&tree, "lifted-1", "in the way");
    write(&tree, "lifted-2/lifted-3/file", "in the way");
    symlink("../kept", tree.join("link")).unwrap();
    symlink("../../kept", tree.join("a/link")).unwrap();
    remove_tree(&tree).unwrap();
    assert!(!tree.exists());
    assert_eq!(fs_err::read_to_string(outer.path().join("kept/file")).unwrap(), "x");
}

#[test]
fn a_link_in_place_of_the_tree_is_removed_alone_and_nothing_is_no_error() {
    let outer = TempDir::new().unwrap();
    write(outer.path(), "kept/file", "x");
    symlink("kept", outer.path().join("link")).unwrap();
    remove_tree(&outer.path().join("link")).unwrap();
    remove_tree(&outer.path().join("link")).unwrap();
    let names: Vec<_> =
        fs_err::read_dir(outer.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["kept"]);
    assert!(outer.path().join("kept/file").exists());
}

#[test]
fn a_tree_deeper_than_any_path_is_removed() {
    let outer = TempDir::new().unwrap();
    let tree = outer.path().join("tree");
    fs_err::create_dir(&tree).unwrap();
    let name = "n".repeat(200);
    let flags = rustix::fs::OFlags::DIRECTORY;
    let mut folder = rustix::fs::open(&tree, flags, rustix::fs::Mode::empty()).unwrap();
    for _ in 0..1500 {
        rustix::fs::mkdirat(&folder, &name, 0o700.into()).unwrap();
        folder = rustix::fs::openat(&folder, &name, flags, rustix::fs::Mode::empty()).unwrap();
    }
    drop(folder);
    remove_tree(&tree).unwrap();
    assert!(!tree.exists());
}
