//! The loop of one job: events in, effects out, until it has ended.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fs_err as fs;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Attempt, Engine, EngineError, tidy};
use crate::backend::{BackendError, Launch, Placement, Presence, Stop};
use crate::explain::chain;
use crate::job::{Effect, Event, Job, MERGE_HOST, Status};
use crate::plan::JobPlan;
use crate::run::{News, Outcome, Report, RunDirectory, Stamped, Timestamp, Watch};

mod output;
mod take_over;

use output::ready_output;
pub use take_over::TakenOver;

/// What somebody asks of a running job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Stop with the job's grace.
    Stop,
    /// Stop without grace.
    Kill,
}

/// What there is to show of a running job.
#[derive(Clone, Debug)]
pub enum Notice {
    /// Something has happened to the job; the store has it already.
    Job(Box<Job>),
    /// An instance has said what it is doing.
    Report {
        /// The instance.
        host: String,
        /// What it said.
        report: Stamped,
    },
    /// An instance has written lines, which are read with [`Tail::read_before`](crate::run::Tail).
    Log {
        /// The instance.
        host: String,
        /// The file of its log lines.
        log: PathBuf,
        /// Where in it they end, in bytes.
        end: u64,
    },
}

/// Drives one job.
pub struct Driver {
    engine: Engine,
    job: Job,
    plan: JobPlan,
    /// Held, not used: others see by it that the job is driven.
    _lock: fs::File,
    run: RunDirectory,
    watch: Watch,
    placed: Vec<Placed>,
    deadline: Option<Instant>,
    /// Zero once the job is to be killed.
    grace: Duration,
    /// Whether somebody can still give commands.
    commanded: bool,
    work: JoinSet<Done>,
    /// One for each placement with supervisors that may still change: its index and what is seen.
    observations: JoinSet<(usize, Result<Vec<Presence>, BackendError>)>,
    notices: Option<mpsc::UnboundedSender<Notice>>,
    effects: Vec<Effect>,
}

/// An attempt whose run directory is there.
struct Begun {
    job: Job,
    plan: JobPlan,
    run: RunDirectory,
    effects: Vec<Effect>,
}

/// Supervisors that have been placed, and what is known of them.
struct Placed {
    placement: Placement,
    known: Vec<Presence>,
}

/// Work beside the loop that has come to its end.
enum Done {
    Launched(Result<Placement, BackendError>),
    MergeLaunched(Result<Placement, BackendError>),
    Event(Event),
}

/// What the loop has waited for.
enum Woken {
    Command(Option<Command>),
    News(io::Result<Vec<News>>),
    Presence(Result<(usize, Result<Vec<Presence>, BackendError>), tokio::task::JoinError>),
    Done(Result<Done, tokio::task::JoinError>),
    Deadline,
}

impl Driver {
    /// Makes the run directory of the attempt.
    pub(super) fn new(engine: Engine, lock: fs::File, attempt: Attempt) -> Result<Self, EngineError> {
        let Attempt { job, mut plan, manifests, effects } = attempt;
        plan.attempt = job.attempt;
        for instance in &mut plan.instances {
            instance.attempt = job.attempt;
        }
        let root = engine.attempt_folder(&job.name, job.attempt);
        let run = RunDirectory::create(&root, &plan, &manifests)?;
        Self::of(engine, lock, Begun { job, plan, run, effects })
    }

    fn of(engine: Engine, lock: fs::File, begun: Begun) -> Result<Self, EngineError> {
        let Begun { job, plan, run, effects } = begun;
        let grace = plan.grace();
        Ok(Self {
            engine,
            job,
            plan,
            _lock: lock,
            run,
            watch: Watch::new()?,
            placed: Vec::new(),
            deadline: None,
            grace,
            commanded: true,
            work: JoinSet::new(),
            observations: JoinSet::new(),
            notices: None,
            effects,
        })
    }

    /// The driver after an event that begins its work.
    pub(super) async fn begin(mut self, event: Event) -> Result<Self, EngineError> {
        self.happen(event).await?;
        Ok(self)
    }

    /// The job as it is now.
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// The run directory of this attempt.
    pub fn run(&self) -> &RunDirectory {
        &self.run
    }

    /// Where the job's artifacts are put, if that is a folder of this machine.
    pub fn output_folder(&self) -> Option<&Path> {
        self.plan.output.folder()
    }

    /// Drives the job to its end. What there is to show goes to `notices`, which is unbounded because
    /// a slow terminal must not hold up a job.
    pub async fn drive(
        mut self,
        commands: &mut mpsc::UnboundedReceiver<Command>,
        notices: mpsc::UnboundedSender<Notice>,
    ) -> Result<Job, EngineError> {
        self.notices = Some(notices);
        self.show_job();
        let driven = self.until_ended(commands).await;
        if driven.is_err() {
            self.abandon().await;
        }
        driven.map(|()| self.job)
    }

