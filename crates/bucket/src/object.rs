//! What is known of an object besides its content.

use std::collections::BTreeMap;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::Key;

/// One object as it is listed and read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its name in the bucket.
    pub key: Key,
    /// In bytes.
    pub size: u64,
    /// When its content was last written.
    pub modified: SystemTime,
    /// Without quotation marks: the MD5 of the content, of its parts with `-<count>` behind it, or, for a
    /// file that was put into the folder by other means, a text that changes with the file.
    pub etag: String,
    /// What came with it.
    pub attributes: Attributes,
}

/// What came with an object and is given back with it, never interpreted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Attributes {
    /// Headers of the object by their lower-case names, such as `content-type`.
    pub headers: BTreeMap<String, String>,
    /// `x-amz-meta-*`, without that prefix.
    pub metadata: BTreeMap<String, String>,
    /// In the order in which they were set.
    pub tags: Vec<(String, String)>,
    /// Base64 checksums by algorithm, such as `CRC32`.
    pub checksums: BTreeMap<String, String>,
    /// In bytes, of an object that was uploaded in parts.
    pub parts: Vec<u64>,
}
