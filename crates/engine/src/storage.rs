//! Where objects are: in folders of this machine, where objects are files, and in stores, most of which speak S3.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::spec::{ObjectUri, Place};

mod address;
mod credentials;
mod folder;
mod foreign;
mod s3;
mod stores;

pub use address::{AddressError, StoreAddress, StoreKind};
pub use credentials::{CredentialsError, StoreCredentials};
pub use s3::{Refusal, StoreError};
pub use stores::{Bytes, Chunks, Stores, Upload, Written, read_range};

/// Which bucket is where.
///
/// A bucket with a folder of its own is that folder; one with a store of its own is there; all others are in the
/// store for all others if there is one, else below the folder for all others. What happens to be there plays no
/// part, so that a job file always means the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buckets {
    folders: BTreeMap<String, PathBuf>,
    stores: BTreeMap<String, StoreAddress>,
    others: Others,
}

/// Where the buckets are that have no place of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Others {
    Below(PathBuf),
    In(StoreAddress),
}

/// A URI, resolved: where its bucket is, and the key or prefix in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// In a folder of this machine.
    Folder {
        /// The bucket's folder; `/` for a `file://` URI.
        root: PathBuf,
        /// Without a leading slash; may end in one.
        key: String,
    },
    /// In a store.
    Store {
        /// The bucket.
        bucket: String,
        /// May end in a slash.
        key: String,
    },
}

/// Where one object is, as a plain value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ObjectSource {
    /// A file of this machine.
    File(PathBuf),
    /// An object of a store; where that is, the plan says once for each bucket.
    Store {
        /// The bucket.
        bucket: String,
        /// The key.
        key: String,
        /// With its quotes, as listed: the content that is meant.
        etag: String,
    },
}

/// One object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its key in the bucket.
    pub key: String,
    /// Where it is.
    pub source: ObjectSource,
    /// In bytes.
    pub size: u64,
}

/// Objects that can't be listed or read.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// A folder or file can't be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A key would leave its bucket, or has no path.
    #[error("{uri}: a key may not hold the path segment {segment:?}")]
    Segment {
        /// The URI.
        uri: String,
        /// `.`, `..` or empty.
        segment: String,
    },
    /// Keys are text.
    #[error("{path:?}: the name is not UTF-8, so it can't be the key of an object")]
    NotUtf8 {
        /// The file.
        path: PathBuf,
    },
    /// Only files are objects.
    #[error("{path:?} is neither a file nor a folder nor a link to one")]
    Special {
        /// What it is.
        path: PathBuf,
    },
    /// A link to something that is not there.
    #[error("{path:?} is a link to {target:?}, which does not exist: remove the link or mend it")]
    Dangling {
        /// The link.
        path: PathBuf,
        /// What it says.
        target: PathBuf,
    },
    /// A link leads back to a folder that it lies in.
    #[error("{path:?} leads back to a folder that holds it")]
    Loop {
        /// The link.
        path: PathBuf,
    },
    /// The store refuses, or can't be reached.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An object with content and the name of a folder.
    #[error(
        "{uri}: the key ends in a slash, but the object has {size} bytes: it can be neither a file nor a folder"
    )]
    Marker {
        /// Its URI.
        uri: String,
        /// In bytes.
        size: u64,
    },
    /// A key that is no text.
    #[error("bucket {bucket}: the key {key} (escaped) is not UTF-8, so it can't be the name of a file")]
    KeyNotUtf8 {
        /// The bucket.
        bucket: String,
        /// With escapes.
        key: String,
    },
    /// Nothing is known of the bucket's store.
    #[error("bucket {bucket}: the plan does not say where it is")]
    UnknownBucket {
        /// The bucket.
        bucket: String,
    },
    /// An object that is read at once is too large for that.
    #[error("{object} has {size} bytes; {limit} are the most that can be read here")]
    TooLarge {
        /// Its URI or path.
        object: String,
        /// In bytes.
        size: u64,
        /// In bytes.
        limit: u64,
    },
}

impl Buckets {
    /// Buckets that are not named lie below `others`.
    pub fn new(named: BTreeMap<String, PathBuf>, others: PathBuf) -> Self {
        Self { folders: named, stores: BTreeMap::new(), others: Others::Below(others) }
    }

    /// The same with stores for some buckets, and perhaps one for all that are not named.
    #[must_use]
    pub fn with_stores(self, stores: BTreeMap<String, StoreAddress>, others: Option<StoreAddress>) -> Self {
        Self { stores, others: others.map_or(self.others, Others::In), ..self }
    }

    /// Only buckets in stores, as an instance's plan has them.
    pub fn in_stores(stores: BTreeMap<String, StoreAddress>) -> Self {
        Self::new(BTreeMap::new(), PathBuf::from("/nonexistent")).with_stores(stores, None)
    }

    /// The store of a bucket, if it is in one.
    pub fn store(&self, bucket: &str) -> Option<&StoreAddress> {
        match (self.folders.get(bucket), self.stores.get(bucket), &self.others) {
            (Some(_), _, _) => None,
            (None, Some(store), _) | (None, None, Others::In(store)) => Some(store),
            (None, None, Others::Below(_)) => None,
        }
    }

    /// Where a URI points to.
    ///
    /// # Errors
    ///
    /// A key with an empty, `.` or `..` segment, which a folder can't hold.
    pub fn locate(&self, uri: &ObjectUri) -> Result<Location, StorageError> {
        let location = match uri.place() {
            Place::Bucket { bucket, key } if self.store(bucket).is_some() => {
                Location::Store { bucket: bucket.clone(), key: key.clone() }
            }
            Place::Bucket { bucket, key } => {
                let root = match (self.folders.get(bucket), &self.others) {
                    (Some(folder), _) => folder.clone(),
                    (None, Others::Below(folder)) => folder.join(bucket),
                    (None, Others::In(_)) => {
                        return Err(StorageError::UnknownBucket { bucket: bucket.clone() });
                    }
                };
                Location::Folder { root, key: key.clone() }
            }
            Place::File(path) => {
                let key = path.to_string_lossy().trim_start_matches('/').to_owned();
                Location::Folder { root: PathBuf::from("/"), key }
            }
        };
        check_segments(location.key(), &uri.to_string())?;
        Ok(location)
    }
}

