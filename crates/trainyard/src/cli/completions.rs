//! `trainyard completions`: tab completion for shells.

use clap_complete::Shell;

use crate::exit::Exit;

/// Print tab completion for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  trainyard completions bash > /etc/bash_completion.d/trainyard")]
pub(super) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub(super) fn run(&self, command: &mut clap::Command) -> Exit {
        clap_complete::generate(self.shell, command, "trainyard", &mut std::io::stdout());
        Exit::Completed
    }
}
