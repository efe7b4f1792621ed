//! `trainyard instance`: the supervisor of one instance; and what it starts inside of namespaces.

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use trainyard_engine::instance::{Own, supervise};
use trainyard_engine::network::job_network;
use trainyard_engine::run::InstanceDirectory;
use trainyard_engine::runtime::{Shield, container_init, instance_init};

use crate::exit::Exit;
use crate::machine::store_credentials;

/// Run one instance of a job; started by a backend
#[derive(Debug, clap::Args)]
pub(super) struct Instance {
    /// The instance's folder in the run directory
    folder: PathBuf,
}

impl Instance {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let program = env::current_exe().context("finding this program's own file")?;
        let own = Own { shield: Shield::default(), credentials: store_credentials() };
        supervise(&InstanceDirectory::open(&self.folder), &program, own)?;
        Ok(Exit::Completed)
    }
}

/// Whether this process is one that makes namespaces, for an instance or for a job's network, or is the first of a
/// container; if so, all of its life.
pub(crate) fn inside() -> Option<ExitCode> {
    let arguments: Vec<_> = env::args_os().skip(1).collect();
    match &arguments[..] {
        [command] if command == "instance-init" => Some(instance_init()),
        [command, _] if command == "network" => Some(job_network()),
        [command] => container_init(command.to_str()?),
        _ => None,
    }
}
