//! Which flows there are.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

/// The flows of one protocol, at most so many at once.
pub(crate) struct Flows<K> {
    open: Arc<Mutex<HashSet<K>>>,
    most: usize,
}

/// A flow's entry; it is gone when this is dropped.
pub(crate) struct Entry<K: Eq + Hash> {
    key: K,
    open: Arc<Mutex<HashSet<K>>>,
}

impl<K: Eq + Hash + Clone> Flows<K> {
    pub(crate) fn new(most: usize) -> Self {
        Self { open: Arc::default(), most }
    }

    /// None if it is there already or there is no room.
    pub(crate) fn enter(&self, key: K) -> Option<Entry<K>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        (open.len() < self.most && open.insert(key.clone()))
            .then(|| Entry { key, open: Arc::clone(&self.open) })
    }
}

impl<K: Eq + Hash> Drop for Entry<K> {
    fn drop(&mut self) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_is_entered_once_until_it_ends() {
        let flows = Flows::new(8);
        let first = flows.enter(1);
        assert!(flows.enter(1).is_none());
        drop(first);
        assert!(flows.enter(1).is_some());
    }

    #[test]
    fn there_are_never_more_flows_than_allowed() {
        let flows = Flows::new(2);
        let held = [flows.enter(1), flows.enter(2)];
        assert!(flows.enter(3).is_none());
        drop(held);
        assert!(flows.enter(3).is_some());
    }
}
