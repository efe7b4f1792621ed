//! The rules of the channels, each of its own and among each other.

use super::{data_type, has_groups, input_mode, repeated};
use crate::spec::channel::{InputMode, S3DataType};
use crate::spec::{Conflict, Violation};
use crate::wire::{Channel, CreateTrainingJobRequest, S3DataSource};

/// All rules of channels that a request breaks.
pub(super) fn violations(request: &CreateTrainingJobRequest) -> Vec<Violation> {
    let channels: Vec<&Channel> = request.input_data_config.iter().flatten().collect();
    let names = channels.iter().filter_map(|channel| channel.channel_name.as_deref());
    let mut found: Vec<Conflict> = repeated("InputDataConfig", "ChannelName", names).collect();
    found.extend(channels.iter().filter_map(|channel| folder(channel)));
    found.extend(channels.iter().flat_map(|owner| files(request, owner, &channels)));
    for (i, channel) in channels.iter().enumerate() {
        found.extend(one(request, &label(i, channel), channel));
    }
    found.extend(groups_of_some(&channels));
    found.into_iter().map(Violation::from).collect()
}

/// A channel as messages call it: its name, or its number from 1 if it has none.
pub(super) fn label(i: usize, channel: &Channel) -> String {
    channel.channel_name.clone().unwrap_or_else(|| format!("number {}", i + 1))
}

/// Amazon's pattern of a name lets through what no folder can be called.
fn folder(channel: &Channel) -> Option<Conflict> {
    let name = channel.channel_name.as_deref()?;
    matches!(name, "." | "..").then(|| Conflict::ChannelFolder { name: name.to_owned() })
}

/// Channels whose folder would take the place of a file that belongs to another channel: its manifest,
/// or one of its pipes.
fn files(request: &CreateTrainingJobRequest, owner: &Channel, channels: &[&Channel]) -> Vec<Conflict> {
    let Some(owner_name) = owner.channel_name.as_deref() else { return Vec::new() };
    let pipe = input_mode(request, owner) == Some(InputMode::Pipe);
    let is_file = |name: &str| match name.strip_prefix(owner_name) {
        Some("-manifest") => !pipe,
        Some(rest) => pipe && rest.strip_prefix('_').is_some_and(is_number),
        None => false,
    };
    let names = channels.iter().filter_map(|channel| channel.channel_name.as_deref());
    let clash = |name: &str| Conflict::ChannelFile { name: name.to_owned(), owner: owner_name.to_owned() };
    names.filter(|name| is_file(name)).map(clash).collect()
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The rules of one channel.
fn one(request: &CreateTrainingJobRequest, label: &str, channel: &Channel) -> Vec<Conflict> {
    let mut found = Vec::new();
    if let Some(mode) = input_mode(request, channel) {
        found.extend(modes(label, channel, mode));
    }
    let Some(sources) = &channel.data_source else { return found };
    let given = [
        sources.s3_data_source.is_some(),
        sources.file_system_data_source.is_some(),
        sources.dataset_source.is_some(),
    ];
    let count = given.iter().filter(|given| **given).count();
    if count != 1 {
        found.push(Conflict::Sources { channel: label.to_owned(), count });
    }
    if let Some(source) = &sources.s3_data_source {
        found.extend(attributes(label, channel, source));
        found.extend(unknown_groups(request, label, source));
    }
    found
}

/// What needs a certain input mode, and has another.
fn modes(label: &str, channel: &Channel, mode: InputMode) -> Vec<Conflict> {
    let mut needs = Vec::new();
    let streamed = |word: &Option<String>| word.clone().filter(|word| word != "None");
    if let Some(word) = streamed(&channel.compression_type) {
        needs.push(("CompressionType", word, InputMode::Pipe));
    }
    if let Some(word) = streamed(&channel.record_wrapper_type) {
        needs.push(("RecordWrapperType", word, InputMode::Pipe));
    }
    let data_type = data_type(channel);
    if data_type == Some(S3DataType::AugmentedManifestFile) {
        needs.push(("S3DataType", "AugmentedManifestFile".to_owned(), InputMode::Pipe));
    }
    let file_system = channel.data_source.as_ref().and_then(|source| source.file_system_data_source.as_ref());
    if let Some(source) = file_system {
        needs.push(("FileSystemType", source.file_system_type.clone().unwrap_or_default(), InputMode::File));
    }
    let wrong = needs.into_iter().filter(|(_, _, needed)| *needed != mode);
    let channel = || label.to_owned();
    let mut found: Vec<Conflict> = wrong
        .map(|(member, value, needed)| Conflict::Mode { channel: channel(), member, value, needed, mode })
        .collect();
    if let (InputMode::FastFile, Some(other @ (S3DataType::ManifestFile | S3DataType::Converse))) =
        (mode, data_type)
    {
        found.push(Conflict::FastFile { channel: channel(), data_type: other.word().to_owned() });
    }
    found
}

/// Names of attributes belong to augmented manifests, and these have some.
fn attributes(label: &str, channel: &Channel, source: &S3DataSource) -> Option<Conflict> {
    let named = source.attribute_names.as_ref().is_some_and(|names| !names.is_empty());
    let augmented = data_type(channel)? == S3DataType::AugmentedManifestFile;
    match (augmented, named) {
        (true, false) => Some(Conflict::AttributesMissing { channel: label.to_owned() }),
        (false, true) => Some(Conflict::AttributesUnused { channel: label.to_owned() }),
        _ => None,
    }
}

fn unknown_groups(request: &CreateTrainingJobRequest, label: &str, source: &S3DataSource) -> Vec<Conflict> {
    let resources = request.resource_config.as_ref().filter(|resources| has_groups(resources));
    let groups = resources.and_then(|resources| resources.instance_groups.as_ref()).into_iter().flatten();
    let known: Vec<&str> = groups.filter_map(|group| group.instance_group_name.as_deref()).collect();
    let named = source.instance_group_names.iter().flatten();
    let unknown = named.filter(|name| !known.contains(&name.as_str()));
    unknown.map(|name| Conflict::UnknownGroup { channel: label.to_owned(), group: name.clone() }).collect()
}

/// Either all channels say which groups get them, or none does.
fn groups_of_some(channels: &[&Channel]) -> Option<Conflict> {
    let named = |channel: &Channel| {
        let source = channel.data_source.as_ref().and_then(|source| source.s3_data_source.as_ref());
        let names = source.and_then(|source| source.instance_group_names.as_ref());
        names.is_some_and(|names| !names.is_empty())
    };
    let labelled = channels.iter().enumerate().map(|(i, channel)| (label(i, channel), named(channel)));
    let (with, without): (Vec<_>, Vec<_>) = labelled.partition(|(_, named)| *named);
    if with.is_empty() || without.is_empty() {
        return None;
    }
    let list = |labels: Vec<(String, bool)>| {
        labels.into_iter().map(|(label, _)| label).collect::<Vec<_>>().join(", ")
    };
    Some(Conflict::GroupsOfSomeChannels { with: list(with), without: list(without) })
}
