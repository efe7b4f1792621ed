//! Which GPUs of the machine an instance gets, and what its programs need to use them.

use std::path::PathBuf;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use super::Exposed;
use crate::spec::{InstanceGroup, InstanceType, TrainingJobSpec};

/// The type of an instance that has all GPUs of this machine.
const LOCAL_GPU: &str = "local_gpu";

/// The GPUs of one instance. Container engines take the names, our own jail the rest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuPlan {
    /// As the Container Device Interface names them, such as `nvidia.com/gpu=0`; empty without GPUs.
    pub names: Vec<String>,
    /// What an instance must have for them.
    pub edits: DeviceEdits,
}

/// What an instance must have to use a device: the edits of a CDI specification.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceEdits {
    /// Variables of the environment.
    pub environment: IndexMap<String, String>,
    /// Device nodes.
    pub nodes: Vec<Exposed>,
    /// Files and folders that can only be read.
    pub files: Vec<Exposed>,
    /// Files and folders that can be written, such as sockets.
    pub writable: Vec<Exposed>,
    /// Links to make, from where to what.
    pub links: Vec<(PathBuf, PathBuf)>,
    /// Folders with libraries that the loader must find.
    pub library_folders: Vec<PathBuf>,
}

impl DeviceEdits {
    /// Adds what another device needs and this one does not.
    pub fn add(&mut self, other: &Self) {
        fn union<T: Clone + PartialEq>(all: &mut Vec<T>, more: &[T]) {
            for one in more {
                if !all.contains(one) {
                    all.push(one.clone());
                }
            }
        }
        self.environment.extend(other.environment.clone());
        union(&mut self.nodes, &other.nodes);
        union(&mut self.files, &other.files);
        union(&mut self.writable, &other.writable);
        union(&mut self.links, &other.links);
        union(&mut self.library_folders, &other.library_folders);
    }
}

/// A GPU of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// As the Container Device Interface names it.
    pub name: String,
    /// What an instance must have for it.
    pub edits: DeviceEdits,
}

/// What is done about GPUs that a type of instance has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GpuPolicy {
    /// Instances get GPUs of the machine.
    #[default]
    Use,
    /// Instances run without.
    Ignore,
}

/// GPUs that the machine can't give.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum GpuError {
    /// There is none.
    #[error(
        "ResourceConfig.InstanceType: {instance_type} has {wanted}, but this machine has no GPU that is known to it \
         (none of kind nvidia.com/gpu in {folders}; `nvidia-ctk cdi generate` describes those of NVIDIA); use \
         another type, or run without GPUs with --gpus ignore"
    )]
    None {
        /// The type.
        instance_type: String,
        /// Number and model of its accelerators.
        wanted: String,
        /// Where descriptions of devices are looked for.
        folders: String,
    },
    /// There are no accelerators of this kind.
    #[error(
        "ResourceConfig.InstanceType: {instance_type} has {wanted}, which is no GPU and can't be given here; use \
         another type, or run without with --gpus ignore"
    )]
    Unknown {
        /// The type.
        instance_type: String,
        /// Number and model of its accelerators.
        wanted: String,
    },
    /// There are too few, and they are not to be shared.
    #[error(
        "ResourceConfig: the instances would need {wanted} GPUs in all, but this machine has {available}; ask for \
         fewer, or let them share the GPUs with --limits advise"
    )]
    TooFew {
        /// Over all instances.
        wanted: u32,
        /// On the machine.
        available: usize,
    },
}

/// Whether a job asks for GPUs or other accelerators.
pub fn wants_accelerators(spec: &TrainingJobSpec) -> bool {
    spec.resources.groups.iter().any(|group| {
        group.instance_type == LOCAL_GPU
            || InstanceType::named(&group.instance_type).is_some_and(|kind| kind.accelerators.is_some())
    })
}

/// How many GPUs instances of a type have.
pub(super) fn gpus_of_type(kind: InstanceType) -> u32 {
    kind.accelerators.filter(|(_, model)| !model.starts_with("Trainium")).map_or(0, |(count, _)| count)
}

/// How many GPUs each instance of a group is to have.
fn wanted(group: &InstanceGroup, instances: u32, gpus: &[Gpu]) -> Result<u32, GpuError> {
    let available = u32::try_from(gpus.len()).unwrap_or(u32::MAX);
    if group.instance_type == LOCAL_GPU {
        return match available {
            0 => Err(none(group, "the GPUs of this machine".to_owned())),
            _ => Ok((available / instances.max(1)).max(1)),
        };
    }
    match InstanceType::named(&group.instance_type).and_then(|kind| kind.accelerators) {
        None => Ok(0),
        Some((count, model)) if model.starts_with("Trainium") => Err(GpuError::Unknown {
            instance_type: group.instance_type.clone(),
            wanted: format!("{count} {model}"),
        }),
        Some((count, model)) if gpus.is_empty() => Err(none(group, format!("{count} {model}"))),
        Some((count, _)) => Ok(count),
    }
}

