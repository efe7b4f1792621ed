//! Mounts that are made first and put in their place later.
//!
//! Sources are found while the machine's file tree is still there, targets when only the jail's is:
//! no link on either side can lead to the other.

use std::fs::Permissions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use fs_err as fs;
use rustix::fs::{CWD, Mode, OFlags, open};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount, open_tree,
};

use super::{Mount, SetupError, at};
use crate::{fastfile, network, sys};

/// A mount that is nowhere yet.
pub(super) struct Tree {
    mount: OwnedFd,
    target: PathBuf,
    folder: bool,
}

impl Tree {
    /// Another view of a file or folder of the machine and all that is mounted below it.
    pub(super) fn of(source: &Path, target: impl Into<PathBuf>) -> Result<Self, SetupError> {
        let folder = fs::metadata(source).map_err(at("show", source))?.is_dir();
        let flags =
            OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
        let mount = open_tree(CWD, source, flags).map_err(at("show", source))?;
        Ok(Self { mount, target: target.into(), folder })
    }

    /// A new file system of the kernel; an option without a value is a flag.
    pub(super) fn new(
        kind: &'static str,
        options: &[(&str, &str)],
        attributes: MountAttrFlags,
        target: impl Into<PathBuf>,
    ) -> Result<Self, SetupError> {
        let target = target.into();
        let mount =
            new_file_system(kind, options, attributes).map_err(at("make a file system for", &target))?;
        Ok(Self::folder(mount, target))
    }

    /// A folder that was mounted before.
    pub(super) fn folder(mount: OwnedFd, target: impl Into<PathBuf>) -> Self {
        Self { mount, target: target.into(), folder: true }
    }

    /// The tree of a planned mount; the devices of file systems go through the door.
    pub(super) fn planned(mount: &Mount, door: Option<BorrowedFd<'_>>) -> Result<Self, SetupError> {
        match mount {
            Mount::ReadOnly { source, target } => Self::of(source, target)?.read_only(),
            Mount::Writable { source, target } => Self::of(source, target),
            Mount::Overlay { lower, upper, work, target } => overlay(lower, upper, work)
                .map(|mount| Self::folder(mount, target))
                .map_err(|source| SetupError::Overlay { target: target.clone(), source }),
            Mount::WhenRead { target } => when_read(door.ok_or(SetupError::NoDoor)?)
                .map(|mount| Self::folder(mount, target))
                .map_err(at("mount the files of a store at", target)),
        }
    }

    /// The same without the right to change it, and without use for device files in it.
    pub(super) fn read_only(self) -> Result<Self, SetupError> {
        self.with(MountAttrFlags::MOUNT_ATTR_RDONLY | MountAttrFlags::MOUNT_ATTR_NODEV)
    }

    /// The same with more attributes.
    pub(super) fn with(self, attributes: MountAttrFlags) -> Result<Self, SetupError> {
        sys::set_mount_attributes(self.mount.as_fd(), attributes).map_err(at("restrict", &self.target))?;
        Ok(self)
    }

    /// Puts the tree in its place, which is made if it does not exist.
    pub(super) fn attach(&self) -> Result<(), SetupError> {
        make_target(&self.target, self.folder).map_err(at("make a place for", &self.target))?;
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_SYMLINKS;
        move_mount(&self.mount, "", CWD, &self.target, flags).map_err(at("mount", &self.target))
    }
}

/// The kernel takes no longer value of an option (fsconfig(2)).
const LONGEST_VALUE: usize = 255;

/// Folders over which another one collects the changes.
pub(super) fn overlay(lower: &[impl AsRef<Path>], upper: &Path, work: &Path) -> io::Result<OwnedFd> {
    // By descriptor, because a colon or a comma in a path has a meaning in the options.
    let lower: Vec<_> =
        lower.iter().map(|folder| OpenFolder::open(folder.as_ref())).collect::<io::Result<_>>()?;
    let lower_paths: Vec<&str> = lower.iter().map(|folder| folder.path.as_str()).collect();
    let joined = lower_paths.join(":");
    let upper = OpenFolder::open(upper)?;
    let work = OpenFolder::open(work)?;
    let mut options = vec![
        ("upperdir", upper.path.as_str()),
        ("workdir", work.path.as_str()),
        // Marks of the overlay in the name space of attributes that ordinary users may write.
        ("userxattr", ""),
    ];
    if joined.len() <= LONGEST_VALUE {
        options.push(("lowerdir", &joined));
    } else {
        // One by one, which Linux 6.7 and later can do.
        options.extend(lower_paths.iter().map(|&path| ("lowerdir+", path)));
    }
    new_file_system("overlay", &options, MountAttrFlags::empty())
}

/// A file system of the supervisor's, which gets the device. Whoever mounts one must have opened the device in the same
/// user namespace.
fn when_read(door: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let device = open(fastfile::DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let number = device.as_raw_fd().to_string();
    let options = [
        ("source", "trainyard"),
        ("fd", number.as_str()),
        // A folder.
        ("rootmode", "40000"),
        ("user_id", "0"),
        ("group_id", "0"),
        // An image's user may be somebody else; the kernel looks at modes.
        ("allow_other", ""),
        ("default_permissions", ""),
        ("ro", ""),
    ];
    let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOSUID;
    let mount = new_file_system("fuse", &options, attributes)?;
    network::send(door, b"m", &[device.as_fd()])?;
    Ok(mount)
}

/// A folder under a name without a colon or a comma.
pub(super) struct OpenFolder {
    path: String,
    _open: OwnedFd,
}

impl OpenFolder {
    /// The name, as long as this is kept.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let open = open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { path: format!("/proc/self/fd/{}", open.as_raw_fd()), _open: open })
    }
}

fn new_file_system(kind: &str, options: &[(&str, &str)], attributes: MountAttrFlags) -> io::Result<OwnedFd> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for &(name, value) in options {
        if value.is_empty() {
            fsconfig_set_flag(&context, name)?;
        } else {
            fsconfig_set_string(&context, name, value)?;
        }
    }
    fsconfig_create(&context)?;
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

fn make_target(target: &Path, folder: bool) -> io::Result<()> {
    if fs::metadata(target).is_ok() {
        return Ok(());
    }
    if folder {
        return make_folders(target);
    }
    if let Some(parent) = target.parent() {
        make_folders(parent)?;
    }
    remove_dead_link(target)?;
    fs::File::create(target)?;
    fs::set_permissions(target, Permissions::from_mode(0o644))
}

fn make_folders(path: &Path) -> io::Result<()> {
    let mut ancestors: Vec<_> = path.ancestors().take_while(|folder| fs::metadata(folder).is_err()).collect();
    while let Some(folder) = ancestors.pop() {
        remove_dead_link(folder)?;
        fs::create_dir(folder)?;
    }
    Ok(())
}

/// An image may have a link to what is only there when it is set up in another way, such as
/// `/etc/resolv.conf` to the file of a service.
fn remove_dead_link(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_symlink() => fs::remove_file(path),
        Ok(_) | Err(_) => Ok(()),
    }
}
