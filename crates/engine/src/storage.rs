//! Where objects are: buckets are folders of this machine, objects are files in them.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fs_err as fs;

use crate::spec::{ObjectUri, Place};

/// Which folder stands for which bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buckets {
    named: BTreeMap<String, PathBuf>,
    others: PathBuf,
}

/// A URI on this machine: a folder that stands for the bucket, and the key or prefix in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The bucket's folder; `/` for a `file://` URI.
    pub root: PathBuf,
    /// Without a leading slash; may end in one.
    pub key: String,
}

/// One object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its key in the bucket.
    pub key: String,
    /// The file that holds it.
    pub path: PathBuf,
    /// In bytes.
    pub size: u64,
}

/// Objects that can't be listed.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// A folder or file can't be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A key would leave its bucket.
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
}

impl Buckets {
    /// Buckets that are not named lie below `others`.
    pub fn new(named: BTreeMap<String, PathBuf>, others: PathBuf) -> Self {
        Self { named, others }
    }

    /// Where a URI points to on this machine.
    ///
    /// # Errors
    ///
    /// A key with an empty, `.` or `..` segment, which a folder can't hold.
    pub fn locate(&self, uri: &ObjectUri) -> Result<Location, StorageError> {
        let location = match uri.place() {
            Place::Bucket { bucket, key } => {
                let root = self.named.get(bucket).cloned().unwrap_or_else(|| self.others.join(bucket));
                Location { root, key: key.clone() }
            }
            Place::File(path) => {
                let key = path.to_string_lossy().trim_start_matches('/').to_owned();
                Location { root: PathBuf::from("/"), key }
            }
        };
        if location.key.is_empty() {
            return Ok(location);
        }
        let folders = location.key.strip_suffix('/').unwrap_or(&location.key);
        match folders.split('/').find(|segment| matches!(*segment, "" | "." | "..")) {
            Some(segment) => Err(StorageError::Segment { uri: uri.to_string(), segment: segment.to_owned() }),
            None => Ok(location),
        }
    }
}

impl Location {
    /// The file or folder of the key.
    pub fn path(&self) -> PathBuf {
        self.root.join(&self.key)
    }

    /// Every object whose key starts with this one, in order of the keys' bytes.
    ///
    /// As in S3 this is a comparison of text, not of folders: `data/train` finds `data/train-2.csv` and
    /// `data/train/a.csv`. Links are followed. A folder that is not there holds no objects.
    pub fn list(&self) -> Result<Vec<Object>, StorageError> {
        let (folder, stem) = self.key.rsplit_once('/').unwrap_or(("", &self.key));
        let start = Folder { path: self.root.join(folder), key: prefixed(folder, ""), parents: Vec::new() };
        let mut objects = Vec::new();
        match fs::metadata(&start.path) {
            Ok(found) if found.is_dir() => start.list(stem, &mut objects)?,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
        objects.sort_by(|a, b| a.key.as_bytes().cmp(b.key.as_bytes()));
        Ok(objects)
    }
}

/// A key below a folder's key.
fn prefixed(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

/// A folder while it is listed.
struct Folder {
    path: PathBuf,
    /// What the keys in it start with: empty or ending in a slash.
    key: String,
    /// Device and inode of the folders above.
    parents: Vec<(u64, u64)>,
}

impl Folder {
    fn list(&self, stem: &str, objects: &mut Vec<Object>) -> Result<(), StorageError> {
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else {
                return Err(StorageError::NotUtf8 { path: entry.path() });
            };
            if name.starts_with(stem) {
                self.take(&entry.path(), &format!("{}{name}", self.key), objects)?;
            }
        }
        Ok(())
    }

    fn take(&self, path: &Path, key: &str, objects: &mut Vec<Object>) -> Result<(), StorageError> {
        let found = match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(not_there(path, error)),
            found => found?,
        };
        if found.is_file() {
            objects.push(Object { key: key.to_owned(), path: path.to_owned(), size: found.len() });
            return Ok(());
        }
        if !found.is_dir() {
            return Err(StorageError::Special { path: path.to_owned() });
        }
        let identity = (found.dev(), found.ino());
        if self.parents.contains(&identity) {
            return Err(StorageError::Loop { path: path.to_owned() });
        }
        let parents = self.parents.iter().copied().chain([identity]).collect();
        Self { path: path.to_owned(), key: format!("{key}/"), parents }.list("", objects)
    }
}

