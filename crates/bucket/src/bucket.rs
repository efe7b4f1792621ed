//! Objects by their keys.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fs_err as fs;
use md5::{Digest, Md5};
use tempfile::TempPath;

use crate::draft::{Draft, etag, hex};
use crate::folder::{Folder, NotPlaced, modified};
use crate::index::{Index, Record};
use crate::{Attributes, BucketError, Key, Object};

/// A folder as a bucket.
#[derive(Debug)]
pub struct Bucket {
    pub(crate) folder: Folder,
    /// Held while an object is found or changes its content, so that both fit each other.
    index: Mutex<Option<Index>>,
}

/// What is known of objects, and the right to change it.
pub(crate) struct Open<'a> {
    folder: &'a Folder,
    guard: MutexGuard<'a, Option<Index>>,
}

impl Bucket {
    /// The bucket of a folder, in which nothing is made before an object is put.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: Folder::new(folder.into()), index: Mutex::new(None) }
    }

    /// A place for new content.
    ///
    /// # Errors
    /// The file system refuses it.
    pub fn draft(&self) -> Result<Draft, BucketError> {
        Ok(Draft::new(self.folder.temporary()?))
    }

    /// Makes an object of what was written, in place of what has this key, if `allowed` says so of the latter.
    ///
    /// # Errors
    /// It is not allowed, or the file system refuses it.
    pub fn put(
        &self,
        key: &Key,
        draft: Draft,
        attributes: Attributes,
        allowed: impl FnOnce(Option<&Object>) -> bool,
    ) -> Result<Object, BucketError> {
        let etag = etag(&draft.md5());
        self.put_as(key, draft, (etag, attributes), allowed)
    }

    pub(crate) fn put_as(
        &self,
        key: &Key,
        draft: Draft,
        (etag, attributes): (String, Attributes),
        allowed: impl FnOnce(Option<&Object>) -> bool,
    ) -> Result<Object, BucketError> {
        let mut open = self.open();
        let before = open.find(key)?.map(|(_, object)| object);
        if !allowed(before.as_ref()) {
            let key = key.to_string();
            // Where there is nothing, only something that was to be replaced can have been missed.
            return Err(match before {
                Some(_) => BucketError::Condition { key },
                None => BucketError::NoObject { key },
            });
        }
        let (file, path) = draft.file.into_parts();
        let found = file.metadata()?;
        let odd = self.place(key, path)?;
        let record = Record { odd, size: found.len(), modified: modified(&found), etag, attributes };
        open.made()?.store(key.as_str(), &record)?;
        if !odd {
            self.folder.remove(&key.odd_path()).map_err(|error| not_placed(key, error))?;
        }
        Ok(object(key, &found, Some(record)))
    }

    /// Puts a file where its key says, or into the hidden folder; tells whether it is there.
    fn place(&self, key: &Key, file: TempPath) -> Result<bool, BucketError> {
        // A second name, for the first attempt takes the file.
        let hidden = key.odd_path();
        let Some(path) = key.path() else {
            return self.folder.place(file, &hidden).map(|()| true).map_err(|error| not_placed(key, error));
        };
        let place = self.folder.root().join(path);
        let taken = fs::metadata(&place).is_ok_and(|found| found.is_dir());
        let below_file = place.ancestors().skip(1).find_map(|folder| fs::metadata(folder).ok());
        if taken || below_file.is_some_and(|found| !found.is_dir()) {
            return self.folder.place(file, &hidden).map(|()| true).map_err(|error| not_placed(key, error));
        }
        self.folder.place(file, path).map(|()| false).map_err(|error| not_placed(key, error))
    }

    /// An object and its content.
    ///
    /// # Errors
    /// There is none of this key, or it can't be read.
    pub fn get(&self, key: &Key) -> Result<(File, Object), BucketError> {
        self.open().find(key)?.ok_or_else(|| BucketError::NoObject { key: key.to_string() })
    }

    /// Removes an object, if `allowed` says so of it; tells whether there was one. One that is not there is removed
    /// under any condition (S3 API reference, DeleteObject, `If-Match`).
    ///
    /// # Errors
    /// It is not allowed, or the file system refuses it.
    pub fn delete(&self, key: &Key, allowed: impl FnOnce(&Object) -> bool) -> Result<bool, BucketError> {
        let mut open = self.open();
        let Some((_, before)) = open.find(key)? else {
            return Ok(false);
        };
        if !allowed(&before) {
            return Err(BucketError::Condition { key: key.to_string() });
        }
        let odd = key.odd_path();
        for path in key.path().into_iter().chain([odd.as_path()]) {
            self.folder.remove(path).map_err(|error| not_placed(key, error))?;
        }
        if let Some(index) = open.known()? {
            index.remove(key.as_str())?;
        }
        Ok(true)
    }

    /// Gives an object other tags.
    ///
    /// # Errors
    /// There is no object of this key.
    pub fn set_tags(&self, key: &Key, tags: Vec<(String, String)>) -> Result<(), BucketError> {
        let mut open = self.open();
        let Some((file, object)) = open.find(key)? else {
            return Err(BucketError::NoObject { key: key.to_string() });
        };
        let odd = open.known()?.map(|index| index.find(key.as_str())).transpose()?.flatten();
        let record = Record {
            odd: odd.is_some_and(|record| record.odd),
            size: object.size,
            modified: modified(&file.metadata()?),
            etag: object.etag,
            attributes: Attributes { tags, ..object.attributes },
        };
        open.made()?.store(key.as_str(), &record)
    }

    pub(crate) fn open(&self) -> Open<'_> {
        // What is in it stays right whoever panicked.
        Open { folder: &self.folder, guard: self.index.lock().unwrap_or_else(PoisonError::into_inner) }
    }
}

