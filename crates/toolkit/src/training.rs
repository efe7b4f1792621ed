//! What a training program asks its platform: who am I, where is my input, where does my output go.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::contract::{ConfigFile, Contract, Hyperparameters, InputDataConfig, ResourceConfig};
use crate::{fail_in, split};

/// The training job as one of its instances sees it.
#[derive(Clone, Debug)]
pub struct Training {
    contract: Contract,
    resources: ResourceConfig,
    rank: usize,
    input: InputDataConfig,
    hyperparameters: Hyperparameters,
    checkpoints_folder: PathBuf,
    job_name: Option<String>,
}

/// The contract tree does not say what a training program needs to know.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A configuration file is missing or unreadable.
    #[error("can not read {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// A configuration file is no JSON, or a member of it is missing or wrong; the source names the member.
    #[error("{} is not as the contract has it", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong, with the member or with line and column.
        source: serde_json::Error,
    },
    /// The instance is not among the hosts of its own job.
    #[error("{}: current_host `{host}` is not one of hosts [{}]", path.display(), hosts.join(", "))]
    UnknownHost {
        /// The file.
        path: PathBuf,
        /// The value of `current_host`.
        host: String,
        /// The value of `hosts`.
        hosts: Vec<String>,
    },
}

/// The job has no channel of that name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the job has no channel `{channel}`; its channels: [{}]", channels.join(", "))]
pub struct ChannelError {
    /// The name that was asked for.
    pub channel: String,
    /// The names that there are.
    pub channels: Vec<String>,
}

impl Training {
    /// Reads the configuration below `/opt/ml`.
    ///
    /// # Errors
    ///
    /// A file that every platform writes is missing or says something else than the contract allows.
    pub fn load() -> Result<Self, LoadError> {
        Self::load_from(crate::contract::ROOT)
    }

    /// Reads the configuration below `root`.
    ///
    /// # Errors
    ///
    /// As [`Training::load`].
    pub fn load_from(root: impl Into<PathBuf>) -> Result<Self, LoadError> {
        let contract = Contract::new(root);
        let resources: ResourceConfig = read(&contract, ConfigFile::Resource)?;
        Ok(Self {
            rank: rank(&contract, &resources)?,
            resources,
            input: read(&contract, ConfigFile::InputData)?,
            hyperparameters: read(&contract, ConfigFile::Hyperparameters)?,
            checkpoints_folder: checkpoints_folder(&contract)?,
            job_name: job_name(&contract)?,
            contract,
        })
    }

    /// The value of a hyperparameter, as text.
    pub fn hyperparameter(&self, name: &str) -> Option<&str> {
        self.hyperparameters.get(name)
    }

    /// All hyperparameters in the order of the request.
    pub fn hyperparameters(&self) -> &Hyperparameters {
        &self.hyperparameters
    }

    /// The folder of a channel.
    ///
    /// # Errors
    ///
    /// The job has no such channel.
    pub fn channel(&self, name: &str) -> Result<PathBuf, ChannelError> {
        if self.input.0.contains_key(name) {
            return Ok(self.contract.channel(name));
        }
        Err(ChannelError { channel: name.to_owned(), channels: self.input.0.keys().cloned().collect() })
    }

    /// All channels with what is known about them.
    pub fn channels(&self) -> &InputDataConfig {
        &self.input
    }

    /// All hosts of the job in number order.
    pub fn hosts(&self) -> &[String] {
        &self.resources.hosts
    }

    /// The host that this program runs on.
    pub fn host(&self) -> &str {
        &self.resources.current_host
    }

    /// The place of this host among all, from 0.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The number of hosts, at least 1.
    pub fn world_size(&self) -> usize {
        self.resources.hosts.len()
    }

    /// The rows of a matrix of `rows` rows that this instance is to work on ([`split::row_range`]).
    pub fn row_range(&self, rows: u64) -> Range<u64> {
        split::row_range(self.rank, self.world_size(), rows)
    }

    /// The folder whose content becomes `model.tar.gz`.
    pub fn model_folder(&self) -> PathBuf {
        self.contract.model_folder()
    }

    /// The folder whose content becomes `output.tar.gz`.
    pub fn output_folder(&self) -> PathBuf {
        self.contract.output_data_folder()
    }

    /// The folder whose content outlives an attempt, if the job asks for checkpoints.
    pub fn checkpoints_folder(&self) -> &Path {
        &self.checkpoints_folder
    }

    /// The name of the job. Some emulators do not tell it.
    pub fn job_name(&self) -> Option<&str> {
        self.job_name.as_deref()
    }

    /// The paths behind all this.
    pub fn contract(&self) -> &Contract {
        &self.contract
    }

    /// Says why this instance fails; see [`crate::fail`].
    ///
    /// # Errors
    ///
    /// The failure file can not be written.
    pub fn fail(&self, reason: &str) -> io::Result<bool> {
        fail_in(&self.contract, reason)
    }
}

fn read<T: DeserializeOwned>(contract: &Contract, file: ConfigFile) -> Result<T, LoadError> {
    let path = contract.config_file(file);
    match fs_err::read(&path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|source| LoadError::Malformed { path, source }),
        Err(source) => Err(LoadError::Unreadable { path, source }),
    }
}

