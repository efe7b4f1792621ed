//! What an instance may take of its machine, and whether the machine has it.

use serde::{Deserialize, Serialize};

use super::ChannelPlan;
use crate::explain::bytes;
use crate::spec::{InstanceGroup, InstanceType, LOCAL_INSTANCE_TYPES, TrainingJobSpec};

/// Most processes and threads of an instance unless the job says otherwise: far more than programs for
/// tens of processors start, far less than what makes a machine unusable.
const PIDS: u32 = 32_768;

/// What an instance may take of its machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Processors' worth of time; absent without a limit.
    pub cpus: Option<u32>,
    /// Memory in bytes, that of `/dev/shm` included; absent without a limit.
    pub memory: Option<u64>,
    /// Processes and threads at a time.
    pub pids: u32,
    /// Bytes of the inputs and of all that is written to `/opt/ml`, `/tmp` and the image's own folders; absent
    /// without a limit.
    pub volume: Option<u64>,
}

impl Limits {
    /// Nothing is limited but the number of processes.
    pub fn of_pids(pids: Option<u32>) -> Self {
        Self { cpus: None, memory: None, pids: pids.unwrap_or(PIDS), volume: None }
    }
}

/// What `ResourceConfig` means for processors, memory and volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LimitPolicy {
    /// Programs are told, and may take what the machine has.
    #[default]
    Advise,
    /// Instances get what they ask for and no more; a job that asks for more than the machine has is refused.
    Enforce,
}

/// What a machine has for all instances together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Processors that this program may use.
    pub cpus: u32,
    /// Bytes of memory that this program may use.
    pub memory: u64,
}

/// Limits that can't be kept to on this machine.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitsError {
    /// All instances together ask for more than there is.
    #[error(
        "ResourceConfig: {instances} with the limits of {types} would need {wanted} in all, but this machine has \
         {available}; ask for fewer or smaller instances, or let them share the machine with --limits advise"
    )]
    TooMuch {
        /// Number of instances, in words.
        instances: String,
        /// Types of instances.
        types: String,
        /// Processors or memory, in words.
        wanted: String,
        /// The same of the machine.
        available: String,
    },
    /// The inputs alone are larger than the volume.
    #[error(
        "ResourceConfig.VolumeSizeInGB: the input of {host} has {}, but its volume only {}; ask for a larger \
         one, or run with --limits advise", bytes(*input), bytes(*volume)
    )]
    Volume {
        /// The host.
        host: String,
        /// Bytes of all its channels.
        input: u64,
        /// Bytes of its volume.
        volume: u64,
    },
}

/// The limits of an instance of a group.
pub(super) fn limits(spec: &TrainingJobSpec, group: &InstanceGroup, policy: LimitPolicy) -> Limits {
    let unlimited = Limits::of_pids(spec.settings.pids_limit);
    match policy {
        LimitPolicy::Advise => unlimited,
        LimitPolicy::Enforce => {
            let kind = InstanceType::named(&group.instance_type);
            Limits {
                cpus: kind.map(|kind| kind.cpus),
                memory: kind.map(|kind| kind.memory),
                volume: spec
                    .resources
                    .volume_size_gb
                    .filter(|size| *size > 0)
                    .map(|size| u64::from(size) << 30),
                ..unlimited
            }
        }
    }
}

/// Refuses a job whose instances together may take more than the machine has.
pub(super) fn check_capacity(
    spec: &TrainingJobSpec,
    policy: LimitPolicy,
    capacity: Capacity,
) -> Result<(), LimitsError> {
    if policy == LimitPolicy::Advise {
        return Ok(());
    }
    // This machine itself has what it has.
    let groups = spec.resources.groups.iter();
    let limited: Vec<_> =
        groups.filter(|group| !LOCAL_INSTANCE_TYPES.contains(&group.instance_type.as_str())).collect();
    let sum = |of: fn(InstanceType) -> u64| -> u64 {
        let each = limited.iter().filter_map(|group| {
            Some(of(InstanceType::named(&group.instance_type)?).saturating_mul(u64::from(group.count)))
        });
        each.fold(0, u64::saturating_add)
    };
    let (cpus, memory) = (sum(|kind| u64::from(kind.cpus)), sum(|kind| kind.memory));
    let refuse = |wanted: String, available: String| {
        let count: u32 = limited.iter().map(|group| group.count).sum();
        let types: Vec<_> = limited.iter().map(|group| group.instance_type.as_str()).collect();
        Err(LimitsError::TooMuch {
            instances: instances(count),
            types: types.join(" and "),
            wanted,
            available,
        })
    };
    if cpus > u64::from(capacity.cpus) {
        return refuse(count_cpus(cpus), capacity.cpus.to_string());
    }
    if memory > capacity.memory {
        return refuse(format!("{} of memory", bytes(memory)), bytes(capacity.memory));
    }
    Ok(())
}

