//! A job whose driver is gone, driven on from where it was.

use fs_err as fs;

use super::{Begun, Driver, Placed, Presence};
use crate::engine::{Attempt, Engine, EngineError, TakenIn, Waiting, read_placement, tidy};
use crate::job::{Event, Job, MERGE_HOST};
use crate::run::RunDirectory;
use crate::store::StoredJob;

/// A job that has not ended, with all that is needed to go on.
pub enum TakenOver {
    /// It is not planned yet.
    Waiting(Box<Waiting>),
    /// It is.
    Driver(Box<Driver>),
    /// It had ended, but what it held was not free yet; now it is.
    Ended,
}

impl Engine {
    /// Takes over a job that has not ended from a process that is gone. Instances that still run go on.
    ///
    /// # Errors
    /// Another process drives it, or what it left can't be read.
    pub async fn take_over(&self, name: &str) -> Result<TakenOver, EngineError> {
        let lock = self.lock(name)?;
        let stored = self.store().job(name)?;
        let stored = stored.ok_or_else(|| EngineError::Unknown { job: name.to_owned() })?;
        let mut job = stored.replayed();
        if !job.is_planned() {
            return Ok(TakenOver::Waiting(Box::new(self.waiting(job, lock))));
        }
        if !job.is_launched() {
            // Some of its instances may run all the same, with nobody to follow them.
            self.release_all(name, &stored.placements).await?;
        }
        let taken_in = self.take_in_late_reports(&mut job, &stored.events).await?;
        if !job.is_launched() && job.is_ending() {
            for host in job.running_hosts() {
                self.record(&mut job, Event::Lost { host }).await?;
            }
        }
        if job.has_ended() {
            self.release_all(&job.name, &stored.placements).await?;
            tidy::after(self, &job).await?;
            return Ok(TakenOver::Ended);
        }
        let driver = if job.is_launched() || job.is_ending() {
            Driver::take_over(self, lock, (job, stored), &taken_in).await?
        } else {
            self.attempt_again(lock, job).await?
        };
        Ok(TakenOver::Driver(Box::new(driver)))
    }

    /// Whoever launched the attempt did not come to say so. What has completed meanwhile is kept, the rest is launched
    /// anew: as in a resume.
    async fn attempt_again(&self, lock: fs::File, mut job: Job) -> Result<Driver, EngineError> {
        let first = RunDirectory::open(&self.attempt_folder(&job.name, 1))?;
        let (plan, manifests) = (first.plan()?, first.read_manifests()?);
        let effects = self.record(&mut job, Event::Resumed).await?;
        Driver::new(self.clone(), lock, Attempt { job, plan, manifests, effects })
    }
}

impl Driver {
    async fn take_over(
        engine: &Engine,
        lock: fs::File,
        (job, stored): (Job, StoredJob),
        taken_in: &TakenIn,
    ) -> Result<Self, EngineError> {
        let run = RunDirectory::open(&engine.attempt_folder(&job.name, job.attempt))?;
        let (plan, effects) = (run.plan()?, job.unfinished());
        let mut driver = Self::of(engine.clone(), lock, Begun { job, plan, run, effects })?;
        driver.find_again(&stored, taken_in).await?;
        Ok(driver)
    }

    /// Follows the instances that run, and ends one that merges: that is done again.
    async fn find_again(&mut self, stored: &StoredJob, taken_in: &TakenIn) -> Result<(), EngineError> {
        for host in self.job.running_hosts() {
            let known = taken_in.get(&host).copied().unwrap_or(0);
            self.watch.follow_from(&host, &self.run.instance(&host), known)?;
        }
        for (attempt, text) in &stored.placements {
            let placement = read_placement(&stored.name, text)?;
            if placement.hosts().any(|host| host == MERGE_HOST) {
                self.engine.backend.release(&placement).await?;
            } else if *attempt == self.job.attempt {
                let known = vec![Presence::Alive; placement.supervisors.len()];
                self.placed.push(Placed { placement, known });
                self.observe(self.placed.len() - 1);
            }
        }
        let merging = self.run.instance(MERGE_HOST);
        if merging.root().exists() {
            fs::remove_dir_all(merging.root())?;
        }
        // Nobody tells of what was written before the watch.
        let news = self.watch.read_all()?;
        self.take_in(news).await
    }
}
