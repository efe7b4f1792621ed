//! Cleaning up: what killed processes have left, objects that were kept for other jobs, jobs that ended long ago.

use std::collections::HashSet;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use fs_err as fs;

use super::{Engine, EngineError, publish, tidy};
use crate::backend::Presence;
use crate::explain::chain;
use crate::instance::{Cache, Kept};
use crate::run::{RunDirectory, Timestamp};

/// What may stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GcLimits {
    /// Objects of stores that are kept for other jobs, in bytes.
    pub cache: u64,
    /// Jobs that ended longer ago are forgotten, with their logs; none is when absent.
    pub keep_jobs: Option<Duration>,
    /// Only tells what would be removed.
    pub dry_run: bool,
}

/// What was removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Scratch folders and bases of instances that do not run any more.
    pub scratch: Kept,
    /// Objects that were kept for other jobs.
    pub cache: Kept,
    /// Names of jobs that ended long ago.
    pub jobs: Vec<String>,
    /// What their files took; artifacts are not among them.
    pub job_bytes: u64,
    /// Uploads of artifacts that nobody will complete, for their jobs have ended.
    pub uploads: u64,
    /// Uploads that their stores have not forgotten yet, each with its job and the reason.
    pub uploads_left: Vec<String>,
}

impl Engine {
    /// Removes what nobody needs any more. Jobs that are being driven are left alone.
    ///
    /// # Errors
    /// Something can't be read or removed.
    pub async fn collect(&self, limits: GcLimits) -> Result<Collected, EngineError> {
        let mut collected = Collected::default();
        for folder in tidy::folders(&self.runs)? {
            self.collect_job(&folder, limits, &mut collected).await?;
        }
        let cache = Cache::new(self.data.join("cache/objects"), limits.cache);
        let trimmed = tokio::task::spawn_blocking(move || cache.trim(limits.dry_run));
        collected.cache = trimmed.await.map_err(io::Error::from)??;
        Ok(collected)
    }

    async fn collect_job(
        &self,
        folder: &Path,
        limits: GcLimits,
        collected: &mut Collected,
    ) -> Result<(), EngineError> {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let _lock = match self.lock(&name) {
            Ok(lock) => lock,
            // It is being driven.
            Err(EngineError::Running { .. }) => return Ok(()),
            Err(error) => return Err(error),
        };
        let job = self.store().job(&name)?.map(|stored| stored.replayed());
        let ended = job.as_ref().and_then(|job| job.ended);
        let age = ended.map(|ended| Duration::from_millis(Timestamp::now().0.saturating_sub(ended.0)));
        if let (Some(age), Some(keep), Some(job)) = (age, limits.keep_jobs, &job)
            && age > keep
        {
            collected.job_bytes += used(folder)?.bytes;
            collected.jobs.push(job.name.clone());
            if !limits.dry_run {
                self.forget(&name).await?;
            }
            return Ok(());
        }
        if !self.runs_still(folder).await? {
            self.collect_scratch(folder, limits.dry_run, collected).await?;
            if ended.is_some() {
                self.collect_uploads(folder, limits.dry_run, collected).await?;
            }
        }
        Ok(())
    }

    /// Gives up what a store could not be told of when the job ended. One that can't be reached holds up nothing else.
    async fn collect_uploads(
        &self,
        folder: &Path,
        dry_run: bool,
        collected: &mut Collected,
    ) -> Result<(), EngineError> {
        for attempt in tidy::folders(folder)? {
            let Ok(run) = RunDirectory::open(&attempt) else { continue };
            let Some(uploads) = run.uploads()? else { continue };
            let count = 1 + u64::from(uploads.model.is_some());
            match if dry_run { Ok(()) } else { publish::in_store::give_up(self, &run).await } {
                Ok(()) => collected.uploads += count,
                Err(error) => {
                    let job = folder.file_name().unwrap_or_default().to_string_lossy();
                    collected.uploads_left.push(format!("{job}: {}", chain(&error)));
                }
            }
        }
        Ok(())
    }

    /// Whether a supervisor of a job lives whose driver does not.
    async fn runs_still(&self, folder: &Path) -> Result<bool, EngineError> {
        let placement = tidy::written_down(folder)?;
        if placement.supervisors.is_empty() {
            return Ok(false);
        }
        let presence = self.backend.observe(&placement, &[]).await?;
        Ok(presence.contains(&Presence::Alive))
    }

    async fn collect_scratch(
        &self,
        folder: &Path,
        dry_run: bool,
        collected: &mut Collected,
    ) -> Result<(), EngineError> {
        for attempt in tidy::folders(folder)? {
            let Ok(run) = RunDirectory::open(&attempt) else { continue };
            let instances = tidy::folders(&attempt.join("instances"))?;
            let scratch = instances.iter().map(|instance| instance.join("scratch"));
            for left in scratch.chain([run.bases()]).filter(|left| left.exists()) {
                let used = used(&left)?;
                collected.scratch.objects += used.objects;
                collected.scratch.bytes += used.bytes;
                if !dry_run {
                    self.backend.remove(&left).await.map_err(io::Error::other)?;
                }
            }
        }
        Ok(())
    }
}

/// Files below a folder and what would be free without them; what is linked elsewhere too would not. Folders that can't
/// be looked into count as empty.
fn used(folder: &Path) -> io::Result<Kept> {
    let mut kept = Kept::default();
    let mut seen = HashSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        let entries = match fs::read_dir(&next) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => continue,
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let found = entry.metadata()?;
            if found.is_dir() {
                folders.push(entry.path());
            } else if seen.insert((found.dev(), found.ino())) {
                kept.objects += 1;
                kept.bytes += if found.nlink() == 1 { found.blocks() * 512 } else { 0 };
            }
        }
    }
    Ok(kept)
}
