//! The reader, on our archives and on hostile ones.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use tempfile::TempDir;

use super::super::{ArchiveReader, EntryKind, ReadError};
use super::*;

type Seen = (Option<String>, String, EntryKind, Vec<u8>);

fn read_all(archive: &[u8]) -> Result<Vec<Seen>, ReadError> {
    let mut reader = ArchiveReader::new(archive);
    let mut seen = Vec::new();
    while let Some(mut entry) = reader.next_entry()? {
        let mut content = Vec::new();
        if let Err(source) = entry.read_to_end(&mut content) {
            return Err(ReadError::Io { offset: 0, source });
        }
        assert_eq!(content.len() as u64, entry.size);
        let path = String::from_utf8_lossy(&entry.path).into_owned();
        seen.push((entry.host.clone(), path, entry.kind, content));
    }
    assert!(reader.next_entry()?.is_none());
    Ok(seen)
}

fn gzip(tar: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(tar).unwrap();
    encoder.finish().unwrap()
}

/// One header as another program would write it, with `change` applied before the checksum.
fn block(name: &str, flag: u8, size: u64, change: impl FnOnce(&mut tar::Header)) -> Vec<u8> {
    let mut header = tar::Header::new_ustar();
    header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
    header.set_entry_type(tar::EntryType::new(flag));
    header.set_size(size);
    header.set_mode(0o644);
    change(&mut header);
    header.set_cksum();
    header.as_bytes().to_vec()
}

fn padded(content: &[u8]) -> Vec<u8> {
    let mut bytes = content.to_vec();
    bytes.resize(content.len().next_multiple_of(512), 0);
    bytes
}

#[test]
fn an_entry_tells_its_time_and_mode_where_the_archive_does() {
    let said = block("said", b'0', 0, |header| header.set_mtime(1_440_938_160));
    let silent = block("silent", b'0', 0, |header| {
        header.as_mut_bytes()[100..108].copy_from_slice(b"nothing\0");
        header.as_mut_bytes()[136..148].copy_from_slice(b"no number  \0");
    });
    let archive = gzip(&[said, silent, vec![0; 1024]].concat());
    let mut reader = ArchiveReader::new(archive.as_slice());
    let mut seen = Vec::new();
    while let Some(entry) = reader.next_entry().unwrap() {
        seen.push((entry.modified, entry.mode));
    }
    assert_eq!(seen, [(Some(1_440_938_160), 0o644), (None, 0)]);
}

#[test]
fn each_entry_gives_its_host_path_and_content() {
    let scratch = TempDir::new().unwrap();
    let long = "long/".repeat(60);
    let parts: Vec<PartFile> = ["algo-1", "algo-2"]
        .into_iter()
        .map(|host| {
            let folder = TempDir::new().unwrap();
            write(folder.path(), "f", host);
            write(folder.path(), &format!("{long}g"), vec![9; 5000]);
            part_of(folder.path(), host, scratch.path())
        })
        .collect();
    let seen = read_all(&archive_from(&parts, scratch.path()).0).unwrap();
    let files: Vec<_> = seen.into_iter().filter(|(_, _, kind, _)| *kind == EntryKind::File).collect();
    let file = |host: &str, path: &str, content: &[u8]| {
        (Some(host.into()), path.into(), EntryKind::File, content.into())
    };
    assert_eq!(
        files,
        [
            file("algo-1", "f", b"algo-1"),
            file("algo-1", &format!("{long}g"), &[9; 5000]),
            file("algo-2", "f", b"algo-2"),
            file("algo-2", &format!("{long}g"), &[9; 5000]),
        ]
    );
}

#[test]
fn entries_that_are_not_read_are_passed_over() {
    let folder = TempDir::new().unwrap();
    write(folder.path(), "a", vec![1; 100_000]);
    write(folder.path(), "b", "b");
    let (archive, _) = archive_of(folder.path());
    let mut reader = ArchiveReader::new(archive.as_slice());
    let mut first = reader.next_entry().unwrap().unwrap();
    first.read_exact(&mut [0; 700]).unwrap();
    assert_eq!(reader.next_entry().unwrap().unwrap().path, b"b");
    assert!(reader.next_entry().unwrap().is_none());
}

#[test]
fn an_archive_of_another_program_is_read_with_its_odd_ways() {
    let mut builder = tar::Builder::new(Vec::new());
    let mut add = |path: &str, content: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, path, content).unwrap();
    };
    add("x", b"1");
    add(&"y".repeat(300), b"2");
    let mut tar = block("./", b'5', 0, |_| {});
    tar.extend(block("./a//b/", b'5', 0, |_| {}));
    tar.extend(block("link", b'2', 77, |header| header.set_link_name("/etc/passwd").unwrap()));
    tar.extend(builder.into_inner().unwrap());
    let seen = read_all(&gzip(&tar)).unwrap();
    let plain: Vec<_> = seen
        .into_iter()
        .map(|(host, path, kind, content)| {
            assert_eq!(host, None);
            (path, kind, content)
        })
        .collect();
    assert_eq!(
        plain,
        [
            ("a/b".into(), EntryKind::Folder, vec![]),
            ("link".into(), EntryKind::Other, vec![]),
            ("x".into(), EntryKind::File, b"1".to_vec()),
            ("y".repeat(300), EntryKind::File, b"2".to_vec()),
        ]
    );
}

