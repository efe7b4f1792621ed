//! Stores, opened when they are needed: listings and reading.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::Duration;

pub use bytes::Bytes;
use object_store::ClientOptions;
use object_store::client::{HttpConnector, ReqwestConnector};
use tokio::io::{AsyncReadExt, AsyncSeekExt};

use super::foreign::{Foreign, ForeignChunks};
use super::s3::Bucket;
use super::{Buckets, ObjectSource, StorageError, StoreAddress, StoreCredentials, StoreError, StoreKind};

mod download;
mod head;
mod list;
mod upload;

use download::Download;
pub use upload::{Upload, Written, read_range};

/// The stores of buckets. Each is opened once, by the first who asks, and belongs to the async runtime of who does.
#[derive(Clone)]
pub struct Stores {
    shared: Arc<Shared>,
}

struct Shared {
    buckets: Buckets,
    credentials: StoreCredentials,
    tries: u32,
    open: Mutex<HashMap<String, Opened>>,
}

/// A bucket that can be asked.
#[derive(Clone)]
enum Opened {
    S3(Arc<Bucket>),
    Foreign(Arc<Foreign>),
}

/// While a person waits for the answer.
const FEW_TRIES: u32 = 4;
/// About a minute without any progress.
const MANY_TRIES: u32 = 10;
/// An answer that stops coming for as long as this is taken for a broken connection.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// What is read of a file at once.
const FILE_CHUNK: u64 = 256 << 10;

impl Stores {
    /// Stores that give up soon.
    pub fn new(buckets: Buckets, credentials: StoreCredentials) -> Self {
        let shared = Shared { buckets, credentials, tries: FEW_TRIES, open: Mutex::default() };
        Self { shared: Arc::new(shared) }
    }

