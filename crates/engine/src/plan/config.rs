//! The files below `input/config`, with the content that SageMaker gives them.

use indexmap::IndexMap;
use serde_json::{Value, json};
use trainyard_toolkit::contract::{
    ChannelConfig, ConfigFile, Hyperparameters, InputDataConfig, InstanceGroup, ResourceConfig,
};

use super::Surroundings;
use crate::spec::{
    ChannelSource, ChannelSpec, Compression, Distribution, InputMode, OutputCompression, RecordWrapper,
    S3DataType, TrainingJobSpec,
};

/// Everything that goes to `input/config` of one host: file name and content.
pub(super) fn config_files(
    spec: &TrainingJobSpec,
    surroundings: &Surroundings,
    hosts: &[String],
    rank: usize,
) -> IndexMap<String, String> {
    let metrics: Vec<_> =
        spec.algorithm.metrics.iter().map(|m| json!({"Name": m.name, "Regex": m.regex})).collect();
    let group = spec.resources.group_of_each_host().nth(rank);
    let reaches = |channel: &&ChannelSpec| group.is_some_and(|group| channel.is_for(&group.name));
    let channels: Vec<_> = spec.channels.iter().filter(reaches).collect();
    let files = [
        (ConfigFile::Hyperparameters, Hyperparameters(spec.hyperparameters.clone()).to_json()),
        (ConfigFile::InputData, input_data(&channels).to_json()),
        (ConfigFile::Resource, resource(spec, surroundings, hosts, rank).to_json()),
        (ConfigFile::Init, init(spec, &channels, hosts.len(), rank).to_string()),
        (ConfigFile::MetricDefinitions, Value::Array(metrics).to_string()),
        (ConfigFile::TrainingJob, training_job(spec, surroundings).to_string()),
        (ConfigFile::UpstreamOutputData, "[]".to_owned()),
    ];
    files.into_iter().map(|(file, content)| (file.name().to_owned(), content)).collect()
}

fn input_data(channels: &[&ChannelSpec]) -> InputDataConfig {
    use trainyard_toolkit::contract as written;
    let config = |channel: &&ChannelSpec| ChannelConfig {
        content_type: channel.content_type.clone(),
        training_input_mode: match channel.input_mode {
            InputMode::File => written::InputMode::File,
            InputMode::Pipe => written::InputMode::Pipe,
            InputMode::FastFile => written::InputMode::FastFile,
        },
        s3_distribution_type: match channel.distribution {
            Distribution::FullyReplicated => written::Distribution::FullyReplicated,
            Distribution::ShardedByS3Key => written::Distribution::ShardedByS3Key,
        },
        record_wrapper_type: match channel.record_wrapper {
            RecordWrapper::None => written::RecordWrapper::None,
            RecordWrapper::RecordIo => written::RecordWrapper::RecordIO,
        },
    };
    InputDataConfig(channels.iter().map(|channel| (channel.name.clone(), config(channel))).collect())
}

fn resource(
    spec: &TrainingJobSpec,
    surroundings: &Surroundings,
    hosts: &[String],
    rank: usize,
) -> ResourceConfig {
    let mut rest = hosts;
    let mut groups = Vec::new();
    for group in &spec.resources.groups {
        let (own, others) = rest.split_at(rest.len().min(group.count as usize));
        rest = others;
        groups.push(InstanceGroup {
            instance_group_name: group.name.clone(),
            instance_type: group.instance_type.clone(),
            hosts: own.to_vec(),
        });
    }
    let own = groups.iter().find(|group| group.hosts.contains(&hosts[rank]));
    ResourceConfig {
        current_host: hosts[rank].clone(),
        current_instance_type: own.map(|group| group.instance_type.clone()),
        current_group_name: own.map(|group| group.instance_group_name.clone()),
        hosts: hosts.to_vec(),
        instance_groups: Some(groups),
        network_interface_name: Some(surroundings.network_interface.clone()),
    }
}

/// `init-config.json`, the platform's own view; its words are in upper case.
fn init(spec: &TrainingJobSpec, channels: &[&ChannelSpec], hosts: usize, rank: usize) -> Value {
    let channels: serde_json::Map<_, _> =
        channels.iter().map(|channel| (channel.name.clone(), init_channel(channel))).collect();
    json!({
        "inputMode": mode_word(spec.algorithm.input_mode),
        "channels": channels,
        "checkpointChannel": null,
        "hostConfig": {"clusterSize": hosts, "hostNumber": rank + 1},
        "enableDataAgentDownloads": false,
        "jobRunInfo": null,
    })
}

