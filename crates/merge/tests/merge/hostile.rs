//! Archives and parts made to do harm: errors, never panics, never memory or files by their word.

use std::sync::Arc;

use arrow::array::{Array, Int64Array, RecordBatch, StringArray};
use proptest::prelude::*;
use trainyard_merge::Warning;

use crate::archives::*;
use crate::formats::npz;

#[test]
fn paths_that_lead_elsewhere_are_only_names() {
    let place = Place::gzipped(&[
        (None, "../../escaped.csv", b"x\n1\n".to_vec()),
        (None, "/tmp/absolute.csv", b"x\n2\n".to_vec()),
        (Some("../algo-1"), "a.csv", b"x\n3\n".to_vec()),
    ]);
    assert_eq!(place.merge("all.csv", &by_host()).unwrap(), b"x\n3\n1\n2\n");
    assert!(
        !place.path().join("../escaped.csv").exists() && !place.path().join("../../escaped.csv").exists()
    );
}

fn entry(kind: tar::EntryType, path: &str, contents: &[u8]) -> Vec<u8> {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(contents.len() as u64);
    header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
    header.set_cksum();
    let mut builder = tar::Builder::new(Vec::new());
    builder.append(&header, contents).unwrap();
    let mut bytes = builder.into_inner().unwrap();
    bytes.truncate(bytes.len() - 1024);
    bytes
}

#[test]
fn links_are_not_followed() {
    let mut archive = Vec::new();
    for kind in [tar::EntryType::Symlink, tar::EntryType::Link] {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(0);
        header.set_path("secret.csv").unwrap();
        header.set_link_name("/etc/passwd").unwrap();
        header.set_cksum();
        archive.extend(header.as_bytes());
    }
    archive.extend(tar(&[(None, "a.csv", b"x\n1\n".to_vec())]));
    let place = Place::with_archive(&archive);
    let report = place.report("all.csv", &by_host()).unwrap();
    let link = Warning::Link { path: "secret.csv".to_owned() };
    assert_eq!((report.rows, report.warnings), (1, vec![link.clone(), link]));
}

#[test]
fn a_header_of_any_length_does_not_fill_the_memory() {
    for kind in [tar::EntryType::XHeader, tar::EntryType::GNULongName, tar::EntryType::GNULongLink] {
        let archive = gzip(&entry(kind, "x", &vec![b'a'; 3 << 20]));
        let error = Place::with_archive(&archive).error("all.csv", &by_host());
        assert!(error.contains("headers of one entry are longer than 1 MiB"), "{error}");
    }
    let long = [entry(tar::EntryType::GNULongName, "x", &[b'a'; 5000]), tar(&[(None, "a", vec![])])].concat();
    let error = Place::with_archive(&long).error("all.csv", &by_host());
    assert!(error.contains("a path is longer than 4096 bytes"), "{error}");
}

#[test]
fn an_entry_that_claims_more_than_there_is_is_broken() {
    let mut header = tar::Header::new_gnu();
    header.set_size(1 << 60);
    header.set_path("a.csv").unwrap();
    header.set_cksum();
    let archive = [&header.as_bytes()[..], b"x\n1\n"].concat();
    let error = Place::with_archive(&archive).error("all.csv", &by_host());
    assert!(error.contains("is broken in a.csv"), "{error}");
}

#[test]
fn sparse_files_are_refused() {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::GNUSparse);
    header.set_path("a.csv").unwrap();
    header.set_size(0);
    let gnu = header.as_gnu_mut().unwrap();
    gnu.realsize.copy_from_slice(b"77777777777\0");
    gnu.sparse[0].offset.copy_from_slice(b"77777777777\0");
    gnu.sparse[0].numbytes.copy_from_slice(b"00000000000\0");
    header.set_cksum();
    let archive = [&header.as_bytes()[..], &[0; 1024]].concat();
    let error = Place::with_archive(&archive).error("all.csv", &by_host());
    assert!(error.contains("a.csv is stored as a sparse file"), "{error}");
}

#[test]
fn a_record_without_end_is_refused() {
    let endless = vec![b'"'; 1].into_iter().chain(vec![b'a'; (64 << 20) + (1 << 20)]).collect::<Vec<u8>>();
    let place = parts(&[[b"x\n", &endless[..]].concat()], "csv");
    let error = place.error("all.csv", &by_host());
    assert!(error.contains("record at line 2 is longer than 67108864 bytes"), "{error}");
    let place = parts(&[[b"{}\n", &endless[..]].concat()], "jsonl");
    let error = place.error("all.jsonl", &by_host());
    assert!(error.contains("record at line 2 is longer than 67108864 bytes"), "{error}");
}

#[test]
fn json_of_any_depth_does_not_fill_the_stack() {
    let open = format!("{{\"a\":{}", "[".repeat(1 << 20));
    let closed = format!("{open}{}}}", "]".repeat(1 << 20));
    for output in ["all.jsonl", "all.parquet"] {
        let error = parts(&[open.clone().into_bytes()], "jsonl").error(output, &by_host());
        assert!(error.contains("line 1 is not a JSON object"), "{error}");
    }
    let place = parts(&[closed.into_bytes()], "jsonl");
    assert!(place.merge("all.jsonl", &by_host()).is_ok());
    let error = place.error("all.parquet", &by_host());
    assert!(error.contains("recursion limit"), "{error}");
    assert!(place.error("all.jsonl", &by("a")).contains("recursion limit"));
}

fn sound(format: &str) -> Vec<u8> {
    let columns: [(&str, Arc<dyn Array>, bool); 2] = [
        ("row", Arc::new(Int64Array::from_iter((0..300).map(|i| (i % 7 != 0).then_some(i)))), true),
        ("word", Arc::new(StringArray::from_iter_values((0..300).map(|i| format!("w{}", i % 10)))), false),
    ];
    let part = parquet(&RecordBatch::try_from_iter_with_nullable(columns).unwrap(), 100);
    match format {
        "npy" => npy("<f4", "(3, 2)", &[7; 24]),
        "npz" => npz(7, &[&[(1, 0.5), (6, -1.0)], &[], &[(0, 0.25)]]),
        "parquet" => part,
        _ => parts(&[part], "parquet").merge(&format!("x.{format}"), &by_host()).unwrap(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn damage_anywhere_in_a_part_is_an_error_or_other_rows(
        format in prop::sample::select(vec!["parquet", "parquet", "csv", "jsonl", "arrow", "npy", "npz"]),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in prop::option::weighted(0.2, any::<prop::sample::Index>()),
        ordered in any::<bool>(),
    ) {
        let mut bytes = sound(format);
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let options = if ordered && !format.starts_with("np") { by("row") } else { by_host() };
        let _ = parts(&[sound(format), bytes], format).merge(&format!("all.{format}"), &options);
    }

    #[test]
    fn damage_anywhere_in_an_archive_is_an_error_or_other_parts(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in prop::option::weighted(0.3, any::<prop::sample::Index>()),
        zipped in any::<bool>(),
    ) {
        let tar = tar(&[
            (Some("algo-2"), "part.csv", b"x\n1\n".to_vec()),
            (Some("algo-1"), "part.csv", b"x\n2\n".to_vec()),
        ]);
        let mut bytes = if zipped { gzip(&tar) } else { tar };
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let _ = Place::with_archive(&bytes).merge("all.csv", &by_host());
    }
}
