//! What a folder as a bucket promises.

#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::os::unix::fs::symlink;

use fs_err as fs;
use proptest::prelude::*;
use trainyard_bucket::{Attributes, Bucket, BucketError, Entry, Key, ListRequest, Object};

struct Case {
    folder: tempfile::TempDir,
    bucket: Bucket,
}

impl Case {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let bucket = Bucket::new(folder.path().join("bucket"));
        fs::create_dir(folder.path().join("bucket")).unwrap();
        Self { folder, bucket }
    }

    fn put(&self, key: &str, content: &str) -> Object {
        let mut draft = self.bucket.draft().unwrap();
        draft.write_all(content.as_bytes()).unwrap();
        self.bucket.put(&self::key(key), draft, Attributes::default(), |_| true).unwrap()
    }

    fn get(&self, key: &str) -> String {
        let (mut file, object) = self.bucket.get(&self::key(key)).unwrap();
        let mut content = String::new();
        file.read_to_string(&mut content).unwrap();
        assert_eq!(object.size, content.len() as u64);
        content
    }

    fn delete(&self, key: &str) -> bool {
        self.bucket.delete(&self::key(key), |_| true).unwrap()
    }

    fn names(&self, request: ListRequest<'_>) -> Vec<String> {
        let listing = self.bucket.list(&request).unwrap();
        listing.entries.iter().map(|entry| entry.name().to_owned()).collect()
    }

    fn keys(&self) -> Vec<String> {
        self.names(ListRequest { limit: 1000, ..ListRequest::default() })
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join("bucket").join(name)
    }
}

fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

#[test]
fn an_object_is_the_file_of_its_name() {
    let case = Case::new();
    let object = case.put("a/b.csv", "x");
    assert_eq!(object.etag, "9dd4e461268c8034f5c8564e155c67a6");
    assert_eq!(fs::read_to_string(case.path("a/b.csv")).unwrap(), "x");
    assert_eq!(case.get("a/b.csv"), "x");
}

#[test]
fn a_file_that_was_copied_into_the_folder_is_an_object() {
    let case = Case::new();
    fs::create_dir(case.path("a")).unwrap();
    fs::write(case.path("a/b"), "by hand").unwrap();
    assert_eq!(case.get("a/b"), "by hand");
    let (_, object) = case.bucket.get(&key("a/b")).unwrap();
    assert!(object.etag.ends_with("-1"), "not to be taken for an MD5: {}", object.etag);
    assert!(!case.path(".trainyard").exists(), "reading leaves nothing");
}

#[test]
fn what_was_known_of_a_file_is_not_told_of_another() {
    let case = Case::new();
    let mut draft = case.bucket.draft().unwrap();
    draft.write_all(b"first").unwrap();
    let headers = BTreeMap::from([("content-type".to_owned(), "text/csv".to_owned())]);
    let attributes = Attributes { headers, ..Attributes::default() };
    let object = case.bucket.put(&key("a"), draft, attributes.clone(), |_| true).unwrap();
    assert_eq!(case.bucket.get(&key("a")).unwrap().1, object);
    assert_eq!(object.attributes, attributes);
    fs::write(case.path("a"), "second").unwrap();
    let (_, other) = case.bucket.get(&key("a")).unwrap();
    assert_eq!(other.attributes, Attributes::default());
    assert_ne!(other.etag, object.etag);
}

#[test]
fn keys_that_can_not_be_paths_are_objects_like_all_others() {
    let case = Case::new();
    let long = "x".repeat(300);
    let keys = ["../a", "a//b", "a/", "/", "./x", ".trainyard/index.sqlite", "k", "k/z", &long, "n\0l"];
    for key in keys {
        case.put(key, key);
    }
    for key in keys {
        assert_eq!(case.get(key), key);
    }
    let sorted: BTreeSet<_> = keys.iter().map(ToString::to_string).collect();
    assert_eq!(case.keys(), sorted.into_iter().collect::<Vec<_>>());
    assert_eq!(fs::read_dir(case.folder.path()).unwrap().count(), 1, "nothing outside of the bucket");
    for key in keys {
        assert!(case.delete(key), "{key:?}");
        assert!(!case.delete(key), "{key:?}");
    }
    assert_eq!(case.keys(), [""; 0]);
}

