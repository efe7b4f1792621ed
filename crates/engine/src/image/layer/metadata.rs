//! Owner, mode, times and extended attributes of what is unpacked.
//!
//! As an ordinary user everything belongs to that user: the owners of the archive are dropped.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{
    AtFlags, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags, chownat, fchmod, fchown, fsetxattr, futimens,
    openat, utimensat,
};
use rustix::io::Errno;

use super::folder::{FOLDER, Root};
use super::path::LayerPath;
use super::{LayerError, at};
use crate::image::tar::Entry;

/// Paths that wait for their modes may take this much memory, in bytes.
const PENDING_LIMIT: usize = 256 << 20;

/// Folders get their modes and times at the end: what is put into them needs other modes, and changes
/// the times.
#[derive(Default)]
pub(super) struct Pending {
    folders: Vec<(Vec<u8>, u32, Timestamps)>,
    bytes: usize,
}

impl Pending {
    pub(super) fn add(&mut self, path: Vec<u8>, entry: &Entry) -> Result<(), LayerError> {
        self.bytes += path.len() + size_of::<(Vec<u8>, u32, Timestamps)>();
        if self.bytes > PENDING_LIMIT {
            return Err(LayerError::Entries { limit: self.folders.len() as u64 });
        }
        self.folders.push((path, entry.mode, times(entry)));
        Ok(())
    }

    /// Sets what was put off, the inner folders before the outer ones: those may become closed.
    pub(super) fn settle(&mut self, root: &Root) -> Result<(), LayerError> {
        // The last of equal paths counts, so the order among them must stay.
        self.folders.sort_by(|(a, ..), (b, ..)| b.cmp(a));
        for (path, mode, times) in &self.folders {
            let failed = |errno| at("set the mode of", path, errno);
            match open_folder(root, path) {
                Ok(folder) => {
                    fchmod(&folder, Mode::from_raw_mode(*mode)).map_err(failed)?;
                    futimens(&folder, times).map_err(failed)?;
                }
                // Replaced by a later entry, or closed under another path.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => {}
                Err(errno) => return Err(failed(errno)),
            }
        }
        Ok(())
    }
}

fn open_folder(root: &Root, path: &[u8]) -> Result<OwnedFd, Errno> {
    let Some(slash) = path.iter().rposition(|&byte| byte == b'/') else {
        let name = if path.is_empty() { b"." } else { path };
        return openat(root.fd(), name, FOLDER, Mode::empty());
    };
    openat(root.find_folder(&path[..slash])?, &path[slash + 1..], FOLDER, Mode::empty())
}

/// All about a folder that can be set at once.
pub(super) fn set_folder(root: &Root, folder: impl AsFd, entry: &Entry) -> Result<(), LayerError> {
    set_owner(root, &folder, entry)?;
    set_xattrs(root, &folder, entry)
}

/// All about a file whose content is complete: a change of it or of its owner would drop some.
pub(super) fn set_file(root: &Root, file: impl AsFd, entry: &Entry) -> Result<(), LayerError> {
    let failed = |errno| at("set the mode of", &entry.path, errno);
    set_owner(root, &file, entry)?;
    fchmod(&file, Mode::from_raw_mode(entry.mode)).map_err(failed)?;
    set_xattrs(root, &file, entry)?;
    futimens(&file, &times(entry)).map_err(failed)
}

/// Owner and times of what can't be opened, such as a link itself.
pub(super) fn set_unopened(
    root: &Root,
    parent: &OwnedFd,
    path: &LayerPath<'_>,
    entry: &Entry,
) -> Result<(), LayerError> {
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    if root.privileged {
        chownat(parent, path.name(), uid(entry), gid(entry), flags)
            .map_err(|errno| at("set the owner of", &entry.path, errno))?;
    }
    utimensat(parent, path.name(), &times(entry), flags)
        .map_err(|errno| at("set the time of", &entry.path, errno))
}

fn set_owner(root: &Root, file: impl AsFd, entry: &Entry) -> Result<(), LayerError> {
    if !root.privileged {
        return Ok(());
    }
    fchown(file, uid(entry), gid(entry)).map_err(|errno| at("set the owner of", &entry.path, errno))
}

fn set_xattrs(root: &Root, file: impl AsFd, entry: &Entry) -> Result<(), LayerError> {
    for (name, value) in entry.xattrs.iter().filter(|(name, _)| is_kept(root, name)) {
        match fsetxattr(&file, name.as_slice(), value, XattrFlags::empty()) {
            // The file system has no room for it or can't keep it.
            Err(
                Errno::OPNOTSUPP | Errno::PERM | Errno::NOSPC | Errno::TOOBIG | Errno::RANGE | Errno::INVAL,
            ) => {}
            result => result.map_err(|errno| at("set an attribute of", &entry.path, errno))?,
        }
    }
    Ok(())
}

/// The image's own attributes, but none that mean something to overlayfs or to the machine.
fn is_kept(root: &Root, name: &[u8]) -> bool {
    let users = name.starts_with(b"user.") && !name.starts_with(b"user.overlay.");
    users || (root.privileged && name == b"security.capability")
}

fn uid(entry: &Entry) -> Option<Uid> {
    // The highest number means no change and can't own anything.
    (entry.uid != u32::MAX).then(|| Uid::from_raw(entry.uid))
}

fn gid(entry: &Entry) -> Option<Gid> {
    (entry.gid != u32::MAX).then(|| Gid::from_raw(entry.gid))
}

fn times(entry: &Entry) -> Timestamps {
    let (seconds, nanoseconds) = entry.modified;
    let time = Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() };
    Timestamps { last_access: time, last_modification: time }
}
