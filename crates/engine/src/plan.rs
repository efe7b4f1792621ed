//! What exactly each host of a job gets and does, as plain values.
//!
//! A plan is written to the run directory and carried out there by supervisors, perhaps on other
//! machines and after a restart, so nothing in it may depend on the memory of this process.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::job::Outline;
use crate::spec::OutputCompression;
use crate::storage::{ObjectSource, StoreAddress};

mod build;
mod config;
mod deal;
mod delivery;
mod gpus;
mod image;
mod limits;
mod need;
pub(crate) mod network;
mod order;
mod path;
mod shard;

pub(crate) use build::check_listing;
pub use build::{Listing, Names, PlanError, Surroundings, check_machine, manifests, plan};
pub use deal::Deal;
pub use delivery::{Delivery, Entry, FolderPlan, Piece, PipePlan};
pub use gpus::{DeviceEdits, Gpu, GpuError, GpuPlan, GpuPolicy, wants_accelerators};
pub use image::{ALLPAIRS, BUILT_IN_PROGRAM, FileKind, Image, ImageError};
pub(crate) use limits::count_cpus;
pub use limits::{Capacity, LimitPolicy, Limits, LimitsError};
pub use need::{Need, Needs, needs};

/// One attempt at a job: what every instance does, and what comes after the last one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobPlan {
    /// The name of the training job, in its original case.
    pub job: String,
    /// Counts from 1; a resumed or retried job is the next attempt.
    pub attempt: u32,
    /// One per host, in host order.
    pub instances: Vec<InstancePlan>,
    /// The instance that turns the parts into one result, if the job declares one.
    pub merge: Option<MergePlan>,
    /// Where the artifacts are published.
    pub output: OutputPlan,
    /// From the start of the download to the stop, over all instances.
    pub max_runtime: Duration,
    /// What the person who submitted the job should know before it starts.
    pub warnings: Vec<String>,
}

impl JobPlan {
    /// Whether a daemon has part in it, who may keep something of an instance that was killed.
    pub fn is_through_daemon(&self) -> bool {
        self.instances.iter().any(|instance| matches!(instance.runtime, RuntimePlan::Docker(_)))
    }

    /// What of it is known before anything is planned.
    pub fn outline(&self) -> Outline {
        let hosts = self.instances.iter().map(|instance| instance.host.clone()).collect();
        Outline { job: self.job.clone(), hosts, merges: self.merge.is_some() }
    }

    /// Between SIGTERM and SIGKILL; the same for all instances.
    pub fn grace(&self) -> Duration {
        self.instances.first().map_or(Duration::ZERO, |instance| instance.grace)
    }
}

/// What one host gets and does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InstancePlan {
    /// The name of the training job.
    pub job: String,
    /// The attempt that this plan belongs to.
    pub attempt: u32,
    /// The instance's own name: `algo-1` … `algo-N`, or `merge`.
    pub host: String,
    /// Every host of the job, in number order.
    pub hosts: Vec<HostAddress>,
    /// What the instance can reach.
    pub network: NetworkPlan,
    /// What the instance is there for.
    pub role: Role,
    /// How `train` is started.
    pub runtime: RuntimePlan,
    /// The program and its arguments; a name without a slash is looked up in `PATH`.
    pub command: Vec<String>,
    /// All of the environment of `train`; nothing else is passed on.
    pub environment: IndexMap<String, String>,
    /// Files below `input/config`: name and content.
    pub config: IndexMap<String, String>,
    /// The input channels of this host.
    pub channels: Vec<ChannelPlan>,
    /// Metrics that are read from the log.
    pub metrics: Vec<MetricDefinition>,
    /// Between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// Of `/dev/shm`, in bytes; half of the memory that the instance may take when absent.
    pub shm_size: Option<u64>,
    /// What the instance may take of its machine.
    pub limits: Limits,
    /// Which GPUs of its machine it has.
    pub gpus: GpuPlan,
    /// The level of the artifacts' compression, 0 (stored) to 9.
    pub compression_level: u32,
    /// Whether its part of the model becomes plain files; then it is stored only, and never uploaded as a part.
    #[serde(default)]
    pub model: OutputCompression,
    /// Patterns of what is left out of the archives.
    #[serde(default)]
    pub ignore: Vec<String>,
    /// What may be in an archive without a warning, in bytes.
    #[serde(default)]
    pub warn_above: u64,
    /// What it needs to know of stores.
    #[serde(default)]
    pub storage: StoragePlan,
}

