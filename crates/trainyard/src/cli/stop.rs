//! `trainyard stop` and `trainyard delete`: of one job or several.

use serde_json::json;

use super::remote::{Remote, wait_for};
use super::wait::Waiting;
use crate::client::jobs::name_of;
use crate::client::{Client, Operation};
use crate::exit::{Exit, one_line};
use crate::show::{out, remark};

/// Ask training jobs to stop: SIGTERM, the grace, SIGKILL; what was written is archived
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  trainyard stop fit-1\n  trainyard stop fit-1 fit-2 --wait")]
pub(super) struct Stop {
    /// Names or ARNs
    #[arg(required = true, value_name = "JOB")]
    jobs: Vec<String>,
    /// Wait until they have ended
    #[arg(long)]
    wait: bool,
    /// Print a JSON object for each job
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    remote: Remote,
}

/// Forget training jobs that have ended, with their logs; their artifacts stay
#[derive(Debug, clap::Args)]
#[command(after_help = DELETE_EXAMPLES)]
pub(super) struct Delete {
    /// Names or ARNs
    #[arg(required = true, value_name = "JOB")]
    jobs: Vec<String>,
    /// Print a JSON object for each job
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    remote: Remote,
}

const DELETE_EXAMPLES: &str = "Examples:
  trainyard delete fit-1
  trainyard list --status failed --json | jq -r .TrainingJobName | xargs trainyard delete";

impl Stop {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let client = self.remote.client()?;
        wait_for(async {
            let operation = Operation::sagemaker("StopTrainingJob");
            let exit = each(&client, operation, &self.jobs, self.json).await?;
            if self.wait {
                for job in &self.jobs {
                    let waiting = Waiting { json: self.json, ..Waiting::default() };
                    // How it ends is not what was asked for; what could not be stopped was told.
                    if exit == Exit::Completed {
                        waiting.until_ended(&client, job).await?;
                    }
                }
            }
            Ok(exit)
        })
    }
}

impl Delete {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let client = self.remote.client()?;
        wait_for(async {
            let operation = Operation { again: false, ..Operation::sagemaker("DeleteTrainingJob") };
            each(&client, operation, &self.jobs, self.json).await
        })
    }
}

/// Does it to each job, also after one that refused.
async fn each(client: &Client, operation: Operation, jobs: &[String], json: bool) -> anyhow::Result<Exit> {
    let mut exit = Exit::Completed;
    for job in jobs {
        match client.on_job(operation, job).await {
            Ok(_) if json => out(&json!({"TrainingJobName": name_of(job)}).to_string())?,
            Ok(_) => out(name_of(job))?,
            Err(error) => {
                remark(&format!("error: {}", one_line(&error)));
                exit = Exit::Error;
            }
        }
    }
    Ok(exit)
}
