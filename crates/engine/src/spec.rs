//! The valid request: what is left to do after this is only to plan it and to run it.
//!
//! A [`TrainingJobSpec`] is made from what was sent by one conversion that reports every violation at
//! once, in Amazon's words. What is valid but not built yet is refused by name afterwards, see
//! [`unsupported`].

mod build;
mod capabilities;
mod channel;
mod conflict;
mod enums;
mod instance_type;
mod model;
mod pattern;
mod rules;
mod settings;
mod shape;
mod tags;
#[cfg(test)]
mod tests;
mod uri;
mod violation;

use std::time::Duration;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::artifact::Codec;
use crate::wire::CreateTrainingJobRequest;

pub use capabilities::{Capabilities, Unsupported, unsupported};
pub use channel::{
    ChannelSource, ChannelSpec, Compression, Distribution, FileSystemAccess, FileSystemType, InputMode,
    RecordWrapper, S3DataType,
};
pub use conflict::Conflict;
pub use enums::{LOCAL_INSTANCE_TYPES, PROCESSING_INSTANCE_TYPES, TRAINING_INSTANCE_TYPES};
pub use instance_type::InstanceType;
pub use settings::{MERGE_ENDINGS, MergeSpec, Settings, ShardBy};
pub(crate) use tags::priority;
pub use uri::{ObjectUri, Place, UriError};
pub use violation::{Rule, Violation, Violations};

/// A valid training job.
#[derive(Debug, Clone, PartialEq)]
pub struct TrainingJobSpec {
    /// Name of the training job.
    pub name: String,
    /// What runs.
    pub algorithm: AlgorithmSpec,
    /// The role that the job would assume at Amazon.
    pub role_arn: Option<String>,
    /// The string map that the algorithm reads, in the order in which it was sent.
    pub hyperparameters: IndexMap<String, String>,
    /// Environment variables of every instance, in the order in which they were sent.
    pub environment: IndexMap<String, String>,
    /// The channels; their names are unique.
    pub channels: Vec<ChannelSpec>,
    /// Where the artifact goes.
    pub output: OutputSpec,
    /// How many instances, and of which type.
    pub resources: ResourceSpec,
    /// When the job is stopped although it is not done.
    pub stopping: StoppingSpec,
    /// Labels; their keys are unique.
    pub tags: Vec<Tag>,
    /// Our own settings.
    pub settings: Settings,
    /// Files kept across attempts.
    pub checkpoint: Option<CheckpointSpec>,
    /// How many further attempts may follow the first.
    pub retries: Option<u32>,
    /// Whether the instances are cut off from every network.
    pub network_isolation: bool,
    /// Whether traffic between instances is encrypted.
    pub traffic_encryption: bool,
    /// Whether interruptible capacity is used.
    pub managed_spot: bool,
    /// The request as it was sent, for all that is only shown again.
    pub request: CreateTrainingJobRequest,
}

/// What runs, and what is read out of its log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlgorithmSpec {
    /// `TrainingImage`, or `AlgorithmName` where the request names a stored algorithm.
    pub image: String,
    /// Whether `image` is the name of a stored algorithm.
    pub by_name: bool,
    /// Input mode of the channels that name none.
    pub input_mode: InputMode,
    /// Metrics that are read out of the log; their names are unique.
    pub metrics: Vec<MetricDefinition>,
    /// Program that takes the place of the image's own entrypoint.
    pub entrypoint: Option<Vec<String>>,
    /// Arguments that take the place of `train`.
    pub arguments: Option<Vec<String>>,
}

/// A metric that is read out of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetricDefinition {
    /// Name of the metric.
    pub name: String,
    /// Regular expression whose first group is the value; it need not be one that we can read, see
    /// [`TrainingJobSpec::warnings`].
    pub regex: String,
}

/// Where the artifact goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputSpec {
    /// Prefix below which `<job>/output/` is written.
    pub uri: ObjectUri,
    /// Key that the artifact is encrypted with; an empty one counts as none.
    pub kms_key_id: Option<String>,
    /// Whether there is one archive or the files as they are.
    pub compression: OutputCompression,
}

/// Whether the artifact is one archive or the files as they are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OutputCompression {
    /// `model.tar.gz`.
    #[default]
    Gzip,
    /// `model.tar.zst`: our own, which Amazon has not.
    Zstd,
    /// A prefix with the files.
    None,
}

impl OutputCompression {
    /// How archives are compressed; what is no model is an archive in any case.
    pub fn codec(self) -> Codec {
        match self {
            Self::Gzip | Self::None => Codec::Gzip,
            Self::Zstd => Codec::Zstd,
        }
    }

