//! Control groups: what the processes of an instance may take of the machine together, and what they took.
//!
//! A supervisor makes a group for its instance below the ones that it is in itself, so that what limits the
//! supervisor limits the instance too, and removes it at the end. Version 2 and version 1 are known; cgroups(7) and the
//! kernel's documentation (admin-guide/cgroup-v2 and cgroup-v1) describe the files.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fs_err as fs;
use rustix::fs::{Access, access};

use crate::backend::local::Process;
use crate::plan::{Limits, count_cpus};

mod capacity;
mod find;
#[cfg(test)]
mod tests;

pub use capacity::capacity;
pub(crate) use capacity::machine_memory;
use find::{Hierarchy, hierarchies};

/// The folder that holds the groups of all instances.
const FOLDER: &str = "trainyard";

/// Length of the period in which processor time is counted, in microseconds, as the kernel has it by default.
const PERIOD: u64 = 100_000;

/// What a group can limit or count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Controller {
    /// Processor time.
    Cpu,
    /// Of version 1: counts processor time.
    Cpuacct,
    /// Memory.
    Memory,
    /// Processes and threads.
    Pids,
}

impl Controller {
    const ALL: [Self; 4] = [Self::Cpu, Self::Cpuacct, Self::Memory, Self::Pids];

    /// As the kernel writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Cpuacct => "cpuacct",
            Self::Memory => "memory",
            Self::Pids => "pids",
        }
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|controller| controller.name() == name)
    }
}

/// Why there is no group.
#[derive(Debug, thiserror::Error)]
pub enum NoGroup {
    /// The kernel has none, or nobody has mounted them.
    #[error("no control groups are mounted at /sys/fs/cgroup")]
    NotMounted,
    /// This user may not make groups below those of this process.
    #[error(
        "this user may not divide the control groups that this program is in ({}); start it in one of its own \
         with systemd-run --user --scope, or as root", own.display()
    )]
    NotDelegated {
        /// The group of this process.
        own: PathBuf,
    },
    /// Version 1 is nothing for ordinary users.
    #[error("only root may make control groups of version 1, such as in {}", own.display())]
    RootAlone {
        /// The group of this process.
        own: PathBuf,
    },
    /// A group could not be made.
    #[error("a control group can't be made")]
    Io(#[from] io::Error),
}

/// The control group of one instance: a folder in each hierarchy.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    parts: Vec<Part>,
}

/// The group in one hierarchy.
#[derive(Debug, Clone)]
struct Part {
    unified: bool,
    controllers: Vec<Controller>,
    folder: PathBuf,
}

/// What happened to the memory of a group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct MemoryUse {
    /// How often the kernel has killed one of its processes for want of memory.
    pub(crate) kills: u64,
    /// The most bytes that it ever had, if the kernel counts that.
    pub(crate) peak: Option<u64>,
    /// The bytes that it may have; absent without a limit of its own.
    pub(crate) limit: Option<u64>,
}

/// Whether this process could make a group, and what it would limit: tries it.
///
/// # Errors
/// Why not.
pub fn probe() -> Result<Vec<Controller>, NoGroup> {
    let group = Group::create("probe")?;
    let controllers = group.parts.iter().flat_map(|part| part.controllers.clone()).collect();
    group.remove();
    Ok(controllers)
}

impl Group {
    /// Makes a group for the instance of this name, and removes those that supervisors have left which are no more.
    pub(crate) fn create(name: &str) -> Result<Self, NoGroup> {
        Self::create_in(&own_hierarchies()?, name)
    }

    fn create_in(hierarchies: &[Hierarchy], name: &str) -> Result<Self, NoGroup> {
        let owner = Process::of(std::process::id())?;
        let mut group = Self { parts: Vec::new() };
        for hierarchy in hierarchies {
            let Some((parent, controllers)) = parent(hierarchy)? else { continue };
            let all = parent.join(FOLDER);
            remove_leftovers(&all);
            let folder = all.join(format!("{name}.{owner}"));
            if let Err(error) = make(&folder, hierarchy.unified.then_some(controllers.as_slice())) {
                group.remove();
                return Err(refusal(hierarchy, error));
            }
            group.parts.push(Part { unified: hierarchy.unified, controllers, folder });
        }
        match hierarchies.iter().find(|hierarchy| hierarchy.unified) {
            _ if !group.parts.is_empty() => Ok(group),
            Some(unified) => Err(NoGroup::NotDelegated { own: unified.own.clone() }),
            None => Err(NoGroup::NotMounted),
        }
    }

