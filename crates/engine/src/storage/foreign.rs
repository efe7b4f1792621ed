//! Stores that speak protocols of their own, through object_store's clients: Google Cloud Storage and Azure.
//!
//! object_store takes keys for paths. So what it lists is compared with the text that was asked for, an empty object that
//! stands for a folder is known by what lies below it, and keys with an empty segment can't be listed at all.

use std::collections::BTreeSet;
use std::io::Read;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::TryStreamExt;
use futures_util::stream::BoxStream;
use object_store::path::Path as Key;
use object_store::{Error, GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt, WriteMultipart};

#[cfg(any(feature = "gcs", feature = "azure"))]
use super::StoreKind;
use super::{Object, ObjectSource, StorageError, StoreAddress, StoreCredentials, StoreError};

/// What is sent at once of a file.
const PIECE: usize = 16 << 20;
/// Pieces under way.
const PIECES: usize = 4;

/// A bucket, or a container, of such a store.
pub(super) struct Foreign {
    name: String,
    /// What people call the store.
    store: String,
    objects: Arc<dyn ObjectStore>,
}

impl Foreign {
    pub(super) fn open(
        name: &str,
        address: &StoreAddress,
        credentials: &StoreCredentials,
    ) -> Result<Self, StoreError> {
        super::stores::install_crypto();
        let store = address.name().to_owned();
        let objects = client(name, address, credentials)?;
        Ok(Self { name: name.to_owned(), store, objects })
    }

    pub(super) fn store(&self) -> &str {
        &self.store
    }

    fn uri(&self, key: &str) -> String {
        format!("s3://{}/{key}", self.name)
    }

    fn failed(&self, what: String, source: Error) -> StorageError {
        StoreError::Foreign { what, store: self.store.clone(), source: Box::new(source) }.into()
    }

    fn key(&self, key: &str) -> Result<Key, StorageError> {
        let odd = |source: object_store::path::Error| self.failed(self.uri(key), source.into());
        Key::parse(key).map_err(odd)
    }

    /// Every object whose key starts with `prefix`, in order of the keys' bytes.
    pub(super) async fn list(&self, prefix: &str) -> Result<Vec<Object>, StorageError> {
        let what = || format!("listing {}", self.uri(prefix));
        let folder = prefix.rsplit_once('/').map_or("", |(folder, _)| folder);
        let folder = (!folder.is_empty()).then(|| self.key(folder)).transpose()?;
        let found: Vec<_> = self
            .objects
            .list(folder.as_ref())
            .try_collect()
            .await
            .map_err(|error| self.failed(what(), error))?;
        let mut objects: Vec<_> = found.into_iter().map(|found| self.object(found)).collect();
        objects.retain(|object| object.key.starts_with(prefix));
        let folders: BTreeSet<String> = objects.iter().flat_map(|object| folders_of(&object.key)).collect();
        objects.retain(|object| object.size > 0 || !folders.contains(&object.key));
        objects.sort_by(|a, b| a.key.as_bytes().cmp(b.key.as_bytes()));
        Ok(objects)
    }

    /// An object; none if there is none of this key.
    pub(super) async fn head(&self, key: &str) -> Result<Option<Object>, StorageError> {
        match self.objects.head(&self.key(key)?).await {
            Ok(found) => Ok(Some(self.object(found))),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.failed(self.uri(key), error)),
        }
    }

    fn object(&self, found: ObjectMeta) -> Object {
        let key = found.location.to_string();
        let etag = found.e_tag.unwrap_or_default();
        let source = ObjectSource::Store { bucket: self.name.clone(), key: key.clone(), etag };
        Object { key, source, size: found.size }
    }

    /// Opens a range of an object that was listed with this ETag; object_store takes up connections that break.
    pub(super) async fn range(
        self: Arc<Self>,
        key: &str,
        etag: &str,
        range: Range<u64>,
    ) -> Result<ForeignChunks, StorageError> {
        let length = range.end - range.start;
        let chunks: BoxStream<'static, _> = if length == 0 {
            futures_util::stream::empty().boxed()
        } else {
            let options = GetOptions {
                if_match: (!etag.is_empty()).then(|| etag.to_owned()),
                range: Some(GetRange::Bounded(range)),
                ..GetOptions::default()
            };
            match self.objects.get_opts(&self.key(key)?, options).await {
                Ok(found) => found.into_stream(),
                Err(Error::NotFound { .. }) => return Err(StoreError::Gone { object: self.uri(key) }.into()),
                Err(Error::Precondition { .. }) => return Err(self.changed(key, etag).await?),
                Err(error) => return Err(self.failed(self.uri(key), error)),
            }
        };
        Ok(ForeignChunks { uri: self.uri(key), left: length, chunks, foreign: self })
    }

    /// The error that names what the object is now.
    async fn changed(&self, key: &str, listed: &str) -> Result<StorageError, StorageError> {
        let object = self.uri(key);
        Ok(match self.head(key).await? {
            None => StoreError::Gone { object }.into(),
            Some(Object { source: ObjectSource::Store { etag: found, .. }, .. }) => {
                StoreError::Changed { object, listed: listed.to_owned(), found }.into()
            }
            Some(_) => StoreError::Gone { object }.into(),
        })
    }

    /// Removes an object. That there is none is no error.
    pub(super) async fn delete(&self, key: &str) -> Result<(), StorageError> {
        match self.objects.delete(&self.key(key)?).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.failed(format!("removing {}", self.uri(key)), error)),
        }
    }

    /// Puts a file there; it appears at once and whole.
    pub(super) async fn put_file(&self, key: &str, file: &Path) -> Result<(), StorageError> {
        let failed = |error| self.failed(format!("writing {}", self.uri(key)), error);
        let upload = self.objects.put_multipart(&self.key(key)?).await.map_err(failed)?;
        let mut writing = WriteMultipart::new_with_chunk_size(upload, PIECE);
        let sent = self.send(&mut writing, file).await;
        match sent {
            Ok(()) => writing.finish().await.map(drop).map_err(failed),
            Err(error) => {
                // The first error is the one to tell.
                let _ = writing.abort().await;
                Err(error)
            }
        }
    }

    async fn send(&self, writing: &mut WriteMultipart, file: &Path) -> Result<(), StorageError> {
        let mut file = fs_err::File::open(file)?;
        loop {
            let mut piece = Vec::new();
            file.by_ref().take(PIECE as u64).read_to_end(&mut piece)?;
            if piece.is_empty() {
                return Ok(());
            }
            let what = || format!("writing to {}", self.store);
            writing.wait_for_capacity(PIECES).await.map_err(|error| self.failed(what(), error))?;
            writing.put(piece.into());
        }
    }
}

