//! One instance from its plan to its last report: what the process `trainyard instance` does.
//!
//! The supervisor owns everything of the instance on its machine: the scratch folder, the processes
//! of `train`, the reports and the log. It stages the inputs, runs `train`, collects the outputs,
//! and leaves nothing behind but what it hands back.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::Mode;
use rustix::process::{setsid, umask};

use crate::explain::chain;
use crate::network::{JoinError, Namespaces, Place};
use crate::plan::{InstancePlan, NetworkPlan};
use crate::run::{
    Appender, Exit, InstanceDirectory, LogLine, Outcome, Parts, RunDirectory, RunDirectoryError, Stream,
    Timestamp,
};
use crate::runtime::jail::start::{StartError, take_back};
use crate::runtime::jail::take_back::holds_others_files;
use crate::runtime::{self, Places, Shield};
use crate::storage::{Buckets, StoreCredentials, Stores};

mod cache;
mod collect;
mod elsewhere;
mod explain;
mod fetch;
mod limits;
mod log;
mod memory;
mod metrics;
pub(crate) mod objects;
mod reports;
mod resolver;
mod scratch;
mod stage;
mod stop;
mod train;
mod upload;
mod usage;
mod volume;

pub use cache::{Cache, Kept};

use collect::CollectError;
use log::Log;
use metrics::Metrics;
use reports::Reports;
use scratch::Scratch;
use stage::StageError;
use stop::Stop;
use train::Trained;
pub(crate) use usage::{Processes, Source};

