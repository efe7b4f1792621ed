//! Writing to stores: whole objects, and uploads in parts, which show nothing before they are complete.

use std::path::Path;

use fs_err as fs;
use futures_util::{StreamExt, TryStreamExt, stream};
use http::header::{CONTENT_LENGTH, ETAG};
use http::{HeaderName, Method};
use serde::Deserialize;

use super::super::s3::{Bucket, Call, Patience, header};
use super::super::{Object, ObjectSource, StorageError, StoreError};
use super::{Bytes, Stores};

/// An upload in parts that has begun.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, Deserialize)]
pub struct Upload {
    /// The bucket.
    pub bucket: String,
    /// The key under which the object will appear.
    pub key: String,
    /// The store's name for the upload.
    pub id: String,
}

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// With its quotes.
    pub etag: String,
    /// In bytes.
    pub size: u64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Initiated {
    upload_id: String,
}

/// Uploads that have begun (S3 API reference, ListMultipartUploads); one page of a thousand is more than one key has.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Begun {
    upload: Vec<BegunUpload>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct BegunUpload {
    key: String,
    upload_id: String,
}

/// Asks the store to encrypt with a key of its key service (S3 API reference, PutObject).
const ENCRYPTION: HeaderName = HeaderName::from_static("x-amz-server-side-encryption");
const ENCRYPTION_KEY: HeaderName = HeaderName::from_static("x-amz-server-side-encryption-aws-kms-key-id");
/// Objects that are removed at once.
const DELETES: usize = 16;
/// A file is put at once up to this size, in bytes, else in parts of it.
const PART: u64 = 16 << 20;

/// The headers that ask for encryption.
fn encryption(key: Option<&str>) -> Vec<(HeaderName, String)> {
    let headers = |key: &str| vec![(ENCRYPTION, "aws:kms".to_owned()), (ENCRYPTION_KEY, key.to_owned())];
    key.map(headers).unwrap_or_default()
}

impl Stores {
    /// Begins an upload in parts; `kms_key` is what the store encrypts it with.
    ///
    /// # Errors
    /// The store refuses or can't be reached.
    pub async fn begin(
        &self,
        bucket: &str,
        key: &str,
        kms_key: Option<&str>,
    ) -> Result<Upload, StorageError> {
        let store = self.bucket(bucket)?;
        let query = vec![("uploads", String::new())];
        let call = Call {
            method: Method::POST,
            key: Some(key),
            query,
            headers: encryption(kms_key),
            body: Bytes::new(),
        };
        let text = store.text(&call).await?;
        let what = || format!("beginning {}", store.uri(Some(key)));
        let Initiated { upload_id } =
            quick_xml::de::from_str(&text).map_err(|error| store.malformed(&what(), error))?;
        Ok(Upload { bucket: bucket.to_owned(), key: key.to_owned(), id: upload_id })
    }

    /// Puts one part there and gives its ETag. Parts may come in any order and again; numbers are from 1 to 10,000,
    /// and all but the last have 5 MiB or more.
    ///
    /// # Errors
    /// The store refuses or can't be reached.
    pub async fn put_part(&self, upload: &Upload, number: u32, body: Bytes) -> Result<String, StorageError> {
        let store = self.bucket(&upload.bucket)?;
        let query = vec![("partNumber", number.to_string()), ("uploadId", upload.id.clone())];
        let call = Call { method: Method::PUT, key: Some(&upload.key), query, headers: Vec::new(), body };
        let response = store.call(&call).await?;
        let etag = header(response.headers(), &ETAG);
        match etag {
            "" => Err(store.malformed(&store.uri(Some(&upload.key)), "a part without an ETag").into()),
            etag => Ok(etag.to_owned()),
        }
    }

