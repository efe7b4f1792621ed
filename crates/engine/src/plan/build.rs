//! From a valid spec and the machine's surroundings to the plan of every instance.

use std::path::{Path, PathBuf};
use std::time::Duration;

use indexmap::IndexMap;

use super::config::config_files;
use super::deal::deal_out;
use super::gpus::{Gpu, GpuError, GpuPlan, deal_out as deal_out_gpus};
use super::image::{Image, built_in};
use super::limits::{Capacity, LimitPolicy, Limits, LimitsError, check_capacity, check_volume, limits};
use super::network;
use super::path::relative_path;
use super::{
    ChannelPlan, DockerPlan, Entry, Exposed, HostAddress, InstancePlan, JobPlan, MergePlan, MetricDefinition,
    NetworkPlan, OutputPlace, OutputPlan, Piece, Role, RuntimePlan, StoragePlan,
};
use crate::artifact::Codec;
use crate::job::MERGE_HOST;
use crate::spec::{ChannelSource, ChannelSpec, InputMode, MergeSpec, TrainingJobSpec};
use crate::storage::{Object, ObjectSource};

/// Between SIGTERM and SIGKILL unless somebody says otherwise, as at SageMaker.
const GRACE: Duration = Duration::from_secs(120);
/// `NAME_MAX` of Linux, in bytes.
const MOST_NAME: usize = 255;
/// `PATH_MAX` of Linux, in bytes, without what the run directory and `/opt/ml/input/data` take of it.
const MOST_PATH: usize = 4096 - 1024;
/// What an instance may put into an archive without a warning.
const WARN_ABOVE_GB: u32 = 10;
/// As zlib's and gzip's own default.
const COMPRESSION_LEVEL: u32 = 6;
/// The default of zstd's own tool.
const ZSTD_LEVEL: u32 = 3;

/// What a plan depends on beside the spec.
#[derive(Clone, Debug, PartialEq)]
pub struct Surroundings {
    /// What `TrainingImage` stands for here.
    pub image: Image,
    /// This program's own file.
    pub program: PathBuf,
    /// What `PATH`, `HOME` and the like are when the image says nothing of them.
    pub base_environment: IndexMap<String, String>,
    /// The region that jobs are told.
    pub region: String,
    /// The account that jobs are told, twelve digits.
    pub account: String,
    /// The interface by which instances reach each other.
    pub network_interface: String,
    /// What `S3OutputPath` stands for.
    pub output: OutputPlace,
    /// What was asked for at the command line.
    pub grace: Option<Duration>,
    /// Per channel, in the spec's order.
    pub listings: Vec<Listing>,
    /// What `ResourceConfig` means for processors, memory and volume.
    pub limits: LimitPolicy,
    /// What the machine has for all instances.
    pub capacity: Capacity,
    /// Of the machine; absent if instances run without.
    pub gpus: Option<Vec<Gpu>>,
    /// Where the objects of stores come from.
    pub storage: StoragePlan,
}

/// The objects of one channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The key part of the channel's URI.
    pub prefix: String,
    /// What the URI stands for on this machine: a file, a folder, or the start of such names; none in a store.
    pub place: Option<PathBuf>,
    /// In order of their keys' bytes, or of the manifest that names them.
    pub objects: Vec<Object>,
    /// Where the names of files begin.
    pub names: Names,
    /// The lines of an augmented manifest, which take the place of the objects.
    pub lines: Option<Vec<Entry>>,
}

/// Where the names of a channel's files begin in their keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// After the last whole folder of the prefix.
    AfterFolder,
    /// After the whole prefix, also where that ends within a name.
    AfterPrefix,
}

impl Listing {
    /// Where all that it names is.
    pub(crate) fn sources(&self) -> impl Iterator<Item = &ObjectSource> {
        let pieces = self.lines.iter().flatten().flat_map(|line| &line.0);
        let of_lines = pieces.filter_map(|piece| match piece {
            Piece::Object(object) => Some(&object.source),
            Piece::Text(_) => None,
        });
        self.objects.iter().map(|object| &object.source).chain(of_lines)
    }

