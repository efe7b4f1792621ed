//! Files below a bucket's folder, which no write ever leaves, whatever links lie in it.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fs_err as fs;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, mkdirat, open, openat2, renameat, unlinkat};
use rustix::io::Errno;
use tempfile::{NamedTempFile, TempPath};

use crate::HIDDEN;

/// How often a folder that is made may be removed by somebody else at the same moment.
const TRIES: usize = 8;

/// The folder of a bucket.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    root: PathBuf,
}

/// Why a file can't be put at a path.
#[derive(Debug)]
pub(crate) enum NotPlaced {
    /// A folder is there, or a file where a folder would have to be.
    Clash,
    /// A link leads out of the bucket.
    Outside,
    Io(io::Error),
}

impl From<Errno> for NotPlaced {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOTDIR | Errno::ISDIR | Errno::EXIST | Errno::NOTEMPTY | Errno::NAMETOOLONG => Self::Clash,
            Errno::XDEV => Self::Outside,
            other => Self::Io(other.into()),
        }
    }
}

impl Folder {
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { root }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The place of what is no object.
    pub(crate) fn hidden(&self, name: &str) -> PathBuf {
        self.root.join(HIDDEN).join(name)
    }

    /// A new file that nobody sees.
    pub(crate) fn temporary(&self) -> io::Result<NamedTempFile> {
        let folder = self.hidden("tmp");
        fs::create_dir_all(&folder)?;
        // As any program makes files; the umask applies.
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        tempfile::Builder::new().permissions(mode).tempfile_in(&folder)
    }

    /// Opens a file, following links as people may put them into the folder. Nothing else but a file counts.
    pub(crate) fn open(&self, relative: &Path) -> io::Result<Option<File>> {
        let path = self.root.join(relative);
        // A FIFO must not hold anybody.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match open(&path, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(errno) if ABSENCE.contains(&errno) => return Ok(None),
            Err(errno) => {
                let error = io::Error::from(errno);
                return Err(io::Error::new(error.kind(), format!("{}: {error}", path.display())));
            }
        };
        Ok(file.metadata()?.is_file().then_some(file))
    }

    /// Puts a file at a path, making the folders on its way, in place of the file that is there.
    pub(crate) fn place(&self, file: TempPath, relative: &Path) -> Result<(), NotPlaced> {
        let name = relative.file_name().unwrap_or_default();
        for _ in 0..TRIES {
            let parent = self.parent(relative, true)?;
            match renameat(CWD, &*file, &parent, name) {
                // Its parent was removed because the last object in it was deleted.
                Err(Errno::NOENT) => {}
                result => {
                    result?;
                    file.keep().map_err(|error| NotPlaced::Io(error.error))?;
                    return Ok(());
                }
            }
        }
        Err(NotPlaced::Io(io::ErrorKind::NotFound.into()))
    }

    /// Removes a file if it is there, and the folders above it that are empty then.
    pub(crate) fn remove(&self, relative: &Path) -> Result<(), NotPlaced> {
        let name = relative.file_name().unwrap_or_default();
        let parent = match self.parent(relative, false) {
            Err(NotPlaced::Clash) => return Ok(()),
            Err(NotPlaced::Io(error)) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            parent => parent?,
        };
        match unlinkat(&parent, name, AtFlags::empty()) {
            Ok(()) => self.prune(relative),
            Err(Errno::NOENT | Errno::ISDIR) => {}
            Err(errno) => return Err(errno.into()),
        }
        Ok(())
    }

    /// Folders are there for objects: in S3 a prefix without objects does not exist.
    fn prune(&self, relative: &Path) {
        let folders = relative.ancestors().skip(1).take_while(|folder| !folder.as_os_str().is_empty());
        for folder in folders {
            let Ok(parent) = self.parent(folder, false) else { return };
            let name = folder.file_name().unwrap_or_default();
            // Not empty, or a link: it stays.
            if unlinkat(&parent, name, AtFlags::REMOVEDIR).is_err() {
                return;
            }
        }
    }

    /// The folder that holds a path.
    fn parent(&self, relative: &Path, make: bool) -> Result<OwnedFd, NotPlaced> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = open(&self.root, flags, Mode::empty())?;
        let parent = relative.parent().filter(|parent| !parent.as_os_str().is_empty());
        let Some(parent) = parent else { return Ok(root) };
        let beneath = |path: &Path| openat2(&root, path, flags, Mode::empty(), ResolveFlags::BENEATH);
        match beneath(parent) {
            Err(Errno::NOENT) if make => {}
            found => return Ok(found?),
        }
        let mut at = open(&self.root, flags, Mode::empty())?;
        let mut path = PathBuf::new();
        for name in parent {
            match mkdirat(&at, name, Mode::from_raw_mode(0o777)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
            path.push(name);
            at = beneath(&path)?;
        }
        Ok(at)
    }
}

/// What says that there is no such file.
const ABSENCE: [Errno; 6] =
    [Errno::NOENT, Errno::NOTDIR, Errno::ISDIR, Errno::NAMETOOLONG, Errno::LOOP, Errno::NXIO];

/// When a file was last written, in nanoseconds since 1970.
pub(crate) fn modified(found: &std::fs::Metadata) -> i64 {
    found.mtime().saturating_mul(1_000_000_000).saturating_add(found.mtime_nsec())
}

/// The name of a folder's entry, if it can be part of a key.
pub(crate) fn text(name: &std::ffi::OsStr) -> Option<&str> {
    std::str::from_utf8(name.as_bytes()).ok()
}
