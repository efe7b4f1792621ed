//! Blocks of objects that were fetched: in memory, bounded, those that were used longest ago go first.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use tokio::sync::{Semaphore, watch};

use crate::instance::Cache;
use crate::plan::{ObjectPlan, StoragePlan};
use crate::storage::{Chunks, ObjectSource, StorageError, Stores};

/// What is fetched at least, in bytes: what the kernel asks for at once of who reads on.
pub(super) const BLOCK: u64 = 128 << 10;
/// Blocks that one request asks for at most; more are asked for by several at once.
const RUN: u64 = 32;
/// Requests under way.
const CONNECTIONS: usize = 32;

/// An object of a channel.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    /// Its number among all that share the blocks.
    pub(super) number: usize,
    pub(super) object: Arc<ObjectPlan>,
}

/// Why a block is not there.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum BlockError {
    #[error(transparent)]
    Storage(Arc<StorageError>),
    #[error("the fetching broke off")]
    Broken,
}

/// The content of a block; nothing as long as it has not come.
type Content = Option<Result<Bytes, BlockError>>;
/// The object's number and which of its blocks.
type Key = (usize, u64);

/// Blocks of objects.
pub(super) struct Blocks {
    stores: Stores,
    storage: StoragePlan,
    /// In bytes.
    limit: u64,
    connections: Semaphore,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    slots: HashMap<Key, Slot>,
    /// By the time of their last use.
    by_use: BTreeMap<u64, Key>,
    /// In bytes, with what is still to come.
    bytes: u64,
    clock: u64,
}

struct Slot {
    content: watch::Receiver<Content>,
    size: u64,
    used: u64,
}

impl Blocks {
    /// At most `limit` bytes are held.
    pub(super) fn new(stores: Stores, storage: StoragePlan, limit: u64) -> Self {
        Self { stores, storage, limit, connections: Semaphore::new(CONNECTIONS), held: Mutex::default() }
    }

    /// In bytes.
    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    /// A range of an object, in bytes, which must lie in it. Further blocks are asked for and not waited for.
    ///
    /// # Errors
    /// A block can't be fetched. Who reads it again tries it again.
    pub(super) async fn read(
        self: &Arc<Self>,
        wanted: &Wanted,
        range: Range<u64>,
        further: Range<u64>,
    ) -> Result<Vec<u8>, BlockError> {
        let blocks = of_bytes(&range);
        let mut coming = self.ask(wanted, blocks.clone());
        self.ask(wanted, further);
        let mut read = Vec::with_capacity(usize::try_from(range.end - range.start).unwrap_or_default());
        for (number, content) in blocks.zip(&mut coming) {
            let content = arrived(content).await?;
            let start = number * BLOCK;
            let within =
                |at: u64| usize::try_from(at.saturating_sub(start)).unwrap_or(usize::MAX).min(content.len());
            read.extend_from_slice(&content[within(range.start)..within(range.end)]);
        }
        Ok(read)
    }

    /// Makes blocks of an object come, unless they are there or on their way.
    fn ask(self: &Arc<Self>, wanted: &Wanted, blocks: Range<u64>) -> Vec<watch::Receiver<Content>> {
        let mut coming = Vec::new();
        let mut missing: Vec<Run> = Vec::new();
        let mut held = self.held();
        for block in blocks {
            let key = (wanted.number, block);
            if let Some(content) = held.take(key) {
                coming.push(content);
                continue;
            }
            let (sender, content) = watch::channel(None);
            held.put(key, content.clone(), size_of_block(wanted.object.size, block));
            coming.push(content);
            match missing.last_mut() {
                Some(run) if run.end() == block && run.senders.len() < RUN as usize => {
                    run.senders.push_back(sender);
                }
                _ => missing.push(Run { first: block, senders: [sender].into() }),
            }
        }
        held.shrink(self.limit);
        drop(held);
        for run in missing {
            tokio::spawn(Arc::clone(self).fetch(wanted.clone(), run));
        }
        coming
    }

    async fn fetch(self: Arc<Self>, wanted: Wanted, mut run: Run) {
        if let Err(error) = self.fill(&wanted.object, &mut run).await {
            let rest: Vec<_> = run.senders.drain(..).collect();
            // First, so that nobody finds the error who comes after those who wait.
            self.held().forget(wanted.number, run.first, &rest);
            for sender in rest {
                sender.send_replace(Some(Err(error.clone())));
            }
        }
    }

