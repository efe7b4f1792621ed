//! From a request without violations to the spec.
//!
//! Nothing is checked here that was not checked before; a member that would be missing all the same is
//! reported like any other.

use std::time::Duration;

use super::settings::ZSTD;
use super::{
    AlgorithmSpec, ChannelSource, ChannelSpec, CheckpointSpec, Compression, Conflict,
    DEFAULT_CHECKPOINT_PATH, DEFAULT_MAX_RUNTIME, Distribution, FileSystemAccess, FileSystemType, InputMode,
    InstanceGroup, MergeSpec, MetricDefinition, ONE_GROUP, ObjectUri, OutputCompression, OutputSpec,
    RecordWrapper, ResourceSpec, Rule, S3DataType, Settings, ShardBy, StoppingSpec, Tag, TrainingJobSpec,
    Violation, rules,
};
use crate::wire;

/// The spec of a request.
pub(super) fn spec(request: wire::CreateTrainingJobRequest) -> Result<TrainingJobSpec, Violation> {
    let algorithm = algorithm(required("algorithmSpecification", request.algorithm_specification.as_ref())?)?;
    let channels = request.input_data_config.iter().flatten();
    Ok(TrainingJobSpec {
        name: required("trainingJobName", request.training_job_name.clone())?,
        role_arn: request.role_arn.clone(),
        hyperparameters: request.hyper_parameters.as_ref().map(wire::TextMap::texts).unwrap_or_default(),
        environment: request.environment.as_ref().map(wire::TextMap::texts).unwrap_or_default(),
        channels: channels.map(|sent| channel(sent, algorithm.input_mode)).collect::<Result<_, _>>()?,
        algorithm,
        output: output(
            required("outputDataConfig", request.output_data_config.as_ref())?,
            request.trainyard.as_ref(),
        )?,
        resources: resources(required("resourceConfig", request.resource_config.as_ref())?)?,
        stopping: stopping(request.stopping_condition.as_ref()),
        tags: request.tags.iter().flatten().map(tag).collect::<Result<_, _>>()?,
        settings: settings(request.trainyard.as_ref())?,
        checkpoint: request.checkpoint_config.as_ref().map(checkpoint).transpose()?,
        retries: request.retry_strategy.as_ref().and_then(|retry| count(retry.maximum_retry_attempts)),
        network_isolation: request.enable_network_isolation.unwrap_or_default(),
        traffic_encryption: request.enable_inter_container_traffic_encryption.unwrap_or_default(),
        managed_spot: request.enable_managed_spot_training.unwrap_or_default(),
        request,
    })
}

fn required<T>(path: &str, value: Option<T>) -> Result<T, Violation> {
    value.ok_or_else(|| Violation::missing(path))
}

/// The meaning of a word that has to be there.
fn word<T>(
    path: &str,
    word: Option<&str>,
    words: &'static [&'static str],
    meaning: fn(&str) -> Option<T>,
) -> Result<T, Violation> {
    let word = required(path, word)?;
    meaning(word).ok_or_else(|| Violation::broken(path, word, Rule::OneOf(words)))
}

fn uri(member: &str, text: Option<&String>) -> Result<ObjectUri, Violation> {
    let text = required(member, text)?;
    let wrong = |wrong| Conflict::Uri { member: member.to_owned(), wrong };
    Ok(ObjectUri::parse(text).map_err(wrong)?)
}

fn count(number: Option<i64>) -> Option<u32> {
    u32::try_from(number?).ok()
}

fn seconds(number: Option<i64>) -> Option<Duration> {
    Some(Duration::from_secs(u64::try_from(number?).ok()?))
}

