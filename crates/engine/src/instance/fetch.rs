//! Fetches objects of stores: many small ones and many pieces of large ones at once.

use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::available_parallelism;

use fs_err as fs;
use md5::{Digest, Md5};
use tokio::sync::Semaphore;
use tokio::task::{JoinError, JoinSet, spawn_blocking};

use super::cache::{Cache, Entry};
use super::objects::{ObjectError, Progress, Put, check_room, create, free_bytes, unwritable};
use crate::plan::{ObjectPlan, StoragePlan};
use crate::storage::{Buckets, ObjectSource, StorageError, StoreCredentials, StoreError, Stores};

/// Requests under way, and so what is in memory: each holds what has just arrived, some 100 KiB.
const CONNECTIONS: usize = 32;
/// Objects under way; some wait for connections or for others who fetch the same.
const OBJECTS: usize = 64;
/// A large object is fetched in pieces of this size.
const PIECE: u64 = 16 << 20;
/// Threads beyond these would only wait for the network or the disk.
const MOST_THREADS: usize = 4;
/// How often an object is fetched that is gone from the cache again.
const REMOVED_TRIES: u32 = 3;
/// How often an object is fetched whose checksum is wrong.
const DAMAGED_TRIES: u32 = 3;

/// Fetches all objects that are in stores and puts them into their places.
///
/// # Errors
/// The first object that can't be fetched or put there.
pub(crate) fn fetch_all(
    put: Put,
    objects: &[ObjectPlan],
    storage: &StoragePlan,
    credentials: &StoreCredentials,
    progress: &Arc<Progress>,
) -> Result<(), ObjectError> {
    let objects: Vec<_> = objects.iter().filter(|object| object.source.path().is_none()).collect();
    if objects.is_empty() {
        return Ok(());
    }
    let threads = available_parallelism().map_or(1, usize::from).min(MOST_THREADS);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build();
    let runtime = runtime.map_err(ObjectError::Broken)?;
    let stores = Stores::new(Buckets::in_stores(storage.stores.clone()), credentials.clone()).patient();
    let cache = Cache::of(storage);
    let fetch = Fetch {
        stores,
        cache,
        storage: storage.clone(),
        put,
        progress: Arc::clone(progress),
        connections: Arc::new(Semaphore::new(CONNECTIONS)),
        pieces: CONNECTIONS.div_ceil(objects.iter().filter(|object| object.size > PIECE).count().max(1)),
    };
    let fetched = runtime.block_on(async {
        tokio::select! {
            fetched = Arc::new(fetch).all(&objects) => fetched,
            () = progress.cancelled() => Err(ObjectError::Cancelled),
        }
    });
    runtime.shutdown_background();
    fetched
}

struct Fetch {
    stores: Stores,
    cache: Option<Cache>,
    storage: StoragePlan,
    put: Put,
    progress: Arc<Progress>,
    connections: Arc<Semaphore>,
    /// Pieces of one object under way. Where there are several large objects, all of them are: whoever writes to a file
    /// keeps others from writing to it.
    pieces: usize,
}

impl Fetch {
    async fn all(self: Arc<Self>, objects: &[&ObjectPlan]) -> Result<(), ObjectError> {
        self.make_room(objects)?;
        let mut tasks = JoinSet::new();
        for object in objects {
            if tasks.len() >= OBJECTS
                && let Some(done) = tasks.join_next().await
            {
                done.map_err(broken)??;
            }
            self.progress.add(0)?;
            let (fetch, object) = (Arc::clone(&self), (*object).clone());
            tasks.spawn(async move { fetch.one(object).await });
        }
        while let Some(done) = tasks.join_next().await {
            done.map_err(broken)??;
        }
        match &self.cache {
            Some(cache) => cache.trim(false).map(drop).map_err(ObjectError::Cache),
            None => Ok(()),
        }
    }

    /// Whether the disk has room for what is not there yet; older objects of the cache make way.
    fn make_room(&self, objects: &[&ObjectPlan]) -> Result<(), ObjectError> {
        let missing =
            objects.iter().filter(|object| !self.entry(object).is_some_and(|entry| entry.is_there()));
        let needed = missing.map(|object| object.size).sum();
        let folder = match &self.cache {
            Some(cache) => cache.make().map_err(ObjectError::Cache)?,
            None => self.put.folder(),
        };
        if let (Some(cache), Some(free)) = (&self.cache, free_bytes(folder))
            && free < needed
        {
            let kept = cache.kept().map_err(ObjectError::Cache)?.bytes;
            cache.trim_to(kept.saturating_sub(needed - free), false).map_err(ObjectError::Cache)?;
        }
        check_room(folder, needed)
    }

    fn entry(&self, object: &ObjectPlan) -> Option<Entry> {
        self.cache.as_ref()?.entry_of(object, &self.storage)
    }

