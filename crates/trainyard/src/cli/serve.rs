//! `trainyard serve`: the endpoint, until it is told to stop.

use std::net::SocketAddr;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::ValueHint;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use trainyard_engine::backend::Backend;
use trainyard_engine::backend::local::LocalBackend;
use trainyard_engine::cgroup::capacity;
use trainyard_engine::engine::{Engine, GcLimits, JobLimits, Jobs, JobsSetup};
use trainyard_engine::gpu::gpus;
use trainyard_engine::plan::{Capacity, Need};
use trainyard_s3::{Buckets, Secrets};

use super::gc;
use crate::api::{Pace, Server, Services, acceptor, announce, is_open};
use crate::config::{Config, Flags, ServeLimits};
use crate::exit::{Exit, Refused};
use crate::keys::LiveKeys;
use crate::machine::{machine, store_credentials};
use crate::notify::{Notifier, subscribers};
use crate::show::out;

/// Requests a second of each key: far more than a machine can answer, so that only those are slowed down that have gone
/// wild.
const REQUEST_RATE: u32 = 5000;
const CONNECTIONS: u32 = 4096;

/// Where clients expect the endpoint.
pub(super) const ADDRESS: &str = "127.0.0.1:9191";

/// Be SageMaker, CloudWatch Logs and S3 for AWS clients of this machine
///
/// Clients find the endpoint and its keys in the variables that `trainyard env` prints. Jobs that were
/// under way when it ended are taken up again.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Serve {
    /// Listen at ADDRESS:PORT; port 0 takes any free one
    #[arg(long, value_name = "ADDRESS", default_value = ADDRESS)]
    listen: SocketAddr,
    /// The certificate chain (PEM) with which answers are encrypted
    #[arg(long, value_name = "FILE", requires = "tls_key", value_hint = ValueHint::FilePath)]
    tls_certificate: Option<PathBuf>,
    /// The private key (PEM) of the certificate
    #[arg(long, value_name = "FILE", requires = "tls_certificate", value_hint = ValueHint::FilePath)]
    tls_key: Option<PathBuf>,
    /// Let other machines in without encryption
    #[arg(long, conflicts_with = "tls_certificate")]
    plain_http: bool,
    #[command(flatten)]
    limits: ServeLimits,
    #[command(flatten)]
    flags: Flags,
}

const EXAMPLES: &str = "Examples:
  trainyard serve
  trainyard serve --bucket my-bucket=./data
  eval \"$(trainyard env)\"; aws sagemaker list-training-jobs; aws s3 ls

Ctrl-C stops it after the requests that are under way; jobs go on and are taken up by the next one.";

impl Serve {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let config = Config::read(&self.flags)?;
        if is_open(self.listen) && self.tls_key.is_none() && !self.plain_http {
            return Err(Refused::from(anyhow::anyhow!(
                "--listen {}: other machines can reach it; encrypt with --tls-certificate and --tls-key, or \
                 say --plain-http",
                self.listen
            ))
            .into());
        }
        let tls = self.tls_certificate.iter().zip(&self.tls_key).next();
        let tls =
            tls.map(|(certificate, key)| acceptor(certificate, key)).transpose().map_err(Refused::from)?;
        let data = config.data_dir.value.clone();
        open_files_as_allowed();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(async {
            let server = Server::bind(&data, self.listen, tls).await?;
            let keys = LiveKeys::read_or_make(&data)?;
            let limits = self.limits.or(&config.serve);
            let pace = Arc::new(Pace::new(limits.max_request_rate.map_or(REQUEST_RATE, NonZero::get)));
            announce(&data, &server.url())?;
            let named = config.places.buckets.iter();
            let named = named.map(|(name, folder)| (name.clone(), folder.value.clone())).collect();
            let secrets: Secrets = Arc::new(move |access: &str| keys.secret(access));
            let of_s3 = Arc::clone(&pace);
            let of_s3 = Arc::new(move |access: &str| of_s3.allows(access, Instant::now()));
            let s3 = trainyard_s3::service(Buckets::new(named, data.join("s3")), Arc::clone(&secrets), of_s3);
            let (troubles, told) = mpsc::unbounded_channel();
            let jobs = jobs(&config, &limits, troubles).await?;
            let services = Services { jobs: jobs.clone(), secrets, pace };
            tokio::spawn(tell(told));
            let (mut interrupt, mut terminate) =
                (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
            out(&format!("listening at {}", server.url()))?;
            let stop = async {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
            };
            let most = limits.max_connections.map_or(CONNECTIONS, NonZero::get);
            server.run(services, s3, most as usize, stop).await;
            // What is not given back by then is a matter for `trainyard gc`.
            let _ = tokio::time::timeout(SETTLE, jobs.settled()).await;
            Ok(Exit::Completed)
        })
    }
}

