//! What a job that has ended leaves to be told.

use std::collections::BTreeMap;
use std::path::PathBuf;

use trainyard_engine::engine::Notice;
use trainyard_engine::job::{Job, SecondaryStatus, Status};
use trainyard_engine::run::{LogLine, Outcome, Report, Tail};

use crate::facts::{PlainRun, Trial};
use crate::probe::Line;

/// A job that has ended.
pub(super) struct Seen {
    job: Job,
    /// Longest time between the start and the end of a `train`, in seconds.
    seconds: f64,
    logs: BTreeMap<String, PathBuf>,
}

impl Seen {
    pub(super) fn new(job: Job, notices: &[Notice]) -> Self {
        let (mut logs, mut started, mut longest) = (BTreeMap::new(), BTreeMap::new(), 0);
        for notice in notices {
            match notice {
                Notice::Log { host, log, .. } => {
                    logs.insert(host.clone(), log.clone());
                }
                Notice::Report { host, report } => match report.report {
                    Report::Training => {
                        started.insert(host.clone(), report.at.0);
                    }
                    Report::Exited(_) => {
                        let since = started.get(host).copied().unwrap_or(report.at.0);
                        longest = longest.max(report.at.0.saturating_sub(since));
                    }
                    _ => {}
                },
                Notice::Job(_) => {}
            }
        }
        Self { job, seconds: longest as f64 / 1000.0, logs }
    }

    fn timed_out(&self) -> bool {
        self.job.secondary_status() == SecondaryStatus::MaxRuntimeExceeded
    }

    pub(super) fn plain(self, instances: usize) -> PlainRun {
        let exit_code = self.job.instances.iter().find_map(|instance| match &instance.outcome {
            Some(Outcome::Failed { exit, .. }) => Some(exit.code()),
            _ => None,
        });
        PlainRun {
            instances,
            completed: self.job.status == Status::Completed,
            timed_out: self.timed_out(),
            exit_code,
            reason: self.job.failure_reason,
            seconds: self.seconds,
            has_model: self.job.instances.iter().any(|instance| instance.parts.model.is_some()),
            warnings: self.job.warnings,
        }
    }

    /// What the probe has printed.
    pub(super) fn trial(self) -> Trial {
        // A log that can't be read has no report.
        let lines = |log: &PathBuf| Tail::new(log.clone()).read::<LogLine>().unwrap_or_default();
        let lines = self.logs.values().flat_map(lines);
        let mut reports = lines.filter_map(|line| serde_json::from_str::<Line>(&line.line).ok());
        if let Some(line) = reports.next_back() {
            return Ok(line.report);
        }
        if self.timed_out() {
            return Err("train was not done in time: --timeout gives it more".to_owned());
        }
        let reason = self.job.failure_reason.as_deref().unwrap_or("no reason is known");
        Err(["train could not be watched: ", reason].concat())
    }
}
