//! Who counts the processor time and the memory of an instance: its control group, the daemon of its container, or
//! else the processes themselves.

use std::path::{Path, PathBuf};
use std::time::Duration;

use fs_err as fs;

use crate::cgroup::Group;
use crate::docker::Daemon;

/// Where the numbers come from.
pub(crate) enum Source {
    /// The control group that the instance alone is in.
    Group(Group),
    /// The daemon that runs the container of this id.
    Container(Daemon, String),
    /// What the kernel tells of each process.
    Processes(Processes),
    /// Made up for tests.
    #[cfg(test)]
    Fixed(Duration, u64),
}

/// What an instance has taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    /// Processor time since it began.
    pub(crate) cpu: Duration,
    /// Bytes of memory now, without what the kernel can take back at once.
    pub(crate) memory: u64,
}

impl Source {
    /// Looks; none if nothing of the instance is left, or nobody may look.
    pub(crate) async fn count(&self) -> Option<Counted> {
        match self {
            Self::Group(group) => Some(Counted { cpu: group.cpu_time()?, memory: group.memory_in_use()? }),
            Self::Container(daemon, id) => {
                let (cpu, memory) = daemon.usage(id).await?;
                Some(Counted { cpu, memory })
            }
            Self::Processes(processes) => processes.count(),
            #[cfg(test)]
            Self::Fixed(cpu, memory) => Some(Counted { cpu: *cpu, memory: *memory }),
        }
    }
}

/// The processes of one namespace.
pub(crate) struct Processes {
    /// What the links of its processes lead to.
    namespace: PathBuf,
}

impl Processes {
    /// Those whose first process is or will be a child of this one; none if nobody may look.
    pub(crate) fn below(parent: u32) -> Option<Self> {
        let link = format!("/proc/{parent}/ns/pid_for_children");
        Some(Self { namespace: fs::read_link(link).ok()? })
    }

    /// Of processes that have ended only what their parents have taken over is known, which is all but for programs that do
    /// not wait for their children.
    fn count(&self) -> Option<Counted> {
        let entries = fs::read_dir("/proc").ok()?.filter_map(Result::ok);
        let own = entries.map(|entry| entry.path()).filter(|process| self.has(process));
        let file = |process: &Path, name| fs::read_to_string(process.join(name)).ok();
        let counted: Vec<_> = own
            .filter_map(|process| {
                let (cpu, status) = (cpu_time(&file(&process, "stat")?)?, file(&process, "status")?);
                Some(Counted { cpu, memory: resident(&status).unwrap_or(0) })
            })
            .collect();
        let memory = counted.iter().map(|one| one.memory).fold(0, u64::saturating_add);
        (!counted.is_empty()).then(|| Counted { cpu: counted.iter().map(|one| one.cpu).sum(), memory })
    }

    fn has(&self, process: &Path) -> bool {
        fs::read_link(process.join("ns/pid")).is_ok_and(|link| link == self.namespace)
    }
}

/// In which the kernel tells times, on all machines that Rust knows (`USER_HZ`).
const TICKS_PER_SECOND: u64 = 100;

/// Of `/proc/<pid>/stat` (proc(5)): the times of the process and of its children that have ended. The name of the program
/// may have blanks and brackets.
fn cpu_time(stat: &str) -> Option<Duration> {
    let (_, fields) = stat.rsplit_once(") ")?;
    // Fields 14 to 17 of the line, of which the third comes first here.
    let ticks: Vec<u64> = fields.split(' ').skip(11).take(4).filter_map(|field| field.parse().ok()).collect();
    let all = ticks.iter().fold(0, |sum: u64, ticks| sum.saturating_add(*ticks));
    (ticks.len() == 4).then(|| Duration::from_millis(all.saturating_mul(1000 / TICKS_PER_SECOND)))
}

/// Of `/proc/<pid>/status`: the bytes that are in memory; a process that ends has none.
fn resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_its_own_time_and_that_of_its_ended_children() {
        let line =
            "7 (a) b) R 1 7 7 0 -1 4194304 90 80 0 0 10 20 30 40 20 0 1 0 100 5000 3 18446744073709551615 1";
        assert_eq!(cpu_time(line), Some(Duration::from_secs(1)));
        assert_eq!((cpu_time("7 (x"), cpu_time("7 (x) R 1 2")), (None, None));
        assert_eq!(resident("Name:\tx\nVmRSS:\t    12 kB\nThreads:\t1\n"), Some(12_288));
        assert_eq!(resident("Name:\tx\n"), None);
    }

    #[test]
    fn the_processes_of_this_namespace_are_counted() {
        let processes = Processes::below(std::process::id()).unwrap();
        let counted = processes.count().unwrap();
        assert!(counted.memory > 1 << 20, "{counted:?}");
    }
}