#[test]
fn a_file_and_a_folder_may_have_one_name_in_any_order() {
    for (first, second) in [("k", "k/z"), ("k/z", "k")] {
        let case = Case::new();
        case.put(first, first);
        case.put(second, second);
        assert_eq!(case.keys(), ["k", "k/z"]);
        assert_eq!((case.get("k"), case.get("k/z")), ("k".to_owned(), "k/z".to_owned()));
        assert!(case.delete(first));
        assert_eq!(case.get(second), second);
        // Now there is room for it.
        case.put(second, "new");
        assert_eq!(fs::read_to_string(case.path(second)).unwrap(), "new");
        assert_eq!(case.keys(), [second]);
    }
}

#[test]
fn folders_go_with_their_last_object() {
    let case = Case::new();
    case.put("a/b/c", "");
    case.put("a/d", "");
    assert!(case.delete("a/b/c"));
    assert!(!case.path("a/b").exists());
    assert!(case.delete("a/d"));
    assert!(!case.path("a").exists());
}

#[test]
fn nothing_is_written_or_deleted_through_a_link_that_leads_out() {
    let case = Case::new();
    let outside = case.folder.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("x"), "mine").unwrap();
    symlink(&outside, case.path("link")).unwrap();
    assert_eq!(case.get("link/x"), "mine", "people link their folders of files");
    let mut draft = case.bucket.draft().unwrap();
    draft.write_all(b"y").unwrap();
    let put = case.bucket.put(&key("link/x"), draft, Attributes::default(), |_| true);
    assert!(matches!(put, Err(BucketError::Outside { .. })), "{put:?}");
    let deleted = case.bucket.delete(&key("link/x"), |_| true);
    assert!(matches!(deleted, Err(BucketError::Outside { .. })), "{deleted:?}");
    assert_eq!(fs::read_to_string(outside.join("x")).unwrap(), "mine");
}

#[test]
fn a_link_that_leads_back_is_listed_once_and_not_for_ever() {
    let case = Case::new();
    case.put("a/b", "");
    symlink("..", case.path("a/up")).unwrap();
    symlink("nowhere", case.path("a/dead")).unwrap();
    assert_eq!(case.keys(), ["a/b"]);
    let through = key("a/up/.trainyard/index.sqlite");
    assert!(matches!(case.bucket.get(&through), Err(BucketError::NoObject { .. })));
}

#[test]
fn a_condition_is_asked_before_anything_changes() {
    let case = Case::new();
    case.put("a", "old");
    let draft = case.bucket.draft().unwrap();
    let put = case.bucket.put(&key("a"), draft, Attributes::default(), |before| before.is_none());
    assert!(matches!(put, Err(BucketError::Condition { .. })));
    assert!(case.bucket.delete(&key("a"), |_| false).is_err());
    assert_eq!(case.get("a"), "old");
    let left = fs::read_dir(case.path(".trainyard/tmp")).unwrap().count();
    assert_eq!(left, 0, "a draft that was not taken is gone");
}

#[test]
fn tags_do_not_change_the_object() {
    let case = Case::new();
    fs::write(case.path("by-hand"), "x").unwrap();
    for name in ["a", "a//b", "by-hand"] {
        if name != "by-hand" {
            case.put(name, "x");
        }
        let before = case.bucket.get(&key(name)).unwrap().1;
        let tags = vec![("b".to_owned(), "2".to_owned()), ("a".to_owned(), String::new())];
        case.bucket.set_tags(&key(name), tags.clone()).unwrap();
        let after = case.bucket.get(&key(name)).unwrap().1;
        assert_eq!(after.attributes.tags, tags);
        assert_eq!((after.etag, after.modified), (before.etag, before.modified));
    }
    assert_eq!(case.keys(), ["a", "a//b", "by-hand"]);
}

#[test]
fn an_upload_is_nowhere_until_it_is_complete() {
    let case = Case::new();
    let name = key("a/b");
    let id = case.bucket.begin_upload(&name, Attributes::default()).unwrap();
    let big = vec![b'x'; 5 << 20];
    let part = |number: u32, content: &[u8]| {
        let mut draft = case.bucket.draft().unwrap();
        draft.write_all(content).unwrap();
        case.bucket.put_part(&name, &id, (number, draft), BTreeMap::new()).unwrap().etag
    };
    let second = part(2, b"end");
    let _replaced = part(1, b"wrong");
    let first = part(1, &big);
    assert_eq!(case.keys(), [""; 0]);
    assert_eq!(case.bucket.uploads("a").unwrap().len(), 1);
    assert_eq!(case.bucket.upload(&name, &id).unwrap().1.len(), 2);
    let received = case.bucket.receive(&name, &id, &[(1, first), (2, second)]).unwrap();
    let object = case.bucket.complete_upload(&name, received, |_| true).unwrap();
    assert!(object.etag.ends_with("-2"));
    assert_eq!(object.size, (5 << 20) + 3);
    assert_eq!(object.attributes.parts, [5 << 20, 3]);
    assert!(case.get("a/b").ends_with("xend"));
    assert!(case.bucket.uploads("").unwrap().is_empty());
    assert!(matches!(case.bucket.abort_upload(&name, &id), Err(BucketError::NoUpload { .. })));
    let left = fs::read_dir(case.path(".trainyard/uploads")).unwrap().count();
    assert_eq!(left, 0);
}