#[test]
fn paths_that_lead_out_are_errors() {
    for path in ["../x", "a/../../x", "/etc/passwd", "a/..", "..", "./.."] {
        let error = read_all(&gzip(&block(path, b'0', 0, |_| {}))).unwrap_err();
        assert!(
            matches!(&error, ReadError::UnsafePath { path: named } if named == path),
            "{path}: {error:?}"
        );
    }
    let record = padded(b"14 path=../xy\n");
    let tar = [block("pax", b'x', 14, |_| {}), record, block("ok", b'0', 0, |_| {})].concat();
    assert!(matches!(read_all(&gzip(&tar)), Err(ReadError::UnsafePath { .. })));
}

#[test]
fn extended_headers_have_a_largest_size() {
    for flag in [b'x', b'g', b'L', b'K'] {
        let tar = block("pax", flag, 1 << 33, |_| {});
        let error = read_all(&gzip(&tar)).unwrap_err();
        assert!(matches!(error, ReadError::ExtensionSize { size, .. } if size == 1 << 33), "{error:?}");
    }
}

#[test]
fn damaged_records_sizes_and_checksums_are_told_apart() {
    let with_record = |text: &[u8]| {
        let header = block("pax", b'x', text.len() as u64, |_| {});
        [header, padded(text), block("ok", b'0', 0, |_| {})].concat()
    };
    let mut wrong_sum = block("f", b'0', 0, |_| {});
    wrong_sum[0] = b'g';
    let wrong_size =
        block("f", b'0', 0, |header| header.as_mut_bytes()[124..136].copy_from_slice(b"99999999999\0"));
    let huge = block("f", b'0', 0, |header| header.as_mut_bytes()[124..136].fill(0xff));
    let record = "extended header record";
    for (tar, expected) in [
        (with_record(b"999 path=x\n"), record),
        (with_record(b"9 pathx=y\n"), record),
        (with_record(b"0 path=x\n"), record),
        (with_record(b"18446744073709551615 path=x\n"), record),
        (with_record(b"11 size=-1\n"), "size"),
        (wrong_sum, "checksum"),
        (wrong_size, "size"),
        (huge, "size"),
    ] {
        let error = read_all(&gzip(&tar)).unwrap_err();
        assert!(
            matches!(error, ReadError::Header { field, .. } if field == expected),
            "{expected}: {error:?}"
        );
    }
}

#[test]
fn a_size_that_is_no_number_any_more_with_its_padding_is_refused() {
    let text = b"29 size=18446744073709551615\n";
    let tar = [block("pax", b'x', 29, |_| {}), padded(text), block("f", b'0', 0, |_| {})].concat();
    let archive = gzip(&tar);
    let mut reader = ArchiveReader::new(archive.as_slice());
    // It is passed over, not read.
    let error = match reader.next_entry() {
        Ok(_) => reader.next_entry().err(),
        Err(error) => Some(error),
    };
    assert!(matches!(error, Some(ReadError::Header { field: "size", .. })), "{error:?}");
}

#[test]
fn an_archive_that_ends_early_or_is_damaged_is_an_error() {
    let folder = TempDir::new().unwrap();
    write(folder.path(), "f", (0..50_000_u32).flat_map(|i| i.to_le_bytes()).collect::<Vec<_>>());
    let (archive, _) = archive_of(folder.path());
    for length in [0, 5, 100, archive.len() / 2, archive.len() - 9, archive.len() - 1] {
        assert!(matches!(read_all(&archive[..length]), Err(ReadError::Io { .. })), "{length} bytes");
    }
    let mut wrong_crc = archive.clone();
    let place = archive.len() - 8;
    wrong_crc[place] ^= 1;
    assert!(matches!(read_all(&wrong_crc), Err(ReadError::Io { .. })));
}

#[test]
fn sparse_files_are_refused_by_name() {
    let record = padded(b"22 GNU.sparse.major=1\n");
    let tar = [block("pax", b'x', 22, |_| {}), record, block("holes", b'0', 0, |_| {})].concat();
    assert!(matches!(read_all(&gzip(&tar)), Err(ReadError::Sparse { path }) if path == "holes"));
    assert!(matches!(read_all(&gzip(&block("holes", b'S', 0, |_| {}))), Err(ReadError::Sparse { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_the_reader_panic(
        change in proptest::collection::vec((0..3072_usize, any::<u8>()), 0..8),
        fix_checksums in any::<bool>(),
        size in prop_oneof![any::<u64>(), Just(600), u64::MAX - 600..=u64::MAX],
    ) {
        let size = format!(" size={size}\n");
        // Two digits and their own length.
        let record = format!("30 comment=trainyard.host=ab\n\n\n{}{size}", size.len() + 2);
        let mut tar = [
            block("pax", b'x', record.len() as u64, |_| {}),
            padded(record.as_bytes()),
            block("f", b'0', 600, |_| {}),
            padded(&[7; 600]),
            vec![0; 512],
        ].concat();
        for (place, byte) in change {
            let length = tar.len();
            tar[place % length] = byte;
        }
        if fix_checksums {
            for start in [0, 1024] {
                let mut header = tar::Header::new_old();
                header.as_mut_bytes().copy_from_slice(&tar[start..start + 512]);
                header.set_cksum();
                tar[start..start + 512].copy_from_slice(header.as_bytes());
            }
        }
        let archive = gzip(&tar);
        let _ = read_all(&archive);
        let mut reader = ArchiveReader::new(archive.as_slice());
        while let Ok(Some(_)) = reader.next_entry() {}
    }
}
