//! How a job ended, in the words of `run`, `wait` and `logs`.

use std::path::Path;

use serde_json::Value;
use trainyard_engine::job::Job;

/// What is told of a job's end.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct End {
    name: String,
    status: String,
    seconds: f64,
    reason: Option<String>,
    /// What there is to find, and where.
    results: Vec<(&'static str, String)>,
}

impl End {
    /// Of a job of this process; `folder` is where its artifacts are.
    pub(super) fn of_job(job: &Job, folder: Option<&Path>) -> Self {
        let published = job.published.as_ref();
        let model = published.and_then(|published| published.model.as_ref());
        let output = published.and_then(|published| published.output.as_ref());
        let results = [("model", model), ("output", output), ("merged", job.merged.as_ref())];
        let results = results.into_iter().filter_map(|(name, uri)| Some((name, place(uri?, folder))));
        Self {
            name: job.name.clone(),
            status: job.status.to_string(),
            seconds: job.ended.map_or(0, |ended| ended.0.saturating_sub(job.created.0)) as f64 / 1000.0,
            reason: job.failure_reason.clone(),
            results: results.collect(),
        }
    }

    /// Of an answer of DescribeTrainingJob.
    pub(crate) fn of_described(described: &Value) -> Self {
        let text = |member: &str| described[member].as_str().map(ToOwned::to_owned);
        let at = |member: &str| described[member].as_f64();
        let model = described["ModelArtifacts"]["S3ModelArtifacts"].as_str().filter(|uri| !uri.is_empty());
        let times = at("TrainingEndTime").or_else(|| at("LastModifiedTime")).zip(at("CreationTime"));
        Self {
            name: text("TrainingJobName").unwrap_or_default(),
            status: text("TrainingJobStatus").unwrap_or_default(),
            seconds: times.map_or(0.0, |(end, start)| (end - start).max(0.0)),
            reason: text("FailureReason"),
            results: model.map(|uri| ("model", uri.to_owned())).into_iter().collect(),
        }
    }

    /// The last lines for a person: how it ended, why, and where the results are.
    pub(crate) fn text(&self) -> String {
        let mut lines = vec![format!("{}: {} after {:.1} s", self.name, self.status, self.seconds)];
        lines.extend(self.reason.as_ref().map(|reason| ["reason: ", reason].concat()));
        lines.extend(self.results.iter().map(|(name, place)| format!("{name}: {place}")));
        lines.join("\n")
    }
}

/// A URI and, unless it says so itself, the file that it stands for.
fn place(uri: &str, folder: Option<&Path>) -> String {
    match (uri.strip_prefix("file://"), folder) {
        (Some(path), _) => path.to_owned(),
        (None, None) => uri.to_owned(),
        (None, Some(folder)) => {
            format!("{uri} ({})", folder.join(uri.rsplit('/').next().unwrap_or(uri)).display())
        }
    }
}

/// Says what a job is doing whenever that changes.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Status, secondary status and message that were said last.
    said: Option<[String; 3]>,
}

impl Changes {
    /// The line to show, if there is something new.
    pub(crate) fn line(&mut self, job: &str, status: &str, secondary: &str, message: &str) -> Option<String> {
        let now = [status, secondary, message].map(ToOwned::to_owned);
        if self.said.as_ref() == Some(&now) {
            return None;
        }
        self.said = Some(now);
        Some(format!("{job}: {secondary} - {message}"))
    }

    /// The same for an answer of DescribeTrainingJob.
    pub(crate) fn of_described(&mut self, described: &Value) -> Option<String> {
        let last = described["SecondaryStatusTransitions"].as_array()?.last()?;
        let text = |value: &'_ Value| value.as_str().unwrap_or_default().to_owned();
        self.line(
            &text(&described["TrainingJobName"]),
            &text(&described["TrainingJobStatus"]),
            &text(&last["Status"]),
            &text(&last["StatusMessage"]),
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_end_is_told_with_its_time_its_reason_and_its_results() {
        let described = json!({
            "TrainingJobName": "fit", "TrainingJobStatus": "Failed", "CreationTime": 10.25, "TrainingEndTime": 12.75,
            "FailureReason": "AlgorithmError: no", "ModelArtifacts": {"S3ModelArtifacts": "s3://b/m"},
        });
        let text = "fit: Failed after 2.5 s\nreason: AlgorithmError: no\nmodel: s3://b/m";
        assert_eq!(End::of_described(&described).text(), text);
        assert_eq!(End::of_described(&json!({"TrainingJobName": "fit"})).text(), "fit:  after 0.0 s");
    }

    #[test]
    fn a_change_is_said_once() {
        let mut changes = Changes::default();
        let training = json!({
            "TrainingJobName": "fit", "TrainingJobStatus": "InProgress",
            "SecondaryStatusTransitions": [{"Status": "Starting"}, {"Status": "Training", "StatusMessage": "runs"}],
        });
        assert_eq!(changes.of_described(&training).unwrap(), "fit: Training - runs");
        assert_eq!(changes.of_described(&training), None);
        assert_eq!(changes.line("fit", "Stopping", "Training", "runs").unwrap(), "fit: Training - runs");
    }
}