fn algorithm(sent: &wire::AlgorithmSpecification) -> Result<AlgorithmSpec, Violation> {
    let image = sent.training_image.as_ref().filter(|image| !image.is_empty());
    let metric = |sent: &wire::MetricDefinition| {
        Ok(MetricDefinition {
            name: required("name", sent.name.clone())?,
            regex: required("regex", sent.regex.clone())?,
        })
    };
    Ok(AlgorithmSpec {
        image: required("algorithmSpecification", image.or(sent.algorithm_name.as_ref()).cloned())?,
        by_name: image.is_none(),
        input_mode: word(
            "algorithmSpecification.trainingInputMode",
            sent.training_input_mode.as_deref(),
            InputMode::WORDS,
            InputMode::from_word,
        )?,
        metrics: sent.metric_definitions.iter().flatten().map(metric).collect::<Result<_, Violation>>()?,
        entrypoint: sent.container_entrypoint.clone(),
        arguments: sent.container_arguments.clone(),
    })
}

fn channel(sent: &wire::Channel, default_mode: InputMode) -> Result<ChannelSpec, Violation> {
    let sources = required("dataSource", sent.data_source.as_ref())?;
    let s3 = sources.s3_data_source.as_ref();
    let distribution = s3.and_then(|s3| s3.s3_data_distribution_type.as_deref());
    let compression = sent.compression_type.as_deref().and_then(Compression::from_word);
    let wrapper = sent.record_wrapper_type.as_deref().and_then(RecordWrapper::from_word);
    Ok(ChannelSpec {
        name: required("channelName", sent.channel_name.clone())?,
        source: source(sources)?,
        distribution: distribution.and_then(Distribution::from_word).unwrap_or(Distribution::FullyReplicated),
        content_type: sent.content_type.clone(),
        compression: compression.unwrap_or(Compression::None),
        record_wrapper: wrapper.unwrap_or(RecordWrapper::None),
        input_mode: sent.input_mode.as_deref().and_then(InputMode::from_word).unwrap_or(default_mode),
        shuffle_seed: sent.shuffle_config.as_ref().and_then(|shuffle| shuffle.seed),
    })
}

fn source(sent: &wire::DataSource) -> Result<ChannelSource, Violation> {
    if let Some(s3) = &sent.s3_data_source {
        return Ok(ChannelSource::S3 {
            data_type: word(
                "s3DataType",
                s3.s3_data_type.as_deref(),
                S3DataType::WORDS,
                S3DataType::from_word,
            )?,
            uri: uri("S3Uri", s3.s3_uri.as_ref())?,
            attribute_names: s3.attribute_names.clone().unwrap_or_default(),
            instance_groups: s3.instance_group_names.clone().unwrap_or_default(),
        });
    }
    if let Some(dataset) = &sent.dataset_source {
        return Ok(ChannelSource::Dataset { arn: required("datasetArn", dataset.dataset_arn.clone())? });
    }
    file_system(required("dataSource", sent.file_system_data_source.as_ref())?)
}

fn file_system(sent: &wire::FileSystemDataSource) -> Result<ChannelSource, Violation> {
    let access = sent.file_system_access_mode.as_deref();
    let kind = sent.file_system_type.as_deref();
    Ok(ChannelSource::FileSystem {
        id: required("fileSystemId", sent.file_system_id.clone())?,
        access: word("fileSystemAccessMode", access, FileSystemAccess::WORDS, FileSystemAccess::from_word)?,
        kind: word("fileSystemType", kind, FileSystemType::WORDS, FileSystemType::from_word)?,
        directory: required("directoryPath", sent.directory_path.clone())?,
    })
}

fn output(
    sent: &wire::OutputDataConfig,
    settings: Option<&wire::TrainyardSettings>,
) -> Result<OutputSpec, Violation> {
    let own = settings.and_then(|settings| settings.output.as_ref()?.compression.as_deref());
    let compression = match (sent.compression_type.as_deref(), own) {
        (Some("NONE"), _) => OutputCompression::None,
        (_, Some(ZSTD)) => OutputCompression::Zstd,
        _ => OutputCompression::Gzip,
    };
    Ok(OutputSpec {
        uri: uri("OutputDataConfig.S3OutputPath", sent.s3_output_path.as_ref())?,
        kms_key_id: sent.kms_key_id.clone().filter(|key| !key.is_empty()),
        compression,
    })
}

