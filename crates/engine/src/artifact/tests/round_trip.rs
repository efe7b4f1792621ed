//! What is packed comes out again.

use std::path::Path;

use proptest::prelude::*;
use tempfile::TempDir;

use super::super::PackError;
use super::*;

/// One thing that a training program might have left: names from the top down, and a file's content.
type Planted = (Vec<Vec<u8>>, Option<Vec<u8>>, u32, u32);

fn name() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => proptest::sample::select(vec!["a", "b", "a.txt", "a-", "a b", "ä", "-x", "new\nline", "tab\t"])
            .prop_map(|name| name.as_bytes().to_vec()),
        1 => Just(b"bad\xff\xfe".to_vec()),
        1 => Just(vec![b'\xfe'; 140]),
        1 => (90..110_usize).prop_map(|length| vec![b'n'; length]),
        1 => Just(vec![b'm'; 255]),
    ]
}

fn content() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        Just(Vec::new()),
        proptest::collection::vec(any::<u8>(), 1..1500),
        (any::<u8>(), 500_000..600_000_usize).prop_map(|(byte, length)| vec![byte; length]),
    ]
}

fn tree() -> impl Strategy<Value = Vec<Planted>> {
    let names = proptest::collection::vec(name(), 1..6);
    let planted = (names, proptest::option::weighted(0.8, content()), 0..0o1000_u32, any::<u32>());
    proptest::collection::vec(planted, 0..12)
}

/// What does not fit beside what is there already is left away.
fn plant(folder: &Path, tree: &[Planted]) {
    for (names, content, mode, modified) in tree {
        let path = names.iter().fold(folder.to_owned(), |path, name| path.join(os(name)));
        let made = match content {
            None => fs_err::create_dir_all(&path),
            Some(bytes) => {
                fs_err::create_dir_all(path.parent().unwrap()).and_then(|()| fs_err::write(&path, bytes))
            }
        };
        if made.is_err() {
            continue;
        }
        set_mode(&path, mode | 0o600 | if path.is_dir() { 0o100 } else { 0 });
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(u64::from(*modified));
        fs_err::File::open(&path).unwrap().file().set_modified(time).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_tree_is_read_back_the_same(tree in tree(), level in 0..10_u32, threads in 0..4_usize) {
        let (folder, scratch) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        plant(folder.path(), &tree);
        let path = scratch.path().join("part");
        let options = PackOptions { level, threads, ..options() };
        let packed = pack(folder.path(), "algo-1", &path, &options, &|_| {}).unwrap();
        prop_assert_eq!(&packed.warnings, &Vec::<String>::new());
        let expected = nodes_on_disk(folder.path());
        prop_assert_eq!(packed.entries, expected.len() as u64);
        if !expected.is_empty() {
            let part = PartFile { host: "algo-1".into(), path, packed };
            let (archive, _) = archive_from(&[part], scratch.path());
            let found = nodes_in(&archive);
            let names = |nodes: &Nodes| nodes.keys().map(|name| format!("{:?}", os(name))).collect::<Vec<_>>();
            prop_assert_eq!(names(&found), names(&expected));
            prop_assert!(found == expected, "modes, times or content differ");
            let order: Vec<_> = entries_in(&archive).into_iter().map(|(path, _)| path).collect();
            prop_assert!(order.is_sorted());
        }
    }
}

#[test]
fn paths_start_at_the_root_of_the_archive_and_empty_folders_are_kept() {
    let folder = TempDir::new().unwrap();
    write(folder.path(), "code/train.py", "x");
    write(folder.path(), "code.txt", "x");
    fs_err::create_dir(folder.path().join("empty")).unwrap();
    let (archive, _) = archive_of(folder.path());
    assert_eq!(names_in(&archive), ["code.txt", "code/", "code/train.py", "empty/"]);
}

#[test]
fn the_same_tree_gives_the_same_bytes_on_any_number_of_threads() {
    let (folder, scratch) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let content: Vec<u8> = (0..1_500_000_u32).flat_map(|i| (i / 7).to_le_bytes()).collect();
    write(folder.path(), "large", content);
    write(folder.path(), "small", "x");
    let bytes_with = |threads: usize| {
        let options = PackOptions { threads, ..options() };
        let path = scratch.path().join(threads.to_string());
        pack(folder.path(), "algo-1", &path, &options, &|_| {}).unwrap();
        fs_err::read(path).unwrap()
    };
    let one = bytes_with(1);
    assert!(one.len() > 100_000);
    assert!(one == bytes_with(2) && one == bytes_with(7));
}

#[test]
fn times_before_1970_and_parts_of_seconds_are_kept() {
    let folder = TempDir::new().unwrap();
    write(folder.path(), "old", "x");
    let time = std::time::UNIX_EPOCH - std::time::Duration::from_millis(1_250);
    fs_err::File::open(folder.path().join("old")).unwrap().file().set_modified(time).unwrap();
    let (archive, _) = archive_of(folder.path());
    let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(archive.as_slice()));
    let mut entry = tar.entries().unwrap().next().unwrap().unwrap();
    let records: Vec<_> = entry.pax_extensions().unwrap().unwrap().map(|record| record.unwrap()).collect();
    let time = records.iter().find(|record| record.key() == Ok("mtime")).unwrap();
    assert_eq!(time.value(), Ok("-1.250000000"));
}

