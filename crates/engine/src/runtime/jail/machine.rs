//! The parts of a jail that are the same for every root: kernel file systems and devices.

use std::path::{Path, PathBuf};

use fs_err as fs;
use rustix::mount::MountAttrFlags;

use super::mounts::Tree;
use super::{Jail, Root, SetupError, at};

/// Devices that every program may expect.
const DEVICES: [&str; 6] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// Links in `/dev`, and what they point to.
const LINKS: [(&str, &str); 5] = [
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
    ("/dev/ptmx", "pts/ptmx"),
];

/// Where programs look for their control group.
const GROUPS: &str = "/sys/fs/cgroup";

/// Settings of the whole machine: user id 0 of an instance may be user id 0 of the machine. This list and the
/// next are Docker's (`oci/defaults.go` of github.com/moby/moby).
const SETTINGS: [&str; 5] = ["/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs"];

/// What tells of the machine's memory, keys, firmware and power use, which says more of others than they
/// would like.
const SECRETS: [&str; 12] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
];

/// `/proc`, `/sys`, `/dev` and `/run`, not yet in their places.
pub(super) fn trees(jail: &Jail) -> Result<Vec<Tree>, SetupError> {
    let quiet = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let silent = quiet | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let shm_size = jail.shm_size.to_string();
    let mut trees = vec![
        Tree::new("proc", &[], silent, "/proc")?,
        Tree::of(Path::new("/sys"), "/sys")?.with(silent | MountAttrFlags::MOUNT_ATTR_RDONLY)?,
        Tree::new("tmpfs", &[("mode", "0755"), ("size", "64m")], MountAttrFlags::MOUNT_ATTR_NOSUID, "/dev")?,
        Tree::new("devpts", &[("mode", "0620"), ("ptmxmode", "0666")], silent, "/dev/pts")?,
        Tree::new("tmpfs", &[("mode", "1777"), ("size", &shm_size)], silent, "/dev/shm")?,
    ];
    trees.extend(groups(&jail.groups)?);
    // Not every kernel has POSIX message queues, and few programs use them.
    trees.extend(Tree::new("mqueue", &[], silent, "/dev/mqueue"));
    for device in DEVICES {
        if Path::new(device).exists() {
            trees.push(Tree::of(Path::new(device), device)?);
        }
    }
    // An image may have brought something in its /run.
    if matches!(jail.root, Root::Machine { .. }) {
        trees.push(Tree::new("tmpfs", &[("mode", "0755")], quiet, "/run")?);
    }
    Ok(trees)
}

/// The instance's own control group where programs look for it, such as those that ask how many processors they may
/// use. Nothing of it can be changed.
fn groups(hierarchies: &[Vec<String>]) -> Result<Vec<Tree>, SetupError> {
    let locked = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC
        | MountAttrFlags::MOUNT_ATTR_RDONLY;
    let mut trees = Vec::new();
    let several = hierarchies.iter().any(|controllers| !controllers.is_empty());
    if several {
        let folder = locked - MountAttrFlags::MOUNT_ATTR_RDONLY;
        trees.push(Tree::new("tmpfs", &[("mode", "0755"), ("size", "64k")], folder, GROUPS)?);
    }
    for controllers in hierarchies {
        let options: Vec<_> = controllers.iter().map(|controller| (controller.as_str(), "")).collect();
        trees.push(match (controllers.is_empty(), several) {
            (true, false) => Tree::new("cgroup2", &[], locked, GROUPS)?,
            (true, true) => Tree::new("cgroup2", &[], locked, Path::new(GROUPS).join("unified"))?,
            (false, _) => {
                Tree::new("cgroup", &options, locked, Path::new(GROUPS).join(controllers.join(",")))?
            }
        });
    }
    Ok(trees)
}

/// Makes links where nothing is yet.
pub(super) fn link(links: &[(PathBuf, PathBuf)]) -> Result<(), SetupError> {
    for (path, points_to) in links {
        if fs::symlink_metadata(path).is_err() {
            fs::create_dir_all(path.parent().unwrap_or(path)).map_err(at("make a place for", path))?;
            fs::os::unix::fs::symlink(points_to, path).map_err(at("link", path))?;
        }
    }
    Ok(())
}

/// What can be done only when the trees are in their places.
pub(super) fn finish() -> Result<(), SetupError> {
    for (link, points_to) in LINKS {
        fs::os::unix::fs::symlink(points_to, link).map_err(at("link", Path::new(link)))?;
    }
    for setting in SETTINGS.map(Path::new) {
        if setting.exists() {
            Tree::of(setting, setting)?.read_only()?.attach()?;
        }
    }
    SECRETS.iter().try_for_each(|secret| hide(Path::new(secret)))
}

/// Covers a folder with an empty one and a file with a device without content.
fn hide(secret: &Path) -> Result<(), SetupError> {
    let quiet = MountAttrFlags::MOUNT_ATTR_RDONLY
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    match fs::metadata(secret) {
        Ok(found) if found.is_dir() => Tree::new("tmpfs", &[], quiet, secret)?.attach(),
        Ok(_) => Tree::of(Path::new("/dev/null"), secret)?.with(quiet)?.attach(),
        // Not every kernel has each of them.
        Err(_) => Ok(()),
    }
}
