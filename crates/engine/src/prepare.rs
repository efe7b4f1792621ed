//! From a request to a plan that can be driven; whatever is wrong is found here, before anything
//! starts.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fs_err as fs;
use futures_util::future::try_join_all;
use indexmap::IndexMap;
use rustix::fs::{Access, access};

use crate::cgroup::capacity;
use crate::docker::Sockets;
use crate::engine::Submission;
use crate::gpu::{GpusError, gpus};
use crate::job::Outline;
use crate::plan::network::INTERFACE;
use crate::plan::{
    CachePlan, FileKind, Gpu, GpuPolicy, Image, ImageError, LimitPolicy, Listing, Needs, OutputPlace,
    PlanError, StoragePlan, StoreOutput, Surroundings, check_listing, check_machine, manifests, needs, plan,
    wants_accelerators,
};
use crate::spec::{Capabilities, TrainingJobSpec, Unsupported, Violations, priority, unsupported};
use crate::storage::{Buckets, Location, ObjectSource, StorageError, StoreCredentials, StoreKind, Stores};
use crate::wire::CreateTrainingJobRequest;
use trainyard_toolkit::contract::host_name;

mod choose;
mod container;
mod listing;

pub use choose::{PreparedImage, RuntimeChoice};
pub use container::{ContainerError, ImageProgress, ImageSource};
pub use listing::ChannelError;

use choose::Obtained;
use listing::{check_container, listing};

/// What this machine has and how it is set up.
#[derive(Clone, Debug)]
pub struct Machine {
    /// This program's own file.
    pub program: PathBuf,
    /// `PATH`, `HOME` and the like for programs of this machine.
    pub base_environment: IndexMap<String, String>,
    /// The region that jobs are told.
    pub region: String,
    /// Which bucket is where.
    pub buckets: Buckets,
    /// Which folder stands for which shared file system, by its identity.
    pub file_systems: BTreeMap<String, PathBuf>,
    /// Who the user is to stores.
    pub credentials: StoreCredentials,
    /// How much of what comes from stores is kept for other jobs, in bytes; 0 for nothing.
    pub cache_limit: u64,
    /// Image names that stand for other ones.
    pub images: BTreeMap<String, String>,
    /// The data folder.
    pub data: PathBuf,
    /// How container images are run.
    pub runtime: RuntimeChoice,
    /// Where a daemon may be found.
    pub docker: Sockets,
    /// Where container images come from.
    pub image_source: ImageSource,
    /// Between SIGTERM and SIGKILL, if somebody asked for another time than the job's.
    pub grace: Option<Duration>,
    /// What `ResourceConfig` means for processors, memory and volume.
    pub limits: LimitPolicy,
    /// What is done about GPUs.
    pub gpus: GpuPolicy,
}

impl Machine {
    /// The name of a job's image, or of the one that is run in its place.
    fn image_name<'a>(&'a self, spec: &'a TrainingJobSpec) -> &'a str {
        self.images.get(&spec.algorithm.image).unwrap_or(&spec.algorithm.image)
    }
}

/// Jobs of this machine belong to no account; twelve digits are what programs expect.
pub const ACCOUNT: &str = "000000000000";

