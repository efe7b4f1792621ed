//! What is valid but not built yet: refused by name, never swallowed.

use super::channel::{ChannelSource, ChannelSpec, Compression, InputMode, RecordWrapper, S3DataType};
use super::{OutputCompression, TrainingJobSpec};
use crate::wire;

/// What can be done with a job beyond the plain path, which is always there: files in File mode by
/// prefix, replicated or sharded, on instances of one type, packed into one archive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Channels as named pipes.
    pub pipe: bool,
    /// Channels whose files are fetched when they are read.
    pub fast_file: bool,
    /// Channels by manifest.
    pub manifest_files: bool,
    /// Channels by augmented manifest, with the names of their attributes.
    pub augmented_manifests: bool,
    /// Channels of conversations.
    pub converse: bool,
    /// Channels on a shared file system.
    pub file_systems: bool,
    /// Channels of Amazon's hub: datasets, models and the consent to their licences.
    pub hub: bool,
    /// Channels that are unpacked while they are streamed.
    pub channel_gzip: bool,
    /// Channels whose objects are wrapped as records.
    pub record_io: bool,
    /// Another order of the objects in each epoch.
    pub shuffle: bool,
    /// Instances of several types, and channels for some of them.
    pub instance_groups: bool,
    /// Files kept across attempts.
    pub checkpoints: bool,
    /// Interruptible capacity, and the waiting for it.
    pub managed_spot: bool,
    /// A longest wait for capacity.
    pub max_pending: bool,
    /// Instances without any network.
    pub network_isolation: bool,
    /// Encrypted traffic between instances.
    pub traffic_encryption: bool,
    /// Private networks of the user.
    pub vpc: bool,
    /// The files of the artifact as they are, without an archive.
    pub output_uncompressed: bool,
    /// Keys that volumes are encrypted with.
    pub kms: bool,
    /// Keys that outputs are encrypted with.
    pub output_kms: bool,
    /// Instances that are kept for the next job.
    pub warm_pools: bool,
    /// Reserved capacity.
    pub training_plans: bool,
    /// Placement on certain servers.
    pub placement: bool,
    /// Stored algorithms by name.
    pub algorithm_name: bool,
    /// Images of private registries.
    pub private_registry: bool,
    /// Metrics as time series.
    pub metrics_time_series: bool,
    /// The debugger: what its hook saves, and its rules.
    pub debugger: bool,
    /// The profiler and its rules.
    pub profiler: bool,
    /// TensorBoard files.
    pub tensorboard: bool,
    /// Experiments.
    pub experiment: bool,
    /// Further attempts after a failure.
    pub retry_strategy: bool,
    /// A shell into the instances.
    pub remote_debug: bool,
    /// Tests of the instances before use.
    pub infra_check: bool,
    /// Session tags that are passed on.
    pub session_chaining: bool,
    /// Amazon's own jobs.
    pub serverless: bool,
    /// MLflow.
    pub mlflow: bool,
    /// Model packages.
    pub model_package: bool,
}

impl Capabilities {
    /// The plain path alone.
    pub fn none() -> Self {
        Self::default()
    }
}

/// A member that asks for what is not there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{member}: {why}")]
pub struct Unsupported {
    /// Path of the member in Amazon's names, such as `CheckpointConfig`.
    pub member: String,
    /// Why it is refused, with the value and the channel where there are several.
    pub why: String,
}

/// Every member of a valid request that asks for more than the capabilities allow, in the order of the
/// API. A member that is switched off, such as `EnableNetworkIsolation: false`, asks for nothing.
pub fn unsupported(spec: &TrainingJobSpec, capabilities: &Capabilities) -> Vec<Unsupported> {
    let mut refused = whole_job(spec, capabilities);
    refused.extend(resources(spec, capabilities));
    let sent = spec.request.input_data_config.iter().flatten();
    for (channel, sent) in spec.channels.iter().zip(sent) {
        let asked = channel_modes(channel, sent, capabilities).into_iter();
        let asked = asked.chain(channel_source(channel, capabilities)).chain(hub(sent, capabilities));
        refused.extend(asked.filter(|asked| asked.missing).map(|asked| asked.refusal(&channel.name)));
    }
    refused
}

/// A member of a channel that may ask for a capability.
struct Asked {
    /// Path of the member in Amazon's names.
    member: &'static str,
    /// Its value, where other values are no problem.
    value: Option<&'static str>,
    /// Whether it asks for what is not there.
    missing: bool,
}

impl Asked {
    fn refusal(&self, channel: &str) -> Unsupported {
        let value = self.value.map(|value| format!("{value} is ")).unwrap_or_default();
        let why = format!("{value}not supported yet (channel '{channel}')");
        Unsupported { member: self.member.to_owned(), why }
    }
}

