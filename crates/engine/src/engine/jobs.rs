//! Many jobs at once: taken in, queued, driven side by side, and taken over after a restart.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{mpsc, watch};

use super::drive::TakenOver;
use super::queue::{Place, Queue, told};
use super::{Command, Driver, Engine, EngineError, Notice, Waiting};
use crate::explain::chain;
use crate::job::{Event, Job, Outline};
use crate::plan::{Need, Needs, needs};
use crate::prepare::{Checked, ImageProgress, Machine, check, plan_checked};
use crate::spec::{Capabilities, TrainingJobSpec};
use crate::store::{JobQuery, Listed, StoreError};
use crate::wire::CreateTrainingJobRequest;

mod error;

pub use error::{AmendError, CreateError, LimitExceeded, StopError};

/// The jobs of one data folder, as a server has them. Clones are the same.
#[derive(Clone)]
pub struct Jobs {
    shared: Arc<Shared>,
}

struct Shared {
    engine: Engine,
    machine: Machine,
    capabilities: Capabilities,
    queue: Mutex<Queue>,
    /// Tells those who wait where they stand, by their names.
    places: Mutex<HashMap<String, watch::Sender<Place>>>,
    limits: JobLimits,
    /// Where it is told what nobody asked.
    troubles: mpsc::UnboundedSender<String>,
    /// Where jobs that have not ended are commanded, by their names in lower case.
    commands: Mutex<HashMap<String, mpsc::UnboundedSender<Command>>>,
    /// Tells that a job holds nothing any more.
    left: watch::Sender<()>,
}

/// What a server makes of the machine.
pub struct JobsSetup {
    /// Where jobs' names lead to.
    pub machine: Machine,
    /// What jobs may ask for.
    pub capabilities: Capabilities,
    /// What all instances together may take; a job that needs more runs alone.
    pub capacity: Need,
    /// How many jobs are taken in.
    pub limits: JobLimits,
    /// Told what keeps a job from being driven.
    pub troubles: mpsc::UnboundedSender<String>,
}

/// How many jobs are taken in, and how large they may be; none where there is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobLimits {
    /// Jobs that run or wait.
    pub unfinished: Option<u32>,
    /// Instances of one job.
    pub instances: Option<u32>,
}

/// A job as it was submitted and as it is.
#[derive(Debug)]
pub struct Described {
    /// What was sent.
    pub request: CreateTrainingJobRequest,
    /// What became of it.
    pub job: Job,
}

impl Jobs {
    /// Takes over what has not ended; of a job for which that can't be done it is told why.
    ///
    /// # Errors
    /// The store can't be read.
    pub async fn open(engine: Engine, setup: JobsSetup) -> Result<Self, EngineError> {
        let JobsSetup { machine, capabilities, capacity, limits, troubles } = setup;
        let shared = Shared {
            machine,
            capabilities,
            queue: Mutex::new(Queue::new(capacity)),
            places: Mutex::default(),
            limits,
            troubles,
            commands: Mutex::default(),
            left: watch::Sender::new(()),
            engine,
        };
        let jobs = Self { shared: Arc::new(shared) };
        let unfinished = jobs.shared.engine.store().unfinished()?;
        let mut waiting = Vec::new();
        for name in unfinished {
            match jobs.shared.engine.take_over(&name).await {
                Ok(TakenOver::Waiting(job)) => waiting.push(*job),
                Ok(TakenOver::Driver(driver)) => jobs.go_on(*driver),
                // `trainyard run` has it.
                Ok(TakenOver::Ended) | Err(EngineError::Running { .. }) => {}
                // One that can't be read must not keep the others from going on.
                Err(error) => jobs.tell(&name, Err(error)),
            }
        }
        for job in waiting {
            match jobs.described(&job.job().name) {
                Ok(Some(described)) => jobs.begin(job, described.request).await,
                Ok(None) => {}
                Err(error) => jobs.tell(&job.job().name, Err(error)),
            }
        }
        Ok(jobs)
    }

    /// Takes in a job, which starts as soon as there is room for it.
    ///
    /// # Errors
    /// The request is wrong, asks for what is not here, or its name is taken.
    pub async fn create(&self, request: CreateTrainingJobRequest) -> Result<(), CreateError> {
        let Shared { engine, machine, capabilities, .. } = &*self.shared;
        let checked = check(request, machine, capabilities).await?;
        checked.try_output(machine).await?;
        let outline = checked.outline();
        self.check_limits(&outline)?;
        let tags: Vec<_> = checked.tags().collect();
        let waiting = engine.accept(&outline, checked.text(), &tags)?;
        self.live(waiting, checked);
        Ok(())
    }

