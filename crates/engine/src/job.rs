//! The job as a pure state machine: events go in, effects come out.
//!
//! Nothing here waits, reads a clock or touches a file. Whatever happens to a job reaches it as an
//! [`Event`] with a time, in one order that is stored before anything is shown; the same events
//! always lead to the same [`Job`], which is how a job survives a restart. The statuses, secondary
//! statuses and messages are those of the SageMaker API (`DescribeTrainingJob`).

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::artifact::Clash;
use crate::run::{Outcome, Part, Parts, Report, Stamped, Timestamp};

mod apply;
mod reason;
mod status;

pub use crate::signal::signal_name;
pub use reason::REASON_LIMIT;
pub use status::{SecondaryStatus, Status, Transition};

/// The host name of the instance that merges.
pub const MERGE_HOST: &str = "merge";

/// One training job: what has happened to it so far.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// The name, in its original case.
    pub name: String,
    /// The running or last attempt, from 1.
    pub attempt: u32,
    /// As in the API.
    pub status: Status,
    /// Every secondary status so far; the last one is the current one.
    pub transitions: Vec<Transition>,
    /// When it was submitted.
    pub created: Timestamp,
    /// When the first instance began to download.
    pub started: Option<Timestamp>,
    /// When it reached its last status.
    pub ended: Option<Timestamp>,
    /// When something last happened.
    pub modified: Timestamp,
    /// One per host, in host order; the merging instance is not among them.
    pub instances: Vec<Instance>,
    /// The last value of each metric and its time.
    pub metrics: IndexMap<String, (f64, Timestamp)>,
    /// What the user should know.
    pub warnings: Vec<String>,
    /// Why the job failed.
    pub failure_reason: Option<String>,
    /// What was published.
    pub published: Option<Published>,
    /// The merged file's URI.
    pub merged: Option<String>,
    /// Whether there is a merge step.
    merges: bool,
    /// Whether it is known what each host gets and does.
    planned: bool,
    /// Whether the backend has said that the instances are placed.
    launched: bool,
    /// Why the job is ending before all instances have ended with 0.
    ending: Option<Ending>,
}

/// One host of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Instance {
    /// `algo-1` … `algo-N`.
    pub host: String,
    /// The attempt in whose run directory its reports and parts are.
    pub attempt: u32,
    /// What it is doing.
    pub phase: Phase,
    /// How it ended, once it has.
    pub outcome: Option<Outcome>,
    /// What it handed back.
    pub parts: Parts,
}

impl Instance {
    /// Whether nothing more will come from this instance.
    pub fn has_ended(&self) -> bool {
        self.outcome.is_some()
    }

    /// Whether `train` ended with 0 and its outputs are packed.
    pub fn has_completed(&self) -> bool {
        self.outcome == Some(Outcome::Completed)
    }
}

/// What an instance is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Placed or about to be.
    Waiting,
    /// Its inputs are being fetched.
    Staging,
    /// `train` runs.
    Training,
    /// Its outputs are being packed.
    Collecting,
    /// Nothing of it runs any more.
    Ended,
}

/// Why a job ends before its time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Ending {
    /// Somebody asked for it.
    StopRequested,
    /// `MaxRuntimeInSeconds` has passed.
    MaxRuntime,
    /// This went wrong first; the text is the failure reason.
    Failure(String),
}

/// What a job has published.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Published {
    /// URI of `model.tar.gz`, or of the folder of plain files with a slash at its end, if any instance wrote a model.
    pub model: Option<String>,
    /// URI of `output.tar.gz`, if any instance wrote other output.
    pub output: Option<String>,
    /// Paths that several hosts wrote with different content, as far as they are listed.
    pub clashes: Vec<Clash>,
    /// Further paths that several hosts wrote, beyond the list.
    #[serde(default)]
    pub clashes_not_listed: u64,
}

/// What is known of a job before it is planned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outline {
    /// The name, in its original case.
    pub job: String,
    /// In number order.
    pub hosts: Vec<String>,
    /// Whether there is a merge step.
    pub merges: bool,
}

/// What happens to a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// There is no room for it yet.
    Queued {
        /// How many jobs come before it.
        ahead: u32,
    },
    /// There is room; its image is brought here and it is planned.
    Admitted,
    /// It is known what each host gets and does.
    Planned {
        /// What the person who submitted the job should know.
        warnings: Vec<String>,
    },
    /// It can't be planned.
    NotPlanned {
        /// What was wrong.
        explanation: String,
    },
    /// The backend has placed the instances.
    Launched,
    /// The backend could not place them.
    LaunchFailed {
        /// What was wrong.
        explanation: String,
    },
    /// A supervisor has reported.
    Reported {
        /// Who.
        host: String,
        /// What, and when by its own clock.
        report: Stamped,
    },
    /// A supervisor is gone without a last report.
    Lost {
        /// Who.
        host: String,
    },
    /// Somebody asked for the job to stop.
    StopRequested,
    /// `MaxRuntimeInSeconds` has passed since the start.
    MaxRuntimeReached,
    /// The artifacts lie where the request says.
    Published(Published),
    /// They do not.
    PublishFailed {
        /// What was wrong and where.
        explanation: String,
    },
    /// The merged file lies beside the artifact.
    Merged {
        /// Where.
        uri: String,
    },
    /// It does not.
    MergeFailed {
        /// What was wrong and where.
        explanation: String,
    },
    /// The job is taken up again: a new attempt for the instances that had not ended well.
    Resumed,
}

