//! `trainyard run`: a job from its file to its artifact, in one process.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::ValueHint;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::timeout;
use trainyard_engine::backend::Backend;
use trainyard_engine::backend::local::LocalBackend;
use trainyard_engine::engine::{Command, Driver, Engine, EngineError};
use trainyard_engine::job::Job;
use trainyard_engine::prepare::{Prepared, prepare};

use crate::config::{Config, Flags, Subscriptions};
use crate::exit::{Exit, Refused};
use crate::job_file;
use crate::machine::{machine, store_credentials};
use crate::notify::{Notifier, subscribers};
use crate::show::{Display, Form, fetching, remark};

/// Run a training job to its end
///
/// JOB is the request of CreateTrainingJob as JSON, or as YAML by its ending, or - for standard input.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Run {
    /// The job file, or - for standard input
    #[arg(value_hint = ValueHint::FilePath)]
    job: PathBuf,
    #[command(flatten)]
    flags: Flags,
    /// Take up the job where it ended: only instances that had not ended well run again
    #[arg(long)]
    resume: bool,
    /// Seconds between SIGTERM and SIGKILL when instances are stopped [default: 120]
    #[arg(long, value_name = "SECONDS")]
    grace: Option<u64>,
    /// Print one JSON object a line for each event
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:
  trainyard run job.json
  trainyard run job.json --bucket my-bucket=./data
  trainyard run job.json --image my/image=docker-archive:fit.tar
  trainyard run job.json --image 123456789012.dkr.ecr.eu-west-1.amazonaws.com/fit:1=host:./bin
  generate-job | trainyard run - --json

Ctrl-C stops the job: SIGTERM, the grace, SIGKILL; what was written is archived. A second one kills.";

impl Run {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let config = Config::read(&self.flags)?;
        let request = job_file::read(&self.job)?;
        let machine = machine(&config, self.grace.map(Duration::from_secs))?;
        let backend = LocalBackend::new(machine.program.clone());
        let form = Form::choose(self.json);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let ended = runtime.block_on(async {
            let prepared = prepare(request, &machine, &backend.capabilities(), fetching::show(form)).await;
            let prepared = prepared.map_err(anyhow::Error::new).map_err(Refused::from)?;
            // The image is in use until the job has ended.
            let Prepared { submission, image: _image } = prepared;
            let engine = Engine::open(&config.data_dir.value, Arc::new(backend))?
                .with_credentials(store_credentials())
                .announcing(subscribers(&config.notify));
            let telling = Telling::new(&engine, &config.notify)?;
            engine.sweep().await;
            let name = submission.plan.job.clone();
            let driver = if self.resume {
                engine.resume(&name, &submission.request).await.map_err(refusal)?
            } else {
                Some(engine.submit(submission).await.map_err(refusal)?)
            };
            match driver {
                Some(driver) => {
                    let (job, exit) = drive(driver, form).await?;
                    telling.told_of(&job).await?;
                    Ok(exit)
                }
                None => {
                    remark(&format!("training job {name} has completed already; there is nothing to resume"));
                    Ok(Exit::Completed)
                }
            }
        });
        runtime.shutdown_background();
        ended
    }
}

/// What the caller can put right is told apart by the exit code.
fn refusal(error: EngineError) -> anyhow::Error {
    match error {
        EngineError::Running { .. } | EngineError::Unknown { .. } | EngineError::Changed { .. } => {
            Refused::from(anyhow::Error::new(error)).into()
        }
        other => other.into(),
    }
}

