//! What comes in one epoch of a pipe, read ahead by a thread of its own in a bounded number of chunks.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::sync::Arc;

use flate2::bufread::MultiGzDecoder;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use crate::instance::objects::{ObjectError, open_checked};
use crate::plan::{ObjectPlan, Piece, PipePlan};
use crate::recordio::{LONGEST, header, padding};

/// Bytes that are sent at once, and how many of such chunks wait to be sent.
const CHUNK: usize = 256 << 10;
const AHEAD: usize = 4;

/// Bytes of an object whose length is not known that are held in memory to find it out.
const HELD: u64 = 8 << 20;

/// An object that can't be sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StreamError {
    #[error(transparent)]
    Object(#[from] ObjectError),
    #[error("{object}: can't be read")]
    Read { object: String, source: io::Error },
    #[error("{object}: can't be gunzipped")]
    Gunzip { object: String, source: io::Error },
    #[error("{object}: {length} bytes are too many for one RecordIO record, which has at most {LONGEST}")]
    TooLong { object: String, length: u64 },
    #[error("{object}: it has changed while it was read: {expected} bytes were expected, {found} came")]
    Changed { object: String, expected: u64, found: u64 },
}

/// Why no more is read.
enum End {
    /// Nobody wants it.
    Closed,
    Failed(StreamError),
}

impl<E: Into<StreamError>> From<E> for End {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// The bytes of one epoch.
pub(super) struct Chunks(mpsc::Receiver<Result<Vec<u8>, StreamError>>);

impl Chunks {
    /// Begins to read the epoch. The thread ends when this is dropped.
    pub(super) fn of(plan: Arc<PipePlan>, epoch: u64) -> Self {
        let (sender, receiver) = mpsc::channel(AHEAD);
        spawn_blocking(move || {
            let mut sink = Sink { chunk: Vec::new(), filled: 0, sender };
            if let Err(End::Failed(error)) = write_epoch(&plan, epoch, &mut sink) {
                // Nobody may be there any more to be told.
                let _ = sink.sender.blocking_send(Err(error));
            }
        });
        Self(receiver)
    }

    /// The next bytes; none at the end of the epoch.
    pub(super) async fn next(&mut self) -> Option<Result<Vec<u8>, StreamError>> {
        self.0.recv().await
    }
}

/// Where bytes are gathered into chunks.
struct Sink {
    chunk: Vec<u8>,
    filled: usize,
    sender: mpsc::Sender<Result<Vec<u8>, StreamError>>,
}

impl Sink {
    fn put(&mut self, mut bytes: &[u8]) -> Result<(), End> {
        while !bytes.is_empty() {
            let room = self.room()?;
            let taken = room.len().min(bytes.len());
            room[..taken].copy_from_slice(&bytes[..taken]);
            self.filled += taken;
            bytes = &bytes[taken..];
        }
        Ok(())
    }

    /// Puts all that a reader gives and returns how much that was.
    fn put_all(
        &mut self,
        reader: &mut dyn Read,
        failed: impl Fn(io::Error) -> StreamError,
    ) -> Result<u64, End> {
        let mut whole = 0;
        loop {
            match reader.read(self.room()?) {
                Ok(0) => return Ok(whole),
                Ok(read) => {
                    self.filled += read;
                    whole += read as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error).into()),
            }
        }
    }

    /// The free part of the chunk, which is never empty.
    fn room(&mut self) -> Result<&mut [u8], End> {
        if self.filled == self.chunk.len() {
            self.send()?;
            self.chunk = vec![0; CHUNK];
        }
        Ok(&mut self.chunk[self.filled..])
    }

    fn send(&mut self) -> Result<(), End> {
        let mut chunk = std::mem::take(&mut self.chunk);
        chunk.truncate(std::mem::take(&mut self.filled));
        if chunk.is_empty() {
            return Ok(());
        }
        self.sender.blocking_send(Ok(chunk)).map_err(|_| End::Closed)
    }
}

fn write_epoch(plan: &PipePlan, epoch: u64, sink: &mut Sink) -> Result<(), End> {
    for entry in plan.order(epoch) {
        for piece in &plan.entries[entry].0 {
            match piece {
                Piece::Text(text) => framed(plan.records, "an attribute", text.len() as u64, sink, |sink| {
                    sink.put(text.as_bytes())?;
                    Ok(text.len() as u64)
                })?,
                Piece::Object(object) if plan.gunzip => gunzipped(plan.records, object, sink)?,
                Piece::Object(object) => {
                    let mut file = open_checked(object)?;
                    framed(plan.records, &name(object), object.size, sink, |sink| {
                        sink.put_all(&mut file, |source| StreamError::Read { object: name(object), source })
                    })?;
                }
            }
        }
    }
    sink.send()
}

/// Writes bytes whose number is known, as a record if there are records.
fn framed(
    records: bool,
    object: &str,
    length: u64,
    sink: &mut Sink,
    write: impl FnOnce(&mut Sink) -> Result<u64, End>,
) -> Result<(), End> {
    if records {
        let header = header(length);
        let too_long = || StreamError::TooLong { object: object.to_owned(), length };
        sink.put(&header.ok_or_else(too_long)?)?;
    }
    let found = write(sink)?;
    if found != length {
        return Err(StreamError::Changed { object: object.to_owned(), expected: length, found }.into());
    }
    if records { sink.put(padding(length)) } else { Ok(()) }
}

fn gunzipped(records: bool, object: &ObjectPlan, sink: &mut Sink) -> Result<(), End> {
    let failed = |source| StreamError::Gunzip { object: name(object), source };
    let Some(mut reader) = unpacked(object)? else {
        return framed(records, &name(object), 0, sink, |_| Ok(0));
    };
    if !records {
        sink.put_all(&mut reader, failed)?;
        return Ok(());
    }
    // The length stands before the bytes. A large object is unpacked once more to find it out.
    let mut held = Vec::new();
    reader.by_ref().take(HELD).read_to_end(&mut held).map_err(failed)?;
    let rest = io::copy(&mut reader, &mut io::sink()).map_err(failed)?;
    let length = held.len() as u64 + rest;
    if rest == 0 {
        return framed(records, &name(object), length, sink, |sink| sink.put(&held).map(|()| length));
    }
    drop(held);
    framed(records, &name(object), length, sink, |sink| match unpacked(object)? {
        Some(mut reader) => sink.put_all(&mut reader, failed),
        None => Ok(0),
    })
}

/// All members of a gzip file, one after the other; none of an empty file.
fn unpacked(object: &ObjectPlan) -> Result<Option<MultiGzDecoder<BufReader<File>>>, StreamError> {
    if object.size == 0 {
        return Ok(None);
    }
    let file = open_checked(object)?.into_parts().0;
    Ok(Some(MultiGzDecoder::new(BufReader::with_capacity(CHUNK, file))))
}

fn name(object: &ObjectPlan) -> String {
    object.source.display().to_string()
}
