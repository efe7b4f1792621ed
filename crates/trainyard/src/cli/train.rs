//! Built-in workloads, as the `train` of an instance.

use crate::exit::Exit;

/// Cosine similarity between all rows of the channel `matrix`; run inside an instance
#[derive(Debug, clap::Args)]
pub(super) struct Allpairs {}

impl Allpairs {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        anyhow::bail!("not there yet")
    }
}