async fn jobs(
    config: &Config,
    limits: &ServeLimits,
    troubles: mpsc::UnboundedSender<String>,
) -> anyhow::Result<Jobs> {
    let machine = machine(config, None)?;
    let backend = LocalBackend::new(machine.program.clone());
    let capabilities = backend.capabilities();
    let engine =
        Engine::open(&config.data_dir.value, Arc::new(backend))?.with_credentials(store_credentials());
    let engine = engine.announcing(subscribers(&config.notify));
    let notifier = Notifier::new(engine.clone(), &config.notify, troubles.clone());
    let notifier = notifier.map_err(Refused::from)?;
    // Containers of supervisors that were killed.
    engine.sweep().await;
    tokio::spawn(collect(engine.clone(), gc::limits(config), troubles.clone()));
    let number = |limit: Option<NonZero<u32>>| limit.map(NonZero::get);
    let capacity = room(number(limits.max_instances))?;
    let limits =
        JobLimits { unfinished: number(limits.max_jobs), instances: number(limits.max_instances_per_job) };
    let jobs = Jobs::open(engine, JobsSetup { machine, capabilities, capacity, limits, troubles }).await?;
    if !config.notify.is_empty() {
        tokio::spawn(notifier.run());
    }
    Ok(jobs)
}

/// What all instances together may take: the machine's processors, memory and GPUs, and one instance for each processor
/// unless something else was said.
fn room(instances: Option<u32>) -> anyhow::Result<Need> {
    let Capacity { cpus, memory } = capacity();
    let gpus = gpus().map_err(|error| Refused::from(anyhow::Error::from(error)))?.len() as u64;
    Ok(Need { instances: instances.unwrap_or(cpus), cpus: cpus.into(), memory, gpus })
}

/// Lets this process have as many open files as it may: each job that waits holds a lock, each client a connection, and
/// the usual 1,024 are few.
fn open_files_as_allowed() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // It goes on with what it has.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// How long jobs that have just ended may take to give back what they hold, once the endpoint is told to stop.
const SETTLE: Duration = Duration::from_secs(10);

/// How often what nobody needs any more is removed.
const COLLECT_INTERVAL: Duration = Duration::from_secs(3600);

/// Removes what nobody needs any more, for as long as the endpoint lives.
async fn collect(engine: Engine, limits: GcLimits, troubles: mpsc::UnboundedSender<String>) {
    let mut tick = tokio::time::interval(COLLECT_INTERVAL);
    // The first is at once; jobs are taken up again meanwhile.
    tick.tick().await;
    loop {
        tick.tick().await;
        if let Err(error) = engine.collect(limits).await {
            // Nobody listens any more when the endpoint ends.
            let _ = troubles.send(format!("cleaning up: {:#}", anyhow::Error::new(error)));
        }
    }
}

/// What nobody asked for is said where the endpoint was started.
async fn tell(mut told: mpsc::UnboundedReceiver<String>) {
    while let Some(text) = told.recv().await {
        eprintln!("{text}");
    }
}
