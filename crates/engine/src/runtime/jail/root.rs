//! The root of a jail: the layers of an image, or the machine's own folders, none of which can be changed.
//!
//! An overlay of `/` itself would be simpler, but a kernel refuses it in a user namespace as soon as
//! anything is mounted below `/`: the mounts of the outer namespace are locked, so that nobody can
//! look beneath them. So the root is a file system in memory, and each folder that has no mount
//! below it gets an overlay of its own.

use std::fs::{FileType, Permissions};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use fs_err as fs;
use rustix::fs::{Access, access};
use rustix::mount::{MountAttrFlags, MountPropagationFlags, UnmountFlags, mount_change, unmount};
use rustix::process::{chdir, pivot_root};

use super::mounts::{Tree, overlay};
use super::{InsteadOfOverlay, Jail, Root, SetupError, at, layers, step};

/// Top-level folders that a jail has for itself.
const OWN: [&str; 5] = ["/proc", "/sys", "/dev", "/run", "/tmp"];

/// A folder with more entries is shown as a whole, so that the number of mounts has a limit.
const MOST_ENTRIES: usize = 256;

/// The user id that files of unmapped owners show (proc(5), overflowuid).
const UNMAPPED: u32 = 65534;

/// Where the new root is put together: a folder that every machine has and that no jail takes from
/// the machine after this.
const WORKSHOP: &str = "/sys";

/// Puts the new root together and returns its path, and what stands in for an overlay of an image.
pub(super) fn assemble(jail: &Jail) -> Result<(PathBuf, Option<InsteadOfOverlay>), SetupError> {
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(step("separate the mounts from the machine's"))?;
    let workshop = Path::new(WORKSHOP);
    match &jail.root {
        Root::Machine { overlay } => Ok((assemble_machine(jail, *overlay, workshop)?, None)),
        Root::Layers { lower, changes } => layers::assemble(lower, changes, workshop),
    }
}

fn assemble_machine(jail: &Jail, overlay: bool, workshop: &Path) -> Result<PathBuf, SetupError> {
    let mount_points = mount_points()?;
    let root = workshop.join("root");
    memory(workshop)?;
    memory(&root)?;
    let mut machine = Machine {
        mount_points,
        targets: jail.mounts.iter().map(|mount| mount.target().clone()).collect(),
        overlay,
        layers: workshop.join("layers"),
        overlaid: Vec::new(),
        root: root.clone(),
    };
    machine.show_entries(Path::new("/"))?;
    if let Some(home) = jail.program.environment.get("HOME") {
        machine.show_home(Path::new(home))?;
    }
    Ok(root)
}

/// Makes the new root the only one.
pub(super) fn enter(root: &Path) -> Result<(), SetupError> {
    chdir(root).map_err(at("enter", root))?;
    // The old root ends up on top of the new one, from where it can be taken away.
    pivot_root(".", ".").map_err(step("change the root"))?;
    unmount(".", UnmountFlags::DETACH).map_err(step("take the old root away"))?;
    chdir("/").map_err(step("enter the new root"))
}

/// Mounts an empty file system in memory.
pub(super) fn memory(target: &Path) -> Result<(), SetupError> {
    Tree::new("tmpfs", &[("mode", "0755")], MountAttrFlags::empty(), target)?.attach()
}

/// The machine's file tree as it is taken over into the jail.
struct Machine {
    mount_points: Vec<PathBuf>,
    targets: Vec<PathBuf>,
    overlay: bool,
    layers: PathBuf,
    /// Folders that are shown through an overlay.
    overlaid: Vec<PathBuf>,
    root: PathBuf,
}

impl Machine {
    fn show_entries(&mut self, folder: &Path) -> Result<(), SetupError> {
        for entry in fs::read_dir(folder).map_err(at("list", folder))? {
            let entry = entry.map_err(at("list", folder))?;
            let path = entry.path();
            if OWN.iter().any(|own| path == Path::new(own)) {
                continue;
            }
            let kind = entry.file_type().map_err(at("look at", &path));
            match kind.and_then(|kind| self.show(&path, kind)) {
                // Taken away since it was listed, as daemons do with folders of theirs: it is not to be seen then.
                Err(_) if is_gone(&path) => {}
                shown => shown?,
            }
        }
        Ok(())
    }

    fn show(&mut self, path: &Path, kind: FileType) -> Result<(), SetupError> {
        let place = self.place(path);
        if kind.is_symlink() {
            let points_to = fs::read_link(path).map_err(at("read the link", path))?;
            fs::os::unix::fs::symlink(points_to, &place).map_err(at("link", &place))
        } else if kind.is_dir() {
            self.show_folder(path, &place)
        } else if kind.is_file() {
            Tree::of(path, place)?.read_only()?.attach()
        } else {
            Ok(())
        }
    }

