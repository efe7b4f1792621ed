//! The command line: one file per command.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::{CommandFactory, Parser, Subcommand};

use crate::exit::Exit;

mod artifact;
mod check;
mod completions;
mod config;
mod describe;
mod doctor;
mod environment;
mod gc;
mod image;
pub(crate) mod instance;
mod keys;
mod list;
mod logs;
mod merge;
mod pairs;
mod plan;
mod probe;
mod remote;
mod run;
mod serve;
mod show_pairs;
mod stop;
mod stopping;
mod submit;
mod top;
mod train;
mod wait;

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
  trainyard serve & trainyard submit job.json --follow
  trainyard list --status failed
  trainyard merge model.tar.gz -o result.parquet
  trainyard pairs embeddings.npy -k 10 -o neighbours.parquet
  trainyard check team/fit:1

Exit codes: 0 completed, 1 error, 2 bad command line or job file, 10 job failed, 11 job stopped,
12 job stopped because its time was up.";

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Run),
    Submit(submit::Submit),
    List(list::List),
    Describe(describe::Describe),
    Logs(logs::Logs),
    Wait(wait::Wait),
    Top(top::Top),
    Stop(stop::Stop),
    Delete(stop::Delete),
    Artifact(artifact::Artifact),
    Plan(plan::Plan),
    Merge(merge::Merge),
    Pairs(Box<pairs::Pairs>),
    Image(image::Image),
    Check(check::CheckImage),
    Serve(serve::Serve),
    Env(environment::Env),
    Keys(keys::KeysOf),
    Config(config::ShowConfig),
    Gc(gc::Gc),
    Doctor(doctor::Doctor),
    Completions(completions::Completions),
    #[command(hide = true)]
    Allpairs(train::Allpairs),
    #[command(hide = true)]
    Instance(instance::Instance),
    #[command(hide = true)]
    Probe(probe::Probe),
}

/// The name by which training images are started; this program is the workload then.
const TRAIN: &str = "train";

/// Parses the command line and carries it out.
pub(crate) fn run() -> anyhow::Result<Exit> {
    if is_train(env::args_os().next()) {
        return train::Allpairs::default().run();
    }
    match Cli::parse().command {
        Command::Run(command) => command.run(),
        Command::Submit(command) => command.run(),
        Command::List(command) => command.run(),
        Command::Describe(command) => command.run(),
        Command::Logs(command) => command.run(),
        Command::Wait(command) => command.run(),
        Command::Top(command) => command.run(),
        Command::Stop(command) => command.run(),
        Command::Delete(command) => command.run(),
        Command::Artifact(command) => command.run(),
        Command::Plan(command) => command.run(),
        Command::Merge(command) => command.run(),
        Command::Pairs(command) => command.run(),
        Command::Image(command) => command.run(),
        Command::Check(command) => command.run(),
        Command::Serve(command) => command.run(),
        Command::Env(command) => command.run(),
        Command::Keys(command) => command.run(),
        Command::Config(command) => command.run(),
        Command::Gc(command) => command.run(),
        Command::Doctor(command) => command.run(),
        Command::Completions(command) => Ok(command.run(&mut Cli::command())),
        Command::Allpairs(command) => command.run(),
        Command::Instance(command) => command.run(),
        Command::Probe(command) => command.run(),
    }
}

/// In its image the program is found as `train`, like that of any other image.
fn is_train(name: Option<OsString>) -> bool {
    name.is_some_and(|name| Path::new(&name).file_name() == Some(OsStr::new(TRAIN)))
}
