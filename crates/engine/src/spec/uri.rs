//! The place of objects: `s3://`, the `https://` forms of it, and files of this machine.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The URI of an object or a prefix, with what it points to. It is shown as it was sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ObjectUri {
    text: String,
    place: Place,
}

/// What a URI points to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Objects of a bucket.
    Bucket {
        /// Name of the bucket.
        bucket: String,
        /// Key or prefix, without the slash before it; empty for the whole bucket.
        key: String,
    },
    /// A file or folder of this machine, by its absolute path.
    File(PathBuf),
}

/// Why a text is not the URI of objects.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UriError {
    /// None of the schemes.
    #[error("'{uri}' begins neither with s3://, file:/// nor https://")]
    Scheme {
        /// The text.
        uri: String,
    },
    /// A file without an absolute path.
    #[error("'{uri}' has no absolute path: write file:/// and the path from the root")]
    NotAbsolute {
        /// The text.
        uri: String,
    },
    /// A web address that is not S3's.
    #[error("'{uri}' is not an address of S3: write s3://BUCKET/KEY")]
    NotS3 {
        /// The text.
        uri: String,
    },
    /// A bucket that can not be one.
    #[error("'{bucket}' in '{uri}' is not the name of a bucket: letters, digits, '.', '-', '_' and ':'")]
    Bucket {
        /// The text.
        uri: String,
        /// What stands where the bucket does.
        bucket: String,
    },
}

impl ObjectUri {
    /// Reads a URI: `s3://bucket/key`, `file:///path`, or S3's web addresses with the bucket in the host
    /// or in the path. Nothing is decoded: a `%20` is a part of the key or path.
    ///
    /// # Errors
    ///
    /// Fails where the text points to no objects.
    pub fn parse(text: &str) -> Result<Self, UriError> {
        let uri = || text.to_owned();
        let place = if let Some(rest) = text.strip_prefix("s3://") {
            in_bucket(rest)
        } else if let Some(path) = text.strip_prefix("file://") {
            if !path.starts_with('/') {
                return Err(UriError::NotAbsolute { uri: uri() });
            }
            Place::File(PathBuf::from(path))
        } else if let Some(rest) = text.strip_prefix("https://") {
            web_address(rest).ok_or_else(|| UriError::NotS3 { uri: uri() })?
        } else {
            return Err(UriError::Scheme { uri: uri() });
        };
        if let Place::Bucket { bucket, .. } = &place
            && !is_bucket(bucket)
        {
            return Err(UriError::Bucket { uri: uri(), bucket: bucket.clone() });
        }
        Ok(Self { text: uri(), place })
    }

    /// What the URI points to.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// The bucket; none for a file.
    pub fn bucket(&self) -> Option<&str> {
        match &self.place {
            Place::Bucket { bucket, .. } => Some(bucket),
            Place::File(_) => None,
        }
    }

    /// The key or prefix in the bucket; none for a file.
    pub fn key(&self) -> Option<&str> {
        match &self.place {
            Place::Bucket { key, .. } => Some(key),
            Place::File(_) => None,
        }
    }

    /// The path of a file; none for an object.
    pub fn path(&self) -> Option<&Path> {
        match &self.place {
            Place::Bucket { .. } => None,
            Place::File(path) => Some(path),
        }
    }

    /// The URI of what lies below this one, joined by exactly one slash.
    #[must_use]
    pub fn child(&self, relative: &str) -> Self {
        let relative = relative.trim_start_matches('/');
        let joined = |base: &str| match base {
            "" => relative.to_owned(),
            _ => format!("{}/{relative}", base.strip_suffix('/').unwrap_or(base)),
        };
        let place = match &self.place {
            Place::Bucket { bucket, key } => Place::Bucket { bucket: bucket.clone(), key: joined(key) },
            Place::File(path) => Place::File(path.join(relative)),
        };
        Self { text: joined(&self.text), place }
    }
}

/// Bucket and key of what stands behind the scheme.
fn in_bucket(rest: &str) -> Place {
    let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
    Place::Bucket { bucket: bucket.to_owned(), key: key.to_owned() }
}

/// The objects behind one of S3's web addresses: `bucket.s3.region.amazonaws.com/key`, or without the
/// bucket in the host `s3.region.amazonaws.com/bucket/key`; older regions have `s3-region`.
fn web_address(rest: &str) -> Option<Place> {
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let service = host.strip_suffix(".amazonaws.com").or_else(|| host.strip_suffix(".amazonaws.com.cn"))?;
    let is_service = |label: &str| label == "s3" || label.starts_with("s3-");
    let labels: Vec<&str> = service.split('.').collect();
    // The last label of that name is the service: a bucket may be called `s3.backup` itself.
    let at = labels.iter().rposition(|label| is_service(label))?;
    match labels[..at].join(".") {
        bucket if bucket.is_empty() => Some(in_bucket(path)),
        bucket => Some(Place::Bucket { bucket, key: path.to_owned() }),
    }
}

/// Whether a text can name a bucket. A name becomes a folder here, so it may not lead out of its parent.
fn is_bucket(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
    text.chars().all(allowed) && text.chars().any(|c| c.is_ascii_alphanumeric())
}

impl fmt::Display for ObjectUri {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl TryFrom<String> for ObjectUri {
    type Error = UriError;

    fn try_from(text: String) -> Result<Self, UriError> {
        Self::parse(&text)
    }
}

impl From<ObjectUri> for String {
    fn from(uri: ObjectUri) -> Self {
        uri.text
    }
}
