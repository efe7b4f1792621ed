//! Named pipes in a folder that a job can change: never by path, so that no link of the job leads elsewhere.

use std::fs::Permissions;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use fs_err as fs;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, fstat, mknodat, openat, unlinkat};
use rustix::io::Errno;

/// Makes the first pipe of a channel, before anything of the job runs.
///
/// Folder and pipe are about to be given to the image's user, who may be somebody else than the supervisor's; so
/// both are open to everybody. Outside of the instance nobody else comes to the folder.
///
/// # Errors
/// The file system has no pipes, or something of that name is there.
pub(crate) fn make_first(folder: &Path, channel: &str) -> io::Result<()> {
    let path = folder.join(format!("{channel}_0"));
    mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o644), 0)?;
    fs::set_permissions(&path, Permissions::from_mode(0o666))?;
    fs::set_permissions(folder, Permissions::from_mode(0o777))
}

/// The folder itself, whatever is put in its place later.
pub(super) fn open_folder(folder: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(CWD, folder, flags, Mode::empty())?)
}

/// Makes a pipe that everybody in the instance can read.
pub(super) fn make(folder: impl AsFd, name: &str) -> io::Result<()> {
    Ok(mknodat(folder, name, FileType::Fifo, Mode::from_raw_mode(0o644), 0)?)
}

/// Opens a pipe that somebody has opened to read; `NXIO` if nobody has, `INVAL` if it is no pipe.
pub(super) fn open(folder: impl AsFd, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let pipe = openat(folder, name, flags, Mode::empty())?;
    let kind = FileType::from_raw_mode(fstat(&pipe)?.st_mode);
    if kind == FileType::Fifo { Ok(pipe) } else { Err(Errno::INVAL) }
}

/// Removes a pipe; the job may have done so already.
pub(super) fn remove(folder: impl AsFd, name: &str) {
    let _ = unlinkat(folder, name, AtFlags::empty());
}
