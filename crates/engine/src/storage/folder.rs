//! Folders as buckets: listings.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fs_err as fs;

use super::{Object, ObjectSource, StorageError};

/// Every object below a folder whose key starts with `key`, in order of the keys' bytes.
///
/// As in S3 this is a comparison of text, not of folders: `data/train` finds `data/train-2.csv` and
/// `data/train/a.csv`. Links are followed. A folder that is not there holds no objects.
pub(super) fn list(root: &Path, key: &str) -> Result<Vec<Object>, StorageError> {
    let (folder, stem) = key.rsplit_once('/').unwrap_or(("", key));
    let start = Folder { path: root.join(folder), key: prefixed(folder, ""), parents: Vec::new() };
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

/// The one object of a key; none if there is no file.
pub(super) fn object(root: &Path, key: &str) -> Result<Option<Object>, StorageError> {
    let path = root.join(key);
    match fs::metadata(&path) {
        Ok(found) if found.is_file() => {
            Ok(Some(Object { key: key.to_owned(), source: ObjectSource::File(path), size: found.len() }))
        }
        Ok(_) => Ok(None),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(error.into()),
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
            let source = ObjectSource::File(path.to_owned());
            objects.push(Object { key: key.to_owned(), source, size: found.len() });
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
        list(folder.path(), key).unwrap().into_iter().map(|object| object.key).collect()
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
        let error = list(folder.path(), "a/").unwrap_err();
        assert!(error.to_string().contains("up"), "{error}");
    }

    #[test]
    fn a_link_that_leads_nowhere_is_named_with_what_it_says() {
        let folder = bucket(&["a/b"]);
        std::os::unix::fs::symlink("gone", folder.path().join("a/link")).unwrap();
        let error = list(folder.path(), "a/").unwrap_err().to_string();
        assert!(error.contains("a/link") && error.contains("gone"), "{error}");
    }
}
