//! The parts of a jail that are the same for every root: kernel file systems and devices.

use std::path::Path;

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

/// Settings of the whole machine: user id 0 of an instance may be user id 0 of the machine.
const SETTINGS: [&str; 5] = ["/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs"];

/// `/proc`, `/sys`, `/dev` and `/run`, not yet in their places.
pub(super) fn trees(jail: &Jail) -> Result<Vec<Tree>, SetupError> {
    let quiet = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let silent = quiet | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let shm_size = jail.shm_size.to_string();
    let mut trees = vec![
        Tree::new("proc", &[], silent, "/proc")?,
        Tree::of(Path::new("/sys"), "/sys")?.read_only()?,
        Tree::new("tmpfs", &[("mode", "0755")], MountAttrFlags::MOUNT_ATTR_NOSUID, "/dev")?,
        Tree::new("devpts", &[("mode", "0620"), ("ptmxmode", "0666")], silent, "/dev/pts")?,
        Tree::new("tmpfs", &[("mode", "1777"), ("size", &shm_size)], quiet, "/dev/shm")?,
    ];
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
    Ok(())
}
