//! Objects of stores that were fetched once, kept for the other instances and jobs of the machine.
//!
//! ```text
//! <cache>/<2 digits>/<SHA-256>        a whole object; nobody writes to it any more
//! <cache>/<2 digits>/<SHA-256>.part   one that is being fetched; locked by who does it
//! ```
//!
//! The name is the hash of the store, the bucket, the key, the ETag and the size: an object that changes is another
//! file. What is used is linked into bases, so that removing it here takes nothing from a job that runs.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use fs_err as fs;
use rustix::fs::{FlockOperation, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, flock, futimens};
use sha2::{Digest, Sha256};

use crate::plan::{ObjectPlan, StoragePlan};
use crate::storage::{ObjectSource, StoreAddress, StoreKind};

/// A folder of objects that were fetched.
#[derive(Clone, Debug)]
pub struct Cache {
    folder: PathBuf,
    limit: u64,
}

/// The place of one object.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    path: PathBuf,
    size: u64,
}

/// What is in a cache, or was removed from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Files.
    pub objects: u64,
    /// In bytes.
    pub bytes: u64,
}

impl Cache {
    /// The folder is made when it is needed; `limit` is in bytes.
    pub fn new(folder: PathBuf, limit: u64) -> Self {
        Self { folder, limit }
    }

    /// The one that a plan names.
    pub(crate) fn of(storage: &StoragePlan) -> Option<Self> {
        storage.cache.as_ref().map(|cache| Self::new(cache.folder.clone(), cache.limit))
    }

    /// Where an object of a store is kept, if it may be kept.
    pub(crate) fn entry_of(&self, object: &ObjectPlan, storage: &StoragePlan) -> Option<Entry> {
        let ObjectSource::Store { bucket, key, etag } = &object.source else { return None };
        self.entry(storage.stores.get(bucket)?, [bucket, key, etag], object.size)
    }

    /// Where an object is kept; none for one that is too large, or that could change without a trace.
    pub(crate) fn entry(
        &self,
        store: &StoreAddress,
        [bucket, key, etag]: [&str; 3],
        size: u64,
    ) -> Option<Entry> {
        if size > self.limit || etag.is_empty() {
            return None;
        }
        let mut hash = Sha256::new();
        let place = match store.kind {
            StoreKind::S3 => store.endpoint.clone().unwrap_or_default(),
            // Azure has containers of the same name in each account.
            _ => format!("{} {}", store.name(), store.account.as_deref().unwrap_or_default()),
        };
        for part in [&*place, bucket, key, etag] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hash.update(size.to_le_bytes());
        let name: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Some(Entry { path: self.folder.join(&name[..2]).join(&name), size })
    }

    /// The folder, which is made if need be.
    pub(crate) fn make(&self) -> io::Result<&Path> {
        fs::create_dir_all(&self.folder)?;
        Ok(&self.folder)
    }

    /// Removes what was used longest ago until no more is left than the limit.
    ///
    /// # Errors
    /// The folder can't be read, or a file not be removed.
    pub fn trim(&self, dry_run: bool) -> io::Result<Kept> {
        self.trim_to(self.limit, dry_run)
    }

    /// The same until no more is left than so many bytes.
    pub(crate) fn trim_to(&self, limit: u64, dry_run: bool) -> io::Result<Kept> {
        if !self.folder.exists() {
            return Ok(Kept::default());
        }
        // One at a time; what another one does now need not be done again.
        let lock = fs::File::create(self.folder.join("lock"))?;
        flock(&lock, FlockOperation::LockExclusive)?;
        let mut files = self.files()?;
        let mut bytes: u64 = files.iter().map(|file| file.size).sum();
        files.sort_unstable_by_key(|file| file.used);
        let mut removed = Kept::default();
        for file in files {
            if bytes <= limit {
                break;
            }
            if !dry_run {
                fs::remove_file(&file.path)?;
            }
            bytes -= file.size;
            removed.objects += 1;
            removed.bytes += file.size;
        }
        Ok(removed)
    }

    /// What there is.
    ///
    /// # Errors
    /// The folder can't be read.
    pub fn kept(&self) -> io::Result<Kept> {
        let files = if self.folder.exists() { self.files()? } else { Vec::new() };
        Ok(Kept { objects: files.len() as u64, bytes: files.iter().map(|file| file.size).sum() })
    }

