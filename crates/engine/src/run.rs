//! The run directory: where one attempt at a job is written down.
//!
//! Engine and supervisors talk only through it. The engine writes plans and stop requests, a
//! supervisor writes reports, log lines and parts; neither writes what the other writes, and
//! whoever restarts reads what is there.
//!
//! ```text
//! <root>/format                          version of this layout
//! <root>/plan.json                       the whole plan
//! <root>/manifests/<channel>-manifest    one per channel, the same for all hosts
//! <root>/bases/<name>/                   staged objects, shared by the instances of a machine
//! <root>/network.json                    which network was started, as its backend knows it
//! <root>/network.log                     what the process of the network itself has to say
//! <root>/instances/<host>/plan.json      what this host does
//! <root>/instances/<host>/reports.jsonl  one report a line, only ever appended to
//! <root>/instances/<host>/log.jsonl      one log line a line, only ever appended to
//! <root>/instances/<host>/usage.jsonl    one measurement a line, only ever appended to
//! <root>/instances/<host>/stop.json      there once the instance is asked to stop
//! <root>/instances/<host>/supervisor.json which supervisor was started, as its backend knows it
//! <root>/instances/<host>/supervisor.log what the supervisor itself has to say
//! <root>/instances/<host>/model.part     the packed /opt/ml/model
//! <root>/instances/<host>/output.part    the packed /opt/ml/output/data
//! <root>/instances/<host>/merged         what a merging instance hands back
//! <root>/instances/<host>/scratch/       the instance's own file tree while it runs
//! ```

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fs_err as fs;
use indexmap::IndexMap;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::backend::Supervisor;
use crate::plan::{InstancePlan, JobPlan};
use crate::storage::Upload;

mod append;
mod report;
mod usage;
mod watch;

pub use append::{Appender, Tail};
pub use report::{Exit, LogLine, Outcome, Part, Parts, Report, Stamped, StopRequest, Stream, Timestamp};
pub use usage::UsageSample;
pub use watch::{News, Watch};

/// The layout that this program writes and reads.
const FORMAT: &str = "1";

/// Per channel, the list of all its objects, as the instances get to see it.
pub type Manifests = IndexMap<String, String>;

/// The folder of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunDirectory {
    root: PathBuf,
}

/// A run directory that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum RunDirectoryError {
    /// A file or folder could not be read or written.
    #[error("run directory")]
    Io(#[from] io::Error),
    /// A file holds something else than it should.
    #[error(
        "{path} is damaged, or another version of this program wrote it: a job is resumed by the version that began it"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What does not fit.
        source: serde_json::Error,
    },
    /// Written by another version of this program.
    #[error("{path} has format {found:?}; this version reads {FORMAT:?}")]
    Format {
        /// The run directory.
        path: PathBuf,
        /// What its format file says.
        found: String,
    },
}

impl RunDirectory {
    /// Makes the folder of a new attempt and writes its plan there, and the text of each channel's
    /// manifest.
    pub fn create(root: &Path, plan: &JobPlan, manifests: &Manifests) -> Result<Self, RunDirectoryError> {
        let run = Self { root: root.to_owned() };
        fs::create_dir_all(run.manifests())?;
        for (channel, text) in manifests {
            fs::write(run.manifests().join(format!("{channel}-manifest")), text)?;
        }
        fs::create_dir_all(run.bases())?;
        for instance in &plan.instances {
            run.add_instance(instance)?;
        }
        write_json(&run.root.join("plan.json"), plan)?;
        fs::write(run.root.join("format"), FORMAT)?;
        Ok(run)
    }

    /// Opens the folder of an attempt that was created before.
    pub fn open(root: &Path) -> Result<Self, RunDirectoryError> {
        let found = fs::read_to_string(root.join("format"))?;
        if found != FORMAT {
            return Err(RunDirectoryError::Format { path: root.to_owned(), found });
        }
        Ok(Self { root: root.to_owned() })
    }

    /// Writes down one more instance, such as the one that merges.
    pub fn add_instance(&self, plan: &InstancePlan) -> Result<InstanceDirectory, RunDirectoryError> {
        let instance = self.instance(&plan.host);
        fs::create_dir_all(&instance.root)?;
        write_json(&instance.root.join("plan.json"), plan)?;
        Ok(instance)
    }

    /// The plan of this attempt.
    pub fn plan(&self) -> Result<JobPlan, RunDirectoryError> {
        read_json(&self.root.join("plan.json"))
    }