/// A number of processors, in words.
pub(crate) fn count_cpus(cpus: u64) -> String {
    if cpus == 1 { "1 CPU".to_owned() } else { format!("{cpus} CPUs") }
}

fn instances(count: u32) -> String {
    match count {
        1 => "1 instance".to_owned(),
        count => format!("{count} instances"),
    }
}

/// Refuses an instance whose inputs do not fit into its volume.
pub(super) fn check_volume(host: &str, channels: &[ChannelPlan], limits: Limits) -> Result<(), LimitsError> {
    let input = channels.iter().map(ChannelPlan::volume).fold(0, u64::saturating_add);
    match limits.volume {
        Some(volume) if input > volume => Err(LimitsError::Volume { host: host.to_owned(), input, volume }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    use crate::plan::{ObjectPlan, spec_of};

    const GIB: u64 = 1 << 30;

    #[test]
    fn advice_limits_processes_alone_and_enforcement_what_the_type_has() {
        let spec = spec_of("ml.m5.xlarge", 1, 30);
        let group = &spec.resources.groups[0];
        let advised = Limits { cpus: None, memory: None, pids: 32_768, volume: None };
        assert_eq!(limits(&spec, group, LimitPolicy::Advise), advised);
        let enforced = Limits { cpus: Some(4), memory: Some(16 * GIB), pids: 32_768, volume: Some(30 * GIB) };
        assert_eq!(limits(&spec, group, LimitPolicy::Enforce), enforced);
        let local = spec_of("local", 1, 0);
        assert_eq!(limits(&local, &local.resources.groups[0], LimitPolicy::Enforce), advised);
    }

    #[test]
    fn all_instances_together_must_fit_where_limits_are_enforced() {
        let check = |instance_type, instances, cpus, memory| {
            let spec = spec_of(instance_type, instances, 1);
            check_capacity(&spec, LimitPolicy::Enforce, Capacity { cpus, memory })
                .map_err(|error| error.to_string())
        };
        assert_eq!(check("ml.m5.large", 2, 4, 16 * GIB), Ok(()));
        assert_eq!(check("local", 100, 1, GIB), Ok(()));
        let error = check("ml.m5.large", 2, 3, 16 * GIB).unwrap_err();
        assert!(
            error.contains("2 instances") && error.contains("4 CPUs") && error.contains("has 3;"),
            "{error}"
        );
        let error = check("ml.m5.large", 1, 3, 8 * GIB - 1).unwrap_err();
        assert!(error.contains("1 instance ") && error.contains("8.0 GiB (8589934592 bytes)"), "{error}");
        let spec = spec_of("ml.m5.24xlarge", 100, 1);
        let small = Capacity { cpus: 1, memory: GIB };
        assert_eq!(check_capacity(&spec, LimitPolicy::Advise, small), Ok(()));
    }

    #[test]
    fn inputs_may_fill_the_volume_but_not_more() {
        let object = |size| ObjectPlan { source: PathBuf::from("/a").into(), relative: "a".to_owned(), size };
        let channel = |size| ChannelPlan {
            name: "train".to_owned(),
            objects: vec![object(size), object(1)],
            replicated: true,
            manifest: false,
            delivery: crate::plan::Delivery::Files,
        };
        let limits = Limits { volume: Some(100), ..Limits::of_pids(None) };
        assert_eq!(check_volume("algo-1", &[channel(49), channel(49)], limits), Ok(()));
        let error = check_volume("algo-1", &[channel(49), channel(50)], limits).unwrap_err();
        assert_eq!(error, LimitsError::Volume { host: "algo-1".to_owned(), input: 101, volume: 100 });
        assert_eq!(check_volume("algo-1", &[channel(u64::MAX)], Limits::of_pids(None)), Ok(()));
    }
}