/// Why a request can't become a job.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// It breaks the rules of the API.
    #[error(transparent)]
    Violations(#[from] Violations),
    /// It asks for what is not built yet.
    #[error("{}", list(.0))]
    Unsupported(Vec<Unsupported>),
    /// Its image can't be run here.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// Its container image can't be run here.
    #[error(transparent)]
    Container(#[from] ContainerError),
    /// A channel is not what its source says.
    #[error("channel {channel}")]
    Channel {
        /// The channel.
        channel: String,
        /// What is wrong.
        source: Box<ChannelError>,
    },
    /// The objects that are there don't make a job.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The descriptions of this machine's GPUs can't be used.
    #[error(transparent)]
    Gpus(#[from] GpusError),
    /// `S3OutputPath` is no place on this machine.
    #[error("OutputDataConfig.S3OutputPath")]
    Output(#[source] StorageError),
    /// A folder is not encrypted.
    #[error(
        "OutputDataConfig.KmsKeyId: {0} is a folder of this machine, which nothing encrypts; leave the key out, or let \
         the output go to a store"
    )]
    Encryption(String),
    /// A store that knows no such keys.
    #[error("OutputDataConfig.KmsKeyId: {uri} is in {store}, which knows no such keys; leave the key out")]
    KeyOfOther {
        /// Of the output.
        uri: String,
        /// What people call the store.
        store: String,
    },
    /// The store does not let the artifacts in.
    #[error("OutputDataConfig.S3OutputPath {uri}: nothing can be written there")]
    OutputRefused {
        /// The URI.
        uri: String,
        /// Why not.
        source: Box<StorageError>,
    },
    /// Nothing can be written to the output.
    #[error("OutputDataConfig.S3OutputPath {uri}: can't write to {path:?}")]
    OutputNotWritable {
        /// The URI.
        uri: String,
        /// The folder, or the nearest one above it that is there.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The request can't be stored.
    #[error("the request can't be written as JSON")]
    Request(#[from] serde_json::Error),
}

fn list(refused: &[Unsupported]) -> String {
    refused.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// A job that can be submitted.
#[derive(Debug)]
pub struct Prepared {
    /// The job.
    pub submission: Submission,
    /// Its container image, if it has one: as long as this is kept, nobody removes it.
    pub image: Option<PreparedImage>,
}

/// Checks a request against the API and this machine, brings its image here, and plans it.
///
/// `progress` is told how far the image is.
pub async fn prepare(
    request: CreateTrainingJobRequest,
    machine: &Machine,
    capabilities: &Capabilities,
    progress: ImageProgress,
) -> Result<Prepared, PrepareError> {
    let checked = check(request, machine, capabilities).await?;
    checked.try_output(machine).await?;
    plan_checked(checked, machine, progress).await
}

/// A request in which nothing is wrong that can be known before its image is here.
#[derive(Debug)]
pub struct Checked {
    text: String,
    spec: TrainingJobSpec,
    of_machine: Option<Image>,
    output: OutputPlace,
    listings: Vec<Listing>,
    /// What there are; none if nobody may have one.
    gpus: Option<Vec<Gpu>>,
}

impl Checked {
    /// The request as JSON.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Tries whether a store will let the artifacts in: an upload is begun and given up, of which nobody sees
    /// anything. Of a folder that is known before; of a store that does not speak S3 it can't be known unseen.
    ///
    /// # Errors
    /// It will not.
    pub async fn try_output(&self, machine: &Machine) -> Result<(), PrepareError> {
        let OutputPlace::Store(store) = &self.output else { return Ok(()) };
        if store.address.kind != StoreKind::S3 {
            return Ok(());
        }
        let stores = Stores::new(machine.buckets.clone(), machine.credentials.clone());
        let uri = self.spec.output.uri.to_string();
        let refused = |source| PrepareError::OutputRefused { uri: uri.clone(), source: Box::new(source) };
        let key = store.key(".trainyard-probe");
        stores.begin(&store.bucket, &key, store.kms_key.as_deref()).await.map_err(refused)?;
        stores.abort_all(&store.bucket, &key).await.map_err(refused)
    }

    /// What is known of the job.
    pub fn outline(&self) -> Outline {
        let hosts = (0..self.spec.resources.instance_count() as usize).map(host_name).collect();
        Outline { job: self.spec.name.clone(), hosts, merges: self.spec.settings.merge.is_some() }
    }

    /// The job's tags.
    pub fn tags(&self) -> impl Iterator<Item = (String, String)> {
        self.spec.tags.iter().map(|tag| (tag.key.clone(), tag.value.clone()))
    }

    /// What each of its hosts needs of the machine.
    pub fn needs(&self, machine: &Machine) -> Needs {
        needs(&self.spec, machine.limits, machine.gpus)
    }

    /// What the tag `trainyard:priority` says; 0 without it.
    pub fn priority(&self) -> i64 {
        priority(self.spec.tags.iter().map(|tag| (tag.key.as_str(), tag.value.as_str())))
    }
}

/// Checks a request against the API and this machine; nothing is written anywhere.
pub async fn check(
    request: CreateTrainingJobRequest,
    machine: &Machine,
    capabilities: &Capabilities,
) -> Result<Checked, PrepareError> {
    let text = serde_json::to_string(&request)?;
    let spec = TrainingJobSpec::try_from(request)?;
    let refused = unsupported(&spec, capabilities);
    if !refused.is_empty() {
        return Err(PrepareError::Unsupported(refused));
    }
    let of_machine = Image::resolve(machine.image_name(&spec), &machine.program, file_kind)?;
    let stores = Stores::new(machine.buckets.clone(), machine.credentials.clone());
    let output = output_place(&spec, machine)?;
    if let OutputPlace::Folder(folder) = &output {
        check_writable(&spec.output.uri.to_string(), folder)?;
    }
    let listings =
        try_join_all(spec.channels.iter().map(|channel| listing(channel, machine, &stores))).await?;
    for (channel, listing) in spec.channels.iter().zip(&listings) {
        check_listing(channel, listing)?;
    }
    let gpus = match machine.gpus {
        GpuPolicy::Ignore => None,
        GpuPolicy::Use if wants_accelerators(&spec) => Some(gpus()?),
        GpuPolicy::Use => Some(Vec::new()),
    };
    check_machine(&spec, machine.limits, capacity(), gpus.as_deref())?;
    Ok(Checked { text, spec, of_machine, output, listings, gpus })
}

/// Brings the image of a request here, which may take long, and plans the job.
pub async fn plan_checked(
    checked: Checked,
    machine: &Machine,
    progress: ImageProgress,
) -> Result<Prepared, PrepareError> {
    let Checked { text, spec, of_machine, output, listings, gpus } = checked;
    let name = machine.image_name(&spec);
    let obtained = match of_machine {
        Some(image) => Obtained { image, kept: None, warning: None },
        None => choose::obtain(name, machine, progress).await?,
    };
    let Obtained { mut image, kept, warning } = obtained;
    if let Image::OfDaemon { docker, .. } = &mut image {
        docker.isolated = spec.network_isolation;
        for (channel, listing) in spec.channels.iter().zip(&listings) {
            check_container(channel, listing)?;
        }
    }
    let surroundings = Surroundings {
        image,
        program: machine.program.clone(),
        base_environment: machine.base_environment.clone(),
        region: machine.region.clone(),
        account: ACCOUNT.to_owned(),
        network_interface: INTERFACE.to_owned(),
        storage: storage_plan(&listings, &output, machine),
        output,
        grace: machine.grace,
        listings,
        limits: machine.limits,
        capacity: capacity(),
        gpus,
    };
    let mut plan = plan(&spec, &surroundings)?;
    plan.warnings.extend(warning);
    if let (Some(PreparedImage::Unpacked(image)), Some(first)) = (&kept, plan.instances.first()) {
        container::check_program(name, image, first)?;
    }
    let submission = Submission { request: text, plan, manifests: manifests(&spec, &surroundings) };
    Ok(Prepared { submission, image: kept })
}

fn file_kind(path: &Path) -> FileKind {
    match path.metadata() {
        Ok(found) if found.is_dir() => FileKind::Folder,
        Ok(_) => FileKind::File,
        Err(_) => FileKind::Missing,
    }
}

/// What instances need to know of the stores that their objects are in.
fn storage_plan(listings: &[Listing], output: &OutputPlace, machine: &Machine) -> StoragePlan {
    let sources = listings.iter().flat_map(Listing::sources);
    let mut buckets: BTreeSet<_> = sources.filter_map(ObjectSource::bucket).collect();
    if let OutputPlace::Store(store) = output {
        buckets.insert(&store.bucket);
    }
    let address = |bucket: &str| Some((bucket.to_owned(), machine.buckets.store(bucket)?.clone()));
    let stores = buckets.into_iter().filter_map(address).collect();
    let folder = machine.data.join("cache/objects");
    let cache = (machine.cache_limit > 0).then_some(CachePlan { folder, limit: machine.cache_limit });
    StoragePlan { stores, cache }
}

/// What `S3OutputPath` stands for.
fn output_place(spec: &TrainingJobSpec, machine: &Machine) -> Result<OutputPlace, PrepareError> {
    let located = machine.buckets.locate(&spec.output.uri).map_err(PrepareError::Output)?;
    let kms_key = spec.output.kms_key_id.clone();
    match located {
        Location::Folder { .. } if kms_key.is_some() => {
            Err(PrepareError::Encryption(spec.output.uri.to_string()))
        }
        Location::Folder { root, key } => Ok(OutputPlace::Folder(root.join(key))),
        Location::Store { bucket, key } => {
            let unknown = || PrepareError::Output(StorageError::UnknownBucket { bucket: bucket.clone() });
            let address = machine.buckets.store(&bucket).ok_or_else(unknown)?.clone();
            if kms_key.is_some() && address.kind != StoreKind::S3 {
                let (uri, store) = (spec.output.uri.to_string(), address.name().to_owned());
                return Err(PrepareError::KeyOfOther { uri, store });
            }
            let prefix = key.trim_end_matches('/').to_owned();
            Ok(OutputPlace::Store(StoreOutput { bucket, prefix, address, kms_key }))
        }
    }
}

/// The nearest folder that is there must let us write; nothing is made before the job starts.
fn check_writable(uri: &str, folder: &Path) -> Result<(), PrepareError> {
    let there = folder.ancestors().find(|path| fs::symlink_metadata(path).is_ok()).unwrap_or(Path::new("/"));
    let writable = match fs::metadata(there) {
        Ok(found) if !found.is_dir() => Err(io::ErrorKind::NotADirectory.into()),
        Ok(_) => access(there, Access::WRITE_OK | Access::EXEC_OK).map_err(io::Error::from),
        Err(error) => Err(error),
    };
    writable.map_err(|source| PrepareError::OutputNotWritable {
        uri: uri.to_owned(),
        path: there.to_owned(),
        source,
    })
}
