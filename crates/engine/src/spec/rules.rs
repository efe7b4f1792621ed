//! The rules across members: what each member alone allows, but not together with another.

use std::collections::HashSet;

use super::channel::{InputMode, S3DataType};
use super::enums::LOCAL_STORAGE_FAMILIES;
use super::settings::MERGE_ENDINGS;
use super::{Conflict, DEFAULT_MAX_RUNTIME, MAX_INSTANCES, ObjectUri, Rule, UriError, Violation};
use crate::wire::{AlgorithmSpecification, Channel, CreateTrainingJobRequest, ResourceConfig};

mod channels;
mod preferences;

/// Values of `ProfilingIntervalInMilliseconds`; the model names them in words only.
const PROFILING_INTERVALS: &[&str] = &["100", "200", "500", "1000", "5000", "60000"];

/// All rules across members that a request breaks.
pub(super) fn violations(request: &CreateTrainingJobRequest) -> Vec<Violation> {
    let mut found = Vec::new();
    found.extend(algorithm(request));
    found.extend(resources(request));
    found.extend(waiting(request).map(Violation::from));
    found.extend(channels::violations(request));
    found.extend(networks(request).map(Violation::from));
    found.extend(addresses(request).map(Violation::from));
    found.extend(tags(request).map(Violation::from));
    found.extend(profiling_interval(request));
    found.extend(merge_output(request).map(Violation::from));
    found.extend(merge_glob(request).map(Violation::from));
    found.extend(merge_of_files(request).map(Violation::from));
    found.extend(ignored(request).map(Violation::from));
    found.extend(zstd_of_files(request).map(Violation::from));
    found
}

fn algorithm(request: &CreateTrainingJobRequest) -> Vec<Violation> {
    let Some(algorithm) = &request.algorithm_specification else {
        return vec![absent(request, "algorithmSpecification", "AlgorithmSpecification")];
    };
    let names = algorithm.metric_definitions.iter().flatten().filter_map(|metric| metric.name.as_deref());
    let metrics = repeated("AlgorithmSpecification.MetricDefinitions", "Name", names);
    program(algorithm).into_iter().chain(metrics).map(Violation::from).collect()
}

/// A member that only a job without instances may leave out.
fn absent(request: &CreateTrainingJobRequest, path: &str, missing: &'static str) -> Violation {
    match request.serverless_job_config {
        Some(_) => Conflict::Serverless { missing }.into(),
        None => Violation::missing(path),
    }
}

fn program(algorithm: &AlgorithmSpecification) -> Option<Conflict> {
    let given = |name: &Option<String>| name.as_deref().is_some_and(|name| !name.is_empty());
    match (given(&algorithm.training_image), given(&algorithm.algorithm_name)) {
        (true, true) => Some(Conflict::ImageAndName),
        (false, false) => Some(Conflict::NeitherImageNorName),
        _ => None,
    }
}

fn resources(request: &CreateTrainingJobRequest) -> Vec<Violation> {
    let Some(resources) = &request.resource_config else {
        return vec![absent(request, "resourceConfig", "ResourceConfig")];
    };
    let mut found = match (has_groups(resources), &resources.instance_preferences) {
        (_, Some(listed)) => preferences::violations(request, resources, listed),
        (true, None) => groups(resources),
        (false, None) => one_group(resources),
    };
    let count = instances(resources);
    if count > MAX_INSTANCES {
        found.push(Conflict::TooManyInstances { count }.into());
    }
    found.extend(keep_alive(request, resources).map(Violation::from));
    found.extend(volume_key(resources).map(Violation::from));
    found
}

/// Whether the instances are given in groups; an empty list counts as none.
pub(super) fn has_groups(resources: &ResourceConfig) -> bool {
    resources.instance_groups.as_ref().is_some_and(|groups| !groups.is_empty())
}

fn instances(resources: &ResourceConfig) -> u64 {
    let groups = resources.instance_groups.iter().flatten().filter_map(|group| group.instance_count);
    let preferred =
        resources.instance_preferences.iter().flatten().filter_map(|one| one.instance_count).max();
    let counts = groups.chain(resources.instance_count).chain(preferred);
    counts.filter_map(|count| u64::try_from(count).ok()).fold(0, u64::saturating_add)
}

fn one_group(resources: &ResourceConfig) -> Vec<Violation> {
    let mut found = Vec::new();
    if resources.instance_type.is_none() {
        found.push(Violation::missing("resourceConfig.instanceType"));
    }
    match resources.instance_count {
        None => found.push(Violation::missing("resourceConfig.instanceCount")),
        // The model allows none, for the sake of groups; without groups a job has at least one.
        Some(0) => found.push(Violation::broken("resourceConfig.instanceCount", "0", Rule::MinValue(1))),
        Some(_) => {}
    }
    found
}