    /// A folder that this user may not enter is shown as an empty one that can be used, such as the
    /// home of user id 0, who an ordinary user is inside.
    fn show_folder(&mut self, path: &Path, place: &Path) -> Result<(), SetupError> {
        fs::create_dir(place).map_err(at("make", place))?;
        if access(path, Access::EXEC_OK).is_err() {
            return Ok(());
        }
        if self.must_be_split(path) && self.can_be_split(path) {
            let mode = fs::metadata(path).map_err(at("look at", path))?.permissions().mode();
            fs::set_permissions(place, Permissions::from_mode(mode)).map_err(at("make", place))?;
            return self.show_entries(path);
        }
        if self.takes_overlay(path) && self.show_overlay(path, place)? {
            return Ok(());
        }
        Tree::of(path, place)?.read_only()?.attach()
    }

    /// Whether a folder can't be shown as one: it holds mounts, over which there can be no overlay,
    /// or it lacks a place where something is to be mounted and none could be made.
    fn must_be_split(&self, path: &Path) -> bool {
        let mounts_below = self.mount_points.iter().any(|point| point != path && point.starts_with(path));
        mounts_below && self.takes_overlay(path)
            || self.targets.iter().any(|target| self.lacks_place(path, target))
    }

    /// The top of an overlay belongs to this user, what lies deeper belongs to who owns it on the
    /// machine.
    fn lacks_place(&self, path: &Path, target: &Path) -> bool {
        if !target.starts_with(path) || target.exists() {
            return false;
        }
        let parent = target.ancestors().find(|ancestor| ancestor.exists()).unwrap_or(path);
        !self.takes_overlay(path) || parent != path && access(parent, Access::WRITE_OK).is_err()
    }

    /// Whether an overlay of a folder would be of use. In one that belongs to somebody whose id the jail
    /// does not have, every write below the top would fail with "value too large": the kernel can't
    /// copy the owner of the folders on the way. A plain refusal is better.
    fn takes_overlay(&self, path: &Path) -> bool {
        self.overlay && fs::metadata(path).is_ok_and(|found| found.uid() != UNMAPPED)
    }

    /// The user's own home folder can be written where folders of others can't be, and what is written
    /// there is forgotten: programs keep caches and settings in it.
    fn show_home(&mut self, home: &Path) -> Result<(), SetupError> {
        let Ok(home) = fs::canonicalize(home) else { return Ok(()) };
        let place = self.place(&home);
        let writable = self.overlaid.iter().any(|folder| home.starts_with(folder));
        let own = OWN.iter().any(|own| home.starts_with(own)) || self.targets.contains(&home);
        if writable || own || home.parent().is_none() || !self.takes_overlay(&home) || !place.is_dir() {
            return Ok(());
        }
        // Where the kernel refuses it, the folder stays as it is: read-only.
        self.show_overlay(&home, &place).map(drop)
    }

    fn can_be_split(&self, path: &Path) -> bool {
        fs::read_dir(path).is_ok_and(|entries| entries.take(MOST_ENTRIES + 1).count() <= MOST_ENTRIES)
    }

    /// Tells whether the kernel allows it: some file systems can't lie below an overlay.
    fn show_overlay(&mut self, path: &Path, place: &Path) -> Result<bool, SetupError> {
        let layer = self.layers.join(self.overlaid.len().to_string());
        let (upper, work) = (layer.join("upper"), layer.join("work"));
        fs::create_dir_all(&upper).map_err(at("make", &upper))?;
        fs::create_dir(&work).map_err(at("make", &work))?;
        let mode = fs::metadata(path).map_err(at("look at", path))?.permissions().mode();
        fs::set_permissions(&upper, Permissions::from_mode(mode)).map_err(at("make", &upper))?;
        match overlay(&[path], &upper, &work) {
            Ok(mount) => {
                self.overlaid.push(path.to_owned());
                Tree::folder(mount, place).attach().map(|()| true)
            }
            Err(_) => fs::remove_dir_all(&layer).map(|()| false).map_err(at("remove", &layer)),
        }
    }

    fn place(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }
}

fn is_gone(path: &Path) -> bool {
    fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Where something is mounted on the machine; proc(5) describes the file.
fn mount_points() -> Result<Vec<PathBuf>, SetupError> {
    let path = Path::new("/proc/self/mountinfo");
    let text = fs::read(path).map_err(at("read", path))?;
    let lines = text.split(|&byte| byte == b'\n');
    Ok(lines.filter_map(|line| line.split(|&byte| byte == b' ').nth(4)).map(unescape).collect())
}

/// Spaces, tabs, newlines and backslashes are written as a backslash and three octal digits.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let escaped = (first == b'\\').then(|| after.get(..3)).flatten().and_then(octal);
        bytes.push(escaped.unwrap_or(first));
        rest = if escaped.is_some() { &after[3..] } else { after };
    }
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

fn octal(digits: &[u8]) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_point_with_a_space_is_found_under_its_real_name() {
        assert_eq!(unescape(br"/media/my\040disk\134x"), PathBuf::from(r"/media/my disk\x"));
        assert_eq!(unescape(br"/plain\0"), PathBuf::from(r"/plain\0"));
    }
}