fn resources(sent: &wire::ResourceConfig) -> Result<ResourceSpec, Violation> {
    let heterogeneous = rules::has_groups(sent);
    let groups = if heterogeneous {
        sent.instance_groups.iter().flatten().map(group).collect::<Result<_, _>>()?
    } else {
        // This machine has capacity at once for whatever is wanted most.
        let wanted = sent.instance_preferences.iter().flatten().next();
        let instance_type = wanted.map_or(&sent.instance_type, |wanted| &wanted.instance_type);
        let number = wanted.and_then(|wanted| wanted.instance_count).or(sent.instance_count);
        vec![InstanceGroup {
            name: ONE_GROUP.to_owned(),
            instance_type: required("resourceConfig.instanceType", instance_type.clone())?,
            count: required("resourceConfig.instanceCount", count(number))?,
        }]
    };
    Ok(ResourceSpec {
        groups,
        heterogeneous,
        volume_size_gb: count(sent.volume_size_in_gb),
        keep_alive: seconds(sent.keep_alive_period_in_seconds).filter(|period| !period.is_zero()),
    })
}

fn group(sent: &wire::InstanceGroup) -> Result<InstanceGroup, Violation> {
    Ok(InstanceGroup {
        name: required("instanceGroupName", sent.instance_group_name.clone())?,
        instance_type: required("instanceType", sent.instance_type.clone())?,
        count: required("instanceCount", count(sent.instance_count))?,
    })
}

fn stopping(sent: Option<&wire::StoppingCondition>) -> StoppingSpec {
    StoppingSpec {
        max_runtime: sent
            .and_then(|sent| seconds(sent.max_runtime_in_seconds))
            .unwrap_or(DEFAULT_MAX_RUNTIME),
        max_wait: sent.and_then(|sent| seconds(sent.max_wait_time_in_seconds)),
        max_pending: sent.and_then(|sent| seconds(sent.max_pending_time_in_seconds)),
    }
}

fn tag(sent: &wire::Tag) -> Result<Tag, Violation> {
    Ok(Tag { key: required("key", sent.key.clone())?, value: required("value", sent.value.clone())? })
}

fn checkpoint(sent: &wire::CheckpointConfig) -> Result<CheckpointSpec, Violation> {
    let local_path = sent.local_path.clone().filter(|path| !path.is_empty());
    Ok(CheckpointSpec {
        uri: uri("CheckpointConfig.S3Uri", sent.s3_uri.as_ref())?,
        local_path: local_path.unwrap_or_else(|| DEFAULT_CHECKPOINT_PATH.to_owned()),
    })
}

fn settings(sent: Option<&wire::TrainyardSettings>) -> Result<Settings, Violation> {
    let shard_by = sent.and_then(|sent| sent.shard_by.as_deref()).and_then(ShardBy::from_word);
    let output = sent.and_then(|sent| sent.output.as_ref());
    Ok(Settings {
        merge: sent.and_then(|sent| sent.merge.as_ref()).map(merge).transpose()?,
        shard_by: shard_by.unwrap_or(ShardBy::Key),
        grace: sent.and_then(|sent| seconds(sent.grace_in_seconds)),
        shm_size_gb: sent.and_then(|sent| count(sent.shm_size_in_gb)),
        pids_limit: sent.and_then(|sent| count(sent.pids_limit)),
        output_level: output.and_then(|output| count(output.level)),
        output_ignore: output.and_then(|output| output.ignore.clone()).unwrap_or_default(),
        output_warn_above_gb: output.and_then(|output| count(output.warn_above_in_gb)),
    })
}

fn merge(sent: &wire::MergeSettings) -> Result<MergeSpec, Violation> {
    Ok(MergeSpec {
        glob: sent.glob.clone(),
        output: required("trainyard.merge.output", sent.output.clone())?,
        order_by: sent.order_by.clone(),
    })
}
