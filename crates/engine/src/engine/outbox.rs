//! Notices between the jobs that have ended and whoever tells them.

use std::path::PathBuf;
use std::sync::Arc;

use fs_err as fs;
use tokio::sync::watch;

use super::{Engine, EngineError};
use crate::job::{Effect, Job};
use crate::notice::{Due, Notice, Subscriber, notices};
use crate::run::Timestamp;

/// Who is told, and that there is something to tell.
#[derive(Clone, Debug)]
pub(super) struct Announcing {
    subscribers: Arc<[Subscriber]>,
    stored: watch::Sender<()>,
}

impl Default for Announcing {
    fn default() -> Self {
        Self { subscribers: Arc::default(), stored: watch::Sender::new(()) }
    }
}

impl Announcing {
    /// What is stored with an event that has these effects.
    pub(super) fn of(&self, job: &Job, effects: &[Effect]) -> Vec<Notice> {
        if effects.contains(&Effect::Notify) { notices(job, &self.subscribers) } else { Vec::new() }
    }

    pub(super) fn stored(&self) {
        self.stored.send_replace(());
    }
}

/// The notices that are to be told. One process at a time has it, so that none is told twice without need.
#[derive(Debug)]
pub struct Outbox {
    /// Held, not used; the kernel lets go of it when the process ends, however it ends.
    _lock: fs::File,
}

impl Engine {
    /// The same engine, which stores notices to these subscribers.
    #[must_use]
    pub fn announcing(mut self, subscribers: Vec<Subscriber>) -> Self {
        self.announcing.subscribers = subscribers.into();
        self
    }

    /// Changes whenever this process has stored notices; others may do that too.
    pub fn notices_stored(&self) -> watch::Receiver<()> {
        self.announcing.stored.subscribe()
    }

    /// Takes the outbox, unless another process has it.
    ///
    /// # Errors
    /// Its lock can't be made.
    pub fn outbox(&self) -> Result<Option<Outbox>, EngineError> {
        let path: PathBuf = self.data.join("state/notices.lock");
        let file = fs::OpenOptions::new().create(true).append(true).open(path)?;
        match file.file().try_lock() {
            Ok(()) => Ok(Some(Outbox { _lock: file })),
            Err(std::fs::TryLockError::WouldBlock) => Ok(None),
            Err(std::fs::TryLockError::Error(error)) => Err(error.into()),
        }
    }

    /// When the next notice is due; of one [id](crate::notice::notice_id) only, if that is given.
    ///
    /// # Errors
    /// The store can't be read.
    pub fn next_notice(&self, id: Option<&str>) -> Result<Option<Timestamp>, EngineError> {
        Ok(self.store().next_notice(id)?)
    }

    /// Notices whose time has come.
    ///
    /// # Errors
    /// The store can't be read.
    pub fn due_notices(&self) -> Result<Vec<Due>, EngineError> {
        Ok(self.store().due_notices(Timestamp::now())?)
    }

    /// A notice was told, or never will be.
    ///
    /// # Errors
    /// The store can't be written.
    pub fn remove_notice(&self, number: i64) -> Result<(), EngineError> {
        Ok(self.store().remove_notice(number)?)
    }

    /// A notice was tried in vain, and is tried again later.
    ///
    /// # Errors
    /// The store can't be written.
    pub fn postpone_notice(&self, number: i64, until: Timestamp) -> Result<(), EngineError> {
        Ok(self.store().postpone_notice(number, until)?)
    }
}
