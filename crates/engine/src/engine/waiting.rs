//! A job from its submission to its plan: it may wait for room, and for its image.

use fs_err as fs;

use super::{Attempt, Driver, Engine, EngineError, Submission};
use crate::job::{Effect, Event, Job, Outline};
use crate::run::Timestamp;
use crate::store::StoreError;

/// A job that is stored and not planned yet. No other process may drive it while this is kept.
pub struct Waiting {
    engine: Engine,
    job: Job,
    lock: fs::File,
}

impl Engine {
    /// Takes in a new job that is to be planned later.
    ///
    /// # Errors
    /// There is one of this name, in any case.
    pub fn accept(
        &self,
        outline: &Outline,
        request: &str,
        tags: &[(String, String)],
    ) -> Result<Waiting, EngineError> {
        if let Some(taken) = self.store().job(&outline.job)? {
            return Err(StoreError::Exists { job: taken.name }.into());
        }
        let lock = self.lock(&outline.job)?;
        let waiting = self.taken_in(outline, request, lock)?;
        self.store().add_tags(&outline.job, tags)?;
        Ok(waiting)
    }

    pub(super) fn taken_in(
        &self,
        outline: &Outline,
        request: &str,
        lock: fs::File,
    ) -> Result<Waiting, EngineError> {
        let job = Job::submit(outline, Timestamp::now());
        self.store().add(&job, outline, request)?;
        Ok(Waiting { engine: self.clone(), job, lock })
    }

    pub(super) fn waiting(&self, job: Job, lock: fs::File) -> Waiting {
        Waiting { engine: self.clone(), job, lock }
    }
}

impl Waiting {
    /// The job as it is.
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// Lets something happen to the job that needs nothing to be done.
    pub async fn happen(&mut self, event: Event) -> Result<(), EngineError> {
        let effects = self.engine.record(&mut self.job, event).await?;
        let nothing_to_do = |effect: &Effect| matches!(effect, Effect::Release | Effect::Notify);
        debug_assert!(effects.iter().all(nothing_to_do), "{effects:?}");
        Ok(())
    }

    /// Goes on with its plan.
    ///
    /// # Errors
    /// The run directory can't be made, or the store refuses.
    pub async fn start(self, submission: Submission) -> Result<Driver, EngineError> {
        let Self { engine, job, lock } = self;
        let Submission { plan, manifests, .. } = submission;
        let warnings = plan.warnings.clone();
        // The plan is there before anything says so.
        let driver = Driver::new(engine, lock, Attempt { job, plan, manifests, effects: Vec::new() })?;
        driver.begin(Event::Planned { warnings }).await
    }
}
