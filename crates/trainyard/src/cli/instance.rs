//! `trainyard instance`: the supervisor of one instance; and what it starts inside of namespaces.

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use trainyard_engine::instance::supervise;
use trainyard_engine::run::InstanceDirectory;
use trainyard_engine::runtime::{Shield, container_init, instance_init};

use crate::exit::Exit;

/// Run one instance of a job; started by a backend
#[derive(Debug, clap::Args)]
pub(super) struct Instance {
    /// The instance's folder in the run directory
    folder: PathBuf,
}

impl Instance {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let program = env::current_exe().context("finding this program's own file")?;
        supervise(&InstanceDirectory::open(&self.folder), &program, Shield::default())?;
        Ok(Exit::Completed)
    }
}

/// Whether this process is what a supervisor starts inside of namespaces; if so, all of its life.
pub(crate) fn inside() -> Option<ExitCode> {
    let mut arguments = env::args_os().skip(1);
    let only = (arguments.next(), arguments.next());
    match only {
        (Some(command), None) if command == "instance-init" => Some(instance_init()),
        (Some(command), None) => container_init(command.to_str()?),
        _ => None,
    }
}