#[test]
fn progress_adds_up_to_the_tar_bytes() {
    let (folder, scratch) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    write(folder.path(), "large", vec![7; 1_000_000]);
    let told = std::sync::atomic::AtomicU64::new(0);
    let progress = |bytes| {
        told.fetch_add(bytes, std::sync::atomic::Ordering::Relaxed);
    };
    let packed = pack(folder.path(), "algo-1", &scratch.path().join("p"), &options(), &progress).unwrap();
    assert_eq!(told.into_inner(), packed.tar_bytes);
    assert_eq!(packed.tar_bytes % 512, 0);
}

#[test]
fn a_part_that_cannot_be_written_is_named_and_nothing_is_left() {
    let (folder, scratch) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    write(folder.path(), "f", "x");
    let part = scratch.path().join("missing/part");
    let error = pack(folder.path(), "algo-1", &part, &options(), &|_| {}).unwrap_err();
    assert!(matches!(&error, PackError::Write { path, .. } if *path == part), "{error:?}");
    assert_eq!(fs_err::read_dir(scratch.path()).unwrap().count(), 0);
}

#[test]
fn a_disk_that_fills_up_ends_packing_with_its_own_reason() {
    if fs_err::metadata("/dev/full").is_err() {
        eprintln!("skipped: there is no /dev/full");
        return;
    }
    let noise: Vec<u8> =
        (0..3_000_000_u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect();
    let mut full = fs_err::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let effort = crate::artifact::deflate::Effort { codec: Codec::Gzip, level: 1, threads: 2 };
    let result = crate::artifact::deflate::deflate(effort, &mut full, &|_| {}, |input| input.write(&noise));
    let Err(crate::artifact::deflate::DeflateError::Write(error)) = result else { panic!("it was written") };
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
}

#[test]
fn a_folder_that_is_a_link_is_refused() {
    let (folder, scratch) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let link = scratch.path().join("model");
    std::os::unix::fs::symlink(folder.path(), &link).unwrap();
    let part = scratch.path().join("part");
    let error = pack(&link, "algo-1", &part, &options(), &|_| {}).unwrap_err();
    assert!(matches!(error, PackError::Folder { .. }), "{error:?}");
    assert!(!part.exists() && !index_path(&part).exists());
}

#[test]
fn a_folder_that_is_gone_counts_as_empty() {
    let scratch = TempDir::new().unwrap();
    let part = part_of(&scratch.path().join("model"), "algo-1", scratch.path());
    assert_eq!((part.packed.entries, part.packed.warnings.len()), (0, 1));
}

#[test]
fn a_file_that_shrinks_or_grows_meanwhile_never_spoils_the_archive() {
    let (folder, scratch) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    // The first file is long enough that the others are touched while it goes through.
    write(folder.path(), "a", vec![1; 4_000_000]);
    write(folder.path(), "grows", vec![2; 3_000_000]);
    write(folder.path(), "shrinks", vec![3; 3_000_000]);
    let told = std::sync::atomic::AtomicU64::new(0);
    let at = folder.path().to_owned();
    let progress = move |bytes: u64| {
        // Half-way through each of the two.
        let before = told.fetch_add(bytes, std::sync::atomic::Ordering::Relaxed);
        let resize = |name: &str, length| {
            fs_err::OpenOptions::new().write(true).open(at.join(name)).unwrap().set_len(length).unwrap();
        };
        if (5_500_000..5_500_000 + bytes).contains(&before) {
            resize("grows", 3_000_010);
        }
        if (8_500_000..8_500_000 + bytes).contains(&before) {
            resize("shrinks", 10);
        }
    };
    let path = scratch.path().join("part");
    let packed = pack(folder.path(), "algo-1", &path, &options(), &progress).unwrap();
    assert_eq!(packed.warnings.len(), 2, "{:?}", packed.warnings);
    assert!(packed.warnings[0].contains("grew") && packed.warnings[1].contains("shrank"));
    let part = PartFile { host: "algo-1".into(), path, packed };
    let nodes = nodes_in(&archive_from(&[part], scratch.path()).0);
    let content = |name: &str| nodes[name.as_bytes()].content.clone().unwrap();
    assert!(content("grows") == vec![2; 3_000_000]);
    assert_eq!(content("shrinks").len(), 3_000_000);
    assert!(content("shrinks").ends_with(&[0; 4096]));
}

#[test]
fn what_is_to_be_left_out_is_left_out() {
    let folder = TempDir::new().unwrap();
    for name in ["a.tmp", "keep", "in/b.tmp", "in/keep", "cache/x/y", "other/cache/z"] {
        write(folder.path(), name, name);
    }
    let ignore = ["*.tmp", "cache/**"].map(|glob| glob::Pattern::new(glob).unwrap());
    let options = PackOptions { ignore: ignore.to_vec(), ..options() };
    let scratch = TempDir::new().unwrap();
    let path = scratch.path().join("part");
    let packed = pack(folder.path(), "algo-1", &path, &options, &|_| {}).unwrap();
    let part = PartFile { host: "algo-1".into(), path, packed };
    let (archive, _) = archive_from(&[part], scratch.path());
    let files: Vec<_> = names_in(&archive).into_iter().filter(|name| !name.ends_with('/')).collect();
    assert_eq!(files, ["in/keep", "keep", "other/cache/z"]);
}
