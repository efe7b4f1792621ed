//! Which folders are buckets.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use fs_err as fs;
use s3s::{S3Result, s3_error};
use trainyard_bucket::{Bucket, HIDDEN};

use crate::error::internal;

/// The buckets of an endpoint.
#[derive(Debug)]
pub struct Buckets {
    named: BTreeMap<String, PathBuf>,
    others: PathBuf,
    open: Mutex<HashMap<String, Arc<Bucket>>>,
}

impl Buckets {
    /// Folders that are named, and every folder in `others`, where new buckets are made.
    pub fn new(named: BTreeMap<String, PathBuf>, others: PathBuf) -> Self {
        Self { named, others, open: Mutex::default() }
    }

    /// The bucket of a name that the protocol allows.
    pub(crate) fn find(&self, name: &str) -> S3Result<Arc<Bucket>> {
        let folder = self.folder(name);
        if !folder.is_dir() {
            return Err(s3_error!(NoSuchBucket, "there is no bucket {name}"));
        }
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Arc::clone(open.entry(name.to_owned()).or_insert_with(|| Arc::new(Bucket::new(folder)))))
    }

    /// Makes a bucket; tells whether it was not there.
    pub(crate) fn create(&self, name: &str) -> S3Result<bool> {
        let folder = self.folder(name);
        if let Some(parent) = folder.parent() {
            fs::create_dir_all(parent).map_err(internal)?;
        }
        match fs::create_dir(&folder) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => Ok(false),
            Err(error) => Err(internal(error)),
        }
    }

    /// Removes an empty bucket with all folders that are left in it.
    pub(crate) fn remove(&self, name: &str) -> S3Result<()> {
        let bucket = self.find(name)?;
        if self.named.contains_key(name) {
            return Err(s3_error!(
                AccessDenied,
                "the bucket {name} is set in the configuration: remove it there"
            ));
        }
        if !bucket.is_empty().map_err(crate::error::of_bucket)? {
            return Err(s3_error!(BucketNotEmpty, "the bucket {name} still has objects"));
        }
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        // Even if it stays: its index is gone by then.
        open.remove(name);
        let folder = self.folder(name);
        match fs::remove_dir_all(folder.join(HIDDEN)) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                return Err(s3_error!(BucketNotEmpty, "something is being written to the bucket {name}"));
            }
            Err(error) => return Err(internal(error)),
        }
        remove_empty(&folder)
            .map_err(|_| s3_error!(BucketNotEmpty, "the bucket {name} has files without keys"))
    }

    /// Names and times at which the buckets were made, in order of their names.
    pub(crate) fn list(&self) -> S3Result<Vec<(String, SystemTime)>> {
        let mut found = BTreeMap::new();
        let entries = match fs::read_dir(&self.others) {
            Ok(entries) => entries.collect::<Result<Vec<_>, _>>().map_err(internal)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(internal(error)),
        };
        for entry in entries {
            if let Ok(name) = entry.file_name().into_string() {
                found.insert(name, entry.path());
            }
        }
        found.extend(self.named.clone());
        let dated = |(name, path): (String, PathBuf)| {
            let about = fs::metadata(path).ok().filter(std::fs::Metadata::is_dir)?;
            Some((name, about.created().or_else(|_| about.modified()).unwrap_or(SystemTime::UNIX_EPOCH)))
        };
        Ok(found.into_iter().filter_map(dated).collect())
    }

    fn folder(&self, name: &str) -> PathBuf {
        self.named.get(name).cloned().unwrap_or_else(|| self.others.join(name))
    }
}

/// Removes a folder that has nothing in it but such folders.
fn remove_empty(folder: &std::path::Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_empty(&entry.path())?;
        }
    }
    fs::remove_dir(folder)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::{Duration, Instant};

    use s3s::S3ErrorCode;

    use super::*;

    /// Found by random requests, of which two in a million met so.
    #[test]
    fn a_bucket_that_is_removed_while_something_is_written_to_it_is_not_empty_and_no_fault() {
        let folder = tempfile::tempdir().unwrap();
        let buckets = Buckets::new(BTreeMap::new(), folder.path().to_owned());
        let busy = folder.path().join("busy").join(HIDDEN).join("tmp");
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    // The folder is gone at times.
                    let _ = fs::create_dir_all(&busy);
                    let _ = fs::write(busy.join("draft"), "");
                }
            });
            let until = Instant::now() + Duration::from_secs(60);
            let mut met = false;
            while !met && Instant::now() < until {
                buckets.create("busy").unwrap();
                if let Err(error) = buckets.remove("busy") {
                    let gone = *error.code() == S3ErrorCode::NoSuchBucket;
                    assert!(gone || *error.code() == S3ErrorCode::BucketNotEmpty, "{error:?}");
                    met = error.message().is_some_and(|text| text.contains("is being written"));
                }
            }
            done.store(true, Ordering::Relaxed);
            assert!(met, "they never met");
        });
    }
}
