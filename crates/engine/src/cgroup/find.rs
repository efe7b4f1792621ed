//! Where the control groups of this process are: `/proc/self/cgroup` and `/proc/self/mountinfo`, as cgroups(7) and
//! proc(5) describe them.

use std::path::{Path, PathBuf};

use super::Controller;

/// One tree of control groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hierarchy {
    /// Version 2, of which there is only one; its controllers are asked of the group itself.
    pub(super) unified: bool,
    /// Of version 1: what it limits, as far as it matters here.
    pub(super) controllers: Vec<Controller>,
    /// Where it is mounted.
    pub(super) mount: PathBuf,
    /// The folder of this process's own group.
    pub(super) own: PathBuf,
}

/// The hierarchies that are mounted and in which this process has a group.
pub(super) fn hierarchies(cgroup: &str, mountinfo: &str) -> Vec<Hierarchy> {
    let mounts: Vec<_> = mountinfo.lines().filter_map(Mounted::parse).collect();
    cgroup.lines().filter_map(|line| hierarchy(line, &mounts)).collect()
}

/// A line such as `4:memory:/user/me`, or `0::/user/me` for version 2.
fn hierarchy(line: &str, mounts: &[Mounted<'_>]) -> Option<Hierarchy> {
    let mut fields = line.splitn(3, ':');
    let (number, names, path) = (fields.next()?, fields.next()?, fields.next()?);
    let unified = number == "0" && names.is_empty();
    let controllers: Vec<_> = names.split(',').filter_map(Controller::named).collect();
    if !unified && controllers.is_empty() {
        return None;
    }
    let fits = |mounted: &&Mounted<'_>| match unified {
        true => mounted.kind == "cgroup2",
        false => mounted.kind == "cgroup" && names.split(',').all(|name| mounted.has(name)),
    };
    let mounted = mounts.iter().find(fits)?;
    // A container may see only a part of the tree.
    let below = Path::new(path).strip_prefix(mounted.root).ok()?;
    let mount = PathBuf::from(mounted.point);
    let own = mount.join(below).components().collect();
    Some(Hierarchy { unified, controllers, own, mount })
}

/// A line of mountinfo, as far as it matters here.
struct Mounted<'a> {
    root: &'a str,
    point: &'a str,
    kind: &'a str,
    options: &'a str,
}

impl<'a> Mounted<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        let mut fields = file_system.split(' ');
        Some(Self { root, point, kind: fields.next()?, options: fields.nth(1)? })
    }

    fn has(&self, controller: &str) -> bool {
        self.options.split(',').any(|option| option == controller)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
29 23 0:25 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
30 23 0:26 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
31 23 0:27 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd
32 23 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup rw";

    #[test]
    fn version_1_has_a_folder_for_each_hierarchy_and_version_2_one() {
        let cgroup = "4:memory:/jobs/a\n3:cpu,cpuacct:/\n2:name=systemd:/x\n1:freezer:/\n0::/user.slice";
        let found = hierarchies(cgroup, HYBRID);
        let own: Vec<_> = found.iter().map(|one| (one.unified, one.own.to_str().unwrap())).collect();
        let expected = [
            (false, "/sys/fs/cgroup/memory/jobs/a"),
            (false, "/sys/fs/cgroup/cpu,cpuacct"),
            (true, "/sys/fs/cgroup/unified/user.slice"),
        ];
        assert_eq!(own, expected);
        assert_eq!(found[1].controllers, [Controller::Cpu, Controller::Cpuacct]);
    }

    #[test]
    fn a_container_that_sees_a_part_of_the_tree_finds_its_group_in_it() {
        let mountinfo = "9 8 0:26 /docker/abc /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw";
        let found = hierarchies("0::/docker/abc/job", mountinfo);
        assert_eq!(found[0].own, Path::new("/sys/fs/cgroup/job"));
        assert_eq!(hierarchies("0::/elsewhere", mountinfo), []);
    }

    #[test]
    fn lines_that_make_no_sense_are_passed_over() {
        assert_eq!(hierarchies("", ""), []);
        assert_eq!(hierarchies("0:\nx\n::", "a b c - cgroup2\n- -\n"), []);
    }
}