    /// The same for work that nobody waits at: stores that fail are given a minute.
    #[must_use]
    pub fn patient(&self) -> Self {
        let Shared { buckets, credentials, .. } = &*self.shared;
        let shared = Shared {
            buckets: buckets.clone(),
            credentials: credentials.clone(),
            tries: MANY_TRIES,
            open: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// A bucket of a store that speaks S3.
    pub(super) fn bucket(&self, name: &str) -> Result<Arc<Bucket>, StorageError> {
        match self.opened(name)? {
            Opened::S3(bucket) => Ok(bucket),
            Opened::Foreign(foreign) => {
                let (bucket, store) = (name.to_owned(), foreign.store().to_owned());
                Err(StoreError::NotS3 { bucket, store }.into())
            }
        }
    }

    /// A bucket of a store that speaks something else; none if it speaks S3.
    pub(super) fn foreign(&self, name: &str) -> Result<Option<Arc<Foreign>>, StorageError> {
        match self.opened(name)? {
            Opened::S3(_) => Ok(None),
            Opened::Foreign(foreign) => Ok(Some(foreign)),
        }
    }

    fn opened(&self, name: &str) -> Result<Opened, StorageError> {
        let mut open = self.shared.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bucket) = open.get(name) {
            return Ok(bucket.clone());
        }
        let unknown = || StorageError::UnknownBucket { bucket: name.to_owned() };
        let address = self.shared.buckets.store(name).ok_or_else(unknown)?;
        let bucket = match address.kind {
            StoreKind::S3 => Opened::S3(Arc::new(self.open(name, address)?)),
            StoreKind::Gcs | StoreKind::Azure => {
                Opened::Foreign(Arc::new(Foreign::open(name, address, &self.shared.credentials)?))
            }
        };
        open.insert(name.to_owned(), bucket.clone());
        Ok(bucket)
    }

    fn open(&self, name: &str, address: &StoreAddress) -> Result<Bucket, StoreError> {
        let store = address.name().to_owned();
        let credentials = |source| StoreError::Credentials { store: store.clone(), source };
        let signer = self.shared.credentials.signer(address).map_err(credentials)?;
        let url = address.bucket_url(name, &signer.region)?;
        install_crypto();
        let options = ClientOptions::new()
            .with_allow_http(url.starts_with("http://"))
            .with_timeout_disabled()
            .with_connect_timeout(CONNECT_TIMEOUT)
            .with_read_timeout(READ_TIMEOUT);
        let client = |source| StoreError::Client { store: store.clone(), source };
        let http = ReqwestConnector::default().connect(&options).map_err(client)?;
        Ok(Bucket { name: name.to_owned(), url, store, signer, http, tries: self.shared.tries })
    }

    /// Reads an object as a whole, if it is not too large: a manifest, say.
    ///
    /// # Errors
    ///
    /// The object can't be read, has changed since it was listed, or has more than `limit` bytes.
    pub async fn read(&self, object: &ObjectSource, size: u64, limit: u64) -> Result<Bytes, StorageError> {
        if size > limit {
            return Err(StorageError::TooLarge { object: object.name(), size, limit });
        }
        let mut chunks = self.chunks(object, 0..size).await?;
        let mut content = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
        while let Some(chunk) = chunks.next().await? {
            content.extend_from_slice(&chunk);
        }
        Ok(content.into())
    }

    /// Opens a range of an object, in bytes, for reading piece by piece. A connection that breaks is taken up
    /// where it broke.
    ///
    /// # Errors
    ///
    /// The file can't be opened, or nothing is known of the bucket.
    pub async fn chunks(&self, object: &ObjectSource, range: Range<u64>) -> Result<Chunks, StorageError> {
        Ok(Chunks(match object {
            ObjectSource::File(path) => {
                let mut file = tokio::fs::File::open(path).await.map_err(|error| named(error, object))?;
                file.seek(io::SeekFrom::Start(range.start)).await?;
                let name = object.name();
                Source::File { file: Box::new(file), left: range.end.saturating_sub(range.start), name }
            }
            ObjectSource::Store { bucket, key, etag } => {
                if let Some(foreign) = self.foreign(bucket)? {
                    return Ok(Chunks(Source::Foreign(foreign.range(key, etag, range).await?)));
                }
                let bucket = self.bucket(bucket)?;
                Source::Store(Download::new(bucket, key.clone(), etag.clone(), range))
            }
        }))
    }
}

/// The content of a range, piece by piece.
pub struct Chunks(Source);

enum Source {
    File { file: Box<tokio::fs::File>, left: u64, name: String },
    Store(Download),
    Foreign(ForeignChunks),
}

impl Chunks {
    /// Whether what the store has said so far allows that the ETag is the MD5 of the content.
    pub fn etag_may_be_md5(&self) -> bool {
        match &self.0 {
            Source::Store(download) => download.etag_may_be_md5(),
            Source::File { .. } | Source::Foreign(_) => false,
        }
    }

    /// The next piece, never empty; none at the end of the range.
    ///
    /// # Errors
    ///
    /// The content can't be read to its end, or is not the one that was listed.
    pub async fn next(&mut self) -> Result<Option<Bytes>, StorageError> {
        match &mut self.0 {
            Source::Store(download) => Ok(download.next().await?),
            Source::Foreign(chunks) => chunks.next().await,
            Source::File { left: 0, .. } => Ok(None),
            Source::File { file, left, name } => {
                let mut buffer =
                    Vec::with_capacity(usize::try_from(FILE_CHUNK.min(*left)).unwrap_or_default());
                let read = file.take(FILE_CHUNK.min(*left)).read_to_end(&mut buffer).await?;
                if read == 0 {
                    let text = format!("{name} is {left} bytes shorter than when it was listed");
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text).into());
                }
                *left -= read as u64;
                Ok(Some(buffer.into()))
            }
        }
    }
}

fn named(error: io::Error, object: &ObjectSource) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", object.name()))
}

/// Chooses the implementation of TLS for this process, unless it has one.
pub(super) fn install_crypto() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // An error means that there is one already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}