fn groups(resources: &ResourceConfig) -> Vec<Violation> {
    let beside_type = resources.instance_type.as_ref().map(|_| "InstanceType");
    // A count of none says nothing, and Amazon's own answers have it beside the groups.
    let beside_count = resources.instance_count.filter(|count| *count != 0).map(|_| "InstanceCount");
    let beside = beside_type.into_iter().chain(beside_count);
    let beside = beside.map(|beside| Conflict::GroupsAndMore { beside });
    let groups = resources.instance_groups.iter().flatten();
    let names = groups.filter_map(|group| group.instance_group_name.as_deref());
    let names = repeated("ResourceConfig.InstanceGroups", "InstanceGroupName", names);
    beside.chain(names).map(Violation::from).collect()
}

fn keep_alive(request: &CreateTrainingJobRequest, resources: &ResourceConfig) -> Option<Conflict> {
    resources.keep_alive_period_in_seconds.filter(|seconds| *seconds > 0)?;
    if request.enable_managed_spot_training == Some(true) {
        return Some(Conflict::KeepAlive { with: "EnableManagedSpotTraining" });
    }
    has_groups(resources).then_some(Conflict::KeepAlive { with: "InstanceGroups" })
}

fn volume_key(resources: &ResourceConfig) -> Option<Conflict> {
    resources.volume_kms_key_id.as_ref().filter(|key| !key.is_empty())?;
    let groups = resources.instance_groups.iter().flatten().filter_map(|group| group.instance_type.as_ref());
    let preferred =
        resources.instance_preferences.iter().flatten().filter_map(|one| one.instance_type.as_ref());
    let mut types = resources.instance_type.iter().chain(groups).chain(preferred);
    let own_disk = |name: &&String| {
        let family = name.strip_prefix("ml.").and_then(|name| name.split_once('.'));
        family.is_some_and(|(family, _)| LOCAL_STORAGE_FAMILIES.contains(&family))
    };
    types.find(own_disk).map(|name| Conflict::VolumeKey { instance_type: name.clone() })
}

fn waiting(request: &CreateTrainingJobRequest) -> Option<Conflict> {
    let stopping = request.stopping_condition.as_ref();
    let wait = stopping.and_then(|stopping| stopping.max_wait_time_in_seconds);
    if request.enable_managed_spot_training != Some(true) {
        return wait.map(|_| Conflict::WaitWithoutSpot);
    }
    let runtime = stopping.and_then(|stopping| stopping.max_runtime_in_seconds);
    let runtime = runtime.unwrap_or(DEFAULT_MAX_RUNTIME.as_secs().cast_signed());
    wait.is_none_or(|wait| wait < runtime).then_some(Conflict::SpotWithoutWait)
}

/// What Amazon can only reach from a private network.
fn networks(request: &CreateTrainingJobRequest) -> impl Iterator<Item = Conflict> {
    let algorithm = request.algorithm_specification.as_ref();
    let image = algorithm.and_then(|algorithm| algorithm.training_image_config.as_ref());
    let access = image.and_then(|image| image.training_repository_access_mode.as_deref());
    let registry = (access == Some("Vpc")).then(|| "TrainingRepositoryAccessMode Vpc".to_owned());
    let shared =
        |channel: &Channel| channel.data_source.as_ref()?.file_system_data_source.as_ref().map(|_| ());
    let folders = request.input_data_config.iter().flatten().enumerate().filter_map(move |(i, channel)| {
        shared(channel).map(|()| format!("FileSystemDataSource of channel '{}'", channels::label(i, channel)))
    });
    let alone = request.vpc_config.is_none();
    registry.into_iter().chain(folders).filter(move |_| alone).map(|member| Conflict::NoVpc { member })
}

/// The URIs that are followed here. One that has not even the form is reported by its pattern.
fn addresses(request: &CreateTrainingJobRequest) -> impl Iterator<Item = Conflict> {
    let channels = request.input_data_config.iter().flatten().enumerate();
    let inputs = channels.filter_map(|(i, channel)| {
        let uri = channel.data_source.as_ref()?.s3_data_source.as_ref()?.s3_uri.as_ref()?;
        Some((format!("S3Uri of channel '{}'", channels::label(i, channel)), uri))
    });
    let output = request.output_data_config.as_ref().and_then(|output| output.s3_output_path.as_ref());
    let checkpoint = request.checkpoint_config.as_ref().and_then(|checkpoint| checkpoint.s3_uri.as_ref());
    let output = output.map(|uri| ("OutputDataConfig.S3OutputPath".to_owned(), uri));
    let checkpoint = checkpoint.map(|uri| ("CheckpointConfig.S3Uri".to_owned(), uri));
    inputs.chain(output).chain(checkpoint).filter_map(|(member, uri)| match ObjectUri::parse(uri) {
        Err(wrong @ (UriError::NotS3 { .. } | UriError::Bucket { .. })) => {
            Some(Conflict::Uri { member, wrong })
        }
        Ok(_) | Err(UriError::Scheme { .. } | UriError::NotAbsolute { .. }) => None,
    })
}