/// A supervisor that can't tell how its instance ended.
#[derive(Debug, thiserror::Error)]
pub enum SuperviseError {
    /// The reports can't be written.
    #[error("can't write reports")]
    Reports(#[source] io::Error),
    /// The system refuses what the supervisor itself needs.
    #[error("can't start the supervisor")]
    Start(#[source] io::Error),
}

/// What a supervisor has that is in no plan.
#[derive(Clone, Debug, Default)]
pub struct Own {
    /// How the machine is kept from the instance.
    pub shield: Shield,
    /// Who the user is to stores: from the environment of this process, and nowhere else.
    pub credentials: StoreCredentials,
}

/// Carries out the plan in an instance's folder and reports there what comes of it.
///
/// `self_program` is a program that runs [`runtime::instance_init`] when it is started with the
/// single argument `instance-init`; usually this one. The calling process should do nothing else:
/// it becomes the leader of a session of its own and catches SIGTERM and SIGINT.
///
/// # Errors
/// Only when reports can't be written; everything else that goes wrong is reported.
pub fn supervise(directory: &InstanceDirectory, self_program: &Path, own: Own) -> Result<(), SuperviseError> {
    // Processes of the instance start elsewhere.
    let absolute = |path: &Path| std::path::absolute(path).map_err(SuperviseError::Start);
    let (directory, self_program) =
        (&InstanceDirectory::open(&absolute(directory.root())?), &absolute(self_program)?);
    // Who leads a session or a group already can stay where it is.
    let _ = setsid();
    umask(Mode::from_raw_mode(0o022));
    let mut reports = Reports::open(&directory.reports()).map_err(SuperviseError::Reports)?;
    let scratch = Scratch::new(directory.scratch());
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(SuperviseError::Start)?;
    let (outcome, parts) = runtime
        .block_on(carry_out(directory, self_program, &own, &mut reports))
        .unwrap_or_else(|broken| (Outcome::Broken { explanation: chain(&broken) }, Parts::default()));
    clean_up(directory, &scratch, &mut reports);
    let told = reports.end(outcome, parts).map_err(SuperviseError::Reports);
    // Last, for it takes the kernel many milliseconds to forget what it watched for the runtime. A
    // thread may still wait for the lock of a base and is not waited for.
    runtime.shutdown_background();
    told
}

/// The machine could not give the instance its place.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error("the instance's plan can't be read")]
    Plan(#[source] RunDirectoryError),
    #[error("stop requests can't be watched")]
    Stop(#[source] io::Error),
    #[error("the log can't be opened")]
    Log(#[source] io::Error),
    #[error("the processes of the instance can't be watched")]
    Watch(#[source] io::Error),
    #[error("the instance can't get a place of its own")]
    Jail(#[source] StartError),
    #[error("the instance has no network")]
    Network(#[from] JoinError),
}

/// What all phases of an instance need to know.
struct Scene<'a> {
    plan: &'a InstancePlan,
    run: &'a RunDirectory,
    scratch: &'a Scratch,
    self_program: &'a Path,
    own: &'a Own,
    stop: &'a Stop,
    network: Option<Place>,
}

impl Scene<'_> {
    /// Where the plan's objects are that are no files of this machine.
    fn stores(&self) -> Stores {
        let buckets = Buckets::in_stores(self.plan.storage.stores.clone());
        Stores::new(buckets, self.own.credentials.clone()).patient()
    }

    /// What the instance's processes enter to be in the network of its job, if it is to be in one.
    fn namespaces(&self) -> Option<&Namespaces> {
        self.network.as_ref().map(|place| &place.namespaces)
    }
}

async fn carry_out(
    directory: &InstanceDirectory,
    self_program: &Path,
    own: &Own,
    reports: &mut Reports,
) -> Result<(Outcome, Parts), Broken> {
    let plan = &directory.plan().map_err(Broken::Plan)?;
    let run = &directory.run().map_err(Broken::Plan)?;
    let stop = &Stop::watch(directory, plan.grace).map_err(Broken::Stop)?;
    let scratch = &Scratch::new(directory.scratch());
    let mut scene = Scene { plan, run, scratch, self_program, own, stop, network: None };
    let places = match stage::stage(&scene, reports).await {
        Ok(places) => places,
        Err(error) => return Ok((not_staged(&error), Parts::default())),
    };
    scene.network = join_network(plan).await?;
    let appender = Appender::open(&directory.log()).map_err(Broken::Log)?;
    let mut log = Log::new(appender, Metrics::new(&plan.metrics, reports));
    let outcome = tokio::select! {
        outcome = train(&scene, places, &mut log, reports) => outcome?,
        // The instance ends with what is dropped here: it would wait for the others in vain.
        error = network_lost(&scene) => return Err(error.into()),
    };
    match collect::collect(&scene, directory, reports).await {
        Ok(parts) => {
            if outcome == Outcome::Completed {
                collect::warn_of_loss(&scene, &parts, reports);
            }
            Ok((outcome, parts))
        }
        Err(error) => Ok((not_collected(outcome, &error, reports), Parts::default())),
    }
}

/// The instance's place in the network of its job. The connection to it is this process's standard input,
/// and stays open as long as the process lives.
async fn join_network(plan: &InstancePlan) -> Result<Option<Place>, JoinError> {
    match plan.network {
        NetworkPlan::Job { .. } => {
            let connection = io::stdin().as_fd().try_clone_to_owned()?;
            Ok(Some(Place::received(connection).await?))
        }
        NetworkPlan::Alone => Ok(None),
    }
}

async fn network_lost(scene: &Scene<'_>) -> JoinError {
    match &scene.network {
        Some(place) => place.lost().await,
        None => std::future::pending().await,
    }
}

/// What went wrong first is how the instance ended.
fn not_collected(outcome: Outcome, error: &CollectError, reports: &mut Reports) -> Outcome {
    match outcome {
        Outcome::Completed => Outcome::CollectingFailed { explanation: chain(error) },
        outcome => {
            reports.warn(chain(error));
            outcome
        }
    }
}

fn not_staged(error: &StageError) -> Outcome {
    match error {
        StageError::Stopped => Outcome::Stopped,
        error => Outcome::StagingFailed { explanation: chain(error) },
    }
}

/// Runs `train`, with copies of the channels where overlays of them are refused.
async fn train(
    scene: &Scene<'_>,
    places: Places,
    log: &mut Log,
    reports: &mut Reports,
) -> Result<Outcome, Broken> {
    let mut trained = train_in(scene, places, log, reports).await?;
    if let Trained::NotStarted(StartError::Overlay { .. }) = &trained {
        let places = match stage::stage_copies(scene, reports).await {
            Ok(places) => places,
            Err(error) => return Ok(not_staged(&error)),
        };
        trained = train_in(scene, places, log, reports).await?;
    }
    match trained {
        Trained::Stopped => Ok(Outcome::Stopped),
        Trained::Exited(_) | Trained::Unread { .. } | Trained::Exceeded { .. } | Trained::Starved { .. }
            if scene.stop.kill_at().is_some() =>
        {
            Ok(Outcome::Stopped)
        }
        // Whoever reads an object and gets an error may know what to do about it.
        Trained::Exited(Exit::Code(0)) | Trained::Unread { exit: Exit::Code(0), .. } => {
            Ok(Outcome::Completed)
        }
        Trained::Unread { exit, reason } => {
            let explanation = [explanation(scene, log), reason].join("\n");
            Ok(Outcome::Failed { exit, explanation: explanation.trim_start().to_owned() })
        }
        Trained::Exited(exit) => Ok(Outcome::Failed { exit, explanation: explanation(scene, log) }),
        Trained::Starved { explanation } => Ok(Outcome::StagingFailed { explanation }),
        Trained::Exceeded { exit, explanation } => Ok(Outcome::Failed { exit, explanation }),
        Trained::NotStarted(StartError::Program { code, explanation }) => {
            let line = LogLine { at: Timestamp::now(), stream: Stream::Stderr, line: explanation.clone() };
            log.add(line.at, line.stream, line.line.as_bytes(), reports);
            log.finish(reports);
            Ok(Outcome::Failed { exit: Exit::Code(code), explanation })
        }
        Trained::NotStarted(error) => Err(Broken::Jail(error)),
    }
}

/// Runs `train` and makes what it leaves the user's own.
async fn train_in(
    scene: &Scene<'_>,
    places: Places,
    log: &mut Log,
    reports: &mut Reports,
) -> Result<Trained, Broken> {
    let recipe = runtime::recipe(scene.plan, scene.run, scene.own.shield, places);
    let trained = train::train(scene, &recipe, log, reports).await.map_err(Broken::Watch)?;
    if scene.scratch.written().iter().any(|folder| holds_others_files(folder))
        && let Err(error) = take_back(scene.self_program, scene.scratch.root()).await
    {
        reports.warn(chain(&error));
    }
    Ok(trained)
}

/// What the program has to say about its failure.
fn explanation(scene: &Scene<'_>, log: &Log) -> String {
    explain::failure_text(&scene.scratch.ml()).or_else(|| log.last_lines()).unwrap_or_default()
}

/// Removes what only this instance used.
fn clean_up(directory: &InstanceDirectory, scratch: &Scratch, reports: &mut Reports) {
    let mut folders = vec![scratch.root().to_owned()];
    if let (Ok(run), Ok(plan)) = (directory.run(), directory.plan()) {
        folders.push(stage::own_bases(&run, &plan.host));
    }
    for folder in folders {
        if let Err(error) = stage::remove_if_there(&folder) {
            reports.warn(format!("{} can't be removed: {}", folder.display(), chain(&error)));
        }
    }
}
