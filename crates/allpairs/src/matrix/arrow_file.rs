//! Matrices in Arrow's own format: streams, and files, which are a stream between two marks.

use super::table::TableRows;
use super::{Decoding, OpenedFile};
use crate::machine::{let_go, map_file};
use crate::problem::FileProblem;
use arrow::array::RecordBatch;
use arrow::buffer::Buffer;
use arrow::ipc::reader::StreamDecoder;
use arrow::ipc::{RecordBatch as StoredBatch, root_as_message};
use bytes::Bytes;
use memmap2::Mmap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

/// Stands at both ends of a file.
const MARK: &[u8] = b"ARROW1";

/// Bytes that are copied at a time.
const PIECE_BYTES: usize = 16 << 20;

/// A buffer that claims to be longer than this unpacked, and so many times as long as it is, is no honest one.
const MOST_UNPACKED: u64 = 1 << 30;
const MOST_RATIO: u64 = 4096;

/// Reads a whole file into memory.
pub(super) fn read(path: &Path, decoding: Decoding) -> Result<OpenedFile, FileProblem> {
    // The decoder is not meant for hostile files and may panic on some.
    catch_unwind(AssertUnwindSafe(|| read_rows(path, decoding)))
        .unwrap_or(Err(FileProblem::Broken { format: "Arrow" }))
}

fn read_rows(path: &Path, decoding: Decoding) -> Result<OpenedFile, FileProblem> {
    let map = Shared(Arc::new(map_file(path).map_err(FileProblem::Io)?));
    let file = Buffer::from(Bytes::from_owner(map.clone()));
    let stream = stream(&file)?;
    let mut stream = stream.slice_with_length(0, check_claims(&stream)?);
    let mut decoder = StreamDecoder::new();
    let mut rows: Option<TableRows> = None;
    while !stream.is_empty() {
        decoding.go_on()?;
        let batch = decoder.decode(&mut stream).map_err(FileProblem::Arrow)?;
        if rows.is_none()
            && let Some(schema) = decoder.schema()
        {
            rows = Some(TableRows::new(&schema, decoding.reading)?);
        }
        if let (Some(batch), Some(rows)) = (batch, &mut rows) {
            push(rows, &batch, &map, decoding)?;
        }
    }
    decoder.finish().map_err(FileProblem::Arrow)?;
    rows.ok_or(FileProblem::ArrowFile { wanted: "it has no schema" })?.finish(path)
}

/// A file may be one batch that lies in the map as it is. It is copied piece by piece, and the map let go of in between,
/// so that not both of them are in memory.
fn push(
    rows: &mut TableRows,
    batch: &RecordBatch,
    map: &Shared,
    decoding: Decoding,
) -> Result<(), FileProblem> {
    let row_bytes = (batch.get_array_memory_size() / batch.num_rows().max(1)).max(1);
    let step = (PIECE_BYTES / row_bytes).max(1);
    // One without rows still tells of its columns.
    for first in (0..batch.num_rows().max(1)).step_by(step) {
        decoding.go_on()?;
        rows.push(&batch.slice(first, step.min(batch.num_rows() - first)))?;
        let_go(&map.0).map_err(FileProblem::Io)?;
    }
    Ok(())
}

/// A mapped file that is also part of a buffer.
#[derive(Clone)]
struct Shared(Arc<Mmap>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// The messages without the marks and the footer of a file.
fn stream(file: &Buffer) -> Result<Buffer, FileProblem> {
    if !file.starts_with(MARK) {
        return Ok(file.clone());
    }
    let cut = || FileProblem::ArrowFile { wanted: "it ends before its footer" };
    let body = file.strip_suffix(MARK).ok_or_else(cut)?;
    let (rest, length) = body.split_last_chunk::<4>().ok_or_else(cut)?;
    let footer = usize::try_from(i32::from_le_bytes(*length)).map_err(|_| cut())?;
    let end = rest.len().checked_sub(footer).filter(|end| *end >= 8).ok_or_else(cut)?;
    // Some writers fill up the first mark with more zeros than others.
    let filling = rest[8..end].as_chunks::<8>().0.iter().take_while(|chunk| **chunk == [0; 8]).count();
    Ok(file.slice_with_length(8 + 8 * filling, end - 8 - 8 * filling))
}

/// Looks through all messages for packed buffers that claim to become far larger than they are. Returns the length
/// of the stream: up to the mark at its end, behind which there may be a filling.
fn check_claims(stream: &[u8]) -> Result<usize, FileProblem> {
    let mut rest = stream;
    while let Some((message, after)) = next_message(rest) {
        let Ok(message) = root_as_message(message) else { return Ok(stream.len()) };
        let Some(body) = usize::try_from(message.bodyLength()).ok().and_then(|length| after.get(..length))
        else {
            // The decoder will say that the end is missing.
            return Ok(stream.len());
        };
        let dictionary = message.header_as_dictionary_batch().and_then(|batch| batch.data());
        if let Some(batch) = message.header_as_record_batch().or(dictionary) {
            check_batch(&batch, body)?;
        }
        rest = &after[body.len()..];
    }
    let ended = rest.strip_prefix(&[0xff; 4]).unwrap_or(rest).starts_with(&[0; 4]);
    Ok(stream.len() - if ended { rest.len() } else { 0 })
}

fn next_message(stream: &[u8]) -> Option<(&[u8], &[u8])> {
    let stream = stream.strip_prefix(&[0xff; 4]).unwrap_or(stream);
    let (length, rest) = stream.split_first_chunk::<4>()?;
    rest.split_at_checked(u32::from_le_bytes(*length) as usize).filter(|(message, _)| !message.is_empty())
}

fn check_batch(batch: &StoredBatch, body: &[u8]) -> Result<(), FileProblem> {
    if batch.compression().is_none() {
        return Ok(());
    }
    for buffer in batch.buffers().into_iter().flatten() {
        let bounds = (usize::try_from(buffer.offset()), usize::try_from(buffer.length()));
        let (Ok(offset), Ok(length)) = bounds else { continue };
        let packed = body.get(offset..).and_then(|rest| rest.get(..length));
        let Some((claim, _)) = packed.and_then(|packed| packed.split_first_chunk::<8>()) else { continue };
        let claimed = i64::from_le_bytes(*claim).max(0) as u64;
        if claimed > MOST_UNPACKED.max(MOST_RATIO.saturating_mul(length as u64)) {
            return Err(FileProblem::ArrowFile {
                wanted: "a packed buffer claims to be far larger than it can be",
            });
        }
    }
    Ok(())
}
