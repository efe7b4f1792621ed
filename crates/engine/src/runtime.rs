//! How a supervisor starts one `train`: each runtime is a recipe for a [`jail`].
//!
//! The Host runtime shows the machine's own file system below the instance's tree, the Oci runtime the
//! layers of a container image. They differ only in what lies below, see [`jail::Root`].

use std::path::PathBuf;

use rustix::system::sysinfo;

use crate::plan::{Exposed, Identity, InstancePlan, NetworkPlan, RuntimePlan};
use crate::signal::SIGTERM;

pub(crate) mod jail;

pub use jail::ids::{NoSubordinateIds, subordinate_ids};
pub use jail::init::instance_init;

use jail::{Changes, Jail, Mount, Program, Root, RunAs};

/// What stands between an instance and the machine's file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shield {
    /// Writes outside the instance's own folders go to memory and are forgotten.
    #[default]
    Overlay,
    /// Writes outside the instance's own folders are refused.
    ReadOnly,
}

/// The places of the machine that an instance has for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Places {
    /// What the instance sees as `/opt/ml`.
    pub(crate) ml: PathBuf,
    /// Where changes of an image go.
    pub(crate) changes: Changes,
    /// All that is shown in the instance.
    pub(crate) mounts: Vec<Mount>,
}

/// The jail in which a plan's `train` runs.
pub(crate) fn jail(plan: &InstancePlan, shield: Shield, places: Places) -> Jail {
    let Places { ml, changes, mut mounts } = places;
    let (root, run_as, working_directory, stop_signal) = match &plan.runtime {
        RuntimePlan::Host { exposed, working_directory } => {
            mounts.extend(exposed.iter().map(shown));
            (Root::Machine { overlay: shield == Shield::Overlay }, None, working_directory, SIGTERM)
        }
        RuntimePlan::Oci { layers, user, working_directory, stop_signal } => {
            let root = Root::Layers { lower: layers.clone(), changes };
            (root, run_as(user, ml), working_directory, *stop_signal)
        }
    };
    Jail {
        root,
        hostname: plan.host.clone(),
        in_network_of_job: matches!(plan.network, NetworkPlan::Job { .. }),
        mounts,
        shm_size: plan.shm_size.unwrap_or_else(half_of_memory),
        stop_signal,
        program: Program {
            command: plan.command.clone(),
            environment: plan.environment.clone(),
            working_directory: working_directory.clone(),
            run_as,
        },
    }
}

fn shown(exposed: &Exposed) -> Mount {
    Mount::ReadOnly { source: exposed.source.clone(), target: exposed.target.clone() }
}

/// Root needs no other identity, only the groups that its image gives it.
fn run_as(user: &Identity, ml: PathBuf) -> Option<RunAs> {
    let root = Identity { uid: 0, gid: 0, groups: Vec::new() };
    (*user != root).then(|| RunAs { user: user.clone(), owns: ml })
}

fn half_of_memory() -> u64 {
    let machine = sysinfo();
    // The field's width differs between machines.
    #[expect(clippy::useless_conversion, reason = "u32 on 32-bit machines")]
    let total = u64::from(machine.totalram);
    total * u64::from(machine.mem_unit) / 2
}
