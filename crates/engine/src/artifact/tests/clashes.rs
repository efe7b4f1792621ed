//! The same path from several instances.

use tempfile::TempDir;

use super::super::Clash;
use super::*;

fn parts(scratch: &Path, trees: &[&[(&str, &str)]]) -> Vec<PartFile> {
    trees
        .iter()
        .enumerate()
        .map(|(place, files)| {
            let folder = TempDir::new().unwrap();
            for (name, content) in *files {
                write(folder.path(), name, content);
            }
            part_of(folder.path(), &format!("algo-{}", place + 1), scratch)
        })
        .collect()
}

fn clash(path: &str, hosts: &[&str], same_content: bool) -> Clash {
    let hosts = hosts.iter().map(|&host| host.into()).collect();
    Clash { path: path.into(), hosts, same_content, kept_below: None }
}

#[test]
fn every_version_is_in_the_archive_and_the_clash_names_path_and_hosts() {
    let scratch = TempDir::new().unwrap();
    let parts = parts(
        scratch.path(),
        &[
            &[("log.txt", "one"), ("same", "s"), ("dir/own-1", "")],
            &[("same", "s"), ("dir/own-2", "")],
            &[("log.txt", "three"), ("dir/own-3", "")],
        ],
    );
    let (archive, combined) = archive_from(&parts, scratch.path());
    assert_eq!(
        combined.clashes,
        [clash("log.txt", &["algo-1", "algo-3"], false), clash("same", &["algo-1", "algo-2"], true),]
    );
    assert_eq!(
        combined.clashes[0].to_string(),
        "\"log.txt\" was written with different content by algo-1, algo-3"
    );
    let versions: Vec<_> = entries_in(&archive)
        .into_iter()
        .filter_map(|(path, node)| node.content.filter(|_| path == b"log.txt"))
        .collect();
    assert_eq!(versions, [b"one".to_vec(), b"three".to_vec()]);
}

#[test]
fn folders_of_the_same_name_are_no_clash() {
    let scratch = TempDir::new().unwrap();
    let parts = parts(scratch.path(), &[&[("d/e/a", "1")], &[("d/e/b", "2")]]);
    assert_eq!(archive_from(&parts, scratch.path()).1.clashes, []);
}

#[test]
fn a_file_and_a_folder_of_the_same_name_clash_whatever_lies_between() {
    let scratch = TempDir::new().unwrap();
    let parts = parts(
        scratch.path(),
        &[&[("a/x", "1"), ("b", "")], &[("a", "2"), ("a-b", ""), ("a.txt", ""), ("ab/x", "")]],
    );
    assert_eq!(archive_from(&parts, scratch.path()).1.clashes, [clash("a", &["algo-1", "algo-2"], false)]);
}

#[test]
fn the_list_is_cut_but_counted() {
    let scratch = TempDir::new().unwrap();
    let names: Vec<String> = (0..1010).map(|number| format!("f{number:04}")).collect();
    let tree = |content| names.iter().map(|name| (name.as_str(), content)).collect::<Vec<_>>();
    let parts = parts(scratch.path(), &[&tree("1"), &tree("2")]);
    let combined = archive_from(&parts, scratch.path()).1;
    assert_eq!((combined.clashes.len(), combined.clashes_not_listed), (1000, 10));
}

#[test]
fn a_damaged_index_is_an_error_that_names_the_line() {
    let scratch = TempDir::new().unwrap();
    let parts = parts(scratch.path(), &[&[("a", "1"), ("b", "1")], &[("a", "2")]]);
    let index = index_path(&parts[0].path);
    let text = fs_err::read_to_string(&index).unwrap();
    let first = text.lines().next().unwrap();
    fs_err::write(&index, format!("{first}\n{{\"pa")).unwrap();
    let error = combine(&parts, &scratch.path().join("model.tar.gz")).unwrap_err();
    assert_eq!(error.to_string(), format!("cannot read line 2 of the index {index:?}"));
}
