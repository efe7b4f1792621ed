//! A backend: a place where supervisors run.
//!
//! Backends differ in how N supervisors are started somewhere, how it is known that they live, and
//! how they are stopped; in nothing else. All that is rich comes from the supervisors themselves,
//! through the run directory. Every backend passes the suite in [`conformance`].

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::artifact::RemoveError;
use crate::run::{InstanceDirectory, RunDirectory};
use crate::spec::Capabilities;

pub mod conformance;
pub mod fake;
pub mod local;

/// A place where supervisors run.
#[async_trait]
pub trait Backend: Send + Sync {
    /// What jobs may ask for here; a spec that asks for more is refused by the member's name.
    fn capabilities(&self) -> Capabilities;

    /// Starts a supervisor for each of these hosts, all or none.
    ///
    /// Their plans are in the run directory already, and each supervisor is written down there before
    /// the next one starts ([`InstanceDirectory::write_supervisor`]). The answer is plain data that still means the
    /// same to a new process of this program.
    async fn launch(&self, launch: &Launch) -> Result<Placement, BackendError>;

    /// Waits until the presence of some supervisor differs from what is known, then says all.
    ///
    /// `known` has one entry for each of the placement's hosts, in its order. A supervisor that is
    /// gone stays gone.
    async fn observe(&self, placement: &Placement, known: &[Presence])
    -> Result<Vec<Presence>, BackendError>;

    /// Asks these hosts' supervisors to end their instances: SIGTERM, the grace, SIGKILL.
    ///
    /// Returns as soon as they have been asked. Asking again with a shorter grace shortens it.
    async fn stop(&self, stop: &Stop<'_>) -> Result<(), BackendError>;

    /// Frees all that a placement holds, and kills what still runs. Doing it twice is no error, nor
    /// is it after half a launch.
    async fn release(&self, placement: &Placement) -> Result<(), BackendError>;

    /// Removes a folder that instances have written to; that there is none is no error. Instances of a killed
    /// supervisor may have left files in it that belong to ids of their own.
    async fn remove(&self, folder: &Path) -> Result<(), RemoveError>;
}

/// Starts a supervisor for each host in turn; when one can't be started, those before it are released.
async fn launch_all(
    backend: &dyn Backend,
    launch: &Launch,
    networks: Vec<String>,
    start: impl Fn(&str, InstanceDirectory) -> Result<Supervisor, BackendError> + Send + Sync,
) -> Result<Placement, BackendError> {
    let mut placement = Placement { supervisors: Vec::new(), networks };
    for host in &launch.hosts {
        match start(host, launch.run.instance(host)) {
            Ok(supervisor) => placement.supervisors.push(supervisor),
            Err(error) => {
                backend.release(&placement).await?;
                return Err(error);
            }
        }
    }
    Ok(placement)
}

/// What to launch.
#[derive(Clone, Debug)]
pub struct Launch {
    /// Where the plans are and the reports go.
    pub run: RunDirectory,
    /// In host order.
    pub hosts: Vec<String>,
}

/// What to stop.
#[derive(Clone, Debug)]
pub struct Stop<'a> {
    /// Where the supervisors are.
    pub placement: &'a Placement,
    /// Where they are asked.
    pub run: &'a RunDirectory,
    /// Which of them; hosts that are not of this placement are passed over.
    pub hosts: &'a [String],
    /// Between SIGTERM and SIGKILL; zero kills at once.
    pub grace: Duration,
}

/// Where a launch has put supervisors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// In host order.
    pub supervisors: Vec<Supervisor>,
    /// The backend's own names for the networks that the instances are in.
    #[serde(default)]
    pub networks: Vec<String>,
}

impl Placement {
    /// The names of the placed hosts, in order.
    pub fn hosts(&self) -> impl Iterator<Item = &str> {
        self.supervisors.iter().map(|supervisor| supervisor.host.as_str())
    }
}

/// One placed supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Supervisor {
    /// The host whose instance it runs.
    pub host: String,
    /// The backend's own name for it, such as a process or job id.
    pub id: String,
}

/// Whether a supervisor lives; poor on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Presence {
    /// Accepted, but not started yet.
    Pending,
    /// Runs.
    Alive,
    /// Does not run any more, or never did.
    Gone,
}

/// What went wrong, by what a caller can do about it.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// It may work later.
    #[error("{backend} backend is unavailable: {what}")]
    Unavailable {
        /// The backend's name.
        backend: &'static str,
        /// What was tried.
        what: String,
        /// Why it did not work.
        source: std::io::Error,
    },
    /// It will not work like this.
    #[error("{backend} backend refuses: {what}")]
    Rejected {
        /// The backend's name.
        backend: &'static str,
        /// What would have to change.
        what: String,
    },
}