    /// Sets the limits; says of each that can't be set why not.
    pub(crate) fn limit(&self, limits: &Limits) -> Vec<String> {
        let mut missing = Vec::new();
        let mut set = |controller: Controller, what: String, set: &dyn Fn(&Part) -> io::Result<()>| {
            let done = match self.part(controller) {
                Some(part) => set(part).map_err(|error| error.to_string()),
                None => Err(format!("the control groups of this program lack {}", controller.name())),
            };
            missing.extend(done.err().map(|why| format!("{what}: {why}")));
        };
        if let Some(cpus) = limits.cpus {
            set(Controller::Cpu, count_cpus(cpus.into()), &|part| part.limit_cpus(cpus));
        }
        if let Some(memory) = limits.memory {
            let what = format!("{} of memory", crate::explain::bytes(memory));
            set(Controller::Memory, what, &|part| part.limit_memory(memory));
        }
        set(Controller::Pids, format!("{} processes", limits.pids), &|part| {
            part.write("pids.max", &limits.pids.to_string())
        });
        missing
    }

    /// Takes a process in, and with it all that it starts from now on.
    pub(crate) fn take(&self, pid: u32) -> io::Result<()> {
        self.parts.iter().try_for_each(|part| part.write("cgroup.procs", &pid.to_string()))
    }

    /// How the instance itself can see its groups: the controllers of each hierarchy of version 1; none of version 2.
    pub(crate) fn hierarchies(&self) -> Vec<Vec<String>> {
        let names = |part: &Part| part.controllers.iter().map(|one| one.name().to_owned()).collect();
        self.parts.iter().map(|part| if part.unified { Vec::new() } else { names(part) }).collect()
    }

    /// Whether it can limit this.
    pub(crate) fn has(&self, controller: Controller) -> bool {
        self.part(controller).is_some()
    }

    /// What happened to its memory so far.
    pub(crate) fn memory(&self) -> MemoryUse {
        let Some(part) = self.part(Controller::Memory) else { return MemoryUse::default() };
        let (events, peak, limit) = match part.unified {
            true => ("memory.events", "memory.peak", "memory.max"),
            false => ("memory.oom_control", "memory.max_usage_in_bytes", "memory.limit_in_bytes"),
        };
        // Without a limit there is a word, or more bytes than a machine can have.
        let limit = part.number(limit).filter(|limit| *limit < i64::MAX as u64 / 2);
        MemoryUse { kills: part.counter(events, "oom_kill"), peak: part.number(peak), limit }
    }

    /// Processor time that its processes have had, where it is counted.
    pub(crate) fn cpu_time(&self) -> Option<Duration> {
        if let Some(part) = self.part(Controller::Cpuacct) {
            return part.number("cpuacct.usage").map(Duration::from_nanos);
        }
        let unified = self.parts.iter().find(|part| part.unified)?;
        unified.folder.exists().then(|| Duration::from_micros(unified.counter("cpu.stat", "usage_usec")))
    }

    /// Bytes that its processes have now, without files that the kernel can forget at once, where they are counted.
    pub(crate) fn memory_in_use(&self) -> Option<u64> {
        let part = self.part(Controller::Memory)?;
        let (all, files) = match part.unified {
            true => ("memory.current", "inactive_file"),
            false => ("memory.usage_in_bytes", "total_inactive_file"),
        };
        Some(part.number(all)?.saturating_sub(part.counter("memory.stat", files)))
    }

    /// How often a process could not be started because there were too many.
    pub(crate) fn refused_processes(&self) -> u64 {
        self.part(Controller::Pids).map_or(0, |part| part.counter("pids.events", "max"))
    }

    /// Removes the group; as long as processes are in it, it stays, and this says so.
    pub(crate) fn remove(&self) -> bool {
        let gone = |part: &Part| {
            let removed = fs::remove_dir(&part.folder);
            // Others may have groups there.
            let _ = part.folder.parent().map(fs::remove_dir);
            match removed {
                Ok(()) => true,
                Err(error) => error.kind() == io::ErrorKind::NotFound,
            }
        };
        self.parts.iter().filter(|part| !gone(part)).count() == 0
    }

    fn part(&self, controller: Controller) -> Option<&Part> {
        self.parts.iter().find(|part| part.controllers.contains(&controller))
    }
}

impl Part {
    fn limit_cpus(&self, cpus: u32) -> io::Result<()> {
        let quota = u64::from(cpus) * PERIOD;
        if self.unified {
            return self.write("cpu.max", &format!("{quota} {PERIOD}"));
        }
        self.write("cpu.cfs_period_us", &PERIOD.to_string())?;
        self.write("cpu.cfs_quota_us", &quota.to_string())
    }