    /// Ends all instances, as nobody will look after them any more; a resume starts them again.
    ///
    /// The error that led here is the one to tell, and what can't be released now is released by the
    /// next run of the job.
    async fn abandon(&mut self) {
        while let Some(done) = self.work.join_next().await {
            if let Ok(Done::Launched(Ok(placement)) | Done::MergeLaunched(Ok(placement))) = done {
                let _ = self.engine.backend.release(&placement).await;
            }
        }
        for placed in &self.placed {
            let _ = self.engine.backend.release(&placed.placement).await;
        }
    }

    async fn until_ended(
        &mut self,
        commands: &mut mpsc::UnboundedReceiver<Command>,
    ) -> Result<(), EngineError> {
        loop {
            self.carry_out().await?;
            if self.job.has_ended() {
                return Ok(());
            }
            match self.wait(commands).await {
                Woken::Command(command) => self.obey(command).await?,
                Woken::News(news) => self.take_in(news?).await?,
                Woken::Presence(observed) => {
                    let (index, presence) = observed.map_err(io::Error::other)?;
                    self.presence_changed(index, presence?).await?;
                }
                Woken::Done(done) => self.work_done(done).await?,
                Woken::Deadline => {
                    self.deadline = None;
                    self.happen(Event::MaxRuntimeReached).await?;
                }
            }
        }
    }

    async fn wait(&mut self, commands: &mut mpsc::UnboundedReceiver<Command>) -> Woken {
        let deadline = self.deadline;
        tokio::select! {
            command = commands.recv(), if self.commanded => Woken::Command(command),
            news = self.watch.next() => Woken::News(news),
            Some(observed) = self.observations.join_next() => Woken::Presence(observed),
            Some(done) = self.work.join_next() => Woken::Done(done),
            () = sleep_until(deadline) => Woken::Deadline,
        }
    }

    async fn obey(&mut self, command: Option<Command>) -> Result<(), EngineError> {
        match command {
            Some(Command::Stop) => self.happen(Event::StopRequested).await,
            Some(Command::Kill) => {
                self.grace = Duration::ZERO;
                self.happen(Event::StopRequested).await?;
                let mut hosts = self.job.running_hosts();
                hosts.push(MERGE_HOST.to_owned());
                self.stop(&hosts).await?;
                self.kill_packing().await
            }
            None => {
                self.commanded = false;
                Ok(())
            }
        }
    }

    /// Packing may take long and hears no stop request: its supervisor is killed, and with it its part.
    async fn kill_packing(&self) -> Result<(), EngineError> {
        let packing = self.job.packing_hosts();
        for placed in &self.placed {
            let supervisors = placed.placement.supervisors.iter();
            let supervisors = supervisors.filter(|supervisor| packing.contains(&supervisor.host));
            // The others still need the network.
            let placement = Placement { supervisors: supervisors.cloned().collect(), networks: Vec::new() };
            self.engine.backend.release(&placement).await?;
        }
        Ok(())
    }

    /// Stores an event, applies it and keeps its effects for later.
    async fn happen(&mut self, event: Event) -> Result<(), EngineError> {
        let effects = self.engine.record(&mut self.job, event).await?;
        self.effects.extend(effects);
        self.show_job();
        Ok(())
    }

    async fn take_in(&mut self, news: Vec<News>) -> Result<(), EngineError> {
        for News { host, log_end, reports } in news {
            if let Some(end) = log_end {
                self.show(Notice::Log { host: host.clone(), log: self.run.instance(&host).log(), end });
            }
            for report in reports {
                self.show(Notice::Report { host: host.clone(), report: report.clone() });
                if host == MERGE_HOST {
                    self.merge_reported(&report);
                } else if self.job.is_news(&host, &report.report) {
                    self.happen(Event::Reported { host: host.clone(), report }).await?;
                }
            }
        }
        Ok(())
    }

    fn merge_reported(&mut self, stamped: &Stamped) {
        let Report::Ended { outcome, .. } = &stamped.report else { return };
        let explanation = match outcome {
            Outcome::Completed => return self.publish_merged(),
            Outcome::Stopped => "stopped".to_owned(),
            Outcome::Failed { explanation, .. }
            | Outcome::StagingFailed { explanation }
            | Outcome::CollectingFailed { explanation }
            | Outcome::Broken { explanation } => explanation.clone(),
        };
        self.work.spawn(async { Done::Event(Event::MergeFailed { explanation }) });
    }

    async fn presence_changed(&mut self, index: usize, presence: Vec<Presence>) -> Result<(), EngineError> {
        let placed = &mut self.placed[index];
        let hosts = placed.placement.hosts().map(str::to_owned);
        let gone: Vec<_> = hosts
            .zip(placed.known.iter().zip(&presence))
            .filter(|(_, (before, now))| before != now && **now == Presence::Gone)
            .map(|(host, _)| host)
            .collect();
        placed.known = presence;
        self.observe(index);
        // Whatever a supervisor wrote before it went is there now.
        let news = self.watch.read_all()?;
        self.take_in(news).await?;
        for host in gone {
            if host == MERGE_HOST {
                self.merge_lost().await?;
            } else if self.job.running_hosts().contains(&host) {
                self.happen(Event::Lost { host }).await?;
            }
        }
        Ok(())
    }

