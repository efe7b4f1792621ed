//! The folder of a layer, and how the folders in it are found.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, ResolveFlags, fchmod, mkdirat, openat, openat2, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::marks::{is_whiteout, opaque};
use super::path::LayerPath;
use super::{LayerError, at};

/// The folder into which a layer is unpacked.
pub(super) struct Root {
    folder: OwnedFd,
    /// Whether owners can be kept.
    pub(super) privileged: bool,
}

pub(super) const FOLDER: OFlags =
    OFlags::DIRECTORY.union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW).union(OFlags::RDONLY);

impl Root {
    pub(super) fn new(folder: OwnedFd) -> Self {
        Self { folder, privileged: geteuid().is_root() }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }

    /// The folder that holds `path`; missing ones are made.
    pub(super) fn parent(&self, path: &LayerPath<'_>) -> Result<OwnedFd, LayerError> {
        match self.find_folder(&path.parents().join(&b'/')) {
            Err(Errno::NOENT | Errno::NOTDIR) => self.make_parents(path),
            Err(Errno::LOOP) => Err(LayerError::NoFolder { path: path.shown() }),
            found => found.map_err(|errno| at("find the folder of", &path.bytes(), errno)),
        }
    }

    /// A folder by its path, with links followed inside the layer; the empty path is the root.
    pub(super) fn find_folder(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        let path = if path.is_empty() { b"." } else { path };
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY;
        loop {
            match openat2(
                &self.folder,
                path,
                flags,
                Mode::empty(),
                ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS,
            ) {
                // Something on the machine was renamed meanwhile.
                Err(Errno::AGAIN | Errno::INTR) => {}
                found => return found,
            }
        }
    }

    /// Makes the folders above `path` that the archive has not listed.
    fn make_parents(&self, path: &LayerPath<'_>) -> Result<OwnedFd, LayerError> {
        let mut sofar = Vec::new();
        let mut folder = self.find_folder(b"").map_err(|errno| at("open", b".", errno))?;
        for component in path.parents() {
            sofar.push(*component);
            let whole = sofar.join(&b'/');
            match self.find_folder(&whole) {
                Ok(found) => folder = found,
                Err(Errno::NOENT | Errno::NOTDIR) => folder = make_missing(&folder, component, path)?,
                Err(errno) => return Err(at("find the folder", &whole, errno)),
            }
        }
        Ok(folder)
    }
}

/// Makes a folder that is not listed, with the mode that such folders have.
fn make_missing(parent: &OwnedFd, name: &[u8], path: &LayerPath<'_>) -> Result<OwnedFd, LayerError> {
    let failed = |errno| at("make the folder of", &path.bytes(), errno);
    match make(parent, name) {
        // A file of this layer stands there, or a link to nothing.
        Err(Errno::EXIST) => Err(LayerError::NoFolder { path: path.shown() }),
        Err(errno) => Err(failed(errno)),
        Ok(folder) => {
            fchmod(&folder, Mode::from_raw_mode(0o755)).map_err(failed)?;
            Ok(folder)
        }
    }
}

/// Makes a folder where nothing is, or a deletion of the layers below: then it hides them.
pub(super) fn make(parent: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let deleted = is_whiteout(parent, name)?;
    if deleted {
        unlinkat(parent, name, AtFlags::empty())?;
    }
    mkdirat(parent, name, Mode::RWXU)?;
    let folder = openat(parent, name, FOLDER, Mode::empty())?;
    if deleted {
        opaque(&folder)?;
    }
    Ok(folder)
}

/// What kind of file has this name; none if there is none.
pub(super) fn kind(parent: &OwnedFd, name: &[u8]) -> Result<Option<FileType>, Errno> {
    match statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => Ok(Some(FileType::from_raw_mode(found.st_mode))),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}