/// A link is there though what it leads to is not; anything else has been removed just now.
fn not_there(path: &Path, error: io::Error) -> StorageError {
    match fs::read_link(path) {
        Ok(target) => StorageError::Dangling { path: path.to_owned(), target },
        Err(_) => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(files: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, file).unwrap();
        }
        folder
    }

    fn keys(folder: &tempfile::TempDir, key: &str) -> Vec<String> {
        let location = Location { root: folder.path().to_owned(), key: key.to_owned() };
        location.list().unwrap().into_iter().map(|object| object.key).collect()
    }

    #[test]
    fn a_prefix_is_text_and_not_a_folder() {
        let folder = bucket(&["data/train-2.csv", "data/train/a.csv", "data/test.csv", "train"]);
        assert_eq!(keys(&folder, "data/train"), ["data/train-2.csv", "data/train/a.csv"]);
        assert_eq!(keys(&folder, "data/train/"), ["data/train/a.csv"]);
        assert_eq!(keys(&folder, "data/test.csv"), ["data/test.csv"]);
        assert_eq!(keys(&folder, "").len(), 4);
        assert_eq!(keys(&folder, "nothing/here"), [""; 0]);
        assert_eq!(keys(&folder, "data/test.csv/"), [""; 0]);
    }

    #[test]
    fn keys_are_in_order_of_their_bytes_over_all_folders() {
        let folder = bucket(&["_1", "_10", "_2", "a/b", "a.b", "a0"]);
        assert_eq!(keys(&folder, ""), ["_1", "_10", "_2", "a.b", "a/b", "a0"]);
    }

    #[test]
    fn a_link_that_leads_back_is_named_instead_of_followed_for_ever() {
        let folder = bucket(&["a/b"]);
        std::os::unix::fs::symlink("..", folder.path().join("a/up")).unwrap();
        let location = Location { root: folder.path().to_owned(), key: "a/".into() };
        let error = location.list().unwrap_err();
        assert!(error.to_string().contains("up"), "{error}");
    }

    #[test]
    fn a_link_that_leads_nowhere_is_named_with_what_it_says() {
        let folder = bucket(&["a/b"]);
        std::os::unix::fs::symlink("gone", folder.path().join("a/link")).unwrap();
        let location = Location { root: folder.path().to_owned(), key: "a/".into() };
        let error = location.list().unwrap_err().to_string();
        assert!(error.contains("a/link") && error.contains("gone"), "{error}");
    }

    #[test]
    fn a_key_never_leaves_its_bucket() {
        let buckets = Buckets::new(BTreeMap::new(), "/data/s3".into());
        for uri in ["s3://b/../x", "s3://b/a/./x", "s3://b/a//x", "s3://b//", "file:///a/../b"] {
            let uri = ObjectUri::parse(uri).unwrap();
            assert!(matches!(buckets.locate(&uri), Err(StorageError::Segment { .. })), "{uri}");
        }
    }

    #[test]
    fn a_bucket_is_its_own_folder_or_one_below_the_common_one() {
        let named = BTreeMap::from([("mine".to_owned(), PathBuf::from("/home/me/files"))]);
        let buckets = Buckets::new(named, "/data/s3".into());
        let path = |uri: &str| buckets.locate(&ObjectUri::parse(uri).unwrap()).unwrap().path();
        assert_eq!(path("s3://mine/a/b"), Path::new("/home/me/files/a/b"));
        assert_eq!(path("s3://other"), Path::new("/data/s3/other/"));
        assert_eq!(path("file:///srv/x/"), Path::new("/srv/x/"));
    }
}