/// A range that is being read.
pub(super) struct ForeignChunks {
    foreign: Arc<Foreign>,
    uri: String,
    left: u64,
    chunks: BoxStream<'static, Result<Bytes, Error>>,
}

impl ForeignChunks {
    /// The next piece; none at the end of the range.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, StorageError> {
        while self.left > 0 {
            let chunk = match self.chunks.next().await {
                Some(chunk) => chunk.map_err(|error| self.foreign.failed(self.uri.clone(), error))?,
                None => {
                    let why = format!("it ends {} bytes too early", self.left);
                    let store = self.foreign.store.clone();
                    return Err(StoreError::Malformed { what: self.uri.clone(), store, why }.into());
                }
            };
            if !chunk.is_empty() {
                self.left = self.left.saturating_sub(chunk.len() as u64);
                return Ok(Some(chunk));
            }
        }
        Ok(None)
    }
}

/// All folders that a key lies in.
fn folders_of(key: &str) -> impl Iterator<Item = String> {
    key.match_indices('/').map(|(at, _)| key[..at].to_owned())
}

/// The client of a store.
#[cfg_attr(
    not(any(feature = "gcs", feature = "azure")),
    expect(unused_variables, reason = "without any client nothing is opened")
)]
fn client(
    name: &str,
    address: &StoreAddress,
    credentials: &StoreCredentials,
) -> Result<Arc<dyn ObjectStore>, StoreError> {
    #[cfg(feature = "gcs")]
    if address.kind == StoreKind::Gcs {
        return gcs(name, address, credentials);
    }
    #[cfg(feature = "azure")]
    if address.kind == StoreKind::Azure {
        return azure(name, address, credentials);
    }
    Err(StoreError::NotBuilt { store: address.name().to_owned(), feature: address.kind.as_str() })
}

#[cfg(any(feature = "gcs", feature = "azure"))]
fn options(address: &StoreAddress) -> object_store::ClientOptions {
    let plain = address.endpoint.as_deref().is_some_and(|endpoint| endpoint.starts_with("http://"));
    object_store::ClientOptions::new().with_allow_http(plain).with_timeout_disabled()
}

#[cfg(feature = "gcs")]
fn gcs(
    name: &str,
    address: &StoreAddress,
    credentials: &StoreCredentials,
) -> Result<Arc<dyn ObjectStore>, StoreError> {
    use object_store::gcp::GoogleCloudStorageBuilder;
    let mut builder = GoogleCloudStorageBuilder::new();
    for (name, value) in credentials.starting_with("GOOGLE_") {
        if let Ok(key) = name.to_lowercase().parse() {
            builder = builder.with_config(key, value);
        }
    }
    if let Some(endpoint) = &address.endpoint {
        builder = builder.with_base_url(endpoint);
    }
    let builder = builder.with_bucket_name(name).with_skip_signature(address.anonymous);
    let store = builder.with_client_options(options(address)).build();
    store.map(|store| Arc::new(store) as _).map_err(|source| unusable(address, source))
}

