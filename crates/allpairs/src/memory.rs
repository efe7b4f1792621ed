//! How much memory there is to use.

use std::path::{Path, PathBuf};

/// Bytes of memory that the process may still take, by the machine and by the limits of its control groups; `None` if
/// the machine does not say.
pub(crate) fn available() -> Option<u64> {
    let of_machine = in_meminfo(&fs_err::read_to_string("/proc/meminfo").ok()?)?;
    let groups = fs_err::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits = limit_files(&groups).into_iter().filter_map(|file| limit(&file));
    Some(limits.fold(of_machine, u64::min))
}

fn in_meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok().map(|kib: u64| kib * 1024)
}

/// The files with the limits of all groups that the process is in, those of both versions. In a container some of them
/// are not where they are said to be, but the outermost one is.
fn limit_files(groups: &str) -> Vec<PathBuf> {
    let files = groups.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (number, controllers, group) = (fields.next()?, fields.next()?, fields.next()?);
        let (root, file) = match (number, controllers) {
            ("0", "") => ("/sys/fs/cgroup", "memory.max"),
            (_, "memory") => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            _ => return None,
        };
        let groups = Path::new(group.trim_start_matches('/')).ancestors();
        Some(groups.map(|group| Path::new(root).join(group).join(file)).collect::<Vec<_>>())
    });
    files.flatten().collect()
}

/// What a file says; nothing if there is no such file or no limit.
fn limit(file: &Path) -> Option<u64> {
    fs_err::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_says_how_much_it_has() {
        assert_eq!(in_meminfo("MemTotal: 9 kB\nMemAvailable:    12 kB\n"), Some(12 * 1024));
        assert_eq!(in_meminfo("MemTotal: 9 kB\n"), None);
        assert!(available().is_some_and(|bytes| bytes > 0));
    }

    #[test]
    fn limits_of_all_groups_from_the_inner_to_the_outermost_count() {
        let paths = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert_eq!(
            limit_files("0::/a/b\n"),
            paths(&[
                "/sys/fs/cgroup/a/b/memory.max",
                "/sys/fs/cgroup/a/memory.max",
                "/sys/fs/cgroup/memory.max"
            ])
        );
        assert_eq!(
            limit_files("4:memory:/\n3:cpu:/x\n"),
            paths(&["/sys/fs/cgroup/memory/memory.limit_in_bytes"])
        );
    }

    #[test]
    fn a_group_without_a_limit_has_none() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("memory.max");
        assert_eq!(limit(&file), None);
        for (text, expected) in [("max\n", None), ("4096\n", Some(4096))] {
            fs_err::write(&file, text).unwrap();
            assert_eq!(limit(&file), expected);
        }
    }
}
