//! What each event does to a job.

use super::reason::{failure_reason, job_reason};
use super::{Effect, Ending, Event, Job, Phase, Published, SecondaryStatus, Status, Transition};
use crate::run::{Outcome, Parts, Report, Stamped, Timestamp};

impl Job {
    /// Takes in one event and says what to do next.
    ///
    /// An event that does not fit the state, such as a report from an instance that has ended,
    /// changes nothing: events come from several places and may cross each other.
    pub fn apply(&mut self, at: Timestamp, event: Event) -> Vec<Effect> {
        if let Event::Resumed = event {
            return self.resume(at);
        }
        if self.has_ended() {
            return Vec::new();
        }
        self.modified = self.modified.max(at);
        match event {
            Event::Queued { ahead } => self.queued(ahead, at),
            Event::Admitted => {
                self.enter(SecondaryStatus::Starting, "Preparing the instances for training", at);
                Vec::new()
            }
            Event::Planned { warnings } => self.planned(warnings),
            Event::NotPlanned { explanation } => self.fail(job_reason("ClientError", &explanation), at),
            Event::Launched => self.launched(at),
            Event::LaunchFailed { explanation } => self.launch_failed(&explanation, at),
            Event::Reported { host, report } => self.reported(&host, report, at),
            Event::Lost { host } => self.lost(&host, at),
            Event::StopRequested => self.end_early(Ending::StopRequested, at),
            Event::MaxRuntimeReached => self.end_early(Ending::MaxRuntime, at),
            Event::Published(published) => self.artifacts_published(published, at),
            Event::PublishFailed { explanation } => {
                let reason = job_reason("ClientError", &format!("Artifact upload failed:{explanation}"));
                self.fail(reason, at)
            }
            Event::Merged { uri } => self.merged(uri, at),
            Event::MergeFailed { explanation } => self.merge_failed(&explanation, at),
            Event::Resumed => Vec::new(),
        }
    }

    fn queued(&mut self, ahead: u32, at: Timestamp) -> Vec<Effect> {
        let message = match ahead {
            0 => "Training job waiting for capacity, next in the queue".to_owned(),
            1 => "Training job waiting for capacity, 1 job ahead of it".to_owned(),
            ahead => format!("Training job waiting for capacity, {ahead} jobs ahead of it"),
        };
        self.enter(SecondaryStatus::Pending, &message, at);
        Vec::new()
    }

    fn planned(&mut self, warnings: Vec<String>) -> Vec<Effect> {
        self.planned = true;
        self.warnings.extend(warnings);
        vec![Effect::Launch { hosts: self.running_hosts() }]
    }

    fn launched(&mut self, at: Timestamp) -> Vec<Effect> {
        self.launched = true;
        match self.ending {
            // The request came while the backend was still placing the instances.
            Some(_) => vec![Effect::Stop { hosts: self.running_hosts() }],
            None => {
                // The first report may have been faster than the backend's answer.
                if self.secondary_status() == SecondaryStatus::Starting {
                    self.enter(SecondaryStatus::Starting, "Preparing the instances for training", at);
                }
                Vec::new()
            }
        }
    }

    fn launch_failed(&mut self, explanation: &str, at: Timestamp) -> Vec<Effect> {
        match self.ending {
            Some(Ending::StopRequested | Ending::MaxRuntime) => self.finish(at),
            Some(Ending::Failure(_)) | None => self.fail(job_reason("InternalServerError", explanation), at),
        }
    }

    fn reported(&mut self, host: &str, stamped: Stamped, at: Timestamp) -> Vec<Effect> {
        let Some(instance) = self.instance_mut(host).filter(|instance| !instance.has_ended()) else {
            return Vec::new();
        };
        match stamped.report {
            Report::Staging { .. } => {
                instance.phase = Phase::Staging;
                self.downloading(at)
            }
            Report::Training => {
                instance.phase = Phase::Training;
                self.training(at)
            }
            Report::Exited(_) | Report::Collecting { .. } => {
                instance.phase = Phase::Collecting;
                Vec::new()
            }
            Report::Metric { name, value } => {
                self.metrics.insert(name, (value, stamped.at));
                Vec::new()
            }
            Report::Warning { text } => {
                self.warnings.push(format!("{host}: {text}"));
                Vec::new()
            }
            Report::Ended { outcome, parts } => self.instance_ended(host, outcome, parts, at),
        }
    }

    fn downloading(&mut self, at: Timestamp) -> Vec<Effect> {
        if self.started.is_some() || self.ending.is_some() {
            return Vec::new();
        }
        self.started = Some(at);
        self.enter(SecondaryStatus::Downloading, "Downloading input data", at);
        vec![Effect::StartRuntimeTimer]
    }

    fn training(&mut self, at: Timestamp) -> Vec<Effect> {
        if self.ending.is_none() && self.secondary_status() != SecondaryStatus::Training {
            let message = "Training image download completed. Training in progress.";
            self.enter(SecondaryStatus::Training, message, at);
        }
        Vec::new()
    }

    fn lost(&mut self, host: &str, at: Timestamp) -> Vec<Effect> {
        let explanation = "the instance was lost: its supervisor is gone and has left no last report";
        let outcome = Outcome::Broken { explanation: explanation.to_owned() };
        let running = self.instance_mut(host).is_some_and(|instance| !instance.has_ended());
        if running { self.instance_ended(host, outcome, Parts::default(), at) } else { Vec::new() }
    }

