//! What was seen of an image; nothing here is a judgement.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// All that was seen.
#[derive(Clone, Debug, Serialize)]
pub struct Facts {
    /// The image as it is stored; none for programs of this machine.
    pub image: Option<ImageFacts>,
    /// What an instance starts.
    pub command: Vec<String>,
    /// The job that it was run on.
    pub job: JobFacts,
    /// The job as it is, and nothing interfered with.
    pub plain: PlainRun,
    /// One instance, watched to its end.
    pub whole: Trial,
    /// One instance whose first process gets SIGTERM.
    pub stopped: Trial,
    /// One instance in which the process behind the first one is killed.
    pub killed: Trial,
    /// One instance without configuration and input.
    pub broken: Trial,
    /// One instance whose channels are there and empty; none if there are no channels.
    pub empty: Option<Trial>,
    /// One instance whose hyperparameters are numbers where they look like some; none where the job as it
    /// is has worked, or there is none that looks like a number.
    pub numbers: Option<Trial>,
}

/// What the probe has seen in an instance, or why it has seen nothing.
pub type Trial = Result<ProbeReport, String>;

/// The image as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ImageFacts {
    /// As `linux/amd64`.
    pub platform: String,
    /// Bytes of the files of each layer, lowest first; 0 where only all of them are known.
    pub layers: Vec<u64>,
    /// Bytes of all files.
    pub bytes: u64,
    /// ENTRYPOINT.
    pub entrypoint: Vec<String>,
    /// USER, empty for root.
    pub user: String,
    /// What the first word of the command leads to.
    pub program: ProgramFacts,
}

/// What the first word of a command leads to in an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProgramFacts {
    /// A program, through these interpreters.
    Found {
        /// The program and what executes it.
        paths: Vec<PathBuf>,
    },
    /// Nothing.
    Missing {
        /// Why, and what to do.
        explanation: String,
    },
    /// A file that comes with the job's data, or can't be read here.
    Unknown {
        /// Where.
        path: PathBuf,
    },
    /// A file that may not be executed.
    NotExecutable {
        /// Where.
        path: PathBuf,
    },
    /// A program whose interpreter is not in the image.
    NoInterpreter {
        /// The program.
        path: PathBuf,
        /// Its interpreter as it is written.
        interpreter: String,
    },
    /// A program for another processor.
    OtherMachine {
        /// The program.
        path: PathBuf,
        /// What it is built for.
        machine: String,
    },
}

/// The job that an image was run on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JobFacts {
    /// Whether the user has given channels or a job file; otherwise all of it is made up.
    pub given: bool,
    /// How many hyperparameters it has.
    pub hyperparameters: usize,
    /// Whether a channel is dealt out.
    pub deals_out: bool,
    /// Longest time of one run, in seconds.
    pub time_limit: u64,
}

/// The job as it is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlainRun {
    /// How many instances it had.
    pub instances: usize,
    /// Whether all of them have ended with 0.
    pub completed: bool,
    /// Whether it was stopped because its time was up.
    pub timed_out: bool,
    /// The exit code of the first instance that failed by itself.
    pub exit_code: Option<i32>,
    /// Why it failed.
    pub reason: Option<String>,
    /// How long the longest `train` ran, in seconds.
    pub seconds: f64,
    /// Whether anything was written to `/opt/ml/model`.
    pub has_model: bool,
    /// What the engine warned of.
    pub warnings: Vec<String>,
}

/// What the probe is to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// The command to start.
    pub command: Vec<String>,
    /// How to interfere.
    pub interference: Interference,
    /// Whether to look for files that were changed outside of `/opt/ml` and `/tmp`.
    pub look_elsewhere: bool,
    /// How long to wait for the program to be at work, in seconds.
    pub patience: f64,
    /// How long it may take to end, in seconds.
    pub grace: f64,
}

/// How a probe interferes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Interference {
    /// Not at all.
    None,
    /// The program is looked for and not started.
    LookOnly,
    /// By SIGTERM to the first process.
    Stop,
    /// By SIGKILL to the process behind the first one.
    Kill,
}

/// What a probe has seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProbeReport {
    /// The user that the program ran as.
    pub uid: u32,
    /// What the first word of the command leads to, where it was only looked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<ProgramFacts>,
    /// Folders of the contract that this user can't write to, and why.
    pub not_writable: Vec<(String, String)>,
    /// How the first process ended by itself; none if the probe made an end to it.
    pub end: Option<End>,
    /// The failure file, unless it is absent or blank.
    pub failure: Option<String>,
    /// Files that were changed outside of `/opt/ml` and `/tmp`, the first of them.
    pub elsewhere: Vec<PathBuf>,
    /// How many they were.
    pub elsewhere_count: usize,
    /// What came of SIGTERM.
    pub stop: Option<StopFacts>,
    /// What came of SIGKILL.
    pub kill: Option<KillFacts>,
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// The exit code as a shell would show it.
    pub code: i32,
    /// How long it ran, in seconds.
    pub seconds: f64,
}

/// A process of an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its number.
    pub pid: i32,
    /// The one that started it, or that took it over.
    pub parent: i32,
    /// Its command line, shortened.
    pub command: String,
    /// Whether it handles SIGTERM.
    pub handles_sigterm: bool,
}

/// What came of SIGTERM to the first process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StopFacts {
    /// The first process when it was sent.
    pub first: Process,
    /// Those that it had started, directly or not.
    pub others: Vec<Process>,
    /// Seconds until the first one ended; none if it did not within the grace.
    pub ended_after: Option<f64>,
    /// Which of the others ran when the first had ended, or when the grace was over.
    pub survivors: Vec<Process>,
}

/// What came of SIGKILL to a process behind the first one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KillFacts {
    /// The first process has started no other.
    Alone {
        /// It.
        first: Process,
    },
    /// It has started several, so nobody can tell which one trains.
    Several {
        /// It.
        first: Process,
    },
    /// One was killed.
    Killed {
        /// The first process.
        first: Process,
        /// The killed one.
        victim: Process,
        /// How the first ended; none if it went on.
        end: Option<End>,
    },
}
