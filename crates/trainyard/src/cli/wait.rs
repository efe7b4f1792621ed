//! `trainyard wait`: until jobs have ended, and how.

use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::remote::{Remote, wait_for};
use crate::client::Client;
use crate::exit::Exit;
use crate::show::{Changes, End, out};

/// Between two looks at a job of an endpoint, and at one of Amazon, which allows fewer.
const PAUSE: Duration = Duration::from_millis(500);
const PAUSE_AT_AMAZON: Duration = Duration::from_secs(5);

/// Wait until training jobs have ended; the exit code tells how
///
/// 0 completed, 10 failed, 11 stopped, 12 stopped because its time was up. Of several jobs it is the code of the
/// first that did not complete.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Wait {
    /// Names or ARNs
    #[arg(required = true, value_name = "JOB")]
    jobs: Vec<String>,
    /// Give up after so many seconds (exit code 1); the jobs go on
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
    /// Print the description of each job that has ended as one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    remote: Remote,
}

const EXAMPLES: &str = "Examples:
  trainyard wait fit-1
  trainyard wait fit-1 fit-2 --timeout 3600
  trainyard wait fit-1 --json | jq .ModelArtifacts";

impl Wait {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let client = self.remote.client()?;
        let until = self.timeout.map(|seconds| Instant::now() + Duration::from_secs(seconds));
        let waiting = Waiting { json: self.json, quiet: false, until };
        wait_for(async {
            let mut worst = Exit::Completed;
            for job in &self.jobs {
                let exit = waiting.until_ended(&client, job).await?;
                worst = if worst == Exit::Completed { exit } else { worst };
            }
            Ok(worst)
        })
    }
}

/// How it is waited.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Waiting {
    pub(super) json: bool,
    /// Only the end is told.
    pub(super) quiet: bool,
    /// When it is given up.
    pub(super) until: Option<Instant>,
}

impl Waiting {
    /// Waits for a job's end, tells what happens meanwhile and how it ended.
    pub(super) async fn until_ended(&self, client: &Client, job: &str) -> anyhow::Result<Exit> {
        let mut changes = Changes::default();
        loop {
            let described = client.describe(job).await?;
            let line = changes.of_described(&described).filter(|_| !self.json && !self.quiet);
            line.map_or(Ok(()), |line| out(&line))?;
            if has_ended(&described) {
                let text =
                    if self.json { described.to_string() } else { End::of_described(&described).text() };
                out(&text)?;
                return Ok(exit_of(&described));
            }
            if self.until.is_some_and(|until| Instant::now() >= until) {
                let status = described["TrainingJobStatus"].as_str().unwrap_or_default();
                anyhow::bail!("the time is up: {job} is still {status}");
            }
            sleep(pause(client)).await;
        }
    }
}

/// Between two looks at a job.
pub(super) fn pause(client: &Client) -> Duration {
    if client.place().is_amazon { PAUSE_AT_AMAZON } else { PAUSE }
}

/// Whether a job stays in the status that it has.
pub(super) fn has_ended(described: &Value) -> bool {
    matches!(described["TrainingJobStatus"].as_str(), Some("Completed" | "Failed" | "Stopped" | "Deleting"))
}

/// The exit code for a description.
fn exit_of(described: &Value) -> Exit {
    let text = |member: &str| described[member].as_str().unwrap_or_default();
    Exit::of_status(text("TrainingJobStatus"), text("SecondaryStatus"))
}