fn init_channel(channel: &ChannelSpec) -> Value {
    let (s3, file_system) = match &channel.source {
        ChannelSource::S3 { data_type, uri, attribute_names, .. } => {
            let attributes = (!attribute_names.is_empty()).then_some(attribute_names);
            let source = json!({
                "s3DataType": data_type_word(*data_type),
                "s3Uri": uri.to_string(),
                "s3DataDistributionType": distribution_word(channel.distribution),
                "attributeNames": attributes,
            });
            (source, Value::Null)
        }
        ChannelSource::FileSystem { id, directory, .. } => {
            (Value::Null, json!({"fileSystemId": id, "directoryPath": directory}))
        }
        ChannelSource::Dataset { .. } => (Value::Null, Value::Null),
    };
    json!({
        "s3DataSource": s3,
        "fileSystemDataSource": file_system,
        "compressionType": compression_word(channel.compression),
        "recordWrapper": wrapper_word(channel.record_wrapper),
        "shuffleConfig": channel.shuffle_seed.map(|seed| json!({"seed": seed})),
        "inputMode": mode_word(channel.input_mode),
        "sharded": channel.distribution == Distribution::ShardedByS3Key,
    })
}

/// `trainingjobconfig.json`: the request as the platform keeps it, defaults filled in.
fn training_job(spec: &TrainingJobSpec, surroundings: &Surroundings) -> Value {
    let tags: Vec<_> = spec.tags.iter().map(|tag| json!({"Key": tag.key, "Value": tag.value})).collect();
    let metrics: Vec<_> =
        spec.algorithm.metrics.iter().map(|m| json!({"Name": m.name, "Regex": m.regex})).collect();
    let channels: Vec<_> = spec.channels.iter().filter_map(training_job_channel).collect();
    json!({
        "EnableInterContainerTrafficEncryption": spec.traffic_encryption,
        "EnableNetworkIsolation": spec.network_isolation,
        "EnableManagedSpotTraining": spec.managed_spot,
        "HyperParameters": spec.hyperparameters,
        "InputDataConfig": channels,
        "OutputDataConfig": {
            "KmsKeyId": spec.output.kms_key_id.as_deref().unwrap_or(""),
            "S3OutputPath": spec.output.uri.to_string(),
            "CompressionType": match spec.output.compression {
                OutputCompression::Gzip | OutputCompression::Zstd => "GZIP",
                OutputCompression::None => "NONE",
            },
        },
        "ResourceConfig": spec.request.resource_config,
        "RoleArn": spec.role_arn,
        "Tags": tags,
        "BaseTags": tags,
        "TrainingJobName": spec.name,
        "StoppingCondition": {
            "MaxRuntimeInSeconds": spec.stopping.max_runtime.as_secs(),
            "MaxWaitTimeInSeconds": spec.stopping.max_wait.map(|wait| wait.as_secs()),
        },
        "AlgorithmSpecification": {
            "MetricDefinitions": metrics,
            "TrainingImage": spec.algorithm.image,
            "TrainingInputMode": spec.algorithm.input_mode.word(),
            "ContainerEntrypoint": spec.algorithm.entrypoint,
            "ContainerArguments": spec.algorithm.arguments,
        },
        "Environment": spec.environment,
        "TrainingJobArn": surroundings.job_arn(&spec.name),
    })
}

fn training_job_channel(channel: &ChannelSpec) -> Option<Value> {
    let ChannelSource::S3 { data_type, uri, .. } = &channel.source else { return None };
    Some(json!({
        "ChannelName": channel.name,
        "DataSource": {"S3DataSource": {
            "S3DataType": data_type_word(*data_type),
            "S3Uri": uri.to_string(),
            "S3DataDistributionType": distribution_word(channel.distribution),
        }},
        "ContentType": channel.content_type,
        "CompressionType": compression_word(channel.compression),
        "RecordWrapperType": wrapper_word(channel.record_wrapper),
    }))
}

fn mode_word(mode: InputMode) -> &'static str {
    match mode {
        InputMode::File => "FILE",
        InputMode::Pipe => "PIPE",
        InputMode::FastFile => "FAST_FILE",
    }
}

fn data_type_word(data_type: S3DataType) -> &'static str {
    match data_type {
        S3DataType::S3Prefix => "S3_PREFIX",
        S3DataType::ManifestFile => "MANIFEST_FILE",
        S3DataType::AugmentedManifestFile => "AUGMENTED_MANIFEST_FILE",
        S3DataType::Converse => "CONVERSE",
    }
}

fn distribution_word(distribution: Distribution) -> &'static str {
    match distribution {
        Distribution::FullyReplicated => "FULLY_REPLICATED",
        Distribution::ShardedByS3Key => "SHARDED_BY_S3_KEY",
    }
}

fn compression_word(compression: Compression) -> &'static str {
    match compression {
        Compression::None => "NONE",
        Compression::Gzip => "GZIP",
    }
}

fn wrapper_word(wrapper: RecordWrapper) -> &'static str {
    match wrapper {
        RecordWrapper::None => "NONE",
        RecordWrapper::RecordIo => "RECORD_IO",
    }
}
