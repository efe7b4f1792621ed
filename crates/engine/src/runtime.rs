//! How a supervisor starts one `train`: each runtime is a recipe for a [`jail`].
//!
//! The Host runtime shows the machine's own file system below the instance's tree. Another runtime
//! differs only in what lies below, see [`jail::Root`].

use rustix::system::sysinfo;

use crate::plan::{InstancePlan, RuntimePlan};

pub(crate) mod jail;

pub use jail::init::instance_init;

use jail::{Jail, Mount, Program, Root};

/// What stands between an instance and the machine's file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shield {
    /// Writes outside the instance's own folders go to memory and are forgotten.
    #[default]
    Overlay,
    /// Writes outside the instance's own folders are refused.
    ReadOnly,
}

/// The jail in which a plan's `train` runs.
///
/// `mounts` are the places that the instance has for itself.
pub(crate) fn jail(plan: &InstancePlan, shield: Shield, mounts: Vec<Mount>) -> Jail {
    let RuntimePlan::Host { exposed, working_directory } = &plan.runtime;
    let shown = exposed
        .iter()
        .map(|exposed| Mount::ReadOnly { source: exposed.source.clone(), target: exposed.target.clone() });
    Jail {
        root: Root::Machine { overlay: shield == Shield::Overlay },
        hostname: plan.host.clone(),
        mounts: mounts.into_iter().chain(shown).collect(),
        shm_size: plan.shm_size.unwrap_or_else(half_of_memory),
        program: Program {
            command: plan.command.clone(),
            environment: plan.environment.clone(),
            working_directory: working_directory.clone(),
        },
    }
}

fn half_of_memory() -> u64 {
    let machine = sysinfo();
    // The field's width differs between machines.
    #[expect(clippy::useless_conversion, reason = "u32 on 32-bit machines")]
    let total = u64::from(machine.totalram);
    total * u64::from(machine.mem_unit) / 2
}