    /// The manifests of this attempt.
    pub fn read_manifests(&self) -> Result<Manifests, RunDirectoryError> {
        let mut manifests = Manifests::new();
        for entry in fs::read_dir(self.manifests())? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let channel = name.strip_suffix("-manifest").unwrap_or(&name);
            manifests.insert(channel.to_owned(), fs::read_to_string(entry.path())?);
        }
        Ok(manifests)
    }

    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where the `<channel>-manifest` files are.
    pub fn manifests(&self) -> PathBuf {
        self.root.join("manifests")
    }

    /// Where staged objects are shared by the instances of this machine.
    pub fn bases(&self) -> PathBuf {
        self.root.join("bases")
    }

    /// What the process of the network itself has to say.
    pub fn network_log(&self) -> PathBuf {
        self.root.join("network.log")
    }

    /// Writes down which network was started for this attempt; a backend does so before it starts a
    /// supervisor.
    pub fn write_network(&self, id: &str) -> Result<(), RunDirectoryError> {
        write_json(&self.root.join("network.json"), &id)
    }

    /// The network that was started for this attempt, if one was.
    pub fn network(&self) -> Result<Option<String>, RunDirectoryError> {
        if_there(read_json(&self.root.join("network.json")))
    }

    /// Writes down the uploads that instances put their parts into.
    pub fn write_uploads(&self, uploads: &Uploads) -> Result<(), RunDirectoryError> {
        write_json(&self.root.join("uploads.json"), uploads)
    }

    /// The uploads that instances put their parts into, if there are any.
    pub fn uploads(&self) -> Result<Option<Uploads>, RunDirectoryError> {
        if_there(read_json(&self.root.join("uploads.json")))
    }

    /// Forgets the uploads: they have been completed or given up.
    pub fn remove_uploads(&self) -> io::Result<()> {
        fs::remove_file(self.root.join("uploads.json"))
    }

    /// The part of one host.
    pub fn instance(&self, host: &str) -> InstanceDirectory {
        InstanceDirectory { root: self.root.join("instances").join(host) }
    }
}

/// Uploads in parts of an attempt, which become the archives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Uploads {
    /// Of the model's archive; none if the model becomes plain files.
    #[serde(default)]
    pub model: Option<Upload>,
    /// Of the archive of other output.
    pub output: Upload,
}

/// One host's folder in the run directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceDirectory {
    root: PathBuf,
}

impl InstanceDirectory {
    /// The folder `instances/<host>` that a supervisor is started with.
    pub fn open(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The run directory that this folder is part of.
    pub fn run(&self) -> Result<RunDirectory, RunDirectoryError> {
        let root = self.root.ancestors().nth(2).unwrap_or(&self.root);
        RunDirectory::open(root)
    }

    /// What this host gets and does.
    pub fn plan(&self) -> Result<InstancePlan, RunDirectoryError> {
        read_json(&self.root.join("plan.json"))
    }

    /// The file of reports.
    pub fn reports(&self) -> PathBuf {
        self.root.join("reports.jsonl")
    }

    /// The file of log lines.
    pub fn log(&self) -> PathBuf {
        self.root.join("log.jsonl")
    }

    /// What was measured while `train` ran.
    pub fn usage(&self) -> PathBuf {
        self.root.join("usage.jsonl")
    }

    /// What the supervisor itself has to say.
    pub fn supervisor_log(&self) -> PathBuf {
        self.root.join("supervisor.log")
    }

    /// Writes down which supervisor was started for this host.
    ///
    /// A backend does so before it starts the next one: whoever starts them may be killed before it
    /// has answered with their placement, and they would outlive it with nobody knowing of them.
    pub fn write_supervisor(&self, supervisor: &Supervisor) -> Result<(), RunDirectoryError> {
        write_json(&self.root.join("supervisor.json"), supervisor)
    }

    /// The supervisor that was started for this host, if one was.
    pub fn supervisor(&self) -> Result<Option<Supervisor>, RunDirectoryError> {
        if_there(read_json(&self.root.join("supervisor.json")))
    }

    /// The packed `/opt/ml/model`.
    pub fn model_part(&self) -> PathBuf {
        self.root.join("model.part")
    }

    /// The packed `/opt/ml/output/data`.
    pub fn output_part(&self) -> PathBuf {
        self.root.join("output.part")
    }

    /// The one file that a merging instance hands back.
    pub fn merged_file(&self) -> PathBuf {
        self.root.join("merged")
    }

    /// Whether the supervisor has made its last report.
    pub fn has_ended(&self) -> io::Result<bool> {
        let reports: Vec<Stamped> = Tail::new(self.reports()).read()?;
        Ok(reports.iter().any(|stamped| matches!(stamped.report, Report::Ended { .. })))
    }

    /// The instance's own file tree while it runs; nothing of it is kept.
    pub fn scratch(&self) -> PathBuf {
        self.root.join("scratch")
    }

    /// The file that asks the instance to stop.
    pub fn stop_file(&self) -> PathBuf {
        self.root.join("stop.json")
    }

    /// Asks the instance to stop: SIGTERM, then SIGKILL after the grace.
    ///
    /// A later request replaces an earlier one, so that a shorter grace can follow.
    pub fn request_stop(&self, grace: Duration) -> Result<(), RunDirectoryError> {
        write_json(&self.stop_file(), &StopRequest { grace })
    }

    /// The stop request, if there is one.
    pub fn stop_request(&self) -> Result<Option<StopRequest>, RunDirectoryError> {
        if_there(read_json(&self.stop_file()))
    }
}

/// What was read, or nothing if there is no such file.
fn if_there<T>(read: Result<T, RunDirectoryError>) -> Result<Option<T>, RunDirectoryError> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(RunDirectoryError::Io(error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes a value so that a reader sees the old file or the new one, never half of it.
fn write_json<T: Serialize>(path: &Path, value: &T) -> Result<(), RunDirectoryError> {
    let text = serde_json::to_vec(value)
        .map_err(|source| RunDirectoryError::Damaged { path: path.to_owned(), source })?;
    let unfinished = path.with_extension("unfinished");
    let mut file = fs::File::create(&unfinished)?;
    file.write_all(&text)?;
    fs::rename(&unfinished, path)?;
    Ok(())
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, RunDirectoryError> {
    let text = fs::read(path)?;
    serde_json::from_slice(&text)
        .map_err(|source| RunDirectoryError::Damaged { path: path.to_owned(), source })
}
