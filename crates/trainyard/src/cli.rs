//! The command line: one file per command.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueHint};

use crate::exit::Exit;
use crate::machine::Given;
use resources::Resources;

mod completions;
pub(crate) mod instance;
mod merge;
mod plan;
mod resources;
mod run;
mod train;

/// Run SageMaker training jobs on machines you own.
#[derive(Debug, Parser)]
#[command(name = "trainyard", version, arg_required_else_help = true, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "Examples:
  trainyard run job.json
  trainyard run job.json --bucket my-bucket=./data --image my/image=host:./bin
  trainyard plan job.json --rows 1000000
  trainyard merge model.tar.gz -o result.parquet

Exit codes: 0 completed, 1 error, 2 bad command line or job file, 10 job failed, 11 job stopped,
12 job stopped because its time was up.";

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Run),
    Plan(plan::Plan),
    Merge(merge::Merge),
    Completions(completions::Completions),
    #[command(hide = true)]
    Allpairs(train::Allpairs),
    #[command(hide = true)]
    Instance(instance::Instance),
}

/// What says where a job's names lead to on this machine.
#[derive(Debug, Args)]
struct Places {
    /// Use the folder DIR as the bucket NAME; other buckets are folders in <data-dir>/s3
    #[arg(long = "bucket", value_name = "NAME=DIR", value_parser = bucket, value_hint = ValueHint::DirPath)]
    buckets: Vec<(String, PathBuf)>,
    /// Run SOURCE where a job file says NAME, such as my/image=host:./bin
    #[arg(long = "image", value_name = "NAME=SOURCE", value_parser = image)]
    images: Vec<(String, String)>,
    /// Keep jobs and buckets in DIR instead of the user's data folder
    #[arg(long, value_name = "DIR", env = "TRAINYARD_DATA_DIR", value_hint = ValueHint::DirPath)]
    data_dir: Option<PathBuf>,
    #[command(flatten)]
    resources: Resources,
}

impl Places {
    fn given(&self, grace: Option<Duration>) -> Given {
        Given {
            buckets: self.buckets.clone(),
            images: self.images.clone(),
            grace,
            limits: self.resources.limits.into(),
            gpus: self.resources.gpus.into(),
        }
    }
}

fn bucket(text: &str) -> Result<(String, PathBuf), String> {
    let (name, folder) = split(text).ok_or("write NAME=DIR, such as my-bucket=./data")?;
    Ok((name, PathBuf::from(folder)))
}

fn image(text: &str) -> Result<(String, String), String> {
    Ok(split(text).ok_or("write NAME=SOURCE, such as my/image=host:./bin")?)
}

fn split(text: &str) -> Option<(String, String)> {
    let (name, value) = text.split_once('=')?;
    (!name.is_empty() && !value.is_empty()).then(|| (name.to_owned(), value.to_owned()))
}

/// Parses the command line and carries it out.
pub(crate) fn run() -> anyhow::Result<Exit> {
    match Cli::parse().command {
        Command::Run(command) => command.run(),
        Command::Plan(command) => command.run(),
        Command::Merge(command) => command.run(),
        Command::Completions(command) => Ok(command.run(&mut Cli::command())),
        Command::Allpairs(command) => command.run(),
        Command::Instance(command) => command.run(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_that_is_none_is_told_what_to_write() {
        for text in ["b", "b=", "=./data"] {
            assert!(bucket(text).unwrap_err().contains("NAME=DIR"), "{text}");
            assert!(image(text).unwrap_err().contains("NAME=SOURCE"), "{text}");
        }
        assert_eq!(bucket("b=a=c"), Ok(("b".into(), "a=c".into())));
    }
}
