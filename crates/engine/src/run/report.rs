//! What a supervisor tells the engine, and the one thing that the engine tells a supervisor.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::artifact::{Codec, UploadedPiece};

/// Milliseconds since 1970-01-01 UTC, the resolution of the API and of CloudWatch Logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// Reads the clock; times before 1970 count as 1970.
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    /// Whole seconds since 1970.
    pub fn seconds(self) -> u64 {
        self.0 / 1000
    }
}

/// A report and when it was made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stamped {
    /// By the clock of the supervisor's machine.
    pub at: Timestamp,
    /// What is reported.
    pub report: Report,
}

/// What a supervisor tells.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Report {
    /// The inputs are being fetched; repeated as they arrive.
    Staging {
        /// Objects that are there.
        objects: u64,
        /// Bytes that are there.
        bytes: u64,
        /// Objects that will be there in the end.
        #[serde(default)]
        of_objects: u64,
        /// Bytes that will be there in the end.
        #[serde(default)]
        of_bytes: u64,
        /// Milliseconds since the staging began.
        #[serde(default)]
        millis: u64,
    },
    /// `train` has been started.
    Training,
    /// A log line held a metric.
    Metric {
        /// The metric's name.
        name: String,
        /// The captured number.
        value: f64,
    },
    /// Something the user should know that fails nothing.
    Warning {
        /// One sentence.
        text: String,
    },
    /// `train` has ended.
    Exited(Exit),
    /// The outputs are being packed; repeated as it goes on.
    Collecting {
        /// Bytes that have been read.
        bytes: u64,
    },
    /// The last report: nothing of the instance runs or stays mounted any more.
    Ended {
        /// How it ended.
        outcome: Outcome,
        /// What it hands back.
        parts: Parts,
    },
}

/// How `train` ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exit {
    /// With this exit code.
    Code(i32),
    /// By this signal number.
    Signal(i32),
    /// Killed by the kernel for want of memory.
    OutOfMemory,
}

impl Exit {
    /// The exit code as a shell would show it: 128 + n for signal n.
    pub fn code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
            Self::OutOfMemory => 137,
        }
    }

    /// The signal that ended `train`; a shell that passes one on as 128 + n counts too.
    pub fn signal(self) -> Option<i32> {
        match self {
            Self::Signal(signal) => Some(signal),
            Self::Code(code) => (code > 128).then_some(code - 128),
            Self::OutOfMemory => Some(9),
        }
    }
}

/// How an instance ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Outcome {
    /// `train` ended with 0.
    Completed,
    /// `train` ended otherwise, or could not be started.
    Failed {
        /// How it ended; 126 or 127 if it could not be started.
        exit: Exit,
        /// What explains it: the failure file, else the last error lines, else why it did not start.
        explanation: String,
    },
    /// It was asked to stop; how `train` ended then does not matter.
    Stopped,
    /// The inputs could not be made ready, so `train` did not start.
    StagingFailed {
        /// What was wrong and where.
        explanation: String,
    },
    /// `train` ended, but what it wrote could not be handed back.
    CollectingFailed {
        /// What was wrong and where.
        explanation: String,
    },
    /// The machine could not give the instance its place: namespaces, mounts, logs.
    Broken {
        /// What was wrong and where.
        explanation: String,
    },
}

/// What one instance hands back; a folder without entries hands back no part.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Parts {
    /// Of `/opt/ml/model`.
    pub model: Option<Part>,
    /// Of `/opt/ml/output/data`.
    pub output: Option<Part>,
}

/// Raw deflate blocks that can be joined with those of other hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Files, folders and links.
    pub entries: u64,
    /// Length of the tar stream.
    pub tar_bytes: u64,
    /// Length of the part file.
    pub compressed_bytes: u64,
    /// CRC-32 of the tar stream.
    pub crc32: u32,
    /// How it is compressed.
    #[serde(default)]
    pub codec: Codec,
    /// Pieces that are in the upload of this attempt; none if it is small or goes to a folder.
    #[serde(default)]
    pub uploaded: Vec<UploadedPiece>,
}

/// One line that `train` wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// When it was read.
    pub at: Timestamp,
    /// Where it was written to.
    pub stream: Stream,
    /// Without its newline; bytes that are not UTF-8 are U+FFFD.
    pub line: String,
}

/// Where a log line was written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// What the engine asks of a running instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopRequest {
    /// Between SIGTERM and SIGKILL; zero kills at once.
    pub grace: Duration,
}
