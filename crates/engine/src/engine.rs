//! The engine: it owns the jobs of one data folder and drives each from submission to its end.
//!
//! ```text
//! <data>/state/jobs.sqlite          jobs and their events
//! <data>/runs/<job>/lock            held by the process that drives the job
//! <data>/runs/<job>/attempt-<n>/    the run directory of each attempt
//! ```

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fs_err as fs;

use crate::backend::{Backend, BackendError, Placement};
use crate::job::{Effect, Event, Job};
use crate::plan::JobPlan;
use crate::run::{Manifests, RunDirectory, RunDirectoryError, Stamped, Tail, Timestamp};
use crate::storage::{StorageError, StoreCredentials};
use crate::store::{Store, StoreError};

mod drive;
mod gc;
mod jobs;
mod lock;
mod outbox;
mod publish;
mod queue;
#[cfg(test)]
mod tests;
mod tidy;
mod waiting;

pub use drive::TakenOver;
pub use drive::{Command, Driver, Notice};
pub use gc::{Collected, GcLimits};
pub use jobs::{
    AmendError, CreateError, Described, JobLimits, Jobs, JobsSetup, LimitExceeded, StopError, TagChange,
};
pub use lock::lock_soon;
pub use outbox::Outbox;
pub use waiting::Waiting;

/// How long a full disk is waited for: a minute.
const DISK_FULL_TRIES: u32 = 600;
const DISK_FULL_PAUSE: Duration = Duration::from_millis(100);

/// Owns the jobs of one data folder.
#[derive(Clone)]
pub struct Engine {
    backend: Arc<dyn Backend>,
    store: Arc<Mutex<Store>>,
    runs: PathBuf,
    data: PathBuf,
    credentials: StoreCredentials,
    announcing: outbox::Announcing,
}

/// A new job.
#[derive(Clone, Debug)]
pub struct Submission {
    /// The request as JSON; a resume must bring the same.
    pub request: String,
    /// What every instance does.
    pub plan: JobPlan,
    /// Per channel, the list of all its objects.
    pub manifests: Manifests,
}

/// A job at the start of an attempt.
struct Attempt {
    job: Job,
    plan: JobPlan,
    manifests: Manifests,
    effects: Vec<Effect>,
}

/// How many reports of each host have been taken in.
type TakenIn = BTreeMap<String, usize>;