    fn check_limits(&self, outline: &Outline) -> Result<(), LimitExceeded> {
        let JobLimits { unfinished, instances } = self.shared.limits;
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let exceeded = |name, unit, limit: Option<u32>, used: u32, delta: u32| {
            let limit = limit.filter(|limit| used.saturating_add(delta) > *limit)?;
            Some(LimitExceeded { name, unit, limit, used, delta })
        };
        let size = count(outline.hosts.len());
        let too_large = exceeded("--max-instances-per-job", "Instances", instances, 0, size);
        let too_many = || exceeded("--max-jobs", "Jobs", unfinished, count(self.commands().len()), 1);
        too_large.or_else(too_many).map_or(Ok(()), Err)
    }

    /// A job that was taken in before; its request is checked again, for the machine may have changed.
    async fn begin(&self, waiting: Waiting, request: CreateTrainingJobRequest) {
        match check(request, &self.shared.machine, &self.shared.capabilities).await {
            Ok(checked) => self.live(waiting, checked),
            Err(error) => self.fail(waiting, chain(&error)),
        }
    }

    fn fail(&self, mut waiting: Waiting, explanation: String) {
        let jobs = self.clone();
        tokio::spawn(async move {
            let name = waiting.job().name.clone();
            let failed = waiting.happen(Event::NotPlanned { explanation }).await;
            jobs.tell(&name, failed);
        });
    }

    /// Lets a job live until it ends.
    fn live(&self, waiting: Waiting, checked: Checked) {
        let outline = checked.outline();
        let commands = self.commanded(&outline);
        let (sender, place) = watch::channel(Place::Waiting { ahead: u32::MAX });
        self.places().insert(outline.job.clone(), sender);
        let needs = checked.needs(&self.shared.machine);
        self.requeue(|queue| queue.join(&outline.job, needs, checked.priority()));
        let jobs = self.clone();
        tokio::spawn(async move {
            let lived = jobs.wait_and_drive(waiting, checked, (place, commands)).await;
            jobs.ended(&outline.job);
            jobs.tell(&outline.job, lived);
        });
    }

    /// Drives a job that ran before this process did.
    fn go_on(&self, driver: Driver) {
        let name = driver.job().name.clone();
        let hosts = driver.job().running_hosts();
        let needs = self.needs_of(&name, &hosts);
        let commands = self.commanded(&Outline { job: name.clone(), hosts, merges: false });
        self.requeue(|queue| queue.runs(&name, needs));
        let jobs = self.clone();
        tokio::spawn(async move {
            let driven = jobs.drive(driver, commands).await;
            jobs.ended(&name);
            jobs.tell(&name, driven);
        });
    }

    /// What running hosts need of the machine; one each where their request can't be read any more.
    fn needs_of(&self, job: &str, hosts: &[String]) -> Needs {
        let described = self.described(job).ok().flatten();
        let spec = described.and_then(|described| TrainingJobSpec::try_from(described.request).ok());
        let Machine { limits, gpus, .. } = self.shared.machine;
        let mut all = spec.map(|spec| needs(&spec, limits, gpus)).unwrap_or_default();
        all.retain(|(host, _)| hosts.contains(host));
        if all.len() < hosts.len() {
            let one = Need { instances: 1, ..Need::default() };
            return hosts.iter().map(|host| (host.clone(), one)).collect();
        }
        all
    }

    async fn wait_and_drive(
        &self,
        mut waiting: Waiting,
        checked: Checked,
        (mut place, mut commands): (watch::Receiver<Place>, mpsc::UnboundedReceiver<Command>),
    ) -> Result<(), EngineError> {
        if wait_for_room(&mut waiting, &mut place, &mut commands).await? {
            return waiting.happen(Event::StopRequested).await;
        }
        // What is needed to run is much larger than what waits, of which there may be many.
        Box::pin(self.plan_and_drive(waiting, checked, commands)).await
    }

