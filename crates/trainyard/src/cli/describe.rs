//! `trainyard describe`: all that is known of a job.

use serde_json::{Map, Value};

use super::remote::{Remote, wait_for};
use crate::exit::Exit;
use crate::show::{moment, now, out, span};

/// Show all that is known of training jobs
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Describe {
    /// Names or ARNs
    #[arg(required = true, value_name = "JOB")]
    jobs: Vec<String>,
    /// Print the answer of DescribeTrainingJob as one JSON object a job
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    remote: Remote,
}

const EXAMPLES: &str = "Examples:
  trainyard describe fit-1
  trainyard describe fit-1 --json | jq .FinalMetricDataList";

impl Describe {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let client = self.remote.client()?;
        wait_for(async {
            for (number, job) in self.jobs.iter().enumerate() {
                let described = client.describe(job).await?;
                let blank = if number > 0 && !self.json { "\n" } else { "" };
                let text = if self.json { described.to_string() } else { text(&described) };
                out(&[blank, &text].concat())?;
            }
            Ok(Exit::Completed)
        })
    }
}

/// What is shown under a title of its own, or not at all because something else says it.
const SHOWN_APART: [&str; 14] = [
    "TrainingJobName",
    "TrainingJobArn",
    "TrainingJobStatus",
    "SecondaryStatus",
    "FailureReason",
    "ModelArtifacts",
    "CreationTime",
    "TrainingStartTime",
    "TrainingEndTime",
    "LastModifiedTime",
    "TrainingTimeInSeconds",
    "BillableTimeInSeconds",
    "SecondaryStatusTransitions",
    "FinalMetricDataList",
];

fn text(described: &Value) -> String {
    let mut lines = head(described);
    let members = described.as_object().into_iter().flatten();
    for (name, value) in members.filter(|(name, _)| !SHOWN_APART.contains(&name.as_str())) {
        add(&mut lines, 0, name, value);
    }
    let metrics = described["FinalMetricDataList"].as_array().into_iter().flatten();
    for metric in metrics {
        let name = metric["MetricName"].as_str().unwrap_or_default();
        lines.push(line(&["metric ", name].concat(), &metric["Value"].to_string()));
    }
    let transitions = described["SecondaryStatusTransitions"].as_array().into_iter().flatten();
    for transition in transitions {
        let status = transition["Status"].as_str().unwrap_or_default();
        let message = transition["StatusMessage"].as_str().unwrap_or_default();
        lines.push(format!("{}  {status:<12}  {message}", moment(&transition["StartTime"])));
    }
    lines.join("\n")
}

/// What is asked first: what it is, how it stands, why, since when, and where the result is.
fn head(described: &Value) -> Vec<String> {
    let text = |member: &str| described[member].as_str().unwrap_or("-");
    let mut lines = vec![
        line("name", text("TrainingJobName")),
        line("ARN", text("TrainingJobArn")),
        line("status", &format!("{} ({})", text("TrainingJobStatus"), text("SecondaryStatus"))),
    ];
    lines.extend(described["FailureReason"].as_str().map(|reason| line("reason", reason)));
    lines.push(line("created", &moment(&described["CreationTime"])));
    let start = described["TrainingStartTime"].as_f64().or_else(|| described["CreationTime"].as_f64());
    if let Some(start) = start {
        let end = described["TrainingEndTime"].as_f64();
        let word = if end.is_some() { "took" } else { "for" };
        lines.push(line(word, &span(end.unwrap_or_else(now) - start)));
    }
    let model = described["ModelArtifacts"]["S3ModelArtifacts"].as_str();
    lines.extend(model.filter(|model| !model.is_empty()).map(|model| line("model", model)));
    lines
}

fn line(name: &str, value: &str) -> String {
    // An empty text is no value that anybody has set.
    let value = if value.is_empty() { "-" } else { value };
    format!("{name:<12}{}{value}", if name.len() < 12 { "" } else { " " })
}

/// Members of members are indented; what is not set is left out.
fn add(lines: &mut Vec<String>, depth: usize, name: &str, value: &Value) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Null => {}
        Value::Object(members) if members.is_empty() => {}
        Value::Object(members) => {
            lines.push(format!("{indent}{name}:"));
            add_members(lines, depth + 1, members);
        }
        Value::Array(values) => {
            for (index, value) in values.iter().enumerate() {
                add(lines, depth, &format!("{name}[{index}]"), value);
            }
        }
        Value::String(text) if text.is_empty() => {}
        Value::String(text) => lines.push(format!("{indent}{name}: {text}")),
        other => lines.push(format!("{indent}{name}: {other}")),
    }
}

fn add_members(lines: &mut Vec<String>, depth: usize, members: &Map<String, Value>) {
    for (name, value) in members {
        add(lines, depth, name, value);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_person_sees_how_it_stands_and_why_before_all_the_rest() {
        let described = json!({
            "TrainingJobName": "fit", "TrainingJobArn": "arn:…/fit", "TrainingJobStatus": "Failed",
            "SecondaryStatus": "Failed", "FailureReason": "AlgorithmError: no", "CreationTime": 1_440_938_160.0,
            "TrainingStartTime": 1_440_938_161.0, "TrainingEndTime": 1_440_938_181.0,
            "ModelArtifacts": {"S3ModelArtifacts": "s3://b/m"}, "HyperParameters": {"k": "10"},
            "OutputDataConfig": {"KmsKeyId": "", "S3OutputPath": "s3://b/out"},
            "InputDataConfig": [{"ChannelName": "a"}],
            "FinalMetricDataList": [{"MetricName": "loss", "Value": 0.5}],
            "SecondaryStatusTransitions": [
                {"Status": "Failed", "StartTime": 1_440_938_181.0, "StatusMessage": "Training job failed"},
            ],
        });
        let expected = "name        fit\nARN         arn:…/fit\nstatus      Failed (Failed)\n\
                        reason      AlgorithmError: no\ncreated     2015-08-30 12:36:00Z\ntook        20 s\n\
                        model       s3://b/m\nHyperParameters:\n  k: 10\nOutputDataConfig:\n  S3OutputPath: s3://b/out\n\
                        InputDataConfig[0]:\n  ChannelName: a\nmetric loss 0.5\n\
                        2015-08-30 12:36:21Z  Failed        Training job failed";
        assert_eq!(text(&described), expected);
    }
}