/// Drives a job while showing it and obeying signals.
async fn drive(driver: Driver, form: Form) -> anyhow::Result<(Job, Exit)> {
    let (commands, mut obeyed) = mpsc::unbounded_channel();
    let (notices, mut shown) = mpsc::unbounded_channel();
    let folder = driver.output_folder().map(ToOwned::to_owned);
    let mut display = Display::new(form, driver.job());
    let mut asked = Asked::listen(commands)?;
    let mut driven = tokio::spawn(async move { driver.drive(&mut obeyed, notices).await });
    let job = loop {
        tokio::select! {
            // Signals first: a job that never stops writing can be stopped all the same.
            biased;
            text = asked.next() => display.remark(text),
            Some(notice) = shown.recv() => display.show(&notice),
            job = &mut driven => break job.context("driving the job")??,
        }
    };
    while let Ok(notice) = shown.try_recv() {
        display.show(&notice);
    }
    let exit = Exit::of_job(&job);
    display.finish(&job, folder.as_deref(), exit).context("the job has ended, but can't be shown")?;
    Ok((job, exit))
}

/// How long somebody who is told of the end may keep the command waiting.
const TELLING_TIME: Duration = Duration::from_secs(10);

/// Tells those who want to know of the end.
struct Telling {
    notifier: Option<Notifier>,
    troubles: mpsc::UnboundedReceiver<String>,
}

impl Telling {
    /// Finds what is wrong with the configuration before the job runs.
    fn new(engine: &Engine, subscriptions: &Subscriptions) -> anyhow::Result<Self> {
        let (sender, troubles) = mpsc::unbounded_channel();
        let any = !subscriptions.is_empty();
        let notifier = any.then(|| Notifier::new(engine.clone(), subscriptions, sender)).transpose();
        Ok(Self { notifier: notifier.map_err(Refused::from)?, troubles })
    }

    /// Tells until everybody knows or the time is up; what is left is told by the next process.
    async fn told_of(mut self, job: &Job) -> anyhow::Result<()> {
        let Some(notifier) = self.notifier.take() else { return Ok(()) };
        let mut interrupt = signal(SignalKind::interrupt())?;
        let told = tokio::select! {
            told = timeout(TELLING_TIME, notifier.told_of(job)) => told,
            _ = interrupt.recv() => timeout(Duration::ZERO, std::future::pending()).await,
        };
        drop(notifier);
        while let Some(trouble) = self.troubles.recv().await {
            remark(&trouble);
        }
        match told {
            Ok(told) => Ok(told?),
            Err(_) => {
                remark(
                    "not everybody could be told of the end yet: the next `trainyard serve` or `run` goes on",
                );
                Ok(())
            }
        }
    }
}

/// Turns signals into commands: the first asks the job to stop, the second kills it.
///
/// A terminal that is closed (SIGHUP) asks too: nobody would look after the instances otherwise.
struct Asked {
    interrupt: Signal,
    terminate: Signal,
    /// `None` if whoever started this program wants it to outlive the terminal, as nohup does.
    hang_up: Option<Signal>,
    commands: mpsc::UnboundedSender<Command>,
    count: u32,
}

impl Asked {
    fn listen(commands: mpsc::UnboundedSender<Command>) -> std::io::Result<Self> {
        let (interrupt, terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let hang_up = if ignores_hang_up()? { None } else { Some(signal(SignalKind::hangup())?) };
        Ok(Self { interrupt, terminate, hang_up, commands, count: 0 })
    }

    /// Waits for a signal, passes it on and says what will happen.
    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            Some(_) = async { self.hang_up.as_mut()?.recv().await } => {}
        }
        self.count += 1;
        let (command, text) = match self.count {
            1 => (Command::Stop, "stopping the job; once more kills it"),
            _ => (Command::Kill, "killing the job"),
        };
        // The job may have ended just now.
        let _ = self.commands.send(command);
        text
    }
}

/// Whether this program was started so that a closed terminal does not end it: `SigIgn` of proc(5),
/// a mask in which SIGHUP has the lowest bit.
fn ignores_hang_up() -> std::io::Result<bool> {
    let status = fs_err::read_to_string("/proc/self/status")?;
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    Ok(mask.is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).is_ok_and(|mask| mask & 1 == 1)))
}
