//! Where things lie under `/opt/ml`, and the configuration files in it.
//!
//! Every path hangs from one root, so that the same code serves a container, where the root is
//! `/opt/ml`, and a supervisor or a test that prepares the tree somewhere else.

mod field;
mod hyperparameters;
mod input;
mod resource;

use std::path::{Path, PathBuf};

use serde::Serialize;

pub use field::FieldError;
pub use hyperparameters::Hyperparameters;
pub use input::{ChannelConfig, Distribution, InputDataConfig, InputMode, RecordWrapper};
pub use resource::{InstanceGroup, ResourceConfig};

/// The root of the contract as `train` sees it.
pub const ROOT: &str = "/opt/ml";

/// The paths of one contract tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contract {
    root: PathBuf,
}

impl Default for Contract {
    /// The tree at [`ROOT`].
    fn default() -> Self {
        Self::new(ROOT)
    }
}

impl Contract {
    /// The tree below `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The folder that stands for `/opt/ml`.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// `input/config`: the configuration files.
    pub fn config_folder(&self) -> PathBuf {
        self.root.join("input/config")
    }

    /// The place of one configuration file.
    pub fn config_file(&self, file: ConfigFile) -> PathBuf {
        self.config_folder().join(file.name())
    }

    /// `input/data`: the folders and manifests of all channels.
    pub fn channels_folder(&self) -> PathBuf {
        self.root.join("input/data")
    }

    /// `input/data/<channel>`.
    pub fn channel(&self, channel: &str) -> PathBuf {
        self.channels_folder().join(channel)
    }

    /// `input/data/<channel>-manifest`: the list of all objects of a channel.
    pub fn manifest(&self, channel: &str) -> PathBuf {
        self.channels_folder().join(format!("{channel}-manifest"))
    }

    /// `model`: becomes `model.tar.gz`.
    pub fn model_folder(&self) -> PathBuf {
        self.root.join("model")
    }

    /// `output`: the parent of everything that is put out beside the model.
    pub fn output_folder(&self) -> PathBuf {
        self.root.join("output")
    }

    /// `output/data`: becomes `output.tar.gz`.
    pub fn output_data_folder(&self) -> PathBuf {
        self.root.join("output/data")
    }

    /// `output/failure`: a text file in which a failing program says why.
    pub fn failure_file(&self) -> PathBuf {
        self.root.join("output/failure")
    }

    /// `output/metrics/sagemaker`: metric files of Amazon's SDK.
    pub fn metrics_folder(&self) -> PathBuf {
        self.root.join("output/metrics/sagemaker")
    }

    /// `output/profiler`.
    pub fn profiler_folder(&self) -> PathBuf {
        self.root.join("output/profiler")
    }

    /// `checkpoints`, unless the job names another folder ([`ConfigFile::Checkpoint`]).
    pub fn checkpoints_folder(&self) -> PathBuf {
        self.root.join("checkpoints")
    }

    /// The folders that exist before `train` starts, parents first; channels come on top.
    pub fn standing_folders(&self) -> [PathBuf; 6] {
        [
            self.config_folder(),
            self.channels_folder(),
            self.model_folder(),
            self.output_data_folder(),
            self.metrics_folder(),
            self.profiler_folder(),
        ]
    }

    /// Where a path that a job gives in the words of the container (`/opt/ml/…`) lies in this tree.
    /// A path outside `/opt/ml` is itself.
    pub fn resolve(&self, path: &Path) -> PathBuf {
        match path.strip_prefix(ROOT) {
            Ok(below) => self.root.join(below),
            Err(_) => path.to_owned(),
        }
    }
}

/// The files of `input/config`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ConfigFile {
    /// [`Hyperparameters`], always there.
    Hyperparameters,
    /// [`InputDataConfig`], always there.
    InputData,
    /// [`ResourceConfig`], always there.
    Resource,
    /// The platform's own view of the instance, always there.
    Init,
    /// The metric definitions of the job, always there.
    MetricDefinitions,
    /// The request, always there.
    TrainingJob,
    /// An empty list of no known use, always there.
    UpstreamOutputData,
    /// The folder of the checkpoints, if the job asks for checkpoints.
    Checkpoint,
    /// If the job asks for TensorBoard output.
    TensorBoardOutput,
    /// If the job has a debug hook.
    DebugHook,
    /// If the job has a profiler configuration.
    Profiler,
}

impl ConfigFile {
    /// The name of the file inside `input/config`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hyperparameters => "hyperparameters.json",
            Self::InputData => "inputdataconfig.json",
            Self::Resource => "resourceconfig.json",
            Self::Init => "init-config.json",
            Self::MetricDefinitions => "metric-definition-regex.json",
            Self::TrainingJob => "trainingjobconfig.json",
            Self::UpstreamOutputData => "upstreamoutputdataconfig.json",
            Self::Checkpoint => "checkpointconfig.json",
            Self::TensorBoardOutput => "tensorboardoutputconfig.json",
            Self::DebugHook => "debughookconfig.json",
            Self::Profiler => "profilerconfig.json",
        }
    }
}

/// The name of the instance with the given rank: `algo-1` for rank 0.
pub fn host_name(rank: usize) -> String {
    format!("algo-{}", rank + 1)
}

/// The form in which the platform writes its files: compact, without a newline at the end.
fn compact(value: &impl Serialize) -> String {
    #[expect(clippy::expect_used, reason = "plain structs and maps with string keys always serialise")]
    serde_json::to_string(value).expect("a value of strings and lists")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_hangs_from_the_root() {
        let contract = Contract::new("/r");
        let expected = [
            (contract.config_file(ConfigFile::Resource), "/r/input/config/resourceconfig.json"),
            (contract.channel("a.b"), "/r/input/data/a.b"),
            (contract.manifest("a.b"), "/r/input/data/a.b-manifest"),
            (contract.model_folder(), "/r/model"),
            (contract.output_folder(), "/r/output"),
            (contract.output_data_folder(), "/r/output/data"),
            (contract.failure_file(), "/r/output/failure"),
            (contract.metrics_folder(), "/r/output/metrics/sagemaker"),
            (contract.profiler_folder(), "/r/output/profiler"),
            (contract.checkpoints_folder(), "/r/checkpoints"),
        ];
        for (path, text) in expected {
            assert_eq!(path, Path::new(text));
        }
    }

    #[test]
    fn the_default_root_is_opt_ml() {
        assert_eq!(Contract::default().model_folder(), Path::new("/opt/ml/model"));
    }

    #[test]
    fn container_paths_move_with_the_root_and_others_stay() {
        let contract = Contract::new("/r");
        assert_eq!(contract.resolve(Path::new("/opt/ml/checkpoints/")), Path::new("/r/checkpoints"));
        assert_eq!(contract.resolve(Path::new("/opt/mlx")), Path::new("/opt/mlx"));
        assert_eq!(contract.resolve(Path::new("/state")), Path::new("/state"));
    }

    #[test]
    fn hosts_are_numbered_from_one() {
        assert_eq!([host_name(0), host_name(11)], ["algo-1", "algo-12"]);
    }
}
