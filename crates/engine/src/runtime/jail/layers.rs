//! The root of a jail over the layers of an image: one overlay, whose changes go to the instance's disk.

use std::ffi::CStr;
use std::io;
use std::path::Path;

use fs_err as fs;
use rustix::mount::{MountFlags, mount};

use super::mounts::OpenFolder;
use super::{Changes, SetupError, at};

/// Folders that the kernel's own file systems are mounted at. Through a link in their place a file
/// system could end up where what protects it does not cover it.
const KERNEL: [&str; 3] = ["proc", "sys", "dev"];

/// Mounts the layers at `place`.
///
/// By mount(2), because a value of fsconfig(2) has at most 255 bytes, which is too little for the
/// names of fifteen layers; here they share a page, enough for 200.
pub(super) fn assemble(
    lower: &[impl AsRef<Path>],
    changes: &Changes,
    place: &Path,
) -> Result<(), SetupError> {
    let open = |path: &Path| OpenFolder::open(path).map_err(at("open a layer of the image,", path));
    let lower = lower.iter().map(|folder| open(folder.as_ref())).collect::<Result<Vec<_>, _>>()?;
    let mounted = || -> io::Result<()> {
        let lower_paths: Vec<&str> = lower.iter().map(OpenFolder::path).collect();
        let (upper, work) = (OpenFolder::open(&changes.upper)?, OpenFolder::open(&changes.work)?);
        let options = format!(
            "userxattr,lowerdir={},upperdir={},workdir={}\0",
            lower_paths.join(":"),
            upper.path(),
            work.path()
        );
        let options = CStr::from_bytes_with_nul(options.as_bytes()).map_err(io::Error::other)?;
        Ok(mount("overlay", place, "overlay", MountFlags::empty(), options)?)
    };
    mounted().map_err(|source| SetupError::Overlay { target: "/".into(), source })?;
    for name in KERNEL {
        let path = place.join(name);
        if fs::symlink_metadata(&path).is_ok_and(|found| !found.is_dir()) {
            return Err(SetupError::NoFolder { path: Path::new("/").join(name) });
        }
    }
    Ok(())
}

/// Makes the folder in which the program starts, as Docker does.
pub(super) fn make_working_directory(path: &Path) -> Result<(), SetupError> {
    fs::create_dir_all(path).map_err(at("make the working directory", path))
}
