//! A folder as a bucket.
//!
//! Objects are plain files, so that people can copy files into the folder and look at what is there: the
//! object `a/b.csv` is the file `a/b.csv`. What S3 keeps beside the content (headers, tags, checksums, uploads
//! under way) lies in one hidden folder, [`HIDDEN`], and so do objects whose keys can't be paths: `a//b`,
//! `../x`, or `k` where there is `k/z`.
//!
//! Everything here blocks. One process at a time should write to a bucket through this crate; others may
//! change files as they like.

mod bucket;
mod draft;
mod error;
mod folder;
mod index;
mod key;
mod list;
mod object;
mod upload;

pub use bucket::Bucket;
pub use draft::Draft;
pub use error::BucketError;
pub use key::{HIDDEN, Key, KeyError};
pub use list::{Entry, ListRequest, Listing};
pub use object::{Attributes, Object};
pub use upload::{Received, UploadPart, UploadUnderWay};