    async fn merge_lost(&mut self) -> Result<(), EngineError> {
        if self.run.instance(MERGE_HOST).has_ended()? {
            return Ok(());
        }
        let explanation = "the merging instance was lost: its supervisor has left no last report".to_owned();
        self.happen(Event::MergeFailed { explanation }).await
    }

    async fn work_done(&mut self, done: Result<Done, tokio::task::JoinError>) -> Result<(), EngineError> {
        let done = done.map_err(io::Error::other)?;
        match done {
            Done::Event(event) => self.happen(event).await,
            Done::Launched(Ok(placement)) => {
                self.placed(placement)?;
                self.happen(Event::Launched).await
            }
            Done::Launched(Err(error)) => {
                self.happen(Event::LaunchFailed { explanation: chain(&error) }).await
            }
            Done::MergeLaunched(Ok(placement)) => {
                self.placed(placement)?;
                match self.job.status {
                    // The request came while the backend was still placing the instance.
                    Status::Stopping => self.stop(&[MERGE_HOST.to_owned()]).await,
                    _ => Ok(()),
                }
            }
            Done::MergeLaunched(Err(error)) => {
                self.happen(Event::MergeFailed { explanation: chain(&error) }).await
            }
        }
    }

    fn placed(&mut self, placement: Placement) -> Result<(), EngineError> {
        let text = serde_json::to_string(&placement)
            .map_err(|source| EngineError::Placement { job: self.job.name.clone(), source });
        let known = vec![Presence::Alive; placement.supervisors.len()];
        // First of all: whatever fails from here on, they are released.
        self.placed.push(Placed { placement, known });
        self.observe(self.placed.len() - 1);
        Ok(self.engine.store().add_placement(&self.job.name, self.job.attempt, &text?)?)
    }

    /// Waits beside the loop for the next change in a placement; one that is all gone has none.
    fn observe(&mut self, index: usize) {
        let Placed { placement, known } = &self.placed[index];
        if known.iter().all(|presence| *presence == Presence::Gone) {
            return;
        }
        let (backend, placement, known) = (self.engine.backend.clone(), placement.clone(), known.clone());
        self.observations.spawn(async move { (index, backend.observe(&placement, &known).await) });
    }

    /// Carries out all effects so far; what takes long becomes work beside the loop.
    async fn carry_out(&mut self) -> Result<(), EngineError> {
        for effect in std::mem::take(&mut self.effects) {
            match effect {
                Effect::Launch { hosts } => self.launch(hosts)?,
                Effect::StartRuntimeTimer => {
                    self.deadline = Some(Instant::now() + self.time_left());
                }
                Effect::Stop { hosts } => {
                    self.stop(&hosts).await?;
                }
                Effect::Publish => self.publish(),
                Effect::Merge => self.merge().await?,
                Effect::Release => self.release().await?,
                // They were stored together with the event.
                Effect::Notify => {}
            }
        }
        Ok(())
    }

    /// Of the runtime: a job that was taken over has used some of it.
    fn time_left(&self) -> Duration {
        let now = Timestamp::now().0;
        let used = now.saturating_sub(self.job.started.map_or(now, |started| started.0));
        self.plan.max_runtime.saturating_sub(Duration::from_millis(used))
    }

    fn launch(&mut self, hosts: Vec<String>) -> Result<(), EngineError> {
        for host in &hosts {
            self.watch.follow(host, &self.run.instance(host))?;
        }
        let (engine, run) = (self.engine.clone(), self.run.clone());
        let (output, job) = (self.plan.output.clone(), (self.job.name.clone(), self.job.attempt));
        self.work.spawn(async move {
            Done::Launched(match ready_output(&engine, &output, &run, job).await {
                Ok(()) => engine.backend.launch(&Launch { run, hosts }).await,
                Err(error) => Err(error),
            })
        });
        Ok(())
    }

    async fn stop(&self, hosts: &[String]) -> Result<(), EngineError> {
        let grace = self.grace;
        for placed in &self.placed {
            let stop = Stop { placement: &placed.placement, run: &self.run, hosts, grace };
            self.engine.backend.stop(&stop).await?;
        }
        Ok(())
    }

    async fn release(&mut self) -> Result<(), EngineError> {
        for placed in &self.placed {
            self.engine.backend.release(&placed.placement).await?;
        }
        if self.plan.is_through_daemon() {
            self.engine.sweep().await;
        }
        self.engine.give_up_uploads(&self.job.name, self.job.attempt + 1).await;
        tidy::after(&self.engine, &self.job).await?;
        Ok(())
    }

    fn show_job(&self) {
        self.show(Notice::Job(Box::new(self.job.clone())));
    }

    fn show(&self, notice: Notice) {
        if let Some(notices) = &self.notices {
            // Nobody has to look.
            let _ = notices.send(notice);
        }
    }
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
