//! What each target does with its bytes. Any answer is right but a panic, an answer that contradicts itself, or time
//! and memory by a number that the bytes claim.

use std::io::{self, Read as _, Write as _};

use flate2::Compression;
use flate2::write::GzEncoder;
use trainyard_engine::artifact::{ArchiveReader, ReadError};
use trainyard_engine::manifest::{lines, objects};
use trainyard_engine::recordio::{LONGEST, MAGIC, header, padding};
use trainyard_engine::spec::{Capabilities, ObjectUri, TrainingJobSpec, Violations, unsupported};
use trainyard_engine::wire::{CreateTrainingJobRequest, parse_json};

mod api;
#[expect(dead_code, reason = "the client and the endpoint take from it what no target needs")]
#[path = "../../crates/trainyard/src/signature.rs"]
mod signature;
mod signed;

pub use api::envelope;
pub use signed::signature;

/// The text of a request, to the spec; and as the endpoint reads it, from a value.
pub fn request(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let read = parse_json(text);
    if let Ok(value) = serde_json::from_slice::<serde_json::Value>(bytes) {
        let of_value = serde_path_to_error::deserialize::<_, CreateTrainingJobRequest>(value);
        if let (Ok(of_text), Ok(of_value)) = (&read, &of_value) {
            assert_eq!(of_text, of_value);
        }
    }
    let Ok(request) = read else { return };
    let again = parse_json(&serde_json::to_string(&request).expect("it was read"));
    assert_eq!(again.as_ref(), Ok(&request));
    match TrainingJobSpec::try_from(request) {
        Ok(spec) => {
            assert!(spec.resources.instance_count() >= 1);
            spec.warnings();
            unsupported(&spec, &Capabilities::none());
        }
        Err(Violations(list)) => assert!(!list.is_empty()),
    }
}

/// The URI of objects in the first line, and what lies below it in the second.
pub fn uri(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (text, relative) = text.split_once('\n').unwrap_or((text, "child"));
    let Ok(uri) = ObjectUri::parse(text) else { return };
    assert_eq!(uri.to_string(), text);
    assert!(uri.bucket().is_some() != uri.path().is_some());
    if let Some(bucket) = uri.bucket() {
        assert!(!bucket.contains('/') && !matches!(bucket, "" | "." | ".."));
    }
    if !relative.trim_start_matches('/').is_empty() {
        let child = uri.child(relative);
        assert_eq!(ObjectUri::parse(&child.to_string()), Ok(child));
    }
}

/// A manifest; and an augmented one.
pub fn manifest(bytes: &[u8]) {
    if let Ok(manifest) = objects(bytes) {
        let (prefix, objects) = (manifest.prefix.to_string(), manifest.objects);
        assert!(!objects.is_empty());
        for object in objects {
            assert!(object.to_string().starts_with(&prefix));
            assert_eq!(object.bucket(), manifest.prefix.bucket());
        }
    }
    let names = ["source-ref", "class", "a"].map(ToOwned::to_owned);
    for names in [&names[..1], &names[1..], &names] {
        if let Ok(lines) = lines(bytes, names) {
            assert!(lines.iter().all(|line| line.attributes.len() == names.len()));
        }
    }
}

/// Records as they are framed: the first byte of each says how many follow. They are read as dmlc-core does.
pub fn recordio(bytes: &[u8]) {
    let mut left = bytes;
    let (mut records, mut stream) = (Vec::new(), Vec::new());
    while let Some((&length, rest)) = left.split_first() {
        let (record, rest) = rest.split_at(rest.len().min(length.into()));
        let length = record.len() as u64;
        stream.extend(header(length).expect("a short record"));
        stream.extend(record);
        stream.extend(padding(length));
        records.push(record);
        left = rest;
    }
    let mut at = stream.as_slice();
    for record in records {
        let (head, rest) = at.split_at(8);
        let number =
            |place: usize| u32::from_le_bytes(head[place..place + 4].try_into().expect("four bytes"));
        assert_eq!((number(0), number(4) as usize), (MAGIC, record.len()));
        let (content, rest) = rest.split_at(record.len());
        assert_eq!(content, record);
        let (zeros, rest) = rest.split_at(record.len().next_multiple_of(4) - record.len());
        assert!(zeros.iter().all(|&byte| byte == 0));
        at = rest;
    }
    assert!(at.is_empty());
    if let Some(length) = bytes.first_chunk().map(|bytes| u64::from_le_bytes(*bytes)) {
        assert_eq!(header(length).is_some(), length <= LONGEST);
    }
}

/// A compressed archive.
pub fn archive(bytes: &[u8]) {
    let _ = read(bytes);
}

/// A tar archive, once as it is and once with checksums that hold, so that what stands behind them is reached.
pub fn tar(bytes: &[u8]) {
    let _ = read(&gzip(bytes));
    let mut mended = bytes.to_vec();
    for block in mended.chunks_exact_mut(512) {
        // Content is changed with the headers, which does no harm here.
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
    let _ = read(&gzip(&mended));
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::none());
    encoder.write_all(bytes).expect("a vector takes everything");
    encoder.finish().expect("a vector takes everything")
}

/// Every second entry is read, the others are passed over.
fn read(archive: &[u8]) -> Result<(), ReadError> {
    let mut reader = ArchiveReader::new(archive);
    let mut number = 0;
    while let Some(mut entry) = reader.next_entry()? {
        let parts = entry.path.split(|&byte| byte == b'/');
        assert!(parts.clone().all(|part| !matches!(part, b"" | b"." | b"..") && !part.contains(&0)));
        assert!(entry.mode <= 0o777);
        number += 1;
        if number % 2 == 0 {
            continue;
        }
        // More than this no archive of so few bytes holds.
        let read = io::copy(&mut entry.by_ref().take(1 << 30), &mut io::sink());
        let Ok(read) = read else { return Ok(()) };
        assert_eq!(read, entry.size);
    }
    assert!(matches!(reader.next_entry(), Ok(None)));
    Ok(())
}