    /// Fetches a run; those of its blocks that have come are no longer part of it.
    async fn fill(&self, object: &ObjectPlan, run: &mut Run) -> Result<(), BlockError> {
        let _permit = self.connections.acquire().await.map_err(|_| BlockError::Broken)?;
        let range = run.first * BLOCK..(run.end() * BLOCK).min(object.size);
        let mut chunks = match self.fetched_before(object, range.clone()).await {
            Some(chunks) => chunks,
            None => self.stores.chunks(&object.source, range).await?,
        };
        let mut gathered = BytesMut::new();
        while !run.senders.is_empty() {
            let Some(chunk) = chunks.next().await? else { return Err(BlockError::Broken) };
            gathered.extend_from_slice(&chunk);
            run.deliver(object.size, &mut gathered);
        }
        Ok(())
    }

    /// The same range of the file that a channel in File mode has left in the machine's cache, if it is there.
    async fn fetched_before(&self, object: &ObjectPlan, range: Range<u64>) -> Option<Chunks> {
        let entry = Cache::of(&self.storage)?.entry_of(object, &self.storage)?;
        if !entry.is_there() {
            return None;
        }
        // It may be removed at this moment, which only means that it is fetched.
        self.stores.chunks(&ObjectSource::File(entry.path().to_owned()), range).await.ok()
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl From<StorageError> for BlockError {
    fn from(error: StorageError) -> Self {
        Self::Storage(Arc::new(error))
    }
}

/// Blocks of an object that come one after the other.
struct Run {
    first: u64,
    senders: VecDeque<watch::Sender<Content>>,
}

impl Run {
    fn end(&self) -> u64 {
        self.first + self.senders.len() as u64
    }

    /// Hands out the blocks that are complete.
    fn deliver(&mut self, size: u64, gathered: &mut BytesMut) {
        loop {
            let next = usize::try_from(size_of_block(size, self.first)).unwrap_or(usize::MAX);
            if gathered.len() < next {
                return;
            }
            let Some(sender) = self.senders.pop_front() else { return };
            // A block of its own, so that one that is kept keeps no others.
            let content = Bytes::copy_from_slice(&gathered.split_to(next));
            sender.send_replace(Some(Ok(content)));
            self.first += 1;
        }
    }
}

impl Held {
    /// A block that is there or on its way; it counts as used now.
    fn take(&mut self, key: Key) -> Option<watch::Receiver<Content>> {
        let slot = self.slots.get_mut(&key)?;
        self.clock += 1;
        self.by_use.remove(&slot.used);
        slot.used = self.clock;
        self.by_use.insert(self.clock, key);
        Some(slot.content.clone())
    }

    fn put(&mut self, key: Key, content: watch::Receiver<Content>, size: u64) {
        self.clock += 1;
        self.by_use.insert(self.clock, key);
        self.slots.insert(key, Slot { content, size, used: self.clock });
        self.bytes += size;
    }

    fn remove(&mut self, key: Key) {
        if let Some(slot) = self.slots.remove(&key) {
            self.by_use.remove(&slot.used);
            self.bytes -= slot.size;
        }
    }

    /// Whoever waits for a block that goes gets it all the same.
    fn shrink(&mut self, limit: u64) {
        while self.bytes > limit
            && let Some((_, &key)) = self.by_use.first_key_value()
        {
            self.remove(key);
        }
    }

    /// Removes blocks that won't come, unless others have taken their places.
    fn forget(&mut self, object: usize, first: u64, senders: &[watch::Sender<Content>]) {
        for (block, sender) in (first..).zip(senders) {
            let key = (object, block);
            if self.slots.get(&key).is_some_and(|slot| slot.content.same_channel(&sender.subscribe())) {
                self.remove(key);
            }
        }
    }
}

async fn arrived(content: &mut watch::Receiver<Content>) -> Result<Bytes, BlockError> {
    let come = content.wait_for(Option::is_some).await.map_err(|_| BlockError::Broken)?;
    come.clone().unwrap_or(Err(BlockError::Broken))
}

/// The blocks that a range of bytes touches.
pub(super) fn of_bytes(range: &Range<u64>) -> Range<u64> {
    if range.is_empty() { 0..0 } else { range.start / BLOCK..range.end.div_ceil(BLOCK) }
}

/// In bytes; the last block of an object is shorter.
fn size_of_block(size: u64, block: u64) -> u64 {
    size.saturating_sub(block * BLOCK).min(BLOCK)
}

#[cfg(test)]
mod tests;