    /// Memory, and no swap beyond it where the kernel counts swap.
    fn limit_memory(&self, bytes: u64) -> io::Result<()> {
        let (memory, swap, most_swap) = match self.unified {
            true => ("memory.max", "memory.swap.max", 0),
            // Of version 1 memory and swap together.
            false => ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", bytes),
        };
        self.write(memory, &bytes.to_string())?;
        match self.write(swap, &most_swap.to_string()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        }
    }

    fn write(&self, file: &str, text: &str) -> io::Result<()> {
        write(&self.folder.join(file), text)
    }

    fn number(&self, file: &str) -> Option<u64> {
        fs::read_to_string(self.folder.join(file)).ok()?.trim().parse().ok()
    }

    fn counter(&self, file: &str, name: &str) -> u64 {
        let text = fs::read_to_string(self.folder.join(file)).unwrap_or_default();
        let mut lines = text.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok()).unwrap_or(0)
    }
}

/// A file of the kernel takes a value in one piece and is never made.
fn write(path: &Path, text: &str) -> io::Result<()> {
    fs::OpenOptions::new().write(true).truncate(true).open(path)?.write_all(text.as_bytes())
}

fn own_hierarchies() -> Result<Vec<Hierarchy>, NoGroup> {
    let cgroup = fs::read_to_string("/proc/self/cgroup")?;
    let found = hierarchies(&cgroup, &fs::read_to_string("/proc/self/mountinfo")?);
    if found.is_empty() { Err(NoGroup::NotMounted) } else { Ok(found) }
}

/// The group below which others can be made, and what they can limit; none where there is nothing to limit.
///
/// Of version 1 that is this process's own. Of version 2 a group either has processes or limits those below it, so it is
/// the nearest one without processes; only the root of the whole tree may have both.
fn parent(hierarchy: &Hierarchy) -> io::Result<Option<(PathBuf, Vec<Controller>)>> {
    if !hierarchy.unified {
        return Ok(Some((hierarchy.own.clone(), hierarchy.controllers.clone())));
    }
    for folder in hierarchy.own.ancestors().take_while(|folder| folder.starts_with(&hierarchy.mount)) {
        let available = fs::read_to_string(folder.join("cgroup.controllers"))?;
        let controllers: Vec<_> = available.split_whitespace().filter_map(Controller::named).collect();
        if !controllers.is_empty() && can_be_divided(folder)? {
            return Ok(Some((folder.to_owned(), controllers)));
        }
    }
    Ok(None)
}

fn can_be_divided(folder: &Path) -> io::Result<bool> {
    let writable = |path: &Path| access(path, Access::WRITE_OK).is_ok();
    let ours = writable(folder)
        && ["cgroup.procs", "cgroup.subtree_control"].iter().all(|file| writable(&folder.join(file)));
    // Every group but the root of the whole tree has a type.
    let root = !folder.join("cgroup.type").exists();
    Ok(ours && (root || fs::read_to_string(folder.join("cgroup.procs"))?.trim().is_empty()))
}

/// Makes a group and the folder that it is in; of version 2 the controllers have to be switched on from above.
fn make(folder: &Path, switched_on: Option<&[Controller]>) -> io::Result<()> {
    let all = folder.parent().unwrap_or(folder);
    let above = all.parent().unwrap_or(all);
    let mut attempts = 0;
    loop {
        match fs::create_dir(all) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Ok(()) | Err(_) => {}
        }
        for controller in switched_on.unwrap_or_default() {
            for group in [above, all] {
                // What is on already can't be switched on twice by everybody; what is missing shows later.
                let _ = write(&group.join("cgroup.subtree_control"), &format!("+{}", controller.name()));
            }
        }
        attempts += 1;
        match fs::create_dir(folder) {
            // Another supervisor has just removed the folder, because its group was the last.
            Err(error) if error.kind() == io::ErrorKind::NotFound && attempts < 100 => {}
            done => return done,
        }
    }
}

fn refusal(hierarchy: &Hierarchy, error: io::Error) -> NoGroup {
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            let own = hierarchy.own.clone();
            if hierarchy.unified { NoGroup::NotDelegated { own } } else { NoGroup::RootAlone { own } }
        }
        _ => NoGroup::Io(error),
    }
}

/// Removes the groups of supervisors that are no more. Those that still have processes can't be removed.
fn remove_leftovers(all: &Path) {
    let entries = fs::read_dir(all).into_iter().flatten().filter_map(Result::ok);
    for entry in entries {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.rsplit_once('.').and_then(|(_, owner)| Process::parse(owner));
        if owner.is_some_and(|owner| !owner.exists()) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}
