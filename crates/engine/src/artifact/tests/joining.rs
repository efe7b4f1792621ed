//! Parts joined into one archive.

use std::io::Read;

use tempfile::TempDir;

use super::super::CombineError;
use super::*;

#[test]
fn parts_of_many_hosts_are_one_gzip_member_in_host_order() {
    let scratch = TempDir::new().unwrap();
    let parts: Vec<PartFile> = (1..=12)
        .map(|number| {
            let folder = TempDir::new().unwrap();
            write(folder.path(), &format!("part-{number:02}"), vec![number; 300_000]);
            part_of(folder.path(), &format!("algo-{number}"), scratch.path())
        })
        .collect();
    let (archive, combined) = archive_from(&parts, scratch.path());
    assert_eq!(names_in(&archive), (1..=12).map(|number| format!("part-{number:02}")).collect::<Vec<_>>());
    assert_eq!(combined.clashes, []);
    // A reader that knows one member only takes the whole file, and finds checksum and length right.
    let mut rest = archive.as_slice();
    let mut tar = Vec::new();
    flate2::bufread::GzDecoder::new(&mut rest).read_to_end(&mut tar).unwrap();
    assert!(rest.is_empty());
    assert_eq!(tar.len() as u64, parts.iter().map(|part| part.packed.tar_bytes).sum::<u64>() + 1024);
}

#[test]
fn parts_may_be_joined_in_any_order() {
    let scratch = TempDir::new().unwrap();
    let part = |host: &str, byte: u8| {
        let folder = TempDir::new().unwrap();
        write(folder.path(), host, vec![byte; 700_000]);
        part_of(folder.path(), host, scratch.path())
    };
    let (one, two) = (part("algo-1", 1), part("algo-2", 2));
    let (archive, _) = archive_from(&[two, one], scratch.path());
    assert_eq!(names_in(&archive), ["algo-2", "algo-1"]);
}

#[test]
fn empty_parts_give_no_archive() {
    let (folder, scratch) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let parts =
        [part_of(folder.path(), "algo-1", scratch.path()), part_of(folder.path(), "algo-2", scratch.path())];
    let destination = scratch.path().join("model.tar.gz");
    assert_eq!(combine(&parts, &destination).unwrap().bytes, None);
    assert_eq!(combine(&[], &destination).unwrap().bytes, None);
    assert!(!destination.exists());
}

#[test]
fn an_empty_part_between_others_does_not_matter() {
    let scratch = TempDir::new().unwrap();
    let (full, empty) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    write(full.path(), "f", "x");
    let parts =
        [part_of(empty.path(), "algo-1", scratch.path()), part_of(full.path(), "algo-2", scratch.path())];
    assert_eq!(names_in(&archive_from(&parts, scratch.path()).0), ["f"]);
}

#[test]
fn warnings_name_their_host() {
    let (folder, scratch) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    std::os::unix::fs::symlink("nowhere", folder.path().join("l")).unwrap();
    let part = part_of(folder.path(), "algo-3", scratch.path());
    let combined = combine(&[part], &scratch.path().join("model.tar.gz")).unwrap();
    assert_eq!(combined.warnings, ["algo-3: \"l\" is left out: it points to nothing"]);
}

#[test]
fn a_part_of_another_length_is_named_and_nothing_is_left() {
    let (folder, scratch) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    write(folder.path(), "f", "x");
    let part = part_of(folder.path(), "algo-1", scratch.path());
    fs_err::OpenOptions::new().append(true).open(&part.path).unwrap().set_len(10).unwrap();
    let output = TempDir::new().unwrap();
    let error = combine(&[part], &output.path().join("model.tar.gz")).unwrap_err();
    assert!(
        matches!(&error, CombineError::PartLength { host, found: 10, .. } if host == "algo-1"),
        "{error:?}"
    );
    assert_eq!(fs_err::read_dir(output.path()).unwrap().count(), 0);
}

#[test]
fn what_a_killed_run_left_is_replaced() {
    let (folder, scratch) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    write(folder.path(), "f", "x");
    let part = part_of(folder.path(), "algo-1", scratch.path());
    let output = TempDir::new().unwrap();
    write(output.path(), ".model.tar.gz.partial", "half");
    write(output.path(), "model.tar.gz", "old");
    combine(&[part], &output.path().join("model.tar.gz")).unwrap();
    let names: Vec<_> =
        fs_err::read_dir(output.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["model.tar.gz"]);
    assert_eq!(names_in(&fs_err::read(output.path().join("model.tar.gz")).unwrap()), ["f"]);
}

#[test]
fn a_missing_folder_for_the_archive_is_an_error_that_names_it() {
    let (folder, scratch) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    write(folder.path(), "f", "x");
    let part = part_of(folder.path(), "algo-1", scratch.path());
    let destination = scratch.path().join("no/model.tar.gz");
    let error = combine(&[part], &destination).unwrap_err();
    assert!(matches!(&error, CombineError::Write { path, .. } if *path == destination), "{error:?}");
}