    async fn one(self: Arc<Self>, object: ObjectPlan) -> Result<(), ObjectError> {
        let object = Arc::new(object);
        match self.entry(&object) {
            Some(entry) => self.through_cache(&object, &entry).await?,
            None => {
                let target = self.put.target(&object)?;
                let file = Arc::new(create(&object, &target)?);
                self.content(&object, &file, &target).await?;
            }
        }
        self.progress.objects.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Through the cache, again if somebody makes room there just when the object is to be used.
    async fn through_cache(
        self: &Arc<Self>,
        object: &Arc<ObjectPlan>,
        entry: &Entry,
    ) -> Result<(), ObjectError> {
        let mut tries = REMOVED_TRIES;
        loop {
            match self.once_through_cache(object, entry.clone()).await {
                Err(ObjectError::Gone { .. }) if tries > 0 => {
                    tries -= 1;
                    self.progress.bytes.fetch_sub(object.size, Ordering::Relaxed);
                }
                result => return result,
            }
        }
    }

    async fn once_through_cache(
        self: &Arc<Self>,
        object: &Arc<ObjectPlan>,
        entry: Entry,
    ) -> Result<(), ObjectError> {
        if entry.is_there() {
            self.progress.add(object.size)?;
        } else {
            // It waits while somebody else fetches the same.
            let begun = entry.clone();
            let file = spawn_blocking(move || begun.begin()).await.map_err(broken)?;
            match file.map_err(ObjectError::Cache)? {
                None => self.progress.add(object.size)?,
                Some(file) => {
                    let file = Arc::new(file);
                    if let Err(error) = self.content(object, &file, entry.path()).await {
                        entry.give_up();
                        return Err(error);
                    }
                    entry.finish(&file).map_err(ObjectError::Cache)?;
                }
            }
        }
        let (fetch, object) = (Arc::clone(self), Arc::clone(object));
        // A link takes no time, a copy may.
        spawn_blocking(move || fetch.put.one(&object, entry.path(), None)).await.map_err(broken)?
    }

    /// Fetches the content of an object and compares its checksum.
    async fn content(
        self: &Arc<Self>,
        object: &Arc<ObjectPlan>,
        file: &Arc<fs::File>,
        path: &Path,
    ) -> Result<(), ObjectError> {
        file.set_len(object.size).map_err(|error| unwritable(object, path, error))?;
        let mut tries = DAMAGED_TRIES;
        let mut before = None;
        loop {
            let found = self.pieces(object, file, path).await?;
            let (Some(listed), Some(found)) = (content_md5(&object.source), found) else { return Ok(()) };
            if listed.eq_ignore_ascii_case(&found) {
                return Ok(());
            }
            // Bytes that are damaged on their way would not be so in the same way again.
            if before.as_ref() == Some(&found) {
                self.progress.unverified.add(&object.source);
                return Ok(());
            }
            tries -= 1;
            if tries == 0 {
                let (object, listed) = (object.source.name(), listed.to_owned());
                return Err(StorageError::from(StoreError::Damaged { object, listed, found }).into());
            }
            before = Some(found);
            self.progress.bytes.fetch_sub(object.size, Ordering::Relaxed);
        }
    }

    /// Fetches all pieces; gives the MD5 of the content if it can be compared with anything.
    async fn pieces(
        self: &Arc<Self>,
        object: &Arc<ObjectPlan>,
        file: &Arc<fs::File>,
        path: &Path,
    ) -> Result<Option<String>, ObjectError> {
        let has_md5 = content_md5(&object.source).is_some();
        if object.size <= PIECE {
            let mut hash = has_md5.then(Md5::new);
            let comparable = self.piece(object, (file, path), 0..object.size, hash.as_mut()).await?;
            return Ok(hash.filter(|_| comparable).map(|hash| hex(&hash.finalize())));
        }
        let mut tasks = JoinSet::new();
        let mut comparable = has_md5;
        for start in (0..object.size).step_by(usize::try_from(PIECE).unwrap_or(usize::MAX)) {
            if tasks.len() >= self.pieces
                && let Some(done) = tasks.join_next().await
            {
                comparable &= done.map_err(broken)??;
            }
            let (fetch, object, file) = (Arc::clone(self), Arc::clone(object), Arc::clone(file));
            let (range, path) = (start..(start + PIECE).min(object.size), path.to_owned());
            tasks.spawn(async move { fetch.piece(&object, (&file, &path), range, None).await });
        }
        while let Some(done) = tasks.join_next().await {
            comparable &= done.map_err(broken)??;
        }
        if !comparable {
            return Ok(None);
        }
        let (file, size) = (Arc::clone(file), object.size);
        let hashed = spawn_blocking(move || file_md5(&file, size)).await.map_err(broken)?;
        hashed.map(Some).map_err(|source| ObjectError::Unreadable { path: path.to_owned(), source })
    }

    /// Fetches one piece into its place; tells whether the ETag may be the MD5 of the object's content.
    async fn piece(
        &self,
        object: &ObjectPlan,
        (file, path): (&fs::File, &Path),
        range: Range<u64>,
        mut hash: Option<&mut Md5>,
    ) -> Result<bool, ObjectError> {
        let _permit = self.connections.acquire().await.map_err(|error| broken_by(io::Error::other(error)))?;
        let mut at = range.start;
        let mut chunks = self.stores.chunks(&object.source, range).await?;
        while let Some(chunk) = chunks.next().await? {
            if let Some(hash) = &mut hash {
                hash.update(&chunk);
            }
            // To the page cache, which is faster than handing it to another thread.
            file.file().write_all_at(&chunk, at).map_err(|error| unwritable(object, path, error))?;
            at += chunk.len() as u64;
            self.progress.add(chunk.len() as u64)?;
        }
        Ok(chunks.etag_may_be_md5())
    }
}

fn broken(error: JoinError) -> ObjectError {
    broken_by(error.into())
}

fn broken_by(error: io::Error) -> ObjectError {
    ObjectError::Broken(error)
}

/// The MD5 of an object's content, if its ETag is that (S3 API reference, Object): of one that was put in parts it
/// has a dash.
fn content_md5(source: &ObjectSource) -> Option<&str> {
    let ObjectSource::Store { etag, .. } = source else { return None };
    let etag = etag.trim_matches('"');
    (etag.len() == 32 && etag.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(etag)
}

fn file_md5(file: &fs::File, size: u64) -> io::Result<String> {
    let mut hash = Md5::new();
    let mut buffer = vec![0; 1 << 20];
    let mut at = 0;
    while at < size {
        let read = file.file().read_at(&mut buffer, at)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        hash.update(&buffer[..read]);
        at += read as u64;
    }
    Ok(hex(&hash.finalize()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
