//! `trainyard artifact`: what jobs have left, without fetching more than is asked for.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::ValueHint;
use indicatif::{ProgressBar, ProgressStyle};
use tokio::signal::unix::{SignalKind, signal};

use super::remote::{Remote, wait_for};
use crate::exit::Exit;

mod read;
mod source;
mod stored;

use source::Source;

/// Look into the artifact of a training job, and take files out of it
///
/// SOURCE is the name of a job, the URI of an archive (s3://…, file://…) or an archive of this machine.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Artifact {
    #[command(subcommand)]
    action: Action,
}

const EXAMPLES: &str = "Examples:
  trainyard artifact ls fit-1
  trainyard artifact cat fit-1 metrics.json --host algo-2 | jq .loss
  trainyard artifact get fit-1 weights.npy -o .
  trainyard artifact get s3://results/fit-1/output/model.tar.gz --all -o model";

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// List what is in it: instance, bytes, time, path
    Ls {
        #[command(flatten)]
        from: From,
        /// Print each entry as a JSON object
        #[arg(long)]
        json: bool,
    },
    /// Print one file
    ///
    /// Of several of this path it is the last one, as if the archive were unpacked.
    Cat {
        #[command(flatten)]
        from: From,
        /// Its path in the archive
        file: OsString,
    },
    /// Put files into a folder
    ///
    /// Of several of one path it is the last one, as if the archive were unpacked.
    #[command(group = clap::ArgGroup::new("what").required(true).args(["files", "all"]))]
    Get {
        #[command(flatten)]
        from: From,
        /// Paths in the archive; a folder stands for all that is in it
        files: Vec<OsString>,
        /// Take everything
        #[arg(long)]
        all: bool,
        /// The folder
        #[arg(short = 'o', long = "to", value_name = "DIR", default_value = ".", value_hint = ValueHint::DirPath)]
        folder: PathBuf,
        /// Print each file as a JSON object
        #[arg(long)]
        json: bool,
    },
}

/// Which archive, and which instance's entries.
#[derive(Debug, clap::Args)]
struct From {
    /// A job, a URI or a file
    source: String,
    /// Only what this instance wrote
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
    /// Of a job the archive of /opt/ml/output/data in the place of the model's
    #[arg(long)]
    output: bool,
    #[command(flatten)]
    remote: Remote,
}

impl Artifact {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        match self.action {
            Action::Ls { from, json } => from.read(move |archive, host| read::list(archive, host, json)),
            Action::Cat { from, file } => from.read(move |archive, host| read::print(archive, host, &file)),
            Action::Get { from, files, folder, json, .. } => from
                .read(move |archive, host| read::take(archive, host, &read::Wanted { files, folder, json })),
        }
    }
}

impl From {
    /// Reads the archive with something that blocks; an interrupt ends it.
    fn read(
        self,
        work: impl FnOnce(Box<dyn Read + Send>, Option<&str>) -> anyhow::Result<()> + Send + 'static,
    ) -> anyhow::Result<Exit> {
        wait_for(async {
            let mut interrupt = signal(SignalKind::interrupt())?;
            let Source { archive, size } = source::open(&self.source, self.output, &self.remote).await?;
            let (bar, stop) = (bar(size), Arc::new(AtomicBool::new(false)));
            let watched = Watched { archive, bar: bar.clone(), stop: Arc::clone(&stop) };
            let host = self.host;
            let mut working = tokio::task::spawn_blocking(move || work(Box::new(watched), host.as_deref()));
            let done = tokio::select! {
                done = &mut working => done,
                _ = interrupt.recv() => {
                    stop.store(true, Ordering::Relaxed);
                    // What is being read may not come soon.
                    let _ = tokio::time::timeout(Duration::from_secs(1), working).await;
                    anyhow::bail!("interrupted");
                }
            };
            bar.finish_and_clear();
            done??;
            Ok(Exit::Completed)
        })
    }
}

/// Shows how far an archive has been read, if somebody is looking and it takes a while.
fn bar(size: Option<u64>) -> ProgressBar {
    let worth_it = size.is_some_and(|size| size > 4 << 20) && io::stderr().is_terminal();
    if !worth_it {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(size.unwrap_or_default());
    let style = "{bar:30} {bytes} of {total_bytes}, {binary_bytes_per_sec}, {eta} left";
    if let Ok(style) = ProgressStyle::with_template(style) {
        bar.set_style(style);
    }
    bar
}

/// An archive that is being read while a bar is shown and an interrupt may come.
struct Watched {
    archive: Box<dyn Read + Send>,
    bar: ProgressBar,
    stop: Arc<AtomicBool>,
}

impl Read for Watched {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.stop.load(Ordering::Relaxed) {
            // Not the kind that is tried again.
            return Err(io::Error::other("interrupted"));
        }
        let count = self.archive.read(buffer)?;
        self.bar.inc(count as u64);
        Ok(count)
    }
}

/// Writes to standard output; whether somebody still reads it.
fn write_out(bytes: &[u8]) -> io::Result<bool> {
    match io::stdout().lock().write_all(bytes) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        result => result.map(|()| true),
    }
}
