//! The Docker runtime: `train` in a container of a daemon, with the same first process as in a jail.
//!
//! ```text
//! supervisor ── daemon ── container-init (PID 1)  hands over /opt/ml, reaps, gives back what was written
//!      └───── socket ─────────┘ └─ train
//! ```
//!
//! The daemon only makes and removes the container. This program itself, linked statically, is shown in
//! it and is its first process. It connects to the supervisor over a socket that is shown beside it,
//! gets the two pipes that `train` writes to, and then talks as the first process of a jail does. When
//! the socket ends, everything in the container is killed. Why so, see `docs/design/docker.md`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use super::jail::Mount;
use crate::plan::{Delivery, DockerPlan, InstancePlan, Limits, Role};
use crate::run::RunDirectory;

mod create;
mod give_back;
mod init;
mod network;
mod start;
mod sweep;

pub use init::container_init;
pub use sweep::{remember, sweep};

pub(crate) use start::{Running, start};

/// The hidden subcommands that run [`container_init`].
const INIT_COMMAND: &str = "container-init";
const GIVE_BACK_COMMAND: &str = "container-give-back";

/// Where the supervisor's socket is shown in the container.
const SOCKET: &str = "/opt/trainyard/supervisor";
/// Where a container that gives back what another has left sees it.
const LEFT: &str = "/opt/trainyard/left";

/// Labels of containers and networks. The lock is a file that is locked as long as somebody uses them.
const JOB_LABEL: &str = "trainyard.job";
const ATTEMPT_LABEL: &str = "trainyard.attempt";
const HOST_LABEL: &str = "trainyard.host";
const DATA_LABEL: &str = "trainyard.data-dir";
const LOCK_LABEL: &str = "trainyard.lock";
const PROGRAM_LABEL: &str = "trainyard.program";

/// All that is needed to start one `train` in a container.
#[derive(Clone, Debug)]
pub(crate) struct Container {
    job: String,
    attempt: u32,
    host: String,
    /// Of all instances, in order; none for one that has no network.
    peers: Vec<String>,
    plan: DockerPlan,
    /// The run directory's root.
    run: PathBuf,
    /// The instance's folder in it.
    folder: PathBuf,
    /// The scratch folder of the instance.
    scratch: PathBuf,
    mounts: Vec<Mount>,
    shm_size: u64,
    limits: Limits,
    /// As the Container Device Interface names them.
    gpus: Vec<String>,
    order: Order,
}

/// What is known of the memory of a container that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    /// Whether the kernel has killed a program for want of it.
    pub(crate) ran_out: bool,
    /// The most that the container had, in bytes.
    pub(crate) peak: Option<u64>,
}

/// What the first process of a container is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Order {
    command: Vec<String>,
    environment: IndexMap<String, String>,
    working_directory: PathBuf,
    /// `USER` of the image.
    user: String,
    /// What asks every process to end.
    stop_signal: i32,
    /// The folders that must be there: daemons have been seen that leave out an overlay without a word.
    channels: Vec<String>,
    /// Those of them that are not the instance's own: they belong to whom they belong to.
    shared: Vec<String>,
}

/// The container in which a plan's `train` runs.
pub(super) fn container(
    plan: &InstancePlan,
    docker: &DockerPlan,
    run: &RunDirectory,
    mounts: Vec<Mount>,
) -> Container {
    let folder = run.instance(&plan.host);
    Container {
        job: plan.job.clone(),
        attempt: plan.attempt,
        host: plan.host.clone(),
        peers: match plan.role {
            Role::Train => plan.hosts.iter().map(|host| host.name.clone()).collect(),
            Role::Merge => Vec::new(),
        },
        plan: docker.clone(),
        run: run.root().to_owned(),
        folder: folder.root().to_owned(),
        scratch: folder.scratch(),
        mounts,
        shm_size: super::shm_size(plan),
        limits: plan.limits,
        gpus: plan.gpus.names.clone(),
        order: Order {
            command: plan.command.clone(),
            environment: plan.environment.clone(),
            working_directory: docker.working_directory.clone(),
            user: docker.user.clone(),
            stop_signal: docker.stop_signal,
            channels: folders(plan, |delivery| !matches!(delivery, Delivery::Pipe(_))),
            shared: folders(plan, |delivery| matches!(delivery, Delivery::WhenRead | Delivery::Folder(_))),
        },
    }
}

/// The names of the channels that are delivered in some way.
fn folders(plan: &InstancePlan, fits: impl Fn(&Delivery) -> bool) -> Vec<String> {
    let channels = plan.channels.iter().filter(|channel| fits(&channel.delivery));
    channels.map(|channel| channel.name.clone()).collect()
}

/// What a container has left for whoever comes after it.
#[derive(Clone, Debug)]
struct Left {
    /// An image that the daemon has.
    image: String,
    /// May hold files of root.
    scratch: PathBuf,
    /// This program's own file, as the container saw it.
    program: PathBuf,
    /// Held by whoever uses the container.
    lock: PathBuf,
    labels: HashMap<String, String>,
}

impl Container {
    fn left(&self, program: &Path) -> Left {
        // Locked as long as the supervisor lives.
        let lock = self.folder.join("container.lock");
        Left {
            image: self.plan.image.clone(),
            scratch: self.scratch.clone(),
            program: program.to_owned(),
            labels: self.labels(&lock, program),
            lock,
        }
    }

    fn labels(&self, lock: &Path, program: &Path) -> HashMap<String, String> {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let labels = [
            (JOB_LABEL, self.job.clone()),
            (ATTEMPT_LABEL, self.attempt.to_string()),
            (HOST_LABEL, self.host.clone()),
            (DATA_LABEL, text(&self.plan.data)),
            (LOCK_LABEL, text(lock)),
            (PROGRAM_LABEL, text(program)),
        ];
        labels.map(|(name, value)| (name.to_owned(), value)).into()
    }
}
