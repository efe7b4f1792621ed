//! Content of a request on its way into a bucket.

use std::io::Write;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use s3s::dto::StreamingBlob;
use s3s::{S3Error, S3Result, s3_error};
use tokio::sync::mpsc;
use trainyard_bucket::{Bucket, BucketError, Draft};

use crate::checksum::{Announced, Checksums, found};
use crate::error::{cut, of_bucket};

/// Pieces that may wait for the disk.
const WAITING: usize = 8;

/// Writes the content as it comes and checks it against what the request says of it.
///
/// # Errors
/// It breaks off, has another length or checksum, or can't be written; nothing is left of it then.
pub(crate) async fn receive(
    bucket: Arc<Bucket>,
    body: Option<StreamingBlob>,
    length: Option<i64>,
    announced: &Announced,
) -> S3Result<(Draft, Checksums)> {
    let (pieces, mut waiting) = mpsc::channel::<Bytes>(WAITING);
    let mut hasher = announced.hasher();
    let writing = tokio::task::spawn_blocking(move || {
        let mut draft = bucket.draft()?;
        while let Some(piece) = waiting.blocking_recv() {
            draft.write_all(&piece)?;
            hasher.update(&piece);
        }
        Ok::<_, BucketError>((draft, found(hasher.finalize())))
    });
    let sent = send(body, &pieces).await;
    drop(pieces);
    let written = writing.await.map_err(cut)?;
    sent?;
    let (draft, computed) = written.map_err(of_bucket)?;
    if let Some(length) = length
        && u64::try_from(length).ok() != Some(draft.size())
    {
        return Err(s3_error!(IncompleteBody, "{} of {length} bytes have come", draft.size()));
    }
    let kept = announced.check(computed, &draft.md5())?;
    Ok((draft, kept))
}

async fn send(body: Option<StreamingBlob>, pieces: &mpsc::Sender<Bytes>) -> S3Result<()> {
    let Some(mut body) = body else { return Ok(()) };
    while let Some(piece) = body.next().await {
        let piece = piece.map_err(broken)?;
        if pieces.send(piece).await.is_err() {
            // Why, the other side tells.
            return Ok(());
        }
    }
    Ok(())
}

/// What `s3s` finds wrong with a stream while it is read: it breaks off, or a chunk's signature is wrong.
fn broken(error: s3s::StdError) -> S3Error {
    let said = error.to_string();
    if said.contains("Signature") {
        return s3_error!(SignatureDoesNotMatch, "{said}");
    }
    s3_error!(IncompleteBody, "{said}")
}
