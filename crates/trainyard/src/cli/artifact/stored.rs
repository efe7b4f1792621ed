//! An archive in a store that the configuration names.

use std::io::{self, Read};

use anyhow::Context;
use bytes::Buf;
use tokio::runtime::Handle;
use trainyard_engine::storage::{Bytes, Chunks, Location, Stores};

use super::source::Source;

/// Opens the object `s3://bucket/key` of a store.
pub(super) async fn open(stores: &Stores, bucket: String, key: String) -> anyhow::Result<Source> {
    let uri = format!("s3://{bucket}/{key}");
    let found = Location::Store { bucket, key }.object(stores).await?;
    let object = found.with_context(|| format!("there is no {uri}"))?;
    let chunks = stores.chunks(&object.source, 0..object.size).await?;
    let archive = ChunkReader { runtime: Handle::current(), chunks, piece: Bytes::new() };
    Ok(Source { archive: Box::new(archive), size: Some(object.size) })
}

/// Content that comes piece by piece. Reading blocks: it is for threads that may.
struct ChunkReader {
    runtime: Handle,
    chunks: Chunks,
    piece: Bytes,
}

impl Read for ChunkReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.piece.is_empty() {
            let next = self.runtime.block_on(self.chunks.next()).map_err(io::Error::other)?;
            self.piece = next.unwrap_or_default();
        }
        let count = buffer.len().min(self.piece.len());
        buffer[..count].copy_from_slice(&self.piece[..count]);
        self.piece.advance(count);
        Ok(count)
    }
}