    /// The path of an object below its channel's folder.
    pub(super) fn relative<'a>(&self, key: &'a str) -> &'a str {
        match self.names {
            Names::AfterFolder => relative_path(&self.prefix, key),
            Names::AfterPrefix => {
                match key.strip_prefix(&self.prefix).map(|rest| rest.trim_start_matches('/')) {
                    Some(rest) if !rest.is_empty() => rest,
                    _ => key.rsplit('/').next().unwrap_or(key),
                }
            }
        }
    }
}

impl Surroundings {
    /// The ARN of a job; the name in it is in lower case, as at Amazon.
    pub fn job_arn(&self, job: &str) -> String {
        let (region, account) = (&self.region, &self.account);
        format!("arn:aws:sagemaker:{region}:{account}:training-job/{}", job.to_lowercase())
    }
}

/// A valid spec that can't be carried out with the objects that are there.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A channel selects nothing.
    #[error(
        "No S3 objects found under S3 URL \"{uri}\" given in input data source. Channel {channel} would be \
         empty: {}", nothing_there(place.as_deref())
    )]
    NoObjects {
        /// The channel.
        channel: String,
        /// Its URI.
        uri: String,
        /// What the URI stands for on this machine; none in a store.
        place: Option<PathBuf>,
    },
    /// A prefix that ends within a name.
    #[error(
        "channel {channel}: For FastFile mode, partial S3 prefix is not supported. S3 prefix has to end with a full \
         file or folder. {uri} also begins the name of {key}: add a trailing '/' if it is the name of a folder"
    )]
    PartialPrefix {
        /// The channel.
        channel: String,
        /// Its URI.
        uri: String,
        /// Of an object whose name goes on.
        key: String,
    },
    /// Two objects become the same file.
    #[error("channel {channel}: the objects {first} and {second} would both become {path}")]
    SamePath {
        /// The channel.
        channel: String,
        /// A key.
        first: String,
        /// Another key.
        second: String,
        /// The path below the channel's folder.
        path: String,
    },
    /// A key that no file can have as its path.
    #[error(
        "channel {channel}: the object {key:?} can't become a file: a name may have {MOST_NAME} bytes, a path \
         {MOST_PATH}, and neither a NUL"
    )]
    NoPath {
        /// The channel.
        channel: String,
        /// The key.
        key: String,
    },
    /// The instances may not take what they ask for.
    #[error(transparent)]
    Limits(#[from] LimitsError),
    /// The machine lacks GPUs.
    #[error(transparent)]
    Gpus(#[from] GpuError),
}

fn nothing_there(place: Option<&Path>) -> String {
    match place {
        Some(place) => format!(
            "there is no file whose path starts with {place:?}; put some there, change the S3Uri, or say with \
             --bucket NAME=DIR where the bucket is, or with [storage] that it is in a store"
        ),
        None => "the store has no object whose key starts like that; put some there or change the S3Uri"
            .to_owned(),
    }
}

/// Refuses a job that this machine can't have, whatever else runs on it.
pub fn check_machine(
    spec: &TrainingJobSpec,
    limits: LimitPolicy,
    capacity: Capacity,
    gpus: Option<&[Gpu]>,
) -> Result<(), PlanError> {
    check_capacity(spec, limits, capacity)?;
    if let Some(gpus) = gpus {
        deal_out_gpus(spec, gpus, limits == LimitPolicy::Enforce)?;
    }
    Ok(())
}

/// Plans a job: what every host gets and does. Pure: the same input always gives the same plan.
pub fn plan(spec: &TrainingJobSpec, surroundings: &Surroundings) -> Result<JobPlan, PlanError> {
    let hosts: Vec<_> =
        (0..spec.resources.instance_count() as usize).map(trainyard_toolkit::contract::host_name).collect();
    check_capacity(spec, surroundings.limits, surroundings.capacity)?;
    for (channel, listing) in spec.channels.iter().zip(&surroundings.listings) {
        check_listing(channel, listing)?;
    }
    let (shares, of_shares) = deal_out(spec, &surroundings.listings);
    let mut warnings = spec.warnings();
    warnings.extend(of_shares);
    let instances = shares.into_iter().enumerate();
    let mut instances: Vec<_> =
        instances.map(|(rank, channels)| instance(spec, surroundings, &hosts, (rank, channels))).collect();
    warnings.extend(limit(&mut instances, spec, surroundings)?);
    let merge = spec.settings.merge.as_ref().map(|merge| merge_plan(merge, &instances[0], surroundings));
    Ok(JobPlan {
        job: spec.name.clone(),
        attempt: 1,
        instances,
        merge,
        output: output(spec, surroundings),
        max_runtime: spec.stopping.max_runtime,
        warnings,
    })
}

/// Whether a channel selects objects that can be read in its mode: files have to be beside each other.
pub(crate) fn check_listing(channel: &ChannelSpec, listing: &Listing) -> Result<(), PlanError> {
    if let ChannelSource::FileSystem { .. } = channel.source {
        return Ok(());
    }
    if listing.objects.is_empty() && listing.lines.is_none() {
        return Err(PlanError::NoObjects {
            channel: channel.name.clone(),
            uri: uri_text(channel),
            place: listing.place.clone(),
        });
    }
    match channel.input_mode {
        InputMode::Pipe => return Ok(()),
        InputMode::FastFile => check_whole_names(channel, listing)?,
        InputMode::File => {}
    }
    check_files(channel, listing)
}

/// A prefix that ends within a name is not allowed in FastFile mode.
fn check_whole_names(channel: &ChannelSpec, listing: &Listing) -> Result<(), PlanError> {
    let prefix = &listing.prefix;
    let whole = |key: &str| match key.strip_prefix(prefix) {
        Some(rest) => prefix.is_empty() || prefix.ends_with('/') || rest.is_empty() || rest.starts_with('/'),
        None => false,
    };
    match listing.objects.iter().find(|object| !whole(&object.key)) {
        Some(object) => Err(PlanError::PartialPrefix {
            channel: channel.name.clone(),
            uri: uri_text(channel),
            key: object.key.clone(),
        }),
        None => Ok(()),
    }
}

fn check_files(channel: &ChannelSpec, listing: &Listing) -> Result<(), PlanError> {
    let mut files = std::collections::BTreeMap::new();
    for object in &listing.objects {
        let path = listing.relative(&object.key);
        if path.len() > MOST_PATH || path.contains('\0') || path.split('/').any(|name| name.len() > MOST_NAME)
        {
            return Err(PlanError::NoPath { channel: channel.name.clone(), key: object.key.clone() });
        }
        if let Some(first) = files.insert(path, &object.key) {
            return Err(same_path(channel, first, &object.key, path));
        }
    }
    // A file can't be a folder as well: `a` beside `a/b`.
    for (path, key) in &files {
        let folders = path.match_indices('/').map(|(slash, _)| &path[..slash]);
        if let Some((folder, first)) = folders.filter_map(|folder| files.get_key_value(folder)).next() {
            return Err(same_path(channel, first, key, folder));
        }
    }
    Ok(())
}

fn same_path(channel: &ChannelSpec, first: &str, second: &str, path: &str) -> PlanError {
    PlanError::SamePath {
        channel: channel.name.clone(),
        first: first.to_owned(),
        second: second.to_owned(),
        path: path.to_owned(),
    }
}

fn instance(
    spec: &TrainingJobSpec,
    surroundings: &Surroundings,
    hosts: &[String],
    (rank, channels): (usize, Vec<ChannelPlan>),
) -> InstancePlan {
    let metrics = spec.algorithm.metrics.iter();
    InstancePlan {
        job: spec.name.clone(),
        attempt: 1,
        host: hosts[rank].clone(),
        hosts: hosts.iter().enumerate().map(|(rank, name)| network::address(rank, name)).collect(),
        network: network::of_job(&surroundings.image, spec.network_isolation),
        role: Role::Train,
        runtime: surroundings.image.runtime(),
        command: surroundings.image.command(&spec.algorithm),
        environment: environment(spec, surroundings, &hosts[rank]),
        config: config_files(spec, surroundings, hosts, rank),
        channels,
        metrics: metrics
            .map(|metric| MetricDefinition { name: metric.name.clone(), regex: metric.regex.clone() })
            .collect(),
        grace: surroundings.grace.or(spec.settings.grace).unwrap_or(GRACE),
        shm_size: spec.settings.shm_size_gb.map(|size| u64::from(size) << 30),
        limits: Limits::of_pids(spec.settings.pids_limit),
        gpus: GpuPlan::default(),
        compression_level: spec.settings.output_level.unwrap_or(match spec.output.compression.codec() {
            Codec::Gzip => COMPRESSION_LEVEL,
            Codec::Zstd => ZSTD_LEVEL,
        }),
        model: spec.output.compression,
        ignore: spec.settings.output_ignore.clone(),
        warn_above: u64::from(spec.settings.output_warn_above_gb.unwrap_or(WARN_ABOVE_GB)) << 30,
        storage: surroundings.storage.clone(),
    }
}

/// Gives each instance its limits and its GPUs; the warning tells of GPUs that are shared.
fn limit(
    instances: &mut [InstancePlan],
    spec: &TrainingJobSpec,
    surroundings: &Surroundings,
) -> Result<Option<String>, PlanError> {
    let groups = spec.resources.group_of_each_host();
    for (instance, group) in instances.iter_mut().zip(groups) {
        instance.limits = limits(spec, group, surroundings.limits);
        check_volume(&instance.host, &instance.channels, instance.limits)?;
    }
    let Some(gpus) = &surroundings.gpus else { return Ok(None) };
    let (dealt, warning) = deal_out_gpus(spec, gpus, surroundings.limits == LimitPolicy::Enforce)?;
    for (instance, gpus) in instances.iter_mut().zip(dealt) {
        if !gpus.names.is_empty() {
            show_gpus(&mut instance.environment, &spec.environment, &gpus);
        }
        instance.gpus = gpus;
    }
    Ok(warning)
}

/// What programs look at to find their GPUs; what the request sets wins here too, but for the folders of the driver.
fn show_gpus(environment: &mut IndexMap<String, String>, sent: &IndexMap<String, String>, gpus: &GpuPlan) {
    const LIBRARIES: &str = "LD_LIBRARY_PATH";
    let number = |name: &String| name.rsplit('=').next().unwrap_or_default().to_owned();
    let numbers: Vec<_> = gpus.names.iter().map(number).collect();
    let visible = [("NVIDIA_VISIBLE_DEVICES".to_owned(), numbers.join(","))];
    for (name, value) in gpus.edits.environment.clone().into_iter().chain(visible) {
        if !sent.contains_key(&name) {
            environment.insert(name, value);
        }
    }
    let folders = gpus.edits.library_folders.iter().map(|folder| folder.to_string_lossy().into_owned());
    let there = environment.get(LIBRARIES).filter(|value| !value.is_empty()).cloned();
    let all: Vec<_> = there.into_iter().chain(folders).collect();
    if !gpus.edits.library_folders.is_empty() {
        environment.insert(LIBRARIES.to_owned(), all.join(":"));
    }
}

/// What `train` finds in its environment; what the request sets wins.
fn environment(spec: &TrainingJobSpec, surroundings: &Surroundings, host: &str) -> IndexMap<String, String> {
    let mut environment = surroundings.image.environment(&surroundings.base_environment);
    let platform = [
        ("HOSTNAME", host),
        ("TRAINING_JOB_NAME", &spec.name),
        ("TRAINING_JOB_ARN", &surroundings.job_arn(&spec.name)),
        ("AWS_REGION", &surroundings.region),
        ("AWS_EXECUTION_ENV", "AWS_ECS_EC2"),
        ("DMLC_INTERFACE", &surroundings.network_interface),
        ("NVIDIA_VISIBLE_DEVICES", "void"),
        ("SAGEMAKER_METRICS_DIRECTORY", "/opt/ml/output/metrics/sagemaker"),
    ];
    environment.extend(platform.map(|(name, value)| (name.to_owned(), value.to_owned())));
    environment.extend(spec.environment.clone());
    environment
}

fn output(spec: &TrainingJobSpec, surroundings: &Surroundings) -> OutputPlan {
    let uri = spec.output.uri.child(&spec.name).child("output");
    let place = surroundings.output.child(&spec.name).child("output");
    OutputPlan { place, uri: uri.to_string(), model: spec.output.compression }
}

/// The merging instance: this program itself, whose channel is the published archive.
fn merge_plan(merge: &MergeSpec, train: &InstancePlan, surroundings: &Surroundings) -> MergePlan {
    let program = built_in(&surroundings.program);
    let mut command = vec![program.target.to_string_lossy().into_owned(), "merge".to_owned()];
    command.push(format!("/opt/ml/input/data/model/{}", train.model.model_archive()));
    command.extend(["--output".to_owned(), format!("/opt/ml/model/{}", merge.output)]);
    command.extend(option("--glob", merge.glob.as_deref()));
    command.extend(option("--order-by", merge.order_by.as_deref()));
    let host = HostAddress { name: MERGE_HOST.to_owned(), address: "127.0.0.1".to_owned() };
    let instance = InstancePlan {
        host: MERGE_HOST.to_owned(),
        hosts: vec![host],
        network: NetworkPlan::Alone,
        role: Role::Merge,
        runtime: merge_runtime(&train.runtime, program),
        command,
        environment: surroundings.base_environment.clone(),
        config: IndexMap::new(),
        channels: Vec::new(),
        metrics: Vec::new(),
        gpus: GpuPlan::default(),
        ..train.clone()
    };
    MergePlan { instance, output: merge.output.clone() }
}

/// A jail, or another container where a daemon runs the job: it has this program as well.
fn merge_runtime(train: &RuntimePlan, program: Exposed) -> RuntimePlan {
    match train {
        RuntimePlan::Docker(docker) => RuntimePlan::Docker(DockerPlan {
            user: String::new(),
            working_directory: PathBuf::from("/tmp"),
            ..docker.clone()
        }),
        RuntimePlan::Host { .. } | RuntimePlan::Oci { .. } => {
            RuntimePlan::Host { exposed: vec![program], working_directory: PathBuf::from("/tmp") }
        }
    }
}

fn option(name: &str, value: Option<&str>) -> Vec<String> {
    value.map(|value| vec![name.to_owned(), value.to_owned()]).unwrap_or_default()
}

/// The text of each `<channel>-manifest`: the prefix, then every object, the same on all hosts.
pub fn manifests(spec: &TrainingJobSpec, surroundings: &Surroundings) -> IndexMap<String, String> {
    let listings = spec.channels.iter().zip(&surroundings.listings);
    let has_one = |channel: &ChannelSpec| {
        channel.input_mode == InputMode::File && matches!(channel.source, ChannelSource::S3 { .. })
    };
    let listings = listings.filter(|(channel, _)| has_one(channel));
    listings.map(|(channel, listing)| (channel.name.clone(), manifest(channel, listing))).collect()
}

/// `s3://bucket/`, or `file:///`.
fn bucket_uri(channel: &ChannelSpec) -> String {
    match &channel.source {
        ChannelSource::S3 { uri, .. } => match uri.bucket() {
            Some(bucket) => format!("s3://{bucket}/"),
            None => "file:///".to_owned(),
        },
        ChannelSource::FileSystem { .. } | ChannelSource::Dataset { .. } => String::new(),
    }
}

fn uri_text(channel: &ChannelSpec) -> String {
    match &channel.source {
        ChannelSource::S3 { uri, .. } => uri.to_string(),
        ChannelSource::FileSystem { directory, .. } => directory.clone(),
        ChannelSource::Dataset { arn } => arn.clone(),
    }
}

fn manifest(channel: &ChannelSpec, listing: &Listing) -> String {
    let bucket = bucket_uri(channel);
    let mut text = format!("{}\n", listing.prefix);
    for object in &listing.objects {
        text.push_str(&bucket);
        text.push_str(&object.key);
        text.push('\n');
    }
    text
}