    /// The name of the archive of what was written to `/opt/ml/model`.
    pub fn model_archive(self) -> String {
        self.codec().named("model")
    }

    /// The name of the archive of what was written to `/opt/ml/output/data`.
    pub fn output_archive(self) -> String {
        self.codec().named("output")
    }
}

/// How many instances, and of which type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceSpec {
    /// The groups in the order of the hosts; a job of one type has one group of [`ONE_GROUP`]'s name.
    pub groups: Vec<InstanceGroup>,
    /// Whether the request names groups.
    pub heterogeneous: bool,
    /// Room for input and output of each instance, in GB.
    pub volume_size_gb: Option<u32>,
    /// How long the instances are kept for the next job; zero counts as none.
    pub keep_alive: Option<Duration>,
}

/// Name of the only group of a job whose instances are all of one type, as the container is told.
pub const ONE_GROUP: &str = "homogeneousCluster";

/// Most instances that one job may have.
pub const MAX_INSTANCES: u64 = 10_000;

impl ResourceSpec {
    /// Number of instances of the job, from 1 to [`MAX_INSTANCES`].
    pub fn instance_count(&self) -> u32 {
        self.groups.iter().map(|group| group.count).sum()
    }

    /// The group of each host, in the order of the hosts.
    pub fn group_of_each_host(&self) -> impl Iterator<Item = &InstanceGroup> {
        self.groups.iter().flat_map(|group| std::iter::repeat_n(group, group.count as usize))
    }
}

/// Instances of one type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceGroup {
    /// Name of the group, unique in the job.
    pub name: String,
    /// Type as sent, such as `ml.m5.large` or `local`.
    pub instance_type: String,
    /// Number of instances, at least 1.
    pub count: u32,
}

/// When a job is stopped although it is not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoppingSpec {
    /// Longest run.
    pub max_runtime: Duration,
    /// Longest run with all waiting for interruptible capacity.
    pub max_wait: Option<Duration>,
    /// Longest wait for capacity.
    pub max_pending: Option<Duration>,
}

/// Longest run of a job that names none: a day.
pub const DEFAULT_MAX_RUNTIME: Duration = Duration::from_secs(86_400);

/// Files kept across attempts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointSpec {
    /// Prefix where they are kept.
    pub uri: ObjectUri,
    /// Folder that they appear in.
    pub local_path: String,
}

/// Folder of the checkpoints of a job that names none.
pub const DEFAULT_CHECKPOINT_PATH: &str = "/opt/ml/checkpoints/";

/// A label.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tag {
    /// Name of the label.
    pub key: String,
    /// Value of the label.
    pub value: String,
}

impl TryFrom<CreateTrainingJobRequest> for TrainingJobSpec {
    type Error = Violations;

    /// Checks a request against every limit and rule of the API, and reports all that is wrong at once.
    fn try_from(mut request: CreateTrainingJobRequest) -> Result<Self, Violations> {
        let taken = tags::take(&mut request);
        let (keys, wrong) = taken.map_or_else(|wrong| (Vec::new(), wrong), |keys| (keys, Vec::new()));
        let mut violations = tags::by_key(shape::violations(&request), &request, &keys);
        violations.extend(rules::violations(&request));
        violations.extend(wrong.into_iter().map(Violation::from));
        if !violations.is_empty() {
            return Err(Violations(violations));
        }
        build::spec(request).map_err(|violation| Violations(vec![violation]))
    }
}

impl TrainingJobSpec {
    /// What is allowed but will not do what it seems to ask for, one sentence each.
    pub fn warnings(&self) -> Vec<String> {
        let metrics = self.algorithm.metrics.iter().filter_map(metric_warning);
        let network = self.request.vpc_config.as_ref().map(|_| {
            "VpcConfig: subnets and security groups are Amazon's; here the instances are in a network of the job's own"
                .to_owned()
        });
        metrics.chain(network).collect()
    }
}

/// Amazon takes any text for the expression of a metric; one that gives no value is worth a word.
fn metric_warning(metric: &MetricDefinition) -> Option<String> {
    let name = &metric.name;
    match regex::Regex::new(&metric.regex) {
        Ok(regex) if regex.captures_len() > 1 => None,
        Ok(_) => {
            Some(format!("metric '{name}': the regular expression has no group (…), so it gives no values"))
        }
        Err(error) => Some(format!(
            "metric '{name}': the regular expression can not be read, so it gives no values: {}",
            last_line(&error.to_string())
        )),
    }
}

/// The message of a parse error without the picture of the expression that stands above it.
fn last_line(text: &str) -> &str {
    text.lines().last().unwrap_or(text).trim_start_matches("error: ")
}
