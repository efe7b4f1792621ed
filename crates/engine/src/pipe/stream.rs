//! What comes in one epoch of a pipe, read ahead by a thread of its own in a bounded number of chunks.

use std::io::{self, BufReader, Read};
use std::sync::Arc;

use flate2::bufread::MultiGzDecoder;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use crate::instance::objects::{ObjectError, open_checked};
use crate::plan::{ObjectPlan, Piece, PipePlan};
use crate::recordio::{LONGEST, header, padding};
use crate::storage::{Bytes, Chunks as Pieces, ObjectSource, StorageError, Stores};

/// Bytes that are sent at once, and how many of such chunks wait to be sent.
const CHUNK: usize = 256 << 10;
const AHEAD: usize = 4;

/// Bytes of an object whose length is not known that are held in memory to find it out.
const HELD: u64 = 8 << 20;

/// An object that can't be sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StreamError {
    #[error(transparent)]
    Object(Box<ObjectError>),
    #[error(transparent)]
    Storage(Box<StorageError>),
    #[error("{object}: can't be read")]
    Read { object: String, source: io::Error },
    #[error("{object}: can't be gunzipped")]
    Gunzip { object: String, source: io::Error },
    #[error("{object}: {length} bytes are too many for one RecordIO record, which has at most {LONGEST}")]
    TooLong { object: String, length: u64 },
    #[error("{object}: it has changed while it was read: {expected} bytes were expected, {found} came")]
    Changed { object: String, expected: u64, found: u64 },
}

impl From<ObjectError> for StreamError {
    fn from(error: ObjectError) -> Self {
        Self::Object(Box::new(error))
    }
}

impl From<StorageError> for StreamError {
    fn from(error: StorageError) -> Self {
        Self::Storage(Box::new(error))
    }
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
    pub(super) fn of(plan: Arc<PipePlan>, stores: Stores, epoch: u64) -> Self {
        let (sender, receiver) = mpsc::channel(AHEAD);
        let handle = Handle::current();
        spawn_blocking(move || {
            let sink = Sink { chunk: Vec::new(), filled: 0, sender };
            let mut writer = Writer { plan: &plan, stores, handle, sink };
            if let Err(End::Failed(error)) = writer.epoch(epoch) {
                // Nobody may be there any more to be told.
                let _ = writer.sink.sender.blocking_send(Err(error));
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

/// Writes epochs into a sink.
struct Writer<'a> {
    plan: &'a PipePlan,
    stores: Stores,
    handle: Handle,
    sink: Sink,
}

impl Writer<'_> {
    fn epoch(&mut self, epoch: u64) -> Result<(), End> {
        let plan = self.plan;
        for entry in plan.order(epoch) {
            for piece in &plan.entries[entry].0 {
                match piece {
                    Piece::Text(text) => {
                        let length = text.len() as u64;
                        self.framed("an attribute", length, |writer| {
                            writer.sink.put(text.as_bytes()).map(|()| length)
                        })?;
                    }
                    Piece::Object(object) if plan.gunzip => self.gunzipped(object)?,
                    Piece::Object(object) => self.whole(object)?,
                }
            }
        }
        self.sink.send()
    }

    fn whole(&mut self, object: &ObjectPlan) -> Result<(), End> {
        let mut reader = self.open(object)?;
        let name = object.source.name();
        self.framed(&name, object.size, |writer| {
            writer.sink.put_all(&mut reader, |source| StreamError::Read { object: name.clone(), source })
        })
    }

    fn gunzipped(&mut self, object: &ObjectPlan) -> Result<(), End> {
        let name = object.source.name();
        let failed = |source| StreamError::Gunzip { object: name.clone(), source };
        let Some(mut reader) = self.unpacked(object)? else {
            return self.framed(&name, 0, |_| Ok(0));
        };
        if !self.plan.records {
            return self.sink.put_all(&mut reader, failed).map(drop);
        }
        // The length stands before the bytes. A large object is unpacked once more to find it out.
        let mut held = Vec::new();
        reader.by_ref().take(HELD).read_to_end(&mut held).map_err(failed)?;
        let rest = io::copy(&mut reader, &mut io::sink()).map_err(failed)?;
        let length = held.len() as u64 + rest;
        if rest == 0 {
            return self.framed(&name, length, |writer| writer.sink.put(&held).map(|()| length));
        }
        drop(held);
        self.framed(&name, length, |writer| match writer.unpacked(object)? {
            Some(mut reader) => writer.sink.put_all(&mut reader, failed),
            None => Ok(0),
        })
    }

    /// Writes bytes whose number is known, as a record if there are records.
    fn framed(
        &mut self,
        object: &str,
        length: u64,
        write: impl FnOnce(&mut Self) -> Result<u64, End>,
    ) -> Result<(), End> {
        let records = self.plan.records;
        if records {
            let too_long = || StreamError::TooLong { object: object.to_owned(), length };
            self.sink.put(&header(length).ok_or_else(too_long)?)?;
        }
        let found = write(self)?;
        if found != length {
            return Err(StreamError::Changed { object: object.to_owned(), expected: length, found }.into());
        }
        if records { self.sink.put(padding(length)) } else { Ok(()) }
    }

    /// All members of a gzip file, one after the other; none of an empty file.
    fn unpacked(
        &self,
        object: &ObjectPlan,
    ) -> Result<Option<MultiGzDecoder<BufReader<Opened>>>, StreamError> {
        if object.size == 0 {
            return Ok(None);
        }
        let reader = BufReader::with_capacity(CHUNK, self.open(object)?);
        Ok(Some(MultiGzDecoder::new(reader)))
    }

    fn open(&self, object: &ObjectPlan) -> Result<Opened, StreamError> {
        Ok(match &object.source {
            ObjectSource::File(path) => Opened::File(open_checked(path, object.size)?),
            source @ ObjectSource::Store { .. } => {
                let pieces = self.handle.block_on(self.stores.chunks(source, 0..object.size))?;
                Opened::Store { pieces, handle: self.handle.clone(), piece: Bytes::new() }
            }
        })
    }
}

/// An object that is being read.
enum Opened {
    File(fs_err::File),
    Store { pieces: Pieces, handle: Handle, piece: Bytes },
}

impl Read for Opened {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::File(file) => file.read(buffer),
            Self::Store { pieces, handle, piece } => {
                if piece.is_empty() {
                    *piece = handle.block_on(pieces.next()).map_err(io::Error::other)?.unwrap_or_default();
                }
                let taken = piece.split_to(piece.len().min(buffer.len()));
                buffer[..taken.len()].copy_from_slice(&taken);
                Ok(taken.len())
            }
        }
    }
}
