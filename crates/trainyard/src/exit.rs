//! Exit codes, which are part of the interface.

use std::process::ExitCode;

use trainyard_engine::job::Job;

/// What the program ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The job completed, or the command did what it should.
    Completed = 0,
    /// Something went wrong that is neither the caller's nor the job's fault.
    Error = 1,
    /// The command line or the job file is wrong; nothing was started.
    Usage = 2,
    /// The job failed.
    Failed = 10,
    /// The job was stopped.
    Stopped = 11,
    /// The job was stopped because its time was up.
    TimedOut = 12,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

impl Exit {
    /// How a job's end is told.
    pub(crate) fn of_job(job: &Job) -> Self {
        Self::of_status(&job.status.to_string(), &job.secondary_status().to_string())
    }

    /// The same by the API's `TrainingJobStatus` and `SecondaryStatus`.
    pub(crate) fn of_status(status: &str, secondary: &str) -> Self {
        match (status, secondary) {
            ("Completed", _) => Self::Completed,
            ("Stopped", "MaxRuntimeExceeded" | "MaxWaitTimeExceeded") => Self::TimedOut,
            ("Stopped", _) => Self::Stopped,
            ("Failed", _) => Self::Failed,
            // It has not ended.
            _ => Self::Error,
        }
    }
}

/// An error of the caller: shown like any other, but told apart by the exit code.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(crate) struct Refused(#[from] anyhow::Error);

/// The exit code for an error.
pub(crate) fn of(error: &anyhow::Error) -> Exit {
    if error.is::<Refused>() { Exit::Usage } else { Exit::Error }
}

/// An error and its causes in one line.
pub(crate) fn one_line(error: &anyhow::Error) -> String {
    let mut causes: Vec<String> = error.chain().map(ToString::to_string).collect();
    // A transparent error repeats the text of what it wraps.
    causes.dedup();
    causes.join(": ")
}
