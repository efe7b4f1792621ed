//! The statuses of the API, spelled as there.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::run::Timestamp;

/// `TrainingJobStatus`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Status {
    /// Waiting, running or publishing.
    InProgress,
    /// Asked to stop.
    Stopping,
    /// Ended on request or because its time was up.
    Stopped,
    /// Every instance ended with 0 and the artifacts are published.
    Completed,
    /// Something went wrong; the failure reason says what.
    Failed,
}

impl Status {
    /// Whether a job stays in this status.
    pub fn is_terminal(self) -> bool {
        match self {
            Self::InProgress | Self::Stopping => false,
            Self::Stopped | Self::Completed | Self::Failed => true,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// `SecondaryStatus`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SecondaryStatus {
    /// Instances are being placed.
    Starting,
    /// Waiting for capacity.
    Pending,
    /// Inputs are being fetched.
    Downloading,
    /// `train` runs.
    Training,
    /// Taken back by the machine's owner.
    Interrupted,
    /// Artifacts are being packed and published.
    Uploading,
    /// Instances are being stopped.
    Stopping,
    /// Ended on request.
    Stopped,
    /// Stopped because `MaxRuntimeInSeconds` had passed.
    MaxRuntimeExceeded,
    /// Stopped because `MaxWaitTimeInSeconds` had passed.
    MaxWaitTimeExceeded,
    /// All well.
    Completed,
    /// Something went wrong.
    Failed,
}

impl fmt::Display for SecondaryStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// One entry of `SecondaryStatusTransitions`: an episode of one secondary status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transition {
    /// The status of this episode.
    pub status: SecondaryStatus,
    /// When it began.
    pub start: Timestamp,
    /// When it ended; the last status of a job starts and ends at once.
    pub end: Option<Timestamp>,
    /// The message; overwritten while the status lasts.
    pub message: String,
    /// The attempt in which it began; 0 in what was stored before attempts were counted here.
    #[serde(default)]
    pub attempt: u32,
}
