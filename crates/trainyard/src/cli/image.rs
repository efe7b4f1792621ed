//! `trainyard image`: images to take away, and those that are kept here.

use std::env;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Subcommand, ValueEnum, ValueHint};
use trainyard_engine::image::ProgramImage;

mod kept;

use crate::exit::Exit;
use crate::show::out;

/// Write built-in workloads as container images; list and remove images that are kept here
#[derive(Debug, clap::Args)]
pub(super) struct Image {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Export(Export),
    Ls(kept::List),
    Rm(kept::Remove),
    Prune(kept::Prune),
}

/// Write a built-in workload as a container image
///
/// The image holds this program and nothing else. docker load, podman load and skopeo take the archive, and
/// Trainyard runs it as docker-archive:FILE. Pushed to a registry, it runs on SageMaker too.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
struct Export {
    /// The workload
    workload: Workload,
    /// The archive to write, or - for standard output
    #[arg(short, long, value_hint = ValueHint::FilePath)]
    output: PathBuf,
}

const EXAMPLES: &str = "Examples:
  trainyard image export allpairs -o allpairs.tar
  trainyard image export allpairs -o - | docker load
  trainyard run job.json --image trainyard/allpairs=docker-archive:allpairs.tar";

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Workload {
    /// Cosine similarity between all rows of a matrix
    Allpairs,
}

impl Image {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        match self.action {
            Action::Export(export) => export.run(),
            Action::Ls(list) => list.run(),
            Action::Rm(remove) => remove.run(),
            Action::Prune(prune) => prune.run(),
        }
    }
}

impl Export {
    fn run(self) -> anyhow::Result<Exit> {
        let Workload::Allpairs = self.workload;
        let version = env!("CARGO_PKG_VERSION");
        let image = ProgramImage {
            program: env::current_exe().context("finding this program's own file")?,
            name: "trainyard".to_owned(),
            alias: super::TRAIN.to_owned(),
            tags: ["latest", version].map(|tag| format!("trainyard/allpairs:{tag}")).to_vec(),
            labels: vec![
                ("org.opencontainers.image.title".to_owned(), "trainyard/allpairs".to_owned()),
                ("org.opencontainers.image.version".to_owned(), version.to_owned()),
            ],
        };
        if self.output == Path::new("-") {
            image.write(BufWriter::new(io::stdout().lock()))?;
            return Ok(Exit::Completed);
        }
        let written = || write_whole(&image, &self.output);
        written().with_context(|| self.output.display().to_string())?;
        out(&format!("{}: {}", self.output.display(), image.tags.join(", ")))?;
        Ok(Exit::Completed)
    }
}

/// Writes a file that has its name only once it is complete.
fn write_whole(image: &ProgramImage, path: &Path) -> anyhow::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // As any other file: the umask decides who may read it.
    let everyone = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    let mut file = tempfile::Builder::new().permissions(everyone).tempfile_in(folder)?;
    image.write(BufWriter::new(&mut file))?;
    file.persist(path)?;
    Ok(())
}
