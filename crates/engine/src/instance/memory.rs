//! Whether the kernel has killed programs for want of memory.

use fs_err as fs;

/// How often the kernel has done it so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryKills {
    /// On the whole machine.
    machine: Option<u64>,
    /// In the control group of the supervisor.
    group: Option<u64>,
}

impl MemoryKills {
    /// Reads the kernel's counters; those that can't be read are unknown.
    pub(crate) fn so_far() -> Self {
        Self { machine: counter("/proc/vmstat", "oom_kill"), group: group() }
    }

    /// Whether there were more since then: in the control group if that is known, else anywhere.
    pub(crate) fn happened_since(self) -> bool {
        let now = Self::so_far();
        let more = |before: Option<u64>, after: Option<u64>| Some(after? > before?);
        more(self.group, now.group).or_else(|| more(self.machine, now.machine)).unwrap_or(false)
    }
}

/// The counter of the control group, by version 2 or 1; cgroups(7) has the format.
fn group() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    groups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let path = path.trim_end_matches('/');
        match controllers {
            "" => counter(&format!("/sys/fs/cgroup{path}/memory.events"), "oom_kill"),
            "memory" => counter(&format!("/sys/fs/cgroup/memory{path}/memory.oom_control"), "oom_kill"),
            _ => None,
        }
    })
}

fn counter(file: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_found_by_its_whole_name() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("memory.events");
        fs::write(&file, "low 0\noom 7\noom_kill 3\noom_group_kill 1\n").unwrap();
        assert_eq!(counter(file.to_str().unwrap(), "oom_kill"), Some(3));
        assert_eq!(counter(file.to_str().unwrap(), "absent"), None);
        assert_eq!(counter("/no/such/file", "oom_kill"), None);
    }

    #[test]
    fn nothing_has_happened_since_just_now() {
        assert!(!MemoryKills::so_far().happened_since());
    }
}
