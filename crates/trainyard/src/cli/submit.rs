//! `trainyard submit`: a job file sent to an endpoint.

use std::path::PathBuf;

use clap::ValueHint;
use serde_json::{Value, json};

use super::logs::{self, Followed};
use super::remote::{Remote, wait_for};
use super::wait;
use crate::client::{Client, Operation};
use crate::exit::{Exit, Refused};
use crate::for_amazon::for_amazon;
use crate::job_file;
use crate::show::{out, remark};

/// Send a training job to an endpoint, which runs it
///
/// JOB is what `trainyard run` takes. Its name is printed. With --endpoint aws the job runs at Amazon.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Submit {
    /// The job file, or - for standard input
    #[arg(value_hint = ValueHint::FilePath)]
    job: PathBuf,
    /// Name the job NAME, whatever the file says
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Wait for its end; the exit code tells how it ended
    #[arg(long)]
    wait: bool,
    /// Show the lines of its instances too until it ends
    #[arg(short, long)]
    follow: bool,
    /// Print JSON: the answer, and with --wait the job's description
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    remote: Remote,
}

const EXAMPLES: &str = "Examples:
  trainyard submit job.json
  trainyard submit job.json --name fit-2 --wait
  trainyard submit job.json --follow
  trainyard wait $(trainyard submit job.json)
  trainyard submit job.json --endpoint aws --region eu-west-1 --profile team";

/// CreateTrainingJob is not asked for again when nobody knows whether it was done: the name would be taken.
const CREATE: Operation = Operation { again: false, ..Operation::sagemaker("CreateTrainingJob") };

impl Submit {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let mut request = job_file::read(&self.job)?;
        if let Some(name) = &self.name {
            request.training_job_name = Some(name.clone());
        }
        let client = self.remote.client()?;
        let mut request = serde_json::to_value(request)?;
        if client.place().is_amazon {
            for text in for_amazon(&mut request).map_err(anyhow::Error::new).map_err(Refused::from)? {
                remark(&["warning: ", &text].concat());
            }
        }
        wait_for(async {
            let answer = create(&client, &request).await?;
            let name = request["TrainingJobName"].as_str().unwrap_or_default();
            let answer = json!({"TrainingJobName": name, "TrainingJobArn": answer["TrainingJobArn"]});
            out(&if self.json { answer.to_string() } else { name.to_owned() })?;
            if self.follow
                && let Followed::Interrupted = logs::follow(&client, name, None, self.json).await?
            {
                anyhow::bail!("interrupted; the job goes on: trainyard logs -f {name}");
            }
            if self.wait || self.follow {
                let waiting =
                    wait::Waiting { json: self.json, quiet: self.follow, ..wait::Waiting::default() };
                return waiting.until_ended(&client, name).await;
            }
            Ok(Exit::Completed)
        })
    }
}

/// What the caller can put right is told apart by the exit code.
async fn create(client: &Client, request: &Value) -> anyhow::Result<Value> {
    client.call(CREATE, request).await.map_err(|error| match error.code() {
        Some("ValidationException" | "ResourceInUse" | "SerializationException") => {
            Refused::from(anyhow::Error::new(error)).into()
        }
        _ => error.into(),
    })
}
