//! Archives that are compressed with zstd.

use std::io::Read;

use tempfile::TempDir;

use super::super::{ArchiveReader, Codec, PackOptions, PartFile, combine, pack};
use super::{options, write};

/// An archive of two hosts, the first of which has more than one block.
fn archive(scratch: &TempDir) -> Vec<u8> {
    let options = PackOptions { codec: Codec::Zstd, level: 3, ..options() };
    let large: Vec<u8> = (0..1_500_000_u32).flat_map(|i| (i / 7).to_le_bytes()).collect();
    let part = |(host, name, content): (&str, &str, &[u8])| {
        let folder = TempDir::new().unwrap();
        write(folder.path(), name, content);
        let path = scratch.path().join(host);
        let packed = pack(folder.path(), host, &path, &options, &|_| {}).unwrap();
        PartFile { host: host.to_owned(), path, packed }
    };
    let parts = [("algo-1", "large", large.as_slice()), ("algo-2", "small", b"x")].map(part);
    let destination = scratch.path().join("model.tar.zst");
    let combined = combine(&parts, &destination).unwrap();
    let bytes = fs_err::read(destination).unwrap();
    assert_eq!(combined.bytes, Some(bytes.len() as u64));
    bytes
}

/// Paths and lengths, as our own reader finds them.
fn entries(archive: &[u8]) -> Result<Vec<(String, u64)>, Box<dyn std::error::Error>> {
    let mut reader = ArchiveReader::new(archive);
    let mut found = Vec::new();
    while let Some(mut entry) = reader.next_entry()? {
        let path = String::from_utf8(entry.path.clone())?;
        found.push((path, std::io::copy(&mut entry, &mut std::io::sink())?));
    }
    Ok(found)
}

#[test]
fn an_archive_of_zstd_is_read_by_us_and_by_others() {
    let archive = archive(&TempDir::new().unwrap());
    assert!(archive.len() < 3_000_000, "{}", archive.len());
    let expected = [("large".to_owned(), 6_000_000), ("small".to_owned(), 1)];
    assert_eq!(entries(&archive).unwrap(), expected);
    let plain = zstd::decode_all(archive.as_slice()).unwrap();
    let mut tar = tar::Archive::new(plain.as_slice());
    let sizes = tar.entries().unwrap().map(|entry| {
        let mut content = Vec::new();
        entry.unwrap().read_to_end(&mut content).unwrap();
        content.len()
    });
    assert_eq!(sizes.collect::<Vec<_>>(), [6_000_000, 1]);
}

#[test]
fn an_archive_of_zstd_that_was_cut_or_damaged_is_never_taken_for_whole() {
    let archive = archive(&TempDir::new().unwrap());
    for length in (0..archive.len()).step_by(archive.len() / 50).chain([archive.len() - 1]) {
        assert!(entries(&archive[..length]).is_err(), "{length} of {}", archive.len());
    }
    let mut damaged = archive.clone();
    damaged[archive.len() / 2] ^= 1;
    assert!(entries(&damaged).is_err());
}
