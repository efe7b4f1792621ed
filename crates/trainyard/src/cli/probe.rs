//! `trainyard probe`: watches the program of an image from within an instance, for `trainyard check`.

use anyhow::Context;
use trainyard_check::probe::probe;

use crate::exit::Exit;

/// Watch a program in an instance; started by `trainyard check`
#[derive(Debug, clap::Args)]
pub(super) struct Probe {
    /// What to start and how to interfere, as JSON
    order: String,
}

impl Probe {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        probe(&serde_json::from_str(&self.order).context("the probe's order")?)?;
        Ok(Exit::Completed)
    }
}