#[test]
fn parts_that_make_no_object_are_refused_and_kept() {
    let case = Case::new();
    let name = key("a");
    let id = case.bucket.begin_upload(&name, Attributes::default()).unwrap();
    let mut etags = Vec::new();
    for number in [1, 2] {
        let mut draft = case.bucket.draft().unwrap();
        write!(draft, "{number}").unwrap();
        etags.push(case.bucket.put_part(&name, &id, (number, draft), BTreeMap::new()).unwrap().etag);
    }
    let one = (1, etags[0].clone());
    let two = (2, etags[1].clone());
    let receive = |wanted: &[(u32, String)]| case.bucket.receive(&name, &id, wanted).unwrap_err();
    assert!(matches!(receive(&[one.clone(), two.clone()]), BucketError::PartSize { number: 1, .. }));
    assert!(matches!(receive(&[two.clone(), one.clone()]), BucketError::PartSize { .. }));
    assert!(matches!(receive(&[(3, etags[0].clone())]), BucketError::NoPart { number: 3, .. }));
    assert!(matches!(receive(&[(1, "0".repeat(32))]), BucketError::NoPart { number: 1, .. }));
    let other = case.bucket.receive(&key("b"), &id, &[one]);
    assert!(matches!(other, Err(BucketError::NoUpload { .. })), "an id is one of its key only");
    assert!(case.bucket.receive(&name, &id, &[two]).is_ok());
    case.bucket.abort_upload(&name, &id).unwrap();
}

#[test]
fn another_process_finds_all_that_was_known() {
    let case = Case::new();
    let object = case.put("k//z", "x");
    let again = Bucket::new(case.path(""));
    assert_eq!(again.get(&key("k//z")).unwrap().1, object);
}

/// What S3 would answer, from all keys.
fn expected(keys: &BTreeSet<String>, request: &ListRequest<'_>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for key in keys.iter().filter(|key| key.starts_with(request.prefix)) {
        let rest = &key[request.prefix.len()..];
        let cut = request.delimiter.and_then(|delimiter| Some(rest.find(delimiter)? + delimiter.len()));
        let name = cut.map_or(key.as_str(), |cut| &key[..request.prefix.len() + cut]);
        if name > request.after && names.last().map(String::as_str) != Some(name) {
            names.push(name.to_owned());
        }
    }
    names.truncate(request.limit);
    names
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn listings_are_those_of_the_sorted_keys(
        keys in prop::collection::btree_set("[ab./]{1,6}", 1..20),
        prefix in "[ab./]{0,3}",
        delimiter in prop::option::of("/|a|\\./"),
        after in "[ab./]{0,4}",
        limit in 1_usize..8,
    ) {
        let case = Case::new();
        for key in &keys {
            case.put(key, "");
        }
        let delimiter = delimiter.as_deref();
        let request = ListRequest { prefix: &prefix, delimiter, after: &after, limit };
        let listing = case.bucket.list(&request).unwrap();
        let names: Vec<_> = listing.entries.iter().map(|entry| entry.name().to_owned()).collect();
        prop_assert_eq!(&names, &expected(&keys, &request));
        let all = expected(&keys, &ListRequest { limit: usize::MAX, ..request });
        prop_assert_eq!(listing.truncated, all.len() > limit);
        let is_prefix = |entry: &Entry| matches!(entry, Entry::Prefix(_));
        for entry in listing.entries.iter().filter(|entry| !is_prefix(entry)) {
            prop_assert!(keys.contains(entry.name()));
        }
        // Page by page it is the same.
        let mut paged: Vec<String> = Vec::new();
        loop {
            let after = paged.last().map_or(after.as_str(), String::as_str);
            let page = case.bucket.list(&ListRequest { after, ..request }).unwrap();
            paged.extend(page.entries.iter().map(|entry| entry.name().to_owned()));
            if !page.truncated {
                break;
            }
        }
        prop_assert_eq!(paged, all);
    }
}
