//! Runs an image on small jobs, by the ordinary engine, in a folder that is gone afterwards.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fs_err as fs;
use rustix::fs::{FlockOperation, flock};
use tokio::sync::watch;
use trainyard_engine::artifact::RemoveError;
use trainyard_engine::backend::Backend;
use trainyard_engine::docker::DaemonError;
use trainyard_engine::engine::{Engine, EngineError, Submission};
use trainyard_engine::image::{BringError, ObtainError};
use trainyard_engine::plan::JobPlan;
use trainyard_engine::prepare::{
    ContainerError, ImageProgress, Machine, PrepareError, Prepared, PreparedImage, prepare,
};
use trainyard_engine::runtime::sweep;
use trainyard_engine::wire::CreateTrainingJobRequest;

mod change;
mod job;
mod request;
mod seen;

pub use request::{made_up, of_job_file};

use crate::facts::{Facts, ImageFacts, Interference, JobFacts, Order, ProgramFacts, Trial};
use crate::image::{Places, examine, program};
use change::Change;

/// How the folder of a check begins, and where its jobs are in it.
const FOLDER: &str = "check-";
const JOBS: &str = "jobs";

/// What is asked.
#[derive(Clone, Debug)]
pub struct Question {
    /// The job that the image is run on; where it writes and how many instances it has is ours.
    pub request: CreateTrainingJobRequest,
    /// Whether the user has given channels or a job.
    pub given: bool,
    /// Longest time of one run.
    pub time_limit: Duration,
    /// Between SIGTERM and the end.
    pub grace: Duration,
}

/// What came of it.
#[derive(Debug)]
pub enum Checked {
    /// The image was run.
    Run(Box<Facts>),
    /// There is nothing to run in it.
    NoProgram(ImageFacts),
    /// It is for other machines; the text says for which.
    OtherPlatform(String),
}