/// Members of the answer of `DescribeTrainingJob` that have their place in a request, and no meaning there.
fn told_alone(sent: &wire::ResourceConfig) -> impl Iterator<Item = Unsupported> {
    let selected = [
        ("ResourceConfig.SelectedInstanceType", sent.selected_instance_type.is_some()),
        ("ResourceConfig.SelectedInstanceCount", sent.selected_instance_count.is_some()),
    ];
    let why = "not supported in a request: DescribeTrainingJob tells it";
    let refusal = |(member, _): (&str, bool)| Unsupported { member: member.to_owned(), why: why.to_owned() };
    selected.into_iter().filter(|(_, sent)| *sent).map(refusal)
}

/// Refuses a member that is asked for without a capability.
fn refuse((member, missing): (&'static str, bool)) -> Option<Unsupported> {
    missing.then(|| Unsupported { member: member.to_owned(), why: "not supported yet".to_owned() })
}

fn whole_job(spec: &TrainingJobSpec, can: &Capabilities) -> Vec<Unsupported> {
    let sent = &spec.request;
    let on = |switch: Option<bool>| switch == Some(true);
    let algorithm = sent.algorithm_specification.as_ref();
    let time_series = algorithm.and_then(|algorithm| algorithm.enable_sage_maker_metrics_time_series);
    let remote = sent.remote_debug_config.as_ref().and_then(|config| config.enable_remote_debug);
    let check = sent.infra_check_config.as_ref().and_then(|config| config.enable_infra_check);
    let chaining = sent.session_chaining_config.as_ref();
    let chaining = chaining.and_then(|config| config.enable_session_tag_chaining);
    let uncompressed = spec.output.compression == OutputCompression::None;
    let rules = |rules: &Option<Vec<_>>| rules.as_ref().is_some_and(|rules| !rules.is_empty());
    [
        ("AlgorithmSpecification.AlgorithmName", spec.algorithm.by_name && !can.algorithm_name),
        (
            "AlgorithmSpecification.EnableSageMakerMetricsTimeSeries",
            on(time_series) && !can.metrics_time_series,
        ),
        ("AlgorithmSpecification.TrainingImageConfig", private_registry(spec) && !can.private_registry),
        ("OutputDataConfig.KmsKeyId", spec.output.kms_key_id.is_some() && !can.output_kms),
        ("OutputDataConfig.CompressionType", uncompressed && !can.output_uncompressed),
        ("VpcConfig", sent.vpc_config.is_some() && !can.vpc),
        ("StoppingCondition.MaxWaitTimeInSeconds", spec.stopping.max_wait.is_some() && !can.managed_spot),
        (
            "StoppingCondition.MaxPendingTimeInSeconds",
            spec.stopping.max_pending.is_some() && !can.max_pending,
        ),
        ("EnableNetworkIsolation", spec.network_isolation && !can.network_isolation),
        ("EnableInterContainerTrafficEncryption", spec.traffic_encryption && !can.traffic_encryption),
        ("EnableManagedSpotTraining", spec.managed_spot && !can.managed_spot),
        ("CheckpointConfig", spec.checkpoint.is_some() && !can.checkpoints),
        ("DebugHookConfig", hook(spec) && !can.debugger),
        ("DebugRuleConfigurations", rules(&sent.debug_rule_configurations) && !can.debugger),
        ("TensorBoardOutputConfig", sent.tensor_board_output_config.is_some() && !can.tensorboard),
        ("ExperimentConfig", sent.experiment_config.is_some() && !can.experiment),
        ("ProfilerConfig", profiler(spec) && !can.profiler),
        ("ProfilerRuleConfigurations", rules(&sent.profiler_rule_configurations) && !can.profiler),
        ("RetryStrategy", spec.retries.is_some() && !can.retry_strategy),
        ("RemoteDebugConfig", on(remote) && !can.remote_debug),
        ("InfraCheckConfig", on(check) && !can.infra_check),
        ("SessionChainingConfig", on(chaining) && !can.session_chaining),
        ("ServerlessJobConfig", sent.serverless_job_config.is_some() && !can.serverless),
        ("MlflowConfig", sent.mlflow_config.is_some() && !can.mlflow),
        ("ModelPackageConfig", sent.model_package_config.is_some() && !can.model_package),
    ]
    .into_iter()
    .filter_map(refuse)
    .collect()
}

/// Whether the image comes from elsewhere than the platform's own registry.
fn private_registry(spec: &TrainingJobSpec) -> bool {
    let algorithm = spec.request.algorithm_specification.as_ref();
    let config = algorithm.and_then(|algorithm| algorithm.training_image_config.as_ref());
    config.is_some_and(|config| {
        config.training_repository_access_mode.as_deref() != Some("Platform")
            || config.training_repository_auth_config.is_some()
    })
}

/// Whether the hook is to save anything. Amazon's SDK sends one that names nothing with every job; it
/// does nothing there either unless the image brings the debugger's library.
fn hook(spec: &TrainingJobSpec) -> bool {
    spec.request.debug_hook_config.as_ref().is_some_and(|hook| {
        let collections = hook.collection_configurations.as_ref().is_some_and(|list| !list.is_empty());
        let parameters = hook.hook_parameters.as_ref().is_some_and(|map| !map.0.is_empty());
        collections || parameters || hook.local_path.is_some()
    })
}

/// Whether the profiler is on; a configuration that does not switch it off switches it on.
fn profiler(spec: &TrainingJobSpec) -> bool {
    spec.request.profiler_config.as_ref().is_some_and(|config| config.disable_profiler != Some(true))
}

fn resources(spec: &TrainingJobSpec, can: &Capabilities) -> Vec<Unsupported> {
    let sent = spec.request.resource_config.as_ref();
    let key = sent.and_then(|sent| sent.volume_kms_key_id.as_ref()).is_some_and(|key| !key.is_empty());
    let plan = sent.is_some_and(|sent| sent.training_plan_arn.is_some());
    let preferred = sent.and_then(|sent| sent.instance_preferences.as_ref()).into_iter().flatten();
    let plans = preferred.into_iter().any(|one| one.training_plan_arns.is_some());
    let placement = sent.is_some_and(|sent| sent.instance_placement_config.is_some());
    [
        ("ResourceConfig.VolumeKmsKeyId", key && !can.kms),
        ("ResourceConfig.KeepAlivePeriodInSeconds", spec.resources.keep_alive.is_some() && !can.warm_pools),
        ("ResourceConfig.InstanceGroups", spec.resources.heterogeneous && !can.instance_groups),
        ("ResourceConfig.TrainingPlanArn", plan && !can.training_plans),
        ("ResourceConfig.InstancePlacementConfig", placement && !can.placement),
        ("ResourceConfig.InstancePreferences.TrainingPlanArns", plans && !can.training_plans),
    ]
    .into_iter()
    .filter_map(refuse)
    .chain(sent.into_iter().flat_map(told_alone))
    .collect()
}

fn channel_modes(channel: &ChannelSpec, sent: &wire::Channel, can: &Capabilities) -> Vec<Asked> {
    let member = match sent.input_mode {
        Some(_) => "InputDataConfig.InputMode",
        None => "AlgorithmSpecification.TrainingInputMode",
    };
    let mode_missing = match channel.input_mode {
        InputMode::File => false,
        InputMode::Pipe => !can.pipe,
        InputMode::FastFile => !can.fast_file,
    };
    let gzip = channel.compression == Compression::Gzip && !can.channel_gzip;
    let records = channel.record_wrapper == RecordWrapper::RecordIo && !can.record_io;
    let shuffle = channel.shuffle_seed.is_some() && !can.shuffle;
    vec![
        Asked { member, value: Some(channel.input_mode.word()), missing: mode_missing },
        Asked { member: "InputDataConfig.CompressionType", value: Some("Gzip"), missing: gzip },
        Asked { member: "InputDataConfig.RecordWrapperType", value: Some("RecordIO"), missing: records },
        Asked { member: "InputDataConfig.ShuffleConfig", value: None, missing: shuffle },
    ]
}

fn channel_source(channel: &ChannelSpec, can: &Capabilities) -> Vec<Asked> {
    let asked = |member, value, missing| Asked { member, value, missing };
    match &channel.source {
        ChannelSource::S3 { data_type, attribute_names, instance_groups, .. } => {
            let type_missing = match data_type {
                S3DataType::S3Prefix => false,
                S3DataType::ManifestFile => !can.manifest_files,
                S3DataType::AugmentedManifestFile => !can.augmented_manifests,
                S3DataType::Converse => !can.converse,
            };
            let attributes = !attribute_names.is_empty() && !can.augmented_manifests;
            let groups = !instance_groups.is_empty() && !can.instance_groups;
            vec![
                asked(
                    "InputDataConfig.DataSource.S3DataSource.S3DataType",
                    Some(data_type.word()),
                    type_missing,
                ),
                asked("InputDataConfig.DataSource.S3DataSource.AttributeNames", None, attributes),
                asked("InputDataConfig.DataSource.S3DataSource.InstanceGroupNames", None, groups),
            ]
        }
        ChannelSource::FileSystem { kind, .. } => {
            let member = "InputDataConfig.DataSource.FileSystemDataSource";
            vec![asked(member, Some(kind.word()), !can.file_systems)]
        }
        ChannelSource::Dataset { .. } => {
            vec![asked("InputDataConfig.DataSource.DatasetSource", None, !can.hub)]
        }
    }
}

/// What a channel asks of Amazon's hub; consent that is not given asks for nothing.
fn hub(sent: &wire::Channel, can: &Capabilities) -> Vec<Asked> {
    let sent = sent.data_source.as_ref().and_then(|source| source.s3_data_source.as_ref());
    let model = sent.and_then(|sent| sent.model_access_config.as_ref());
    let consent = model.is_some_and(|model| model.accept_eula == Some(true));
    let content = sent.is_some_and(|sent| sent.hub_access_config.is_some());
    let asked = |member, missing| Asked { member, value: None, missing };
    vec![
        asked("InputDataConfig.DataSource.S3DataSource.ModelAccessConfig", consent && !can.hub),
        asked("InputDataConfig.DataSource.S3DataSource.HubAccessConfig", content && !can.hub),
    ]
}
