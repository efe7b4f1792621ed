//! Parts that become plain files.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tempfile::TempDir;

use super::super::{Tree, UnpackError, unpack};
use super::*;

/// The files below a folder, by their paths.
fn files_below(folder: &Path) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs_err::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
                files.insert(name, fs_err::read_to_string(&path).unwrap());
            }
        }
    }
    files
}

fn packed(scratch: &Path, hosts: &[BTreeMap<String, String>]) -> Vec<PartFile> {
    let pack = |(rank, files): (usize, &BTreeMap<String, String>)| {
        let folder = TempDir::new().unwrap();
        for (name, content) in files {
            write(folder.path(), name, content);
        }
        part_of(folder.path(), &format!("algo-{}", rank + 1), scratch)
    };
    hosts.iter().enumerate().map(pack).collect()
}

fn unpacked(scratch: &Path, parts: &[PartFile]) -> (BTreeMap<String, String>, BTreeMap<String, String>) {
    let (files, replaced) = (scratch.join("files"), scratch.join("replaced"));
    for folder in [&files, &replaced] {
        fs_err::create_dir(folder).unwrap();
    }
    unpack(parts, Tree { files: &files, replaced: &replaced }).unwrap();
    (files_below(&files), files_below(&replaced))
}

fn files(files: &[(&str, &str)]) -> BTreeMap<String, String> {
    files.iter().map(|&(name, content)| (name.to_owned(), content.to_owned())).collect()
}

#[test]
fn a_file_and_a_folder_of_one_name_are_both_kept() {
    let scratch = TempDir::new().unwrap();
    let hosts =
        [files(&[("a", "1"), ("b/c", "1")]), files(&[("a/x", "2"), ("b", "2")]), files(&[("a", "3")])];
    let (tree, replaced) = unpacked(scratch.path(), &packed(scratch.path(), &hosts));
    assert_eq!(tree, files(&[("a", "3"), ("b", "2")]));
    assert_eq!(replaced, files(&[("algo-1/a", "1"), ("algo-1/b/c", "1"), ("algo-2/a/x", "2")]));
}

#[test]
fn modes_and_times_are_kept_and_empty_folders_too() {
    let (scratch, folder) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    fs_err::create_dir_all(folder.path().join("empty/deep")).unwrap();
    write(folder.path(), "run.sh", "x");
    let program = folder.path().join("run.sh");
    fs_err::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_440_938_160);
    std::fs::File::options().write(true).open(&program).unwrap().set_modified(time).unwrap();
    let part = part_of(folder.path(), "algo-1", scratch.path());
    unpacked(scratch.path(), &[part]);
    let found = fs_err::metadata(scratch.path().join("files/run.sh")).unwrap();
    assert_eq!((found.mode() & 0o777, found.modified().unwrap()), (0o700, time));
    assert!(scratch.path().join("files/empty/deep").is_dir());
}

#[test]
fn a_damaged_part_is_no_tree() {
    let scratch = TempDir::new().unwrap();
    // Nothing in it comes twice: a copy of zeros from another place would be none the worse for the damage.
    let letters = (0..8192_u32).map(|n| char::from(b'0' + (n.wrapping_mul(2_654_435_761) >> 26) as u8));
    let parts = packed(scratch.path(), &[files(&[("a", &letters.collect::<String>())])]);
    let mut bytes = fs_err::read(&parts[0].path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs_err::write(&parts[0].path, bytes).unwrap();
    let error = unpack(&parts, Tree { files: scratch.path(), replaced: scratch.path() }).unwrap_err();
    assert!(matches!(error, UnpackError::Damaged { host, .. } if host == "algo-1"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn no_version_is_lost_and_the_last_host_has_the_plain_name(
        hosts in prop::collection::vec(prop::collection::btree_map("[ab](/[cd])?", "[xy]", 0..4), 1..4),
    ) {
        // One host can't have a file and a folder of one name.
        let hosts: Vec<BTreeMap<String, String>> = hosts.into_iter().map(|files| {
            let folders: Vec<_> = files.keys().filter_map(|name| Some(name.split_once('/')?.0.to_owned())).collect();
            files.into_iter().filter(|(name, _)| !folders.contains(name)).collect()
        }).collect();
        let scratch = TempDir::new().unwrap();
        let (tree, replaced) = unpacked(scratch.path(), &packed(scratch.path(), &hosts));
        for (rank, files) in hosts.iter().enumerate() {
            for (name, content) in files {
                let own = replaced.get(&format!("algo-{}/{name}", rank + 1));
                prop_assert!(own == Some(content) || tree.get(name) == Some(content), "{name} of {rank}");
                if rank + 1 == hosts.len() {
                    prop_assert_eq!(tree.get(name), Some(content));
                }
            }
        }
        let written: usize = hosts.iter().map(BTreeMap::len).sum();
        prop_assert!(tree.len() + replaced.len() <= written, "nothing else is there");
    }
}