/// An image that could not be checked.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The job or the image can't be used.
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    /// The engine refuses.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Images can't be brought here.
    #[error(transparent)]
    Container(#[from] ContainerError),
    /// The check's own folder can't be made.
    #[error("the check's folder can't be made")]
    Folder(#[from] io::Error),
    /// The check's own folder can't be removed.
    #[error("the check's folder can't be removed")]
    Remove(#[from] RemoveError),
    /// Somebody interrupted.
    #[error("interrupted")]
    Interrupted,
    /// The daemon does not answer any more.
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    /// The engine broke off.
    #[error("a job broke off")]
    Broken(#[from] tokio::task::JoinError),
}

/// What all runs of a check have in common.
pub struct Check<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// Where instances run.
    pub backend: Arc<dyn Backend>,
    /// The data folder; the check makes a folder of its own in it.
    pub data: &'a Path,
    /// Becomes true when somebody wants an end.
    pub interrupted: watch::Receiver<bool>,
    /// Told what is done now.
    pub tell: &'a (dyn Fn(&str) + Sync),
}

impl Check<'_> {
    /// Runs the image; nothing of it is left but the image in the store.
    ///
    /// # Errors
    ///
    /// Fails if the job or the image can't be used, or the user has interrupted.
    pub async fn run(&self, question: Question, progress: ImageProgress) -> Result<Checked, CheckError> {
        let (folder, _held) = self.claim().await?;
        let checked = self.run_in(&folder, question, progress).await;
        self.backend.remove(&folder).await?;
        checked
    }

    /// A folder for this check, locked as long as the file is kept. Those of checks that were killed are removed, with
    /// all that still runs of them.
    async fn claim(&self) -> Result<(PathBuf, fs::File), CheckError> {
        fs::create_dir_all(self.data)?;
        // One check at a time, so that none takes for dead what another is about to lock.
        let claiming = fs::File::open(self.data)?;
        flock(&claiming, FlockOperation::LockExclusive).map_err(io::Error::from)?;
        for entry in fs::read_dir(self.data)? {
            let path = entry?.path();
            let is_ours = path.file_name().and_then(|name| name.to_str());
            if is_ours.is_some_and(|name| name.starts_with(FOLDER)) && path.is_dir() {
                let file = fs::File::open(&path)?;
                if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
                    self.remove_dead(&path).await?;
                }
            }
        }
        let folder = tempfile::Builder::new().prefix(FOLDER).tempdir_in(self.data)?.keep();
        let held = fs::File::open(&folder)?;
        flock(&held, FlockOperation::LockExclusive).map_err(io::Error::from)?;
        Ok((folder, held))
    }

    async fn remove_dead(&self, folder: &Path) -> Result<(), CheckError> {
        let jobs = folder.join(JOBS);
        if jobs.exists() {
            Engine::open(&jobs, Arc::clone(&self.backend))?.forget_all().await?;
        }
        sweep(self.data).await;
        Ok(self.backend.remove(folder).await?)
    }

    async fn run_in(
        &self,
        folder: &Path,
        mut question: Question,
        progress: ImageProgress,
    ) -> Result<Checked, CheckError> {
        request::write_to(&mut question.request, &folder.join("output"));
        request::limit(&mut question.request, question.time_limit.as_secs());
        let prepared = match self.prepare(question.request.clone(), progress.clone()).await? {
            Ok(prepared) => prepared,
            Err(error) => return self.not_prepared(error, &question, progress).await,
        };
        let Prepared { submission, image } = prepared;
        let command = submission.plan.instances.first().map(|first| first.command.clone());
        let series = Series {
            check: self,
            engine: Engine::open(&folder.join(JOBS), Arc::clone(&self.backend))?,
            probe: copy_of(&self.machine.program, folder)?,
            command: command.unwrap_or_default(),
            is_container: image.is_some(),
            question,
            progress,
        };
        let image = match &image {
            Some(image) => Some(series.image_facts(image, &submission.plan).await?),
            None => None,
        };
        match image {
            // Without a daemon this is found before.
            Some(image) if matches!(image.program, ProgramFacts::Missing { .. }) => {
                Ok(Checked::NoProgram(image))
            }
            image => series.facts(submission, image).await.map(|facts| Checked::Run(Box::new(facts))),
        }
    }

    /// Brings the image here and plans the job; an interrupt gives up.
    async fn prepare(
        &self,
        request: CreateTrainingJobRequest,
        progress: ImageProgress,
    ) -> Result<Result<Prepared, PrepareError>, CheckError> {
        let capabilities = self.backend.capabilities();
        let mut interrupted = self.interrupted.clone();
        tokio::select! {
            prepared = prepare(request, self.machine, &capabilities, progress) => Ok(prepared),
            Ok(_) = interrupted.wait_for(|&interrupted| interrupted) => Err(CheckError::Interrupted),
        }
    }

    /// What can be said of an image that can't be run.
    async fn not_prepared(
        &self,
        error: PrepareError,
        question: &Question,
        progress: ImageProgress,
    ) -> Result<Checked, CheckError> {
        let PrepareError::Container(container) = &error else { return Err(error.into()) };
        match container {
            ContainerError::Obtain { source, .. } => match source.as_ref() {
                ObtainError::Platform { .. } => Ok(Checked::OtherPlatform(source.to_string())),
                _ => Err(error.into()),
            },
            ContainerError::Bring { source, .. } => match source.as_ref() {
                BringError::Platform { .. } => Ok(Checked::OtherPlatform(source.to_string())),
                _ => Err(error.into()),
            },
            ContainerError::NotInPath { .. } | ContainerError::NoProgram { .. } => {
                let name = request::image(&question.request);
                let name = self.machine.images.get(name).map_or(name, String::as_str);
                let (_, image) = self.machine.image_source.obtain(name, progress).await?;
                let program = ProgramFacts::Missing { explanation: container.to_string() };
                Ok(Checked::NoProgram(examine(&image.config, image.layer_sizes(), program)))
            }
            _ => Err(error.into()),
        }
    }
}

/// The runs of one check.
struct Series<'a> {
    check: &'a Check<'a>,
    engine: Engine,
    /// This program, where instances can be given it.
    probe: PathBuf,
    command: Vec<String>,
    is_container: bool,
    question: Question,
    progress: ImageProgress,
}

