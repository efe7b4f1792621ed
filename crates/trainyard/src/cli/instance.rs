//! `trainyard instance`: the supervisor of one instance; and what it starts inside of namespaces.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::exit::Exit;

/// Run one instance of a job; started by a backend
#[derive(Debug, clap::Args)]
pub(super) struct Instance {
    /// The instance's folder in the run directory
    folder: PathBuf,
}

impl Instance {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let _ = self.folder;
        anyhow::bail!("not there yet")
    }
}

/// Whether this process is what a supervisor starts inside of namespaces.
pub(crate) fn inside() -> Option<ExitCode> {
    None
}