    /// Makes the object of its parts, with the numbers ascending; `size` is that of all of them.
    ///
    /// # Errors
    /// The store refuses or can't be reached.
    pub async fn complete(
        &self,
        upload: &Upload,
        parts: &[(u32, String)],
        size: u64,
    ) -> Result<Written, StorageError> {
        let store = self.bucket(&upload.bucket)?;
        let part = |(number, etag): &(u32, String)| {
            let etag = quick_xml::escape::escape(etag);
            format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>")
        };
        let parts: String = parts.iter().map(part).collect();
        let body = format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>").into();
        let query = vec![("uploadId", upload.id.clone())];
        let call = Call { method: Method::POST, key: Some(&upload.key), query, headers: Vec::new(), body };
        match store.completed(&call).await {
            // An answer that was lost on its way: the first request has done it.
            Err(error) if error.status() == Some(404) => {
                match self.written(&upload.bucket, &upload.key).await? {
                    Some(written) if written.size == size => Ok(written),
                    _ => Err(error.into()),
                }
            }
            Err(error) => Err(error.into()),
            Ok(()) => match self.written(&upload.bucket, &upload.key).await? {
                Some(written) if written.size == size => Ok(written),
                found => {
                    let why =
                        format!("the object should have {size} bytes and has {:?}", found.map(|it| it.size));
                    Err(store.malformed(&store.uri(Some(&upload.key)), why).into())
                }
            },
        }
    }

    /// Forgets an upload with all its parts. That there is none is no error.
    ///
    /// # Errors
    /// The store refuses or can't be reached.
    pub async fn abort(&self, upload: &Upload) -> Result<(), StorageError> {
        let store = self.bucket(&upload.bucket)?;
        let query = vec![("uploadId", upload.id.clone())];
        let (key, headers) = (Some(upload.key.as_str()), Vec::new());
        let aborted =
            store.call(&Call { method: Method::DELETE, key, query, headers, body: Bytes::new() }).await;
        gone_is_fine(aborted.map(drop))
    }

    /// Forgets all uploads under a key: also those of which nobody knows, for the answer that named them was lost.
    ///
    /// # Errors
    /// The store refuses or can't be reached.
    pub async fn abort_all(&self, bucket: &str, key: &str) -> Result<(), StorageError> {
        self.abort_those(bucket, key, |found| found == key).await
    }

    /// Forgets those of the uploads under keys that start so.
    async fn abort_those(
        &self,
        bucket: &str,
        prefix: &str,
        meant: impl Fn(&str) -> bool + Send + Sync,
    ) -> Result<(), StorageError> {
        let store = self.bucket(bucket)?;
        let query = vec![("prefix", prefix.to_owned()), ("uploads", String::new())];
        let call = Call { method: Method::GET, key: None, query, headers: Vec::new(), body: Bytes::new() };
        let text = store.text(&call).await?;
        let what = || format!("the uploads of {}", store.uri(Some(prefix)));
        let begun: Begun = quick_xml::de::from_str(&text).map_err(|error| store.malformed(&what(), error))?;
        for entry in begun.upload.into_iter().filter(|entry| meant(&entry.key)) {
            self.abort(&Upload { bucket: bucket.to_owned(), key: entry.key, id: entry.upload_id }).await?;
        }
        Ok(())
    }

    /// What is there under a key, if anything is.
    ///
    /// # Errors
    /// The store refuses or can't be reached.
    pub async fn written(&self, bucket: &str, key: &str) -> Result<Option<Written>, StorageError> {
        if self.foreign(bucket)?.is_some() {
            let found = self.head(bucket, key).await?;
            return Ok(found.and_then(|object| match object.source {
                ObjectSource::Store { etag, .. } => Some(Written { etag, size: object.size }),
                ObjectSource::File(_) => None,
            }));
        }
        let store = self.bucket(bucket)?;
        let (key, query, headers) = (Some(key), Vec::new(), Vec::new());
        let call = Call { method: Method::HEAD, key, query, headers, body: Bytes::new() };
        let response = match store.call(&call).await {
            Err(error) if error.status() == Some(404) => return Ok(None),
            response => response?,
        };
        let (etag, size) = (header(response.headers(), &ETAG), header(response.headers(), &CONTENT_LENGTH));
        let size = size.parse().map_err(|error| store.malformed(&store.uri(key), error))?;
        Ok(Some(Written { etag: etag.to_owned(), size }))
    }

    /// Removes an object. That there is none is no error.
    ///
    /// # Errors
    /// The store refuses or can't be reached.
    pub async fn delete(&self, bucket: &str, key: &str) -> Result<(), StorageError> {
        if let Some(foreign) = self.foreign(bucket)? {
            return foreign.delete(key).await;
        }
        let store = self.bucket(bucket)?;
        let (key, query, headers) = (Some(key), Vec::new(), Vec::new());
        let deleted =
            store.call(&Call { method: Method::DELETE, key, query, headers, body: Bytes::new() }).await;
        gone_is_fine(deleted.map(drop))
    }