/// Whether each part of a key can be the name of a file or folder; the last may be empty.
fn check_segments(key: &str, uri: &str) -> Result<(), StorageError> {
    let folders = key.strip_suffix('/').unwrap_or(key);
    match folders.split('/').find(|segment| matches!(*segment, "" | "." | "..")) {
        Some(segment) if !key.is_empty() => {
            Err(StorageError::Segment { uri: uri.to_owned(), segment: segment.to_owned() })
        }
        _ => Ok(()),
    }
}

impl Location {
    /// The key or prefix.
    pub fn key(&self) -> &str {
        match self {
            Self::Folder { key, .. } | Self::Store { key, .. } => key,
        }
    }

    /// The file or folder of the key; none in a store.
    pub fn path(&self) -> Option<PathBuf> {
        match self {
            Self::Folder { root, key } => Some(root.join(key)),
            Self::Store { .. } => None,
        }
    }

    /// Every object whose key starts with this one, in order of the keys' bytes.
    ///
    /// This is a comparison of text, not of folders: `data/train` finds `data/train-2.csv` and `data/train/a.csv`.
    /// Folder markers (empty objects whose key ends in a slash) are left out.
    ///
    /// # Errors
    ///
    /// The folder or store can't be listed, or holds a key that can't be the path of a file.
    pub async fn list(&self, stores: &Stores) -> Result<Vec<Object>, StorageError> {
        match self {
            Self::Folder { root, key } => {
                let (root, key) = (root.clone(), key.clone());
                tokio::task::spawn_blocking(move || folder::list(&root, &key))
                    .await
                    .map_err(io::Error::other)?
            }
            Self::Store { bucket, key } => stores.list(bucket, key).await,
        }
    }

    /// The one object of this key; none if there is none.
    ///
    /// # Errors
    ///
    /// It can't be looked at.
    pub async fn object(&self, stores: &Stores) -> Result<Option<Object>, StorageError> {
        match self {
            Self::Folder { root, key } => folder::object(root, key),
            Self::Store { bucket, key } => stores.head(bucket, key).await,
        }
    }
}

impl ObjectSource {
    /// What people call it.
    pub fn name(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Store { bucket, key, .. } => format!("s3://{bucket}/{key}"),
        }
    }

    /// Its bucket, if it is in a store.
    pub fn bucket(&self) -> Option<&str> {
        match self {
            Self::File(_) => None,
            Self::Store { bucket, .. } => Some(bucket),
        }
    }

    /// Its file, if it is one of this machine.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Store { .. } => None,
        }
    }
}

/// How many bytes the file system of a path has; none if it does not tell.
pub fn file_system_size(path: &Path) -> Option<u64> {
    let system = rustix::fs::statvfs(path).ok()?;
    Some(system.f_blocks.saturating_mul(system.f_frsize))
}

impl From<PathBuf> for ObjectSource {
    fn from(path: PathBuf) -> Self {
        Self::File(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_never_leaves_its_bucket() {
        let folders = Buckets::new(BTreeMap::new(), "/data/s3".into());
        let store = folders.clone().with_stores(BTreeMap::new(), Some(StoreAddress::default()));
        for buckets in [folders, store] {
            for uri in ["s3://b/../x", "s3://b/a/./x", "s3://b/a//x", "s3://b//", "file:///a/../b"] {
                let uri = ObjectUri::parse(uri).unwrap();
                assert!(matches!(buckets.locate(&uri), Err(StorageError::Segment { .. })), "{uri}");
            }
        }
    }

    #[test]
    fn a_bucket_is_its_own_folder_or_its_own_store_or_where_all_others_are() {
        let named = BTreeMap::from([("mine".to_owned(), PathBuf::from("/home/me/files"))]);
        let own = StoreAddress { region: Some("eu-west-1".into()), ..StoreAddress::default() };
        let stores = BTreeMap::from([("far".to_owned(), own.clone()), ("mine".to_owned(), own.clone())]);
        let others =
            StoreAddress { endpoint: Some("http://127.0.0.1:9000".into()), ..StoreAddress::default() };
        let below = Buckets::new(named, "/data/s3".into()).with_stores(stores.clone(), None);
        let in_store = below.clone().with_stores(stores, Some(others.clone()));
        let locate = |buckets: &Buckets, uri: &str| buckets.locate(&ObjectUri::parse(uri).unwrap()).unwrap();
        let path = |uri: &str| locate(&below, uri).path();
        assert_eq!(path("s3://mine/a/b"), Some("/home/me/files/a/b".into()));
        assert_eq!(path("s3://other"), Some("/data/s3/other/".into()));
        assert_eq!(path("file:///srv/x/"), Some("/srv/x/".into()));
        assert_eq!(path("s3://far/x"), None);
        assert_eq!(below.store("far"), Some(&own));
        assert_eq!(in_store.store("far"), Some(&own));
        assert_eq!(in_store.store("other"), Some(&others));
        assert_eq!(in_store.store("mine"), None);
        assert_eq!(locate(&in_store, "s3://mine/a").path(), Some("/home/me/files/a".into()));
        assert_eq!(
            locate(&in_store, "s3://other/a"),
            Location::Store { bucket: "other".into(), key: "a".into() }
        );
    }
}
