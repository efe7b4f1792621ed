//! What keeps the processes of an instance within its limits, and what is known of them afterwards.

use std::path::Path;
use std::time::Duration;

use rustix::process::getuid;

use super::memory::MemoryKills;
use super::reports::Reports;
use super::train::Trained;
use super::usage::{Disk, Measured, Source};
use super::volume::Volume;
use crate::cgroup::{Controller, Group, machine_memory};
use crate::explain::{bytes, chain};
use crate::plan::{InstancePlan, Limits, RuntimePlan, count_cpus};
use crate::run::Exit;
use crate::runtime::jail::Jail;
use crate::runtime::{Memory, Recipe, Running};

/// How long the kernel may take to forget processes that have ended.
const FORGETTING: Duration = Duration::from_secs(1);
/// Between two attempts to remove a group.
const PAUSE: Duration = Duration::from_millis(5);

/// The control group of an instance, if it could get one.
pub(crate) struct Confinement {
    group: Option<Group>,
    /// Of the machine or of the supervisor's own group, before the instance started.
    kills: MemoryKills,
    limits: Limits,
    volume: Volume,
}

/// What is known of how a program was killed, if it was.
pub(crate) struct Killed {
    /// By something else than its supervisor.
    pub(crate) by_others: bool,
    /// What the daemon that runs it knows of its memory; none without a daemon.
    pub(crate) memory: Option<Memory>,
}

impl Confinement {
    /// Makes the group and sets the limits. What can't be enforced is told as a warning with the reason.
    ///
    /// `scratch` holds all that the instance writes.
    pub(crate) async fn of(plan: &InstancePlan, scratch: &Path, reports: &mut Reports) -> Self {
        let kills = MemoryKills::so_far();
        let name = format!("{}-{}-{}", plan.job, plan.attempt, plan.host);
        if let RuntimePlan::Docker(_) = plan.runtime {
            // The daemon makes one, with the limits.
            return Self {
                group: None,
                kills,
                limits: plan.limits,
                volume: Volume::watch(plan, scratch).await,
            };
        }
        let group = match Group::create(&name) {
            Ok(group) => {
                for missing in group.limit(&plan.limits) {
                    reports.warn(format!("a limit can't be enforced: {missing}"));
                }
                Some(group)
            }
            Err(error) => {
                if let Some(limits) = not_enforced(&plan.limits, getuid().is_root()) {
                    reports.warn(format!("{limits} can't be enforced: {}", chain(&error)));
                }
                None
            }
        };
        Self { group, kills, limits: plan.limits, volume: Volume::watch(plan, scratch).await }
    }

    /// The group, to put processes in.
    pub(crate) fn group(&self) -> Option<&Group> {
        self.group.as_ref()
    }

    /// What is to be measured of an instance that runs; none if nobody can count.
    pub(crate) fn measured(
        &self,
        running: &Running,
        plan: &InstancePlan,
        scratch: &Path,
    ) -> Option<Measured> {
        let counts = |group: &&Group| group.cpu_time().is_some() && group.memory_in_use().is_some();
        let own = self.group.as_ref().filter(counts).cloned().map(Source::Group);
        let source = own.or_else(|| running.counted())?;
        let disk = Disk { folder: scratch.to_owned(), volume: self.volume.used() };
        Some(Measured { source, memory: self.limits.memory, disk, gpus: plan.gpus.names.clone() })
    }

    /// The recipe with what it must know of the limits.
    pub(crate) fn recipe(&self, recipe: &Recipe, plan: &InstancePlan) -> Recipe {
        match recipe {
            Recipe::Jail(jail) => Recipe::Jail(Box::new(self.jail(jail, plan))),
            Recipe::Container(container) => Recipe::Container(container.clone()),
        }
    }