    /// Removes all objects whose keys start so, and all uploads.
    ///
    /// # Errors
    /// The store refuses or can't be reached.
    pub async fn delete_below(&self, bucket: &str, prefix: &str) -> Result<(), StorageError> {
        let delete = |object: Object| {
            let stores = self.clone();
            async move { stores.delete(bucket, &object.key).await }
        };
        let objects = self.list(bucket, prefix).await?;
        let deleting = stream::iter(objects.into_iter().map(delete)).buffer_unordered(DELETES);
        deleting.try_collect::<()>().await?;
        if self.foreign(bucket)?.is_some() {
            return Ok(());
        }
        self.abort_those(bucket, prefix, |key| key.starts_with(prefix)).await
    }

    /// Puts a file of this machine there; it appears at once and whole.
    ///
    /// # Errors
    /// The file can't be read, or the store refuses or can't be reached.
    pub async fn put_file(
        &self,
        bucket: &str,
        key: &str,
        file: &Path,
        kms_key: Option<&str>,
    ) -> Result<(), StorageError> {
        if let Some(foreign) = self.foreign(bucket)? {
            return foreign.put_file(key, file).await;
        }
        let size = fs::metadata(file)?.len();
        if size <= PART {
            let store = self.bucket(bucket)?;
            let (body, headers) = (fs::read(file)?.into(), encryption(kms_key));
            let call = Call { method: Method::PUT, key: Some(key), query: Vec::new(), headers, body };
            store.call(&call).await?;
            return Ok(());
        }
        let upload = self.begin(bucket, key, kms_key).await?;
        let put = self.put_parts_of(&upload, file, size).await;
        if put.is_err() {
            // The first error is the one to tell.
            let _ = self.abort(&upload).await;
        }
        put
    }

    async fn put_parts_of(&self, upload: &Upload, file: &Path, size: u64) -> Result<(), StorageError> {
        let file = fs::File::open(file)?;
        let part = PART.max(size.div_ceil(10_000));
        let mut parts = Vec::new();
        for (number, start) in (1..).zip((0..size).step_by(usize::try_from(part).unwrap_or(usize::MAX))) {
            let body = read_range(&file, start..(start + part).min(size))?;
            parts.push((number, self.put_part(upload, number, body).await?));
        }
        self.complete(upload, &parts, size).await.map(drop)
    }
}

/// A range of a file, as a whole.
///
/// # Errors
/// The file can't be read, or ends before.
pub fn read_range(file: &fs::File, range: std::ops::Range<u64>) -> std::io::Result<Bytes> {
    use std::os::unix::fs::FileExt;
    let mut content = vec![0; usize::try_from(range.end - range.start).unwrap_or_default()];
    file.file().read_exact_at(&mut content, range.start)?;
    Ok(content.into())
}

fn gone_is_fine(result: Result<(), StoreError>) -> Result<(), StorageError> {
    match result {
        Err(error) if error.status() == Some(404) => Ok(()),
        result => Ok(result?),
    }
}

impl Bucket {
    /// Sends the request that completes an upload, again where the store says in its answer that it has not.
    async fn completed(&self, call: &Call<'_>) -> Result<(), StoreError> {
        let mut patience = Patience::new(self.tries);
        loop {
            let text = self.text(call).await?;
            let Some(error) = self.error_within(call, &text) else { return Ok(()) };
            if !patience.wait().await {
                return Err(error);
            }
        }
    }

    /// Sends a request whose answer is a short text.
    async fn text(&self, call: &Call<'_>) -> Result<String, StoreError> {
        let mut patience = Patience::new(self.tries);
        loop {
            match self.call(call).await?.into_body().bytes().await {
                Ok(text) => return Ok(String::from_utf8_lossy(&text).into_owned()),
                Err(error) if !patience.wait().await => {
                    let what = format!("{} {}", call.method, self.uri(call.key));
                    return Err(StoreError::Broken {
                        what,
                        store: self.store.clone(),
                        why: error.to_string(),
                    });
                }
                Err(_) => {}
            }
        }
    }
}