#[cfg(feature = "azure")]
fn azure(
    name: &str,
    address: &StoreAddress,
    credentials: &StoreCredentials,
) -> Result<Arc<dyn ObjectStore>, StoreError> {
    use object_store::azure::MicrosoftAzureBuilder;
    let mut builder = MicrosoftAzureBuilder::new();
    for (name, value) in credentials.starting_with("AZURE_") {
        if let Ok(key) = name.to_lowercase().parse() {
            builder = builder.with_config(key, value);
        }
    }
    if let Some(endpoint) = &address.endpoint {
        builder = builder.with_endpoint(endpoint.clone());
    }
    if let Some(account) = &address.account {
        builder = builder.with_account(account);
    }
    let builder = builder.with_container_name(name).with_skip_signature(address.anonymous);
    let store = builder.with_client_options(options(address)).build();
    store.map(|store| Arc::new(store) as _).map_err(|source| unusable(address, source))
}

#[cfg(any(feature = "gcs", feature = "azure"))]
fn unusable(address: &StoreAddress, source: Error) -> StoreError {
    StoreError::Client { store: address.name().to_owned(), source }
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;

    use super::*;
    #[cfg(not(feature = "gcs"))]
    use crate::storage::StoreKind;

    fn bucket() -> Arc<Foreign> {
        let objects = Arc::new(InMemory::new());
        Arc::new(Foreign { name: "b".to_owned(), store: "memory".to_owned(), objects })
    }

    async fn put(bucket: &Foreign, key: &str, content: &str) {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs_err::write(file.path(), content).unwrap();
        bucket.put_file(key, file.path()).await.unwrap();
    }

    async fn read(
        bucket: &Arc<Foreign>,
        object: &Object,
        range: Range<u64>,
    ) -> Result<Vec<u8>, StorageError> {
        let ObjectSource::Store { key, etag, .. } = &object.source else { unreachable!() };
        let mut chunks = Arc::clone(bucket).range(key, etag, range).await?;
        let mut content = Vec::new();
        while let Some(chunk) = chunks.next().await? {
            content.extend_from_slice(&chunk);
        }
        Ok(content)
    }

    #[tokio::test]
    async fn a_prefix_is_text_and_folder_markers_are_no_files() {
        let bucket = bucket();
        for (key, content) in
            [("in/a", "1"), ("in/a-b", ""), ("in/f", ""), ("in/f/x", "22"), ("in-other", "3"), ("top", "4")]
        {
            put(&bucket, key, content).await;
        }
        let keys = async |prefix: &str| -> Vec<_> {
            let found = bucket.list(prefix).await.unwrap();
            found.into_iter().map(|object| (object.key, object.size)).collect()
        };
        let expected = |keys: &[(&str, u64)]| -> Vec<_> {
            keys.iter().map(|(key, size)| ((*key).to_owned(), *size)).collect()
        };
        assert_eq!(keys("in/a").await, expected(&[("in/a", 1), ("in/a-b", 0)]));
        assert_eq!(keys("in/").await, expected(&[("in/a", 1), ("in/a-b", 0), ("in/f/x", 2)]));
        assert_eq!(keys("in-").await, expected(&[("in-other", 1)]));
        assert_eq!(keys("").await.len(), 5);
    }

    #[tokio::test]
    async fn ranges_are_read_of_the_object_that_was_listed_and_of_no_other() {
        let bucket = bucket();
        put(&bucket, "k", "0123456789").await;
        let listed = bucket.head("k").await.unwrap().unwrap();
        assert_eq!(read(&bucket, &listed, 2..5).await.unwrap(), b"234");
        assert_eq!(read(&bucket, &listed, 4..4).await.unwrap(), b"");
        put(&bucket, "k", "9876543210").await;
        let changed = read(&bucket, &listed, 2..5).await.unwrap_err();
        assert!(matches!(changed, StorageError::Store(StoreError::Changed { .. })), "{changed}");
        bucket.delete("k").await.unwrap();
        bucket.delete("k").await.unwrap();
        let gone = read(&bucket, &listed, 2..5).await.unwrap_err();
        assert!(matches!(gone, StorageError::Store(StoreError::Gone { .. })), "{gone}");
        assert!(bucket.head("k").await.unwrap().is_none());
    }

    #[tokio::test]
    async fn a_file_of_many_pieces_is_put_there_whole() {
        let bucket = bucket();
        let content = "0123456789abcdef".repeat(PIECE / 16 * 2 + 7);
        put(&bucket, "large", &content).await;
        let found = bucket.head("large").await.unwrap().unwrap();
        assert_eq!(found.size, content.len() as u64);
        let end = content.len() as u64;
        assert_eq!(
            read(&bucket, &found, end - 20..end).await.unwrap(),
            content.as_bytes()[content.len() - 20..]
        );
    }

    #[cfg(not(feature = "gcs"))]
    #[test]
    fn a_store_that_was_not_built_in_is_told_with_the_feature_that_is_missing() {
        let address = StoreAddress { kind: StoreKind::Gcs, ..StoreAddress::default() };
        let error = Foreign::open("b", &address, &StoreCredentials::default()).err().unwrap().to_string();
        assert!(error.contains("Google Cloud Storage") && error.contains("--features gcs"), "{error}");
    }
}