/// Where the objects of stores come from, and where they are kept on the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoragePlan {
    /// Where each bucket is that is in a store. Credentials are no part of a plan.
    pub stores: BTreeMap<String, StoreAddress>,
    /// Absent if nothing is kept for other jobs.
    pub cache: Option<CachePlan>,
}

/// What was fetched and may be used again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CachePlan {
    /// Shared by all jobs of a machine.
    pub folder: PathBuf,
    /// How much is kept, in bytes.
    pub limit: u64,
}

/// A host and the address at which the other instances reach it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostAddress {
    /// The name inside the job.
    pub name: String,
    /// An IP address.
    pub address: String,
}

/// What an instance can reach by network. Its loopback interface is its own in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NetworkPlan {
    /// A network of the job's own, in which its instances reach each other at their addresses.
    Job {
        /// How many bits of the addresses are the same for all hosts.
        prefix_length: u8,
        /// Where the way out of the network is, and its name server; an isolated job has none.
        gateway: Option<Ipv4Addr>,
    },
    /// Nothing, or what a daemon gives to its containers.
    Alone,
}

/// What an instance is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// One of the N copies that run the image.
    Train,
    /// Turns the parts of all instances into one result.
    Merge,
}

/// How one `train` is started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum RuntimePlan {
    /// A program of the machine itself, in namespaces of its own.
    Host {
        /// Files and folders of the machine that are shown, read-only, at a path of the instance.
        exposed: Vec<Exposed>,
        /// Where the program starts.
        working_directory: PathBuf,
    },
    /// A program of a container image, in the same namespaces over the image's layers.
    Oci {
        /// The unpacked layers, the top-most first.
        layers: Vec<PathBuf>,
        /// As whom the program runs, where the instance has more than one user id.
        user: Identity,
        /// Where the program starts; made if it is not there.
        working_directory: PathBuf,
        /// The signal that a stop sends to every process before it kills them.
        stop_signal: i32,
    },
    /// A program of a container image, in a container of a daemon.
    Docker(DockerPlan),
}

/// How a program is started through Docker or Podman.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DockerPlan {
    /// Where the daemon listens.
    pub socket: PathBuf,
    /// The image's id, or another name by which the daemon has it.
    pub image: String,
    /// As whom the program runs: `USER` of the image, which is looked up in the container.
    pub user: String,
    /// Where the program starts; the daemon makes it if it is not there.
    pub working_directory: PathBuf,
    /// The signal that asks its processes to end.
    pub stop_signal: i32,
    /// Whether the daemon can mount overlays of folders that are named to it.
    pub overlays: bool,
    /// Whether nothing but the job's own instances can be reached.
    pub isolated: bool,
    /// The data folder that the job belongs to, by which what is left of it is found.
    pub data: PathBuf,
}

/// A user inside an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

/// A file or folder of the machine that an instance sees, read-only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exposed {
    /// Where it is on the machine.
    pub source: PathBuf,
    /// Where the instance sees it.
    pub target: PathBuf,
}

/// One input channel as one host gets it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChannelPlan {
    /// The folder below `input/data`.
    pub name: String,
    /// The objects of this host, in order of their keys.
    pub objects: Vec<ObjectPlan>,
    /// Whether every host gets the same objects, so that one copy on a machine can serve all.
    pub replicated: bool,
    /// Whether a `<channel>-manifest` file stands beside the folder.
    pub manifest: bool,
    /// How they reach the instance; what comes through pipes is not among the objects.
    #[serde(default)]
    pub delivery: Delivery,
}

impl ChannelPlan {
    /// Objects, or lines of a manifest, that the host gets, as far as that does not change with every epoch.
    pub fn entries(&self) -> usize {
        match &self.delivery {
            Delivery::Pipe(pipe) => pipe.order(0).len(),
            Delivery::Files | Delivery::WhenRead | Delivery::Folder(_) => self.objects.len(),
        }
    }