fn tags(request: &CreateTrainingJobRequest) -> impl Iterator<Item = Conflict> {
    repeated("Tags", "Key", request.tags.iter().flatten().filter_map(|tag| tag.key.as_deref()))
}

fn profiling_interval(request: &CreateTrainingJobRequest) -> Option<Violation> {
    let interval = request.profiler_config.as_ref()?.profiling_interval_in_milliseconds?.to_string();
    let path = "profilerConfig.profilingIntervalInMilliseconds";
    let known = PROFILING_INTERVALS.contains(&interval.as_str());
    (!known).then(|| Violation::broken(path, &interval, Rule::OneOf(PROFILING_INTERVALS)))
}

fn merge_output(request: &CreateTrainingJobRequest) -> Option<Conflict> {
    let output = request.trainyard.as_ref()?.merge.as_ref()?.output.as_ref()?;
    let stem = MERGE_ENDINGS.iter().find_map(|ending| output.strip_suffix(ending));
    let plain = stem.is_some_and(|stem| !stem.is_empty()) && !output.contains(['/', '\\', '\0']);
    (!plain).then(|| Conflict::MergeOutput { output: output.clone() })
}

/// A merge comes last, after hours perhaps; a pattern that it can't read is found before.
fn merge_glob(request: &CreateTrainingJobRequest) -> Option<Conflict> {
    let glob = request.trainyard.as_ref()?.merge.as_ref()?.glob.as_ref()?;
    let wrong = glob::Pattern::new(glob).err()?.msg;
    Some(Conflict::MergeGlob { glob: glob.clone(), wrong })
}

/// A merge reads the archive, of which there would be none.
fn merge_of_files(request: &CreateTrainingJobRequest) -> Option<Conflict> {
    request.trainyard.as_ref()?.merge.as_ref()?;
    let compression = request.output_data_config.as_ref()?.compression_type.as_deref();
    (compression == Some("NONE")).then_some(Conflict::MergeOfFiles)
}

/// Plain files are not compressed.
fn zstd_of_files(request: &CreateTrainingJobRequest) -> Option<Conflict> {
    let own = request.trainyard.as_ref()?.output.as_ref()?.compression.as_deref()?;
    let compression = request.output_data_config.as_ref()?.compression_type.as_deref();
    (compression == Some("NONE")).then(|| Conflict::CompressionOfFiles { compression: own.to_owned() })
}

/// The same of what is left out of the archives.
fn ignored(request: &CreateTrainingJobRequest) -> Option<Conflict> {
    let patterns = request.trainyard.as_ref()?.output.as_ref()?.ignore.as_ref()?;
    let wrong = |glob: &String| Some((glob.clone(), glob::Pattern::new(glob).err()?.msg));
    let (glob, wrong) = patterns.iter().find_map(wrong)?;
    Some(Conflict::Ignore { glob, wrong })
}

/// Each name that comes again, once.
fn repeated<'a>(
    list: &'static str,
    member: &'static str,
    names: impl Iterator<Item = &'a str>,
) -> impl Iterator<Item = Conflict> {
    let (mut seen, mut reported) = (HashSet::new(), HashSet::new());
    names
        .filter(move |name| !seen.insert(*name) && reported.insert(*name))
        .map(move |name| Conflict::Repeated { list, member, name: name.to_owned() })
}

/// The effective input mode of a channel, as far as the words are right.
fn input_mode(request: &CreateTrainingJobRequest, channel: &Channel) -> Option<InputMode> {
    let algorithm = request.algorithm_specification.as_ref();
    let default = algorithm.and_then(|algorithm| algorithm.training_input_mode.as_deref());
    InputMode::from_word(channel.input_mode.as_deref().or(default)?)
}

/// What the URI of a channel means, as far as the word is right.
fn data_type(channel: &Channel) -> Option<S3DataType> {
    let source = channel.data_source.as_ref()?.s3_data_source.as_ref()?;
    S3DataType::from_word(source.s3_data_type.as_deref()?)
}