    fn instance_ended(&mut self, host: &str, outcome: Outcome, parts: Parts, at: Timestamp) -> Vec<Effect> {
        let failure = failure_reason(host, &outcome);
        if let Some(instance) = self.instance_mut(host) {
            instance.phase = Phase::Ended;
            instance.outcome = Some(outcome);
            instance.parts = parts;
        }
        let mut effects = Vec::new();
        if let (Some(reason), None) = (failure, &self.ending) {
            self.ending = Some(Ending::Failure(reason));
            effects.push(Effect::Stop { hosts: self.running_hosts() });
        }
        if self.running_hosts().is_empty() {
            effects.retain(|effect| !matches!(effect, Effect::Stop { .. }));
            effects.extend(self.all_ended(at));
        }
        effects
    }

    /// The last instance has ended: whatever was written is archived, also after failure and stop.
    fn all_ended(&mut self, at: Timestamp) -> Vec<Effect> {
        let wrote = |parts: &Parts| parts.model.is_some() || parts.output.is_some();
        let nothing = !self.instances.iter().any(|instance| wrote(&instance.parts));
        if self.ending.is_some() && nothing {
            return self.finish(at);
        }
        self.enter(SecondaryStatus::Uploading, "Uploading generated training model", at);
        vec![Effect::Publish]
    }

    fn end_early(&mut self, ending: Ending, at: Timestamp) -> Vec<Effect> {
        if self.ending.is_some() {
            return Vec::new();
        }
        self.ending = Some(ending);
        self.status = Status::Stopping;
        self.enter(SecondaryStatus::Stopping, "Stopping the training job", at);
        if !self.planned {
            return self.finish(at);
        }
        if !self.launched {
            return Vec::new();
        }
        let mut hosts = self.running_hosts();
        if hosts.is_empty() && self.published.is_some() {
            hosts.push(super::MERGE_HOST.to_owned());
        }
        if hosts.is_empty() { Vec::new() } else { vec![Effect::Stop { hosts }] }
    }

    fn artifacts_published(&mut self, published: Published, at: Timestamp) -> Vec<Effect> {
        for clash in &published.clashes {
            let kept = match &clash.kept_below {
                None => "the archive holds every version".to_owned(),
                Some(folder) => format!("the last one's has this name, the others are below {folder}"),
            };
            let hosts = clash.hosts.join(", ");
            self.warnings
                .push(format!("{} was written by {hosts} with different content; {kept}", clash.path));
        }
        if published.clashes_not_listed > 0 {
            let more = published.clashes_not_listed;
            self.warnings
                .push(format!("{more} more paths were written by several hosts; every version is kept"));
        }
        let merges = self.merges && self.ending.is_none() && published.model.is_some();
        self.published = Some(published);
        if !merges {
            return self.finish(at);
        }
        self.enter(SecondaryStatus::Uploading, "Merging the parts of all instances", at);
        vec![Effect::Merge]
    }

    fn merged(&mut self, uri: String, at: Timestamp) -> Vec<Effect> {
        self.merged = Some(uri);
        self.finish(at)
    }

    fn merge_failed(&mut self, explanation: &str, at: Timestamp) -> Vec<Effect> {
        match self.ending {
            Some(_) => self.finish(at),
            None => self.fail(job_reason("ClientError", &format!("Merge failed: {explanation}")), at),
        }
    }

    fn resume(&mut self, at: Timestamp) -> Vec<Effect> {
        if self.status == Status::Completed {
            return Vec::new();
        }
        self.attempt += 1;
        let attempt = self.attempt;
        let again: Vec<_> = self.instances.iter_mut().filter(|instance| !instance.has_completed()).collect();
        let mut hosts = Vec::new();
        for instance in again {
            hosts.push(instance.host.clone());
            *instance = super::new_instance(&instance.host, attempt);
        }
        self.status = Status::InProgress;
        (self.ending, self.failure_reason, self.ended, self.started) = (None, None, None, None);
        (self.published, self.merged) = (None, None);
        self.modified = self.modified.max(at);
        self.launched = hosts.is_empty();
        self.enter(SecondaryStatus::Starting, "Starting the training job", at);
        if hosts.is_empty() { self.all_ended(at) } else { vec![Effect::Launch { hosts }] }
    }

    fn fail(&mut self, reason: String, at: Timestamp) -> Vec<Effect> {
        self.ending = Some(Ending::Failure(reason));
        self.finish(at)
    }

    /// Enters the last status, which is decided by why the job ended.
    fn finish(&mut self, at: Timestamp) -> Vec<Effect> {
        let (status, secondary, message) = match self.ending.take() {
            None => (Status::Completed, SecondaryStatus::Completed, "Training job completed"),
            Some(Ending::StopRequested) => {
                (Status::Stopped, SecondaryStatus::Stopped, "Training job stopped")
            }
            Some(Ending::MaxRuntime) => (
                Status::Stopped,
                SecondaryStatus::MaxRuntimeExceeded,
                "Training job runtime exceeded MaxRuntimeInSeconds provided",
            ),
            Some(Ending::Failure(reason)) => {
                self.failure_reason = Some(reason);
                (Status::Failed, SecondaryStatus::Failed, "Training job failed")
            }
        };
        self.status = status;
        self.enter(secondary, message, at);
        if let Some(last) = self.transitions.last_mut() {
            last.end = Some(last.start);
            self.ended = Some(last.start);
        }
        vec![Effect::Release, Effect::Notify]
    }

    /// Begins an episode of a secondary status, or changes the message of the current one.
    pub(super) fn enter(&mut self, status: SecondaryStatus, message: &str, at: Timestamp) {
        let message = message.to_owned();
        match self.transitions.last_mut() {
            Some(last) if last.status == status && last.end.is_none() => last.message = message,
            last => {
                let start = last.as_ref().map_or(at, |last| at.max(last.start));
                if let Some(last) = last {
                    last.end.get_or_insert(start);
                }
                self.transitions.push(Transition {
                    status,
                    start,
                    end: None,
                    message,
                    attempt: self.attempt,
                });
            }
        }
    }
}
