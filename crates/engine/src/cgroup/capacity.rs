//! What this process may take of the machine.

use std::path::Path;
use std::thread::available_parallelism;

use fs_err as fs;
use rustix::system::sysinfo;

use super::own_hierarchies;
use crate::plan::Capacity;

/// Processors and memory that this process may use: the machine's, unless a control group allows less.
pub fn capacity() -> Capacity {
    let cpus = available_parallelism().map_or(1, |cpus| u32::try_from(cpus.get()).unwrap_or(u32::MAX));
    let machine = machine_memory();
    let limits = own_hierarchies().unwrap_or_default().into_iter().filter_map(|hierarchy| {
        let file = if hierarchy.unified { "memory.max" } else { "memory.limit_in_bytes" };
        let groups = hierarchy.own.ancestors().take_while(|group| group.starts_with(&hierarchy.mount));
        groups.filter_map(|group| number(&group.join(file))).min()
    });
    Capacity { cpus, memory: limits.fold(machine, u64::min) }
}

/// All memory of the machine, in bytes.
pub(crate) fn machine_memory() -> u64 {
    let machine = sysinfo();
    // The field's width differs between machines.
    #[expect(clippy::useless_conversion, reason = "u32 on 32-bit machines")]
    let total = u64::from(machine.totalram);
    total * u64::from(machine.mem_unit)
}

fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}