impl Open<'_> {
    /// The index, if there is one.
    pub(crate) fn known(&mut self) -> Result<Option<&Index>, BucketError> {
        let path = self.folder.hidden("index.sqlite");
        if self.guard.is_none() && path.exists() {
            *self.guard = Some(Index::open(&path)?);
        }
        Ok(self.guard.as_ref())
    }

    /// The index, which is made if there is none.
    pub(crate) fn made(&mut self) -> Result<&Index, BucketError> {
        let index = match self.guard.take() {
            Some(index) => index,
            None => {
                fs::create_dir_all(self.folder.hidden(""))?;
                Index::open(&self.folder.hidden("index.sqlite"))?
            }
        };
        Ok(self.guard.insert(index))
    }

    fn find(&mut self, key: &Key) -> Result<Option<(File, Object)>, BucketError> {
        let plain = key.path().map(|path| self.folder.open(path)).transpose()?.flatten();
        let file = match plain {
            Some(file) => Some(file),
            None => self.folder.open(&key.odd_path())?,
        };
        let Some(file) = file else { return Ok(None) };
        let found = file.metadata()?;
        let object = self.describe(key, &found)?;
        Ok(Some((file, object)))
    }

    /// The object of a file that was found.
    pub(crate) fn describe(&mut self, key: &Key, found: &std::fs::Metadata) -> Result<Object, BucketError> {
        let record = match self.known()? {
            Some(index) => index.find(key.as_str())?,
            None => None,
        };
        Ok(object(key, found, record))
    }
}

/// What a file and what is known of it make. Nothing is known of a file that was changed since.
fn object(key: &Key, found: &std::fs::Metadata, record: Option<Record>) -> Object {
    let at = modified(found);
    let record = record.filter(|record| record.size == found.len() && record.modified == at);
    let (etag, attributes) = match record {
        Some(record) => (record.etag, record.attributes),
        None => {
            // Not to be taken for the MD5 of the content, which nobody has read.
            let changes = Md5::digest(format!("{} {at}", found.len()));
            (format!("{}-1", hex(&changes)), Attributes::default())
        }
    };
    Object { key: key.clone(), size: found.len(), modified: time(at), etag, attributes }
}

/// A time from nanoseconds since 1970.
pub(crate) fn time(nanoseconds: i64) -> SystemTime {
    let distance = Duration::from_nanos(nanoseconds.unsigned_abs());
    if nanoseconds < 0 { UNIX_EPOCH - distance } else { UNIX_EPOCH + distance }
}

/// The present in nanoseconds since 1970.
pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

pub(crate) fn not_placed(key: &Key, error: NotPlaced) -> BucketError {
    match error {
        NotPlaced::Outside => BucketError::Outside { key: key.to_string() },
        NotPlaced::Clash => io::Error::from(io::ErrorKind::NotADirectory).into(),
        NotPlaced::Io(error) => error.into(),
    }
}
