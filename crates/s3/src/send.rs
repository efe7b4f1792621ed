//! Content of an object on its way out.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;

use bytes::Bytes;
use futures_util::stream;
use s3s::dto::StreamingBlob;

/// Read at once.
const PIECE: u64 = 512 << 10;

/// The bytes of a range, which the file must have.
pub(crate) fn content(file: File, range: Range<u64>) -> StreamingBlob {
    StreamingBlob::wrap(stream::try_unfold((file, range), |(file, range)| async move {
        if range.is_empty() {
            return Ok(None);
        }
        tokio::task::spawn_blocking(move || piece(file, range)).await.map_err(io::Error::other)?.map(Some)
    }))
}

type Rest = (File, Range<u64>);

fn piece(mut file: File, range: Range<u64>) -> io::Result<(Bytes, Rest)> {
    let length = PIECE.min(range.end - range.start);
    file.seek(SeekFrom::Start(range.start))?;
    let mut piece = Vec::with_capacity(length as usize);
    let read = Read::by_ref(&mut file).take(length).read_to_end(&mut piece)? as u64;
    if read < length {
        // Somebody cut the file; the answer's length was told already.
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok((piece.into(), (file, range.start + read..range.end)))
}