/// Why a job can't be driven.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The store of jobs refuses.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The run directory can't be used.
    #[error(transparent)]
    Run(#[from] RunDirectoryError),
    /// The backend can't be used.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// A file of the job can't be used.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Another process drives the job.
    #[error("training job {job} is running already, driven by another process")]
    Running {
        /// The job's name.
        job: String,
    },
    /// The place of the artifacts can't be made ready.
    #[error("the output")]
    Output(#[source] Box<StorageError>),
    /// There is nothing to resume.
    #[error("there is no training job {job} to resume; run it without --resume first")]
    Unknown {
        /// The job's name.
        job: String,
    },
    /// The request is not the one that the job was submitted with.
    #[error("training job {job} was submitted with another request; a job is resumed as it was")]
    Changed {
        /// The job's name.
        job: String,
    },
    /// A stored placement can't be read.
    #[error("training job {job} has a damaged placement")]
    Placement {
        /// The job's name.
        job: String,
        /// What does not fit.
        source: serde_json::Error,
    },
}

impl Engine {
    /// Opens the data folder, making it if need be.
    pub fn open(folder: &Path, backend: Arc<dyn Backend>) -> Result<Self, EngineError> {
        let store = Store::open(&folder.join("state/jobs.sqlite"))?;
        Ok(Self {
            backend,
            store: Arc::new(Mutex::new(store)),
            runs: folder.join("runs"),
            data: folder.to_owned(),
            credentials: StoreCredentials::default(),
            announcing: outbox::Announcing::default(),
        })
    }

    /// The same for a user who is somebody to stores.
    #[must_use]
    pub fn with_credentials(self, credentials: StoreCredentials) -> Self {
        Self { credentials, ..self }
    }

    /// Takes in a new job; nothing starts before it is driven.
    ///
    /// An earlier job of the same name that has ended is forgotten, with its logs; what is left of
    /// one whose driver was killed is stopped and cleaned up. One that still runs is an error.
    pub async fn submit(&self, submission: Submission) -> Result<Driver, EngineError> {
        let Submission { request, plan, manifests } = submission;
        let lock = self.lock_soon(&plan.job).await?;
        // First what may be refused: as long as the earlier job's artifacts are there, so is its record.
        let merged = plan.merge.as_ref().map(|merge| merge.output.as_str());
        publish::remove_earlier(self, &plan.output, merged).await?;
        self.forget(&plan.job).await?;
        let waiting = self.taken_in(&plan.outline(), &request, lock)?;
        waiting.start(Submission { request, plan, manifests }).await
    }

    /// Takes up a job that was submitted before: the same plan, a new attempt for the instances that
    /// had not ended well. `None` if it has completed.
    pub async fn resume(&self, name: &str, request: &str) -> Result<Option<Driver>, EngineError> {
        let lock = self.lock_soon(name).await?;
        let stored = self.store().job(name)?;
        let stored = stored.ok_or_else(|| EngineError::Unknown { job: name.to_owned() })?;
        if stored.request != request {
            return Err(EngineError::Changed { job: name.to_owned() });
        }
        self.release_all(name, &stored.placements).await?;
        let first = self.attempt_folder(name, 1);
        if !first.join("format").exists() {
            // Its driver was killed before anything could start.
            return Err(EngineError::Unknown { job: name.to_owned() });
        }
        let first = RunDirectory::open(&first)?;
        let (plan, manifests) = (first.plan()?, first.read_manifests()?);
        let mut job = stored.replayed();
        self.take_in_late_reports(&mut job, &stored.events).await?;
        let effects = self.record(&mut job, Event::Resumed).await?;
        if effects.is_empty() {
            return Ok(None);
        }
        Driver::new(self.clone(), lock, Attempt { job, plan, manifests, effects }).map(Some)
    }

    /// Stores an event and applies it, in this order: what is shown is kept.
    ///
    /// A full disk is waited for: an instance that has filled it fails and gives the room back.
    async fn record(&self, job: &mut Job, event: Event) -> Result<Vec<Effect>, EngineError> {
        let at = Timestamp::now();
        let mut after = job.clone();
        let effects = after.apply(at, event.clone());
        let notices = self.announcing.of(&after, &effects);
        let mut tries = DISK_FULL_TRIES;
        loop {
            let stored = self.store().append(&after, at, &event, &notices);
            match stored {
                Err(error) if error.is_disk_full() && tries > 0 => tries -= 1,
                stored => {
                    stored?;
                    *job = after;
                    if !notices.is_empty() {
                        self.announcing.stored();
                    }
                    return Ok(effects);
                }
            }
            tokio::time::sleep(DISK_FULL_PAUSE).await;
        }
    }

    /// Reports that were written after the last driver was killed; `events` is what it has stored.
    async fn take_in_late_reports(
        &self,
        job: &mut Job,
        events: &[(Timestamp, Event)],
    ) -> Result<TakenIn, EngineError> {
        let mut taken_in = TakenIn::new();
        for instance in job.instances.clone() {
            let root = self.attempt_folder(&job.name, instance.attempt);
            if instance.has_ended() || !root.join("format").exists() {
                continue;
            }
            let reports = RunDirectory::open(&root)?.instance(&instance.host).reports();
            let mut reports: Vec<Stamped> = Tail::new(reports).read()?;
            let last = last_report(events, &instance.host);
            let known = reports.iter().rposition(|report| Some(report) == last).map_or(0, |last| last + 1);
            taken_in.insert(instance.host.clone(), reports.len());
            for report in reports.drain(known..) {
                self.record(job, Event::Reported { host: instance.host.clone(), report }).await?;
            }
        }
        Ok(taken_in)
    }

    /// Stops and removes whatever there is of a job.
    async fn forget(&self, job: &str) -> Result<(), EngineError> {
        let stored = self.store().job(job)?;
        self.release_all(job, stored.as_ref().map_or(&[], |stored| &stored.placements)).await?;
        self.store().remove(job)?;
        self.give_up_uploads(job, u32::MAX).await;
        tidy::remove_attempts(self.backend.as_ref(), &self.job_folder(job)).await?;
        Ok(())
    }

    /// Gives up the uploads of attempts before this one. A store that can't be reached keeps them until they are
    /// collected ([`Engine::collect`]): no job is held up by that.
    async fn give_up_uploads(&self, job: &str, before: u32) {
        for attempt in 1..before {
            let Ok(run) = RunDirectory::open(&self.attempt_folder(job, attempt)) else { break };
            let _ = publish::in_store::give_up(self, &run).await;
        }
    }

    /// Stops and removes all jobs of the data folder, whoever drives them.
    ///
    /// # Errors
    /// Something can't be stopped or removed.
    pub async fn forget_all(&self) -> Result<(), EngineError> {
        for folder in tidy::folders(&self.runs)? {
            if let Some(name) = folder.file_name() {
                self.forget(&name.to_string_lossy()).await?;
            }
        }
        Ok(())
    }

    async fn release_all(&self, job: &str, placements: &[(u32, String)]) -> Result<(), EngineError> {
        for (_, placement) in placements {
            self.backend.release(&read_placement(job, placement)?).await?;
        }
        // A driver that was killed while it launched has stored no placement.
        let unstored = tidy::written_down(&self.job_folder(job))?;
        self.backend.release(&unstored).await?;
        if !placements.is_empty() || !unstored.supervisors.is_empty() {
            self.sweep().await;
        }
        Ok(())
    }

    /// Removes what killed supervisors have left with Docker or Podman; of those that live nothing.
    pub async fn sweep(&self) {
        crate::runtime::docker::sweep(&self.data).await;
    }

    /// Held while a job is driven; the kernel lets go of it when the process ends, however it ends.
    fn lock(&self, job: &str) -> Result<fs::File, EngineError> {
        let file = self.lock_file(job)?;
        match file.file().try_lock() {
            Ok(()) => Ok(file),
            Err(std::fs::TryLockError::WouldBlock) => Err(EngineError::Running { job: job.to_owned() }),
            Err(std::fs::TryLockError::Error(error)) => Err(error.into()),
        }
    }

    /// The same where the job's driver may have been killed a moment ago.
    async fn lock_soon(&self, job: &str) -> Result<fs::File, EngineError> {
        let file = self.lock_file(job)?;
        if lock_soon(&file).await? { Ok(file) } else { Err(EngineError::Running { job: job.to_owned() }) }
    }

    fn lock_file(&self, job: &str) -> Result<fs::File, EngineError> {
        let folder = self.job_folder(job);
        fs::create_dir_all(&folder)?;
        Ok(fs::OpenOptions::new().create(true).append(true).open(folder.join("lock"))?)
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        // A panic while the store was in use leaves at worst an uncommitted statement behind.
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Names differ in more than case (the store sees to that), so the folder may drop it: the same
    /// name in another case finds the same folder and lock.
    fn job_folder(&self, job: &str) -> PathBuf {
        self.runs.join(job.to_lowercase())
    }

    fn attempt_folder(&self, job: &str, attempt: u32) -> PathBuf {
        self.job_folder(job).join(format!("attempt-{attempt}"))
    }
}

fn read_placement(job: &str, placement: &str) -> Result<Placement, EngineError> {
    serde_json::from_str(placement).map_err(|source| EngineError::Placement { job: job.to_owned(), source })
}

/// The last report of an instance that was stored.
fn last_report<'a>(events: &'a [(Timestamp, Event)], of: &str) -> Option<&'a Stamped> {
    events.iter().rev().find_map(|(_, event)| match event {
        Event::Reported { host, report } if host == of => Some(report),
        _ => None,
    })
}
