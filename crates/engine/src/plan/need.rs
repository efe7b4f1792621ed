//! What the instances of a job need of a machine, where several jobs share it.

use std::iter::Sum;
use std::ops::Add;

use trainyard_toolkit::contract::host_name;

use super::gpus::gpus_of_type;
use super::{GpuPolicy, LimitPolicy};
use crate::spec::{InstanceType, TrainingJobSpec};

/// What is needed, or what there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// Instances.
    pub instances: u32,
    /// Processors.
    pub cpus: u64,
    /// Bytes of memory.
    pub memory: u64,
    /// GPUs.
    pub gpus: u64,
}

/// What each host of a job needs.
pub type Needs = Vec<(String, Need)>;

impl Need {
    /// Whether there is enough of everything.
    pub fn fits(self, capacity: Self) -> bool {
        self.instances <= capacity.instances
            && self.cpus <= capacity.cpus
            && self.memory <= capacity.memory
            && self.gpus <= capacity.gpus
    }
}

impl Add for Need {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            instances: self.instances.saturating_add(other.instances),
            cpus: self.cpus.saturating_add(other.cpus),
            memory: self.memory.saturating_add(other.memory),
            gpus: self.gpus.saturating_add(other.gpus),
        }
    }
}

impl Sum for Need {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), Self::add)
    }
}

/// What a job's hosts need: each an instance, and where limits are enforced what its type has. Instances of this machine
/// itself, which have no limits, share what there is.
pub fn needs(spec: &TrainingJobSpec, limits: LimitPolicy, gpus: GpuPolicy) -> Needs {
    let of_groups = spec.resources.groups.iter().flat_map(|group| {
        let kind = match limits {
            LimitPolicy::Advise => None,
            LimitPolicy::Enforce => InstanceType::named(&group.instance_type),
        };
        let need = Need {
            instances: 1,
            cpus: kind.map_or(0, |kind| kind.cpus.into()),
            memory: kind.map_or(0, |kind| kind.memory),
            gpus: kind.filter(|_| gpus == GpuPolicy::Use).map_or(0, |kind| gpus_of_type(kind).into()),
        };
        (0..group.count).map(move |_| need)
    });
    of_groups.enumerate().map(|(rank, need)| (host_name(rank), need)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::spec_of;

    #[test]
    fn hosts_need_what_their_type_has_only_where_limits_are_enforced() {
        let spec = spec_of("ml.m5.large", 2, 30);
        let advised = needs(&spec, LimitPolicy::Advise, GpuPolicy::Use);
        let one = Need { instances: 1, ..Need::default() };
        assert_eq!(advised, [("algo-1".to_owned(), one), ("algo-2".to_owned(), one)]);
        let enforced: Need =
            needs(&spec, LimitPolicy::Enforce, GpuPolicy::Use).into_iter().map(|(_, need)| need).sum();
        assert_eq!(enforced, Need { instances: 2, cpus: 4, memory: 16 << 30, gpus: 0 });
        let gpus = |policy| needs(&spec_of("ml.p3.8xlarge", 1, 1), LimitPolicy::Enforce, policy)[0].1.gpus;
        assert_eq!((gpus(GpuPolicy::Use), gpus(GpuPolicy::Ignore)), (4, 0));
    }
}
