//! Puts the pieces of a part into the upload that becomes the archive.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fs_err as fs;
use tokio::task::JoinSet;

use crate::artifact::{Cut, UploadedPiece};
use crate::plan::InstancePlan;
use crate::storage::{Buckets, Bytes, StorageError, StoreCredentials, Stores, Upload, read_range};

/// Pieces under way; each is in memory.
const PIECES: usize = 4;

/// A part that can't be put into the upload.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UploadError {
    #[error("can't upload to s3://{bucket}/{key}")]
    Store { bucket: String, key: String, source: Box<StorageError> },
    #[error("the part can't be read")]
    Read(#[from] io::Error),
}

/// Uploads a part file; one that is too small for the store stays where it is.
///
/// # Errors
/// The file can't be read, or the store refuses or can't be reached.
pub(crate) fn upload(
    plan: &InstancePlan,
    credentials: &StoreCredentials,
    upload: &Upload,
    part: &Path,
    sent: &Arc<AtomicU64>,
) -> Result<Vec<UploadedPiece>, UploadError> {
    let rank = plan.hosts.iter().position(|host| host.name == plan.host).unwrap_or_default();
    let cut = Cut::of(fs::metadata(part)?.len(), rank, plan.hosts.len());
    if cut.pieces.is_empty() {
        return Ok(Vec::new());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let uploading = Uploading {
        stores: Stores::new(Buckets::in_stores(plan.storage.stores.clone()), credentials.clone()).patient(),
        upload: upload.clone(),
        file: fs::File::open(part)?,
        sent: Arc::clone(sent),
        rank,
        header: plan.model.codec().header(),
    };
    let uploaded = runtime.block_on(Arc::new(uploading).all(cut));
    runtime.shutdown_background();
    uploaded
}

struct Uploading {
    stores: Stores,
    upload: Upload,
    file: fs::File,
    sent: Arc<AtomicU64>,
    rank: usize,
    /// What the archive begins with.
    header: &'static [u8],
}

impl Uploading {
    async fn all(self: Arc<Self>, cut: Cut) -> Result<Vec<UploadedPiece>, UploadError> {
        let mut tasks = JoinSet::new();
        let mut uploaded = Vec::new();
        for (number, range) in cut.pieces {
            if tasks.len() >= PIECES
                && let Some(done) = tasks.join_next().await
            {
                uploaded.push(done.map_err(io::Error::from)??);
            }
            let uploading = Arc::clone(&self);
            tasks.spawn(async move { uploading.piece(number, range).await });
        }
        while let Some(done) = tasks.join_next().await {
            uploaded.push(done.map_err(io::Error::from)??);
        }
        uploaded.sort_unstable_by_key(|piece| piece.number);
        Ok(uploaded)
    }

    async fn piece(&self, number: u32, range: std::ops::Range<u64>) -> Result<UploadedPiece, UploadError> {
        let bytes = range.end - range.start;
        // The first piece of the first instance begins the archive.
        let is_first = self.rank == 0 && range.start == 0;
        let mut body = read_range(&self.file, range)?;
        if is_first {
            body = Bytes::from([self.header, &body].concat());
        }
        let put = self.stores.put_part(&self.upload, number, body).await;
        let etag = put.map_err(|source| UploadError::Store {
            bucket: self.upload.bucket.clone(),
            key: self.upload.key.clone(),
            source: Box::new(source),
        })?;
        self.sent.fetch_add(bytes, Ordering::Relaxed);
        Ok(UploadedPiece { number, etag, bytes })
    }
}
