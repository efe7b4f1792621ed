//! The root of a jail over the layers of an image: one overlay, whose changes go to the instance's disk; where
//! the kernel refuses that, what comes closest.

use std::ffi::CStr;
use std::io;
use std::path::{Path, PathBuf};

use fs_err as fs;
use rustix::mount::{MountFlags, mount};

use super::mounts::{OpenFolder, Tree};
use super::root::memory;
use super::{Changes, InsteadOfOverlay, SetupError, at};
use crate::image::copy_layers;

/// Folders that the kernel's own file systems are mounted at. Through a link in their place a file
/// system could end up where what protects it does not cover it.
const KERNEL: [&str; 3] = ["proc", "sys", "dev"];

/// Puts the layers together in the workshop and returns the new root.
///
/// Some file systems can't collect an overlay's changes, an overlay itself among them; then they are collected
/// in memory. A few can't even lie below one; then the instance gets a copy.
pub(super) fn assemble(
    layers: &[PathBuf],
    changes: &Changes,
    workshop: &Path,
) -> Result<(PathBuf, Option<InsteadOfOverlay>), SetupError> {
    let open = |path: &Path| OpenFolder::open(path).map_err(at("open a layer of the image,", path));
    let opened = layers.iter().map(|folder| open(folder)).collect::<Result<Vec<_>, _>>()?;
    let Err(refused) = mount_over(&opened, changes, workshop) else {
        return check(workshop.to_owned(), None);
    };
    let reason = refused.to_string();
    memory(workshop)?;
    let root = workshop.join("root");
    let in_memory = Changes { upper: workshop.join("changes"), work: workshop.join("work") };
    for folder in [&root, &in_memory.upper, &in_memory.work] {
        fs::create_dir(folder).map_err(at("make", folder))?;
    }
    if mount_over(&opened, &in_memory, &root).is_ok() {
        return check(root, Some(InsteadOfOverlay::Memory { reason }));
    }
    copy_layers(layers, &changes.upper).map_err(at("copy the image to", &changes.upper))?;
    Tree::of(&changes.upper, &root)?.attach()?;
    check(root, Some(InsteadOfOverlay::Copy { reason }))
}

/// By mount(2), because a value of fsconfig(2) has at most 255 bytes, which is too little for the
/// names of fifteen layers; here they share a page, enough for 200.
fn mount_over(layers: &[OpenFolder], changes: &Changes, place: &Path) -> io::Result<()> {
    let lower: Vec<&str> = layers.iter().map(OpenFolder::path).collect();
    let (upper, work) = (OpenFolder::open(&changes.upper)?, OpenFolder::open(&changes.work)?);
    let options =
        format!("userxattr,lowerdir={},upperdir={},workdir={}\0", lower.join(":"), upper.path(), work.path());
    let options = CStr::from_bytes_with_nul(options.as_bytes()).map_err(io::Error::other)?;
    Ok(mount("overlay", place, "overlay", MountFlags::empty(), options)?)
}

fn check(
    root: PathBuf,
    instead: Option<InsteadOfOverlay>,
) -> Result<(PathBuf, Option<InsteadOfOverlay>), SetupError> {
    for name in KERNEL {
        let path = root.join(name);
        if fs::symlink_metadata(&path).is_ok_and(|found| !found.is_dir()) {
            return Err(SetupError::NoFolder { path: Path::new("/").join(name) });
        }
    }
    Ok((root, instead))
}

/// Makes the folder in which the program starts, as Docker does.
pub(super) fn make_working_directory(path: &Path) -> Result<(), SetupError> {
    fs::create_dir_all(path).map_err(at("make the working directory", path))
}