fn none(group: &InstanceGroup, wanted: String) -> GpuError {
    let folders = crate::gpu::FOLDERS.join(" and ");
    GpuError::None { instance_type: group.instance_type.clone(), wanted, folders }
}

/// Deals the machine's GPUs out to the hosts, in turn. Where there are too few they are shared, unless limits are
/// enforced; a warning says so.
pub(super) fn deal_out(
    spec: &TrainingJobSpec,
    gpus: &[Gpu],
    enforced: bool,
) -> Result<(Vec<GpuPlan>, Option<String>), GpuError> {
    let instances = spec.resources.instance_count();
    let mut counts = Vec::new();
    for group in &spec.resources.groups {
        let count = wanted(group, instances, gpus)?;
        counts.extend((0..group.count).map(|_| count));
    }
    let sum: u32 = counts.iter().fold(0, |sum, count| sum.saturating_add(*count));
    let too_few = usize::try_from(sum).is_ok_and(|sum| sum > gpus.len());
    if too_few && enforced {
        return Err(GpuError::TooFew { wanted: sum, available: gpus.len() });
    }
    let mut turn = gpus.iter().cycle();
    let dealt = counts.iter().map(|count| {
        let count = usize::try_from(*count).unwrap_or(usize::MAX).min(gpus.len());
        of_instance(turn.by_ref().take(count))
    });
    let dealt = dealt.collect();
    let warning = too_few.then(|| {
        format!("the instances would have {sum} GPUs; this machine has {}, which they share", gpus.len())
    });
    Ok((dealt, warning))
}

fn of_instance<'a>(gpus: impl Iterator<Item = &'a Gpu>) -> GpuPlan {
    let mut plan = GpuPlan::default();
    for gpu in gpus {
        plan.names.push(gpu.name.clone());
        plan.edits.add(&gpu.edits);
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::spec_of;

    fn gpus(count: usize) -> Vec<Gpu> {
        let gpu = |number| Gpu { name: format!("gpu={number}"), edits: DeviceEdits::default() };
        (0..count).map(gpu).collect()
    }

    fn dealt(instance_type: &str, instances: u32, there: usize) -> Vec<String> {
        let (plans, _) = deal_out(&spec_of(instance_type, instances, 1), &gpus(there), false).unwrap();
        plans.iter().map(|plan| plan.names.join(",").replace("gpu=", "")).collect()
    }

    #[test]
    fn gpus_are_dealt_out_in_turn_and_shared_where_there_are_too_few() {
        let table: [(&str, u32, usize, &[&str]); 6] = [
            ("ml.m5.large", 2, 4, &["", ""]),
            ("ml.g5.xlarge", 2, 4, &["0", "1"]),
            ("ml.g5.xlarge", 3, 2, &["0", "1", "0"]),
            ("ml.p3.8xlarge", 2, 3, &["0,1,2", "0,1,2"]),
            ("local_gpu", 2, 5, &["0,1", "2,3"]),
            ("local_gpu", 3, 1, &["0", "0", "0"]),
        ];
        for (instance_type, instances, there, expected) in table {
            assert_eq!(
                dealt(instance_type, instances, there),
                expected,
                "{instances} of {instance_type}, {there}"
            );
        }
    }

    #[test]
    fn sharing_is_a_warning_and_where_limits_are_enforced_a_refusal() {
        let spec = spec_of("ml.g5.12xlarge", 2, 1);
        let (_, warning) = deal_out(&spec, &gpus(2), false).unwrap();
        assert_eq!(warning.unwrap(), "the instances would have 8 GPUs; this machine has 2, which they share");
        assert_eq!(deal_out(&spec, &gpus(8), true).unwrap().1, None);
        assert_eq!(deal_out(&spec, &gpus(7), true), Err(GpuError::TooFew { wanted: 8, available: 7 }));
    }

    #[test]
    fn what_is_not_there_is_refused_by_name() {
        for instance_type in ["ml.p4d.24xlarge", "local_gpu"] {
            let error = deal_out(&spec_of(instance_type, 1, 1), &[], false).unwrap_err();
            assert!(matches!(error, GpuError::None { .. }), "{error}");
            assert!(error.to_string().contains(instance_type), "{error}");
        }
        let error = deal_out(&spec_of("ml.trn1.2xlarge", 1, 1), &gpus(1), false).unwrap_err();
        assert!(error.to_string().contains("1 Trainium, which is no GPU"), "{error}");
    }
}