    async fn plan_and_drive(
        &self,
        mut waiting: Waiting,
        checked: Checked,
        mut commands: mpsc::UnboundedReceiver<Command>,
    ) -> Result<(), EngineError> {
        let progress: ImageProgress = Arc::new(|_| {});
        let planned = tokio::select! {
            planned = plan_checked(checked, &self.shared.machine, progress) => planned,
            _ = commands.recv() => return waiting.happen(Event::StopRequested).await,
        };
        match planned {
            Ok(prepared) => {
                let driver = waiting.start(prepared.submission).await?;
                // The image is in use until the job has ended.
                let _image = prepared.image;
                self.drive(driver, commands).await
            }
            Err(error) => waiting.happen(Event::NotPlanned { explanation: chain(&error) }).await,
        }
    }

    async fn drive(
        &self,
        driver: Driver,
        mut commands: mpsc::UnboundedReceiver<Command>,
    ) -> Result<(), EngineError> {
        let name = driver.job().name.clone();
        let (notices, mut shown) = mpsc::unbounded_channel();
        let jobs = self.clone();
        let counting = async move {
            while let Some(notice) = shown.recv().await {
                if let Notice::Job(job) = notice {
                    let running = job.running_hosts();
                    jobs.requeue(|queue| queue.shrinks(&name, &running));
                }
            }
        };
        let (driven, ()) = tokio::join!(driver.drive(&mut commands, notices), counting);
        driven.map(drop)
    }

    /// Asks a job to stop.
    ///
    /// # Errors
    /// There is none of this name, it has ended, or it is not ours.
    pub fn stop(&self, name: &str) -> Result<(), StopError> {
        let job = self.known(name)?;
        if job.has_ended() {
            return Err(StopError::Status { job: job.name, status: job.status });
        }
        let commands = self.commands();
        let sender = commands.get(&name.to_lowercase());
        let sender = sender.ok_or_else(|| StopError::Elsewhere(job.name.clone()))?;
        sender.send(Command::Stop).map_err(|_| StopError::Elsewhere(job.name))
    }

    /// Changes what was sent for a job that has not ended, where nothing has been planned from it.
    ///
    /// # Errors
    /// There is none of this name, it has ended, or its request would be wrong.
    pub fn amend(
        &self,
        name: &str,
        change: impl FnOnce(&mut CreateTrainingJobRequest),
    ) -> Result<Job, AmendError> {
        let refused = |error: StoreError| StopError::from(EngineError::from(error));
        let mut store = self.shared.engine.store();
        let stored = store.job(name).map_err(refused)?.ok_or_else(|| StopError::Unknown(name.to_owned()))?;
        let job = stored.replayed();
        if job.has_ended() {
            return Err(StopError::Status { job: job.name, status: job.status }.into());
        }
        let damaged = |source| refused(StoreError::Damaged { job: stored.name.clone(), source });
        let mut request: CreateTrainingJobRequest = serde_json::from_str(&stored.request).map_err(damaged)?;
        change(&mut request);
        TrainingJobSpec::try_from(request.clone())?;
        let text = serde_json::to_string(&request).map_err(damaged)?;
        store.replace_request(&stored.name, &text).map_err(refused)?;
        Ok(job)
    }

    /// Waits until jobs that have ended hold nothing of the machine any more: it is only then that their network, bases
    /// and parts are given back. Those that have not ended are not waited for.
    ///
    /// # Errors
    /// The store can't be read.
    pub async fn settled(&self) -> Result<(), EngineError> {
        let mut left = self.shared.left.subscribe();
        loop {
            left.borrow_and_update();
            let unfinished = self.shared.engine.store().unfinished()?;
            let unfinished: HashSet<_> = unfinished.iter().map(|name| name.to_lowercase()).collect();
            if self.commands().keys().all(|name| unfinished.contains(name)) || left.changed().await.is_err() {
                return Ok(());
            }
        }
    }

    /// Forgets a job that has ended, with its logs; its artifacts stay.
    ///
    /// # Errors
    /// There is none of this name, or it has not ended.
    pub async fn delete(&self, name: &str) -> Result<(), StopError> {
        let job = self.known(name)?;
        if !job.has_ended() {
            return Err(StopError::Status { job: job.name, status: job.status });
        }
        let engine = &self.shared.engine;
        let _lock = engine.lock(&job.name)?;
        Ok(engine.forget(&job.name).await?)
    }

    /// A job of this name, in any case.
    ///
    /// # Errors
    /// The store can't be read.
    pub fn described(&self, name: &str) -> Result<Option<Described>, EngineError> {
        let shown = self.shared.engine.store().shown(name)?;
        let described = shown.map(|(request, job)| {
            let request = serde_json::from_str(&request)
                .map_err(|source| StoreError::Damaged { job: job.name.clone(), source })?;
            Ok::<_, StoreError>(Described { request, job })
        });
        Ok(described.transpose()?)
    }

