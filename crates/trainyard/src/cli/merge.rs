//! `trainyard merge`: the parts of an archive as one file.

use std::path::PathBuf;

use clap::ValueHint;

use crate::exit::Exit;

/// Join the parts in a model archive into one file
#[derive(Debug, clap::Args)]
pub(super) struct Merge {
    /// model.tar.gz, or a folder of parts
    #[arg(value_hint = ValueHint::FilePath)]
    archive: PathBuf,
    /// The file to write; its ending decides the format: .parquet, .csv, .jsonl or .npy
    #[arg(short, long, value_hint = ValueHint::FilePath)]
    output: PathBuf,
}

impl Merge {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let _ = (self.archive, self.output);
        anyhow::bail!("not there yet")
    }
}