/// What the engine does next for a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Place these hosts' instances in a new attempt.
    Launch {
        /// In host order.
        hosts: Vec<String>,
    },
    /// Send [`Event::MaxRuntimeReached`] when the job's time is up.
    StartRuntimeTimer,
    /// Ask these instances to stop, with the job's grace.
    Stop {
        /// Those that have not ended.
        hosts: Vec<String>,
    },
    /// Join the parts and put the artifacts in their place.
    Publish,
    /// Start the instance that merges, and then send [`Event::Merged`] or [`Event::MergeFailed`].
    Merge,
    /// The job has ended: free what it held.
    Release,
    /// The job has ended: whoever wants to know is told.
    Notify,
}

impl Job {
    /// A new job; nothing is to be done before it is [planned](Event::Planned).
    pub fn submit(outline: &Outline, at: Timestamp) -> Self {
        let mut job = Self {
            name: outline.job.clone(),
            attempt: 1,
            status: Status::InProgress,
            transitions: Vec::new(),
            created: at,
            started: None,
            ended: None,
            modified: at,
            instances: outline.hosts.iter().map(|host| new_instance(host, 1)).collect(),
            metrics: IndexMap::new(),
            warnings: Vec::new(),
            failure_reason: None,
            published: None,
            merged: None,
            merges: outline.merges,
            planned: false,
            launched: false,
            ending: None,
        };
        job.enter(SecondaryStatus::Starting, "Starting the training job", at);
        job
    }

    /// The job after all that has happened to it.
    pub fn replay(outline: &Outline, created: Timestamp, events: &[(Timestamp, Event)]) -> Self {
        let mut job = Self::submit(outline, created);
        for (at, event) in events {
            job.apply(*at, event.clone());
        }
        job
    }

    /// What has to be done to go on after whoever did it is gone: what was under way is done again.
    pub fn unfinished(&self) -> Vec<Effect> {
        let running = self.running_hosts();
        if self.has_ended() || !self.planned {
            return Vec::new();
        }
        if running.is_empty() {
            let merge = self.published.is_some();
            return vec![if merge { Effect::Merge } else { Effect::Publish }];
        }
        if !self.launched {
            return vec![Effect::Launch { hosts: running }];
        }
        let mut effects = Vec::new();
        if self.started.is_some() {
            effects.push(Effect::StartRuntimeTimer);
        }
        if self.ending.is_some() {
            effects.push(Effect::Stop { hosts: running });
        }
        effects
    }

    /// Whether it is known what each host gets and does.
    pub fn is_planned(&self) -> bool {
        self.planned
    }

    /// Whether its instances were placed.
    pub fn is_launched(&self) -> bool {
        self.launched
    }

    /// Whether it is to end before all its instances have ended with 0.
    pub fn is_ending(&self) -> bool {
        self.ending.is_some()
    }

    /// The current secondary status.
    pub fn secondary_status(&self) -> SecondaryStatus {
        self.transitions.last().map_or(SecondaryStatus::Starting, |transition| transition.status)
    }

    /// Whether nothing more will happen to this attempt.
    pub fn has_ended(&self) -> bool {
        self.status.is_terminal()
    }

    /// Whether a report changes more than a count of bytes: progress is shown, but not stored.
    pub fn is_news(&self, host: &str, report: &Report) -> bool {
        let phase =
            self.instances.iter().find(|instance| instance.host == host).map(|instance| instance.phase);
        match report {
            Report::Staging { .. } => phase == Some(Phase::Waiting),
            Report::Collecting { .. } => phase != Some(Phase::Collecting),
            Report::Training
            | Report::Metric { .. }
            | Report::Warning { .. }
            | Report::Exited(_)
            | Report::Ended { .. } => true,
        }
    }

    /// Hosts whose instances have not ended.
    pub fn running_hosts(&self) -> Vec<String> {
        let running = self.instances.iter().filter(|instance| !instance.has_ended());
        running.map(|instance| instance.host.clone()).collect()
    }

    /// Hosts whose outputs are being packed.
    pub fn packing_hosts(&self) -> Vec<String> {
        let packing = self.instances.iter().filter(|instance| instance.phase == Phase::Collecting);
        packing.map(|instance| instance.host.clone()).collect()
    }

    fn instance_mut(&mut self, host: &str) -> Option<&mut Instance> {
        self.instances.iter_mut().find(|instance| instance.host == host)
    }
}

fn new_instance(host: &str, attempt: u32) -> Instance {
    Instance {
        host: host.to_owned(),
        attempt,
        phase: Phase::Waiting,
        outcome: None,
        parts: Parts { model: None::<Part>, output: None },
    }
}

#[cfg(test)]
mod tests;
