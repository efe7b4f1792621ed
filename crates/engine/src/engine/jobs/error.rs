//! Why something can't be done with a job.

use crate::engine::EngineError;
use crate::job::Status;
use crate::prepare::PrepareError;
use crate::spec::Violations;

/// Why a job can't be taken in.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// The request is wrong, or asks for what is not here.
    #[error(transparent)]
    Request(#[from] PrepareError),
    /// The endpoint takes no more or no larger ones.
    #[error(transparent)]
    Limit(#[from] LimitExceeded),
    /// The engine refuses: the name is taken, for instance.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// Why a job can't be stopped or deleted.
#[derive(Debug, thiserror::Error)]
pub enum StopError {
    /// There is none of this name.
    #[error("there is no training job {0}")]
    Unknown(String),
    /// It has ended, or has not, and would have to be otherwise.
    #[error("training job {job} is in status {status}")]
    Status {
        /// Its name.
        job: String,
        /// What it is.
        status: Status,
    },
    /// Another process drives it.
    #[error("training job {0} is driven by another process: stop that one")]
    Elsewhere(String),
    /// The engine refuses.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// Why a job's request can't be changed.
#[derive(Debug, thiserror::Error)]
pub enum AmendError {
    /// There is no such job, or it has ended.
    #[error(transparent)]
    Job(#[from] StopError),
    /// The changed request would be wrong.
    #[error(transparent)]
    Violations(#[from] Violations),
}

/// A limit of the endpoint that a job would exceed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "The account-level service limit '{name}' is {limit} {unit}, with current utilization of {used} {unit} and a request \
     delta of {delta} {unit}. It was set where this endpoint was started."
)]
pub struct LimitExceeded {
    /// The flag that sets it.
    pub name: &'static str,
    /// What is counted.
    pub unit: &'static str,
    /// How many there may be.
    pub limit: u32,
    /// How many there are.
    pub used: u32,
    /// How many the job would add.
    pub delta: u32,
}