    /// Their size in bytes, as listed.
    pub fn size(&self) -> u64 {
        match &self.delivery {
            Delivery::Pipe(pipe) => {
                pipe.order(0).into_iter().map(|entry| pipe.entries[entry].size()).fold(0, u64::saturating_add)
            }
            Delivery::Files | Delivery::WhenRead | Delivery::Folder(_) => {
                self.objects.iter().map(|object| object.size).fold(0, u64::saturating_add)
            }
        }
    }

    /// Whether its objects are in a store and stay there until they are read.
    pub fn is_fetched_when_read(&self) -> bool {
        self.delivery == Delivery::WhenRead
            && self.objects.iter().any(|object| object.source.path().is_none())
    }

    /// What it takes of the instance's volume, in bytes: only files that are there before `train` starts.
    pub fn volume(&self) -> u64 {
        if self.delivery == Delivery::Files { self.size() } else { 0 }
    }
}

/// One object and the file that it becomes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectPlan {
    /// Where the object is.
    pub source: ObjectSource,
    /// The path below the channel's folder, checked to stay inside it.
    pub relative: String,
    /// In bytes, as listed.
    pub size: u64,
}

/// A metric that is read from log lines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetricDefinition {
    /// The metric's name.
    pub name: String,
    /// Searched in each line; the first capture group is the value.
    pub regex: String,
}

/// Where a job's artifacts go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputPlan {
    /// Where `<S3OutputPath>/<job>/output` is.
    pub place: OutputPlace,
    /// The same as a URI, without a trailing slash.
    pub uri: String,
    /// Whether the model is one archive or plain files; other output always is an archive.
    #[serde(default)]
    pub model: OutputCompression,
}

/// A folder, on this machine or in a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OutputPlace {
    /// On this machine.
    Folder(PathBuf),
    /// In a store.
    Store(StoreOutput),
}

/// The place of artifacts in a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreOutput {
    /// The bucket.
    pub bucket: String,
    /// What keys begin with; without a slash at the end.
    pub prefix: String,
    /// Where the bucket is.
    pub address: StoreAddress,
    /// What the store encrypts with, if that was asked for.
    pub kms_key: Option<String>,
}

impl OutputPlan {
    /// The folder on this machine, if it is one.
    pub fn folder(&self) -> Option<&Path> {
        match &self.place {
            OutputPlace::Folder(folder) => Some(folder),
            OutputPlace::Store(_) => None,
        }
    }
}

impl OutputPlace {
    /// What lies below it.
    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        match self {
            Self::Folder(folder) => Self::Folder(folder.join(name)),
            Self::Store(store) => Self::Store(StoreOutput { prefix: store.key(name), ..store.clone() }),
        }
    }
}

impl StoreOutput {
    /// The key of what lies below it.
    pub fn key(&self, name: &str) -> String {
        match self.prefix.trim_end_matches('/') {
            "" => name.to_owned(),
            prefix => format!("{prefix}/{name}"),
        }
    }
}

/// The last step of a job: what joins the parts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MergePlan {
    /// The instance, complete but for its one channel, which is the artifact.
    pub instance: InstancePlan,
    /// The file's name, both in the instance and beside the artifact.
    pub output: String,
}

impl MergePlan {
    /// The instance with its channel: the archive that has just been published, with its size in bytes.
    pub fn instance_for(&self, archive: ObjectSource, size: u64, attempt: u32) -> InstancePlan {
        let relative = self.instance.model.model_archive();
        let object = ObjectPlan { source: archive, relative, size };
        let channel = ChannelPlan {
            name: "model".to_owned(),
            objects: vec![object],
            replicated: false,
            manifest: false,
            delivery: Delivery::Files,
        };
        InstancePlan { attempt, channels: vec![channel], ..self.instance.clone() }
    }
}

/// A valid spec for the tests of the plan: instances of one type with volumes of some GB.
#[cfg(test)]
fn spec_of(instance_type: &str, instances: u32, volume: u32) -> crate::spec::TrainingJobSpec {
    let request = serde_json::json!({
        "TrainingJobName": "job",
        "AlgorithmSpecification": {"TrainingImage": "image", "TrainingInputMode": "File"},
        "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
        "ResourceConfig": {
            "InstanceType": instance_type, "InstanceCount": instances, "VolumeSizeInGB": volume,
        },
    });
    let request = crate::wire::parse_json(&request.to_string()).unwrap();
    crate::spec::TrainingJobSpec::try_from(request).unwrap()
}