    /// Jobs that fit a query, one page.
    ///
    /// # Errors
    /// The store can't be read.
    pub fn list(&self, query: &JobQuery) -> Result<Vec<Listed>, EngineError> {
        Ok(self.shared.engine.store().list(query)?)
    }

    /// A job's tags, after `change` was made to them.
    ///
    /// # Errors
    /// There is no such job.
    pub fn tags(&self, name: &str, change: TagChange<'_>) -> Result<Vec<(String, String)>, StopError> {
        let job = self.known(name)?;
        let mut store = self.shared.engine.store();
        let changed = match change {
            TagChange::None => Ok(()),
            TagChange::Add(tags) => store.add_tags(&job.name, tags),
            TagChange::Remove(keys) => store.remove_tags(&job.name, keys),
        };
        changed.and_then(|()| store.tags(&job.name)).map_err(|error| EngineError::from(error).into())
    }

    /// The run directory of an attempt of a job.
    pub fn attempt_folder(&self, job: &str, attempt: u32) -> std::path::PathBuf {
        self.shared.engine.attempt_folder(job, attempt)
    }

    /// What jobs are told of the machine.
    pub fn machine(&self) -> &Machine {
        &self.shared.machine
    }

    fn known(&self, name: &str) -> Result<Job, StopError> {
        let shown = self.shared.engine.store().shown(name).map_err(EngineError::from)?;
        shown.map(|(_, job)| job).ok_or_else(|| StopError::Unknown(name.to_owned()))
    }

    fn commanded(&self, outline: &Outline) -> mpsc::UnboundedReceiver<Command> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.commands().insert(outline.job.to_lowercase(), sender);
        receiver
    }

    fn ended(&self, name: &str) {
        self.commands().remove(&name.to_lowercase());
        self.places().remove(name);
        self.requeue(|queue| queue.leave(name));
        self.shared.left.send_replace(());
    }

    fn commands(&self) -> MutexGuard<'_, HashMap<String, mpsc::UnboundedSender<Command>>> {
        self.shared.commands.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn places(&self) -> MutexGuard<'_, HashMap<String, watch::Sender<Place>>> {
        self.shared.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the queue, and tells those whose place is another one now; `change` says whether there may be any.
    fn requeue(&self, change: impl FnOnce(&mut Queue) -> bool) {
        let mut queue = self.queue();
        if !change(&mut queue) {
            return;
        }
        let waiting: HashMap<&str, u32> = queue.waiting().collect();
        for (job, sender) in &*self.places() {
            let ahead = waiting.get(job.as_str());
            let place = ahead.map_or(Place::Admitted, |ahead| Place::Waiting { ahead: told(*ahead) });
            sender.send_if_modified(|known| std::mem::replace(known, place) != place);
        }
    }

    /// Says what keeps a job from being driven, for nobody waits for an answer.
    fn tell(&self, job: &str, result: Result<(), EngineError>) {
        if let Err(error) = result {
            // The server may be going down.
            let _ = self.shared.troubles.send(format!("training job {job}: {}", chain(&error)));
        }
    }
}

/// Waits for a job's turn; tells whether it was asked to stop before.
async fn wait_for_room(
    waiting: &mut Waiting,
    place: &mut watch::Receiver<Place>,
    commands: &mut mpsc::UnboundedReceiver<Command>,
) -> Result<bool, EngineError> {
    let mut told = false;
    loop {
        let now = *place.borrow_and_update();
        match now {
            Place::Admitted if told => {
                waiting.happen(Event::Admitted).await?;
                return Ok(false);
            }
            Place::Admitted => return Ok(false),
            Place::Waiting { ahead } => {
                waiting.happen(Event::Queued { ahead }).await?;
                told = true;
            }
        }
        tokio::select! {
            changed = place.changed() => if changed.is_err() { return Ok(true) },
            _ = commands.recv() => return Ok(true),
        }
    }
}

/// What is done to tags before they are read.
#[derive(Clone, Copy, Debug)]
pub enum TagChange<'a> {
    /// Nothing.
    None,
    /// Keys get these values.
    Add(&'a [(String, String)]),
    /// Keys are taken away.
    Remove(&'a [String]),
}