    fn jail(&self, jail: &Jail, plan: &InstancePlan) -> Jail {
        let counted = self.group.as_ref().is_some_and(|group| group.has(Controller::Pids));
        Jail {
            groups: self.group.as_ref().map(Group::hierarchies).unwrap_or_default(),
            most_processes: (!counted).then_some(plan.limits.pids),
            ..jail.clone()
        }
    }

    /// Waits until the instance has more than its volume holds; for ever if that has no limit.
    pub(crate) async fn volume_full(&self) {
        self.volume.exceeded().await;
    }

    /// Whether the instance ended, or has to count as failed, because it took more than it may have: how it ended,
    /// and how much.
    pub(crate) async fn exceeded(&self, exit: Exit, killed: &Killed) -> Option<(Exit, String)> {
        if let Some(explanation) = self.volume.is_exceeded().await {
            return Some((exit, explanation));
        }
        if !killed.by_others {
            return None;
        }
        let used = match killed.memory {
            None => self.memory_kills()?,
            Some(Memory { ran_out: false, .. }) => return None,
            Some(Memory { peak, .. }) => used(peak, self.limits.memory),
        };
        Some((Exit::OutOfMemory, used))
    }

    /// If programs were killed for want of memory: what they had and may have, as far as it is known.
    fn memory_kills(&self) -> Option<String> {
        let Some(group) = self.group.as_ref().filter(|group| group.has(Controller::Memory)) else {
            return self.kills.happened_since().then(String::new);
        };
        let memory = group.memory();
        (memory.kills > 0).then(|| used(memory.peak, memory.limit))
    }

    /// Tells what the instance may want to know of its limits, and removes the group once its processes have ended.
    pub(crate) async fn lift(self, trained: Option<&Trained>, reports: &mut Reports) {
        // Without a group nobody knows whose programs they were.
        if let (Some(Trained::Exited(_)), Some(used)) =
            (trained, self.memory_kills().filter(|used| !used.is_empty()))
        {
            let text = "the kernel has killed programs of the instance for want of memory";
            reports.warn(format!("{text}: {used}"));
        }
        let Some(group) = self.group else { return };
        let refused = group.refused_processes();
        if refused > 0 {
            reports.warn(format!(
                "the instance had as many processes as it may have; {refused} could not be started (PidsLimit)"
            ));
        }
        let removing = async {
            while !group.remove() {
                tokio::time::sleep(PAUSE).await;
            }
        };
        // Who comes next removes what is left then.
        let _ = tokio::time::timeout(FORGETTING, removing).await;
    }
}

/// What an instance had of its memory, in words.
fn used(peak: Option<u64>, limit: Option<u64>) -> String {
    let used = peak.map_or_else(|| "an unknown number of bytes".to_owned(), bytes);
    match limit {
        Some(limit) => format!("used {used} of {} allowed", bytes(limit)),
        None => format!("used {used} of the machine's {}", bytes(machine_memory())),
    }
}

/// The limits that only a control group can enforce, in words.
fn not_enforced(limits: &Limits, root: bool) -> Option<String> {
    let cpus = limits.cpus.map(|cpus| count_cpus(cpus.into()));
    let memory = limits.memory.map(|memory| format!("{} of memory", bytes(memory)));
    // The kernel counts the processes of everybody else without a group.
    let pids = root.then(|| format!("{} processes", limits.pids));
    let all: Vec<_> = cpus.into_iter().chain(memory).chain(pids).collect();
    (!all.is_empty()).then(|| format!("the limits of the instance ({})", all.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_that_need_a_group_are_named() {
        let advised = Limits::of_pids(Some(100));
        assert_eq!(not_enforced(&advised, false), None);
        let text = not_enforced(&advised, true).unwrap();
        assert_eq!(text, "the limits of the instance (100 processes)");
        let enforced = Limits { cpus: Some(2), memory: Some(8 << 30), ..advised };
        let text = not_enforced(&enforced, false).unwrap();
        assert_eq!(text, "the limits of the instance (2 CPUs, 8.0 GiB (8589934592 bytes) of memory)");
    }
}
