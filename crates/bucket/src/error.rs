//! What can go wrong in a bucket.

use std::io;

use crate::KeyError;

/// A request that a bucket can't fulfil.
#[derive(Debug, thiserror::Error)]
pub enum BucketError {
    /// The name is no key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// No object of this name.
    #[error("there is no object {key:?}")]
    NoObject {
        /// The name.
        key: String,
    },
    /// The object that is there, or its absence, is not what the caller wants to replace.
    #[error("the object {key:?} is not what the request expects")]
    Condition {
        /// The name.
        key: String,
    },
    /// No upload of this id for this key.
    #[error("there is no upload {id:?} of {key:?}: it was completed or aborted, or never begun")]
    NoUpload {
        /// The id.
        id: String,
        /// The name of the object.
        key: String,
    },
    /// A part that is to be part of the object was not uploaded, or with other content.
    #[error("part {number} was not uploaded with the ETag {etag:?}")]
    NoPart {
        /// From 1.
        number: u32,
        /// What the caller takes it to be.
        etag: String,
    },
    /// Parts must rise.
    #[error("part {number} does not come after the one before it")]
    PartOrder {
        /// From 1.
        number: u32,
    },
    /// Only the last part may be small.
    #[error("part {number} has {size} bytes; all parts but the last need {least}")]
    PartSize {
        /// From 1.
        number: u32,
        /// In bytes.
        size: u64,
        /// In bytes.
        least: u64,
    },
    /// A link in the folder leads out of it.
    #[error("{key:?}: a link in the bucket's folder leads out of it; nothing is written there")]
    Outside {
        /// The name of the object.
        key: String,
    },
    /// The file system.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file that holds what is known of the objects.
    #[error("the bucket's index {path:?}")]
    Index {
        /// The file.
        path: std::path::PathBuf,
        /// What is wrong with it.
        source: rusqlite::Error,
    },
}