/// Reads a file that not every job has.
fn read_if_there<T: DeserializeOwned>(contract: &Contract, file: ConfigFile) -> Result<Option<T>, LoadError> {
    match read(contract, file) {
        Err(LoadError::Unreadable { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

fn rank(contract: &Contract, resources: &ResourceConfig) -> Result<usize, LoadError> {
    let (host, hosts) = (&resources.current_host, &resources.hosts);
    hosts.iter().position(|name| name == host).ok_or_else(|| LoadError::UnknownHost {
        path: contract.config_file(ConfigFile::Resource),
        host: host.clone(),
        hosts: hosts.clone(),
    })
}

fn checkpoints_folder(contract: &Contract) -> Result<PathBuf, LoadError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct CheckpointConfig {
        local_path: Option<PathBuf>,
    }
    let config: Option<CheckpointConfig> = read_if_there(contract, ConfigFile::Checkpoint)?;
    let path = config.and_then(|config| config.local_path);
    Ok(path.map_or_else(|| contract.checkpoints_folder(), |path| contract.resolve(&path)))
}

fn job_name(contract: &Contract) -> Result<Option<String>, LoadError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct TrainingJobConfig {
        training_job_name: Option<String>,
    }
    let config: Option<TrainingJobConfig> = read_if_there(contract, ConfigFile::TrainingJob)?;
    Ok(config.and_then(|config| config.training_job_name))
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;

    const RESOURCES: &str = r#"{"current_host":"algo-2","hosts":["algo-1","algo-2","algo-3"]}"#;

    /// A tree with the three files that every platform writes, and `more` on top or in their place.
    fn tree(more: &[(ConfigFile, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let contract = Contract::new(folder.path());
        fs_err::create_dir_all(contract.config_folder()).unwrap();
        let usual = [
            (ConfigFile::Resource, RESOURCES),
            (ConfigFile::InputData, r#"{"matrix":{"TrainingInputMode":"File"}}"#),
            (ConfigFile::Hyperparameters, r#"{"top_k":"10"}"#),
        ];
        for (file, text) in usual.iter().chain(more) {
            fs_err::write(contract.config_file(*file), text).unwrap();
        }
        folder
    }

    fn load(more: &[(ConfigFile, &str)]) -> Result<Training, LoadError> {
        Training::load_from(tree(more).path())
    }

    #[test]
    fn an_instance_learns_who_it_is_and_what_it_has() {
        let folder = tree(&[(ConfigFile::TrainingJob, r#"{"TrainingJobName":"digits","Tags":[]}"#)]);
        let training = Training::load_from(folder.path()).unwrap();
        assert_eq!((training.host(), training.rank(), training.world_size()), ("algo-2", 1, 3));
        assert_eq!(training.hosts(), ["algo-1", "algo-2", "algo-3"]);
        assert_eq!(training.hyperparameter("top_k"), Some("10"));
        assert_eq!(training.hyperparameter("threshold"), None);
        assert_eq!(training.channel("matrix").unwrap(), folder.path().join("input/data/matrix"));
        assert_eq!(training.row_range(1797), 599..1198);
        assert_eq!(training.model_folder(), folder.path().join("model"));
        assert_eq!(training.output_folder(), folder.path().join("output/data"));
        assert_eq!(training.job_name(), Some("digits"));
    }

    #[test]
    fn a_platform_that_does_not_tell_the_job_name_is_good_enough() {
        assert_eq!(load(&[]).unwrap().job_name(), None);
    }

    #[test]
    fn checkpoints_lie_where_the_job_says() {
        let folder = tree(&[]);
        let training = Training::load_from(folder.path()).unwrap();
        assert_eq!(training.checkpoints_folder(), folder.path().join("checkpoints"));
        let elsewhere = load(&[(ConfigFile::Checkpoint, r#"{"LocalPath":"/state"}"#)]).unwrap();
        assert_eq!(elsewhere.checkpoints_folder(), Path::new("/state"));
    }

    #[test]
    fn a_missing_channel_is_named_with_those_that_there_are() {
        let error = load(&[]).unwrap().channel("matrx").unwrap_err();
        assert_eq!(error.to_string(), "the job has no channel `matrx`; its channels: [matrix]");
    }

    #[test]
    fn a_missing_file_is_named() {
        let folder = tree(&[]);
        let path = folder.path().join("input/config/hyperparameters.json");
        fs_err::remove_file(&path).unwrap();
        let error = Training::load_from(folder.path()).unwrap_err();
        assert_eq!(error.to_string(), format!("can not read {}", path.display()));
    }

    #[test]
    fn a_wrong_member_is_named_with_its_file() {
        let error = load(&[(ConfigFile::Resource, r#"{"current_host":"algo-1","hosts":3}"#)]).unwrap_err();
        assert!(
            error.to_string().ends_with("input/config/resourceconfig.json is not as the contract has it")
        );
        assert!(error.source().unwrap().to_string().starts_with("field `hosts`"));
    }

    #[test]
    fn a_host_outside_its_own_job_is_refused() {
        let error = load(&[(ConfigFile::Resource, r#"{"current_host":"algo-4","hosts":["algo-1"]}"#)]);
        let text = error.unwrap_err().to_string();
        assert!(text.ends_with("current_host `algo-4` is not one of hosts [algo-1]"), "{text}");
    }

    #[test]
    fn a_failing_instance_leaves_its_reason() {
        let folder = tree(&[]);
        let training = Training::load_from(folder.path()).unwrap();
        assert!(training.fail("row 5 is not finite").unwrap());
        let written = fs_err::read_to_string(folder.path().join("output/failure")).unwrap();
        assert_eq!(written, "row 5 is not finite");
    }
}