impl Series<'_> {
    /// What there is to know of an image before it is run. Into one that a daemon has only an instance can look.
    async fn image_facts(&self, image: &PreparedImage, plan: &JobPlan) -> Result<ImageFacts, CheckError> {
        match image {
            PreparedImage::Unpacked(image) => {
                let environment = plan.instances.first().map(|first| &first.environment);
                let searched = environment.and_then(|all| all.get("PATH")).map(String::as_str);
                let places = Places {
                    lowers: &image.lowers,
                    folder: &image.config.working_directory,
                    searched: searched.unwrap_or_default(),
                };
                Ok(examine(&image.config, image.layer_sizes(), program(self.first_word(), &places)))
            }
            PreparedImage::OfDaemon(image) => {
                let wait = Wait::after(0.0, self.question.grace);
                let seen = self.trial("a look inside", Change::None, Interference::LookOnly, &wait).await?;
                let program = seen.ok().and_then(|report| report.program);
                let unknown = || ProgramFacts::Unknown { path: self.first_word().into() };
                let facts =
                    examine(&image.config, image.layer_sizes().await?, program.unwrap_or_else(unknown));
                Ok(ImageFacts { bytes: image.amount.bytes, ..facts })
            }
        }
    }

    fn first_word(&self) -> &str {
        self.command.first().map(String::as_str).unwrap_or_default()
    }

    async fn facts(&self, submission: Submission, image: Option<ImageFacts>) -> Result<Facts, CheckError> {
        let hyperparameters = request::hyperparameters(&self.question.request);
        let has_numbers = hyperparameters.values().any(|text| change::as_number(text).is_some());
        let instances = submission.plan.instances.len();
        let has_channels = submission.plan.instances.iter().any(|plan| !plan.channels.is_empty());
        let deals_out =
            submission.plan.instances.iter().flat_map(|plan| &plan.channels).any(|it| !it.replicated);
        (self.check.tell)(&format!("the job as it is, {instances} instances"));
        let plain = self.drive(submission).await?.plain(instances);
        let wait = Wait::after(plain.seconds, self.question.grace);
        let whole = self.trial("watched to its end", Change::None, Interference::None, &wait).await?;
        let stopped = self.trial("SIGTERM", Change::None, Interference::Stop, &wait).await?;
        let killed = self.trial("its child killed", Change::None, Interference::Kill, &wait).await?;
        let broken = self.trial("without input", Change::Nothing, Interference::None, &wait).await?;
        let empty = match has_channels {
            true => {
                let change = Change::EmptyChannels { dealt_out_only: deals_out && self.question.given };
                Some(self.trial("empty channels", change, Interference::None, &wait).await?)
            }
            false => None,
        };
        let numbers = match has_numbers && !plain.completed {
            true => Some(self.trial("numbers", Change::Numbers, Interference::None, &wait).await?),
            false => None,
        };
        let job = JobFacts {
            given: self.question.given,
            hyperparameters: hyperparameters.len(),
            deals_out,
            time_limit: self.question.time_limit.as_secs(),
        };
        let command = self.command.clone();
        Ok(Facts { image, command, job, plain, whole, stopped, killed, broken, empty, numbers })
    }

    /// Runs one instance below the probe.
    async fn trial(
        &self,
        what: &str,
        change: Change,
        interference: Interference,
        wait: &Wait,
    ) -> Result<Trial, CheckError> {
        (self.check.tell)(&["one instance, ", what].concat());
        let mut request = self.question.request.clone();
        let longest = self.question.time_limit + wait.patience + wait.grace;
        request::limit(&mut request, longest.as_secs());
        request::on_one_instance(&mut request);
        let Prepared { mut submission, image: _image } =
            self.check.prepare(request, self.progress.clone()).await??;
        let order = Order {
            command: self.command.clone(),
            interference,
            look_elsewhere: self.is_container && interference == Interference::None,
            patience: wait.patience.as_secs_f64(),
            grace: wait.grace.as_secs_f64(),
        };
        self.put_below_probe(&mut submission.plan, &order, change)?;
        Ok(self.drive(submission).await?.trial())
    }

    fn put_below_probe(&self, plan: &mut JobPlan, order: &Order, change: Change) -> io::Result<()> {
        for instance in &mut plan.instances {
            change.make(instance);
            job::put_below_probe(instance, &self.probe, order)?;
        }
        Ok(())
    }

    async fn drive(&self, submission: Submission) -> Result<seen::Seen, CheckError> {
        let driver = self.engine.submit(submission).await?;
        job::drive(driver, self.check.interrupted.clone()).await
    }
}

/// How long a probe waits.
struct Wait {
    patience: Duration,
    grace: Duration,
}

impl Wait {
    /// In the middle of a run a program is at work.
    fn after(seconds: f64, grace: Duration) -> Self {
        Self { patience: Duration::from_secs_f64((seconds / 2.0).clamp(0.4, 30.0)), grace }
    }
}

/// The program on the file system of the jobs, so that each instance can have a link to it.
fn copy_of(program: &Path, folder: &Path) -> io::Result<PathBuf> {
    let copy = folder.join("trainyard");
    if fs::hard_link(program, &copy).is_err() {
        fs::copy(program, &copy)?;
    }
    Ok(copy)
}