    /// All whole objects. What somebody was killed over is removed on the way.
    fn files(&self) -> io::Result<Vec<Used>> {
        let mut files = Vec::new();
        for folder in fs::read_dir(&self.folder)? {
            let folder = folder?;
            if !folder.file_type()?.is_dir() {
                continue;
            }
            for file in fs::read_dir(folder.path())? {
                let path = file?.path();
                if path.extension().is_some() {
                    remove_abandoned(&path)?;
                    continue;
                }
                match fs::metadata(&path) {
                    Ok(found) => {
                        files.push(Used {
                            path,
                            size: found.len(),
                            used: (found.atime(), found.atime_nsec()),
                        });
                    }
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(files)
    }
}

struct Used {
    path: PathBuf,
    size: u64,
    /// Seconds and nanoseconds.
    used: (i64, i64),
}

/// Removes a file that nobody holds the lock of.
fn remove_abandoned(path: &Path) -> io::Result<()> {
    let file = match fs::File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        file => file?,
    };
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() && is_at(&file, path) {
        fs::remove_file(path)?;
    }
    Ok(())
}

/// Whether a path still leads to an open file.
fn is_at(file: &fs::File, path: &Path) -> bool {
    let (Ok(open), Ok(found)) = (file.metadata(), fs::metadata(path)) else { return false };
    (open.dev(), open.ino()) == (found.dev(), found.ino())
}

impl Entry {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the object is there. It counts as used now.
    pub(crate) fn is_there(&self) -> bool {
        let Ok(file) = fs::File::open(&self.path) else { return false };
        let now = Timestamps {
            last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
            last_modification: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        };
        // The time only decides what is removed first.
        let _ = futimens(&file, &now);
        file.metadata().is_ok_and(|found| found.len() == self.size)
    }

    fn part(&self) -> PathBuf {
        self.path.with_extension("part")
    }

    /// An empty file to fetch the object into; none if somebody else has done it meanwhile. Waits for others who
    /// fetch the same.
    pub(crate) fn begin(&self) -> io::Result<Option<fs::File>> {
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder)?;
        }
        loop {
            let part = self.part();
            let file = fs::OpenOptions::new().read(true).write(true).create(true).open(&part)?;
            flock(&file, FlockOperation::LockExclusive)?;
            if self.is_there() {
                if is_at(&file, &part) {
                    fs::remove_file(&part)?;
                }
                return Ok(None);
            }
            if is_at(&file, &part) {
                file.set_len(0)?;
                return Ok(Some(file));
            }
        }
    }

    /// Shows the object to everybody.
    pub(crate) fn finish(&self, file: &fs::File) -> io::Result<()> {
        file.set_modified(SystemTime::now())?;
        fs::rename(self.part(), &self.path)
    }

    /// Removes what was begun.
    pub(crate) fn give_up(&self) {
        // The next one who wants the object begins anew in any case.
        let _ = fs::remove_file(self.part());
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    fn put(cache: &Cache, key: &str, content: &str) -> Entry {
        let entry = cache.entry(&StoreAddress::default(), ["b", key, "\"e\""], content.len() as u64).unwrap();
        let file = entry.begin().unwrap().unwrap();
        file.file().write_all_at(content.as_bytes(), 0).unwrap();
        entry.finish(&file).unwrap();
        entry
    }

    fn used_at(entry: &Entry, second: i64) {
        let times = Timestamps {
            last_access: Timespec { tv_sec: second, tv_nsec: 0 },
            last_modification: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        };
        futimens(fs::File::open(entry.path()).unwrap(), &times).unwrap();
    }

    #[test]
    fn what_was_used_longest_ago_goes_first() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path().to_owned(), 10);
        let [a, b, c] = ["a", "b", "c"].map(|key| put(&cache, key, "12345"));
        for (entry, second) in [(&a, 30), (&b, 10), (&c, 20)] {
            used_at(entry, second);
        }
        assert!(b.is_there(), "and is used by that");
        assert_eq!(cache.trim(true).unwrap(), Kept { objects: 1, bytes: 5 });
        assert_eq!(cache.kept().unwrap(), Kept { objects: 3, bytes: 15 });
        assert_eq!(cache.trim(false).unwrap(), Kept { objects: 1, bytes: 5 });
        assert!(a.is_there() && b.is_there() && !c.is_there());
        assert_eq!(cache.trim_to(0, false).unwrap().objects, 2);
    }

    #[test]
    fn an_object_is_fetched_by_one_while_the_others_wait() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path().to_owned(), 10);
        let entry = cache.entry(&StoreAddress::default(), ["b", "k", "e"], 3).unwrap();
        let file = entry.begin().unwrap().unwrap();
        assert_eq!(cache.trim_to(0, false).unwrap(), Kept::default(), "what is being fetched stays");
        let waiting = std::thread::spawn({
            let entry = entry.clone();
            move || entry.begin().unwrap().is_none()
        });
        file.file().write_all_at(b"123", 0).unwrap();
        entry.finish(&file).unwrap();
        drop(file);
        assert!(waiting.join().unwrap(), "the second fetches nothing");
        assert!(entry.is_there());
    }

    #[test]
    fn what_somebody_was_killed_over_is_begun_anew_or_removed() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path().to_owned(), 10);
        let entry = cache.entry(&StoreAddress::default(), ["b", "k", "e"], 3).unwrap();
        let file = entry.begin().unwrap().unwrap();
        file.file().write_all_at(b"12", 0).unwrap();
        drop(file);
        let file = entry.begin().unwrap().unwrap();
        assert_eq!(file.metadata().unwrap().len(), 0);
        drop(file);
        cache.trim(false).unwrap();
        assert!(!entry.part().exists());
    }

    #[test]
    fn only_what_can_be_told_apart_is_kept() {
        let cache = Cache::new("/nowhere".into(), 10);
        let store = StoreAddress::default();
        let other = StoreAddress { endpoint: Some("http://h".into()), ..StoreAddress::default() };
        let path = |store, names, size| cache.entry(store, names, size).map(|entry| entry.path);
        let first = path(&store, ["b", "k", "e"], 1);
        assert!(first.is_some());
        for different in [
            path(&other, ["b", "k", "e"], 1),
            path(&store, ["bk", "", "e"], 1),
            path(&store, ["b", "k", "f"], 1),
            path(&store, ["b", "k", "e"], 2),
        ] {
            assert!(different.is_some() && different != first);
        }
        assert_eq!(path(&store, ["b", "k", ""], 1), None);
        assert_eq!(path(&store, ["b", "k", "e"], 11), None);
    }
}
