//! Folders by descriptor: names are opened one at a time and never through a link, so that a tree that
//! changes meanwhile cannot lead anywhere else. Modes that keep their owner out are lifted for as long as
//! a folder or file is being opened, and put back afterwards.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, chmod, openat, readlinkat, statat};
use rustix::io::Errno;

/// The owner's rights that listing a folder and opening what is in it take.
pub(super) const LIST: u32 = 0o500;
/// The owner's rights that removing what is in a folder takes.
pub(super) const CHANGE: u32 = 0o700;

const READ_FILE: u32 = 0o400;

/// An open folder.
pub(super) struct Folder {
    file: File,
    /// As it was before any right was lent.
    pub(super) metadata: Metadata,
    _lent: Option<Lent>,
}

impl Folder {
    /// Opens the folder at `path`; its last component may not be a link.
    pub(super) fn open_root(path: &Path, rights: u32) -> io::Result<Self> {
        Self::open_at(CWD, path.as_os_str(), rights)
    }

    /// Opens the folder `name` in this folder.
    pub(super) fn open(&self, name: &[u8], rights: u32) -> io::Result<Self> {
        Self::open_at(self.as_fd(), OsStr::from_bytes(name), rights)
    }

    fn open_at(parent: BorrowedFd<'_>, name: &OsStr, rights: u32) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(parent, name, flags, Mode::empty()) {
            Ok(fd) => {
                let file = File::from(fd);
                let metadata = file.metadata()?;
                // Whoever may not lend (another owner) may still have the rights as group or other.
                let lacking = metadata.mode() & rights != rights;
                let lent = if lacking { Lent::new(parent, name, rights).ok() } else { None };
                Ok(Self { file, metadata, _lent: lent })
            }
            Err(Errno::ACCESS) => {
                let lent = Lent::new(parent, name, rights)?;
                let file = File::from(openat(parent, name, flags, Mode::empty())?);
                Ok(Self { file, metadata: lent.before.clone(), _lent: Some(lent) })
            }
            Err(errno) => Err(errno.into()),
        }
    }

    /// Device and inode: two folders with the same pair are one.
    pub(super) fn identity(&self) -> (u64, u64) {
        (self.metadata.dev(), self.metadata.ino())
    }

    /// All names in this folder with their kinds, in no particular order.
    pub(super) fn names(&self) -> io::Result<Vec<(Vec<u8>, FileType)>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.file)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::Unknown => self.kind(name)?,
                known => known,
            };
            names.push((name.to_vec(), kind));
        }
        Ok(names)
    }

    /// What `name` is; a link is a link.
    pub(super) fn kind(&self, name: &[u8]) -> io::Result<FileType> {
        let stat = statat(&self.file, name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(FileType::from_raw_mode(stat.st_mode))
    }

    /// Where the link `name` points, as written.
    pub(super) fn link_target(&self, name: &[u8]) -> io::Result<Vec<u8>> {
        Ok(readlinkat(&self.file, name, Vec::new())?.into_bytes())
    }

    /// Opens the regular file `name` for reading; never waits for a FIFO's other end.
    pub(super) fn open_file(&self, name: &[u8]) -> io::Result<(File, Metadata)> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = match openat(&self.file, name, flags, Mode::empty()) {
            Ok(fd) => File::from(fd),
            Err(Errno::ACCESS) => {
                let _lent = Lent::new(self.as_fd(), OsStr::from_bytes(name), READ_FILE)?;
                File::from(openat(&self.file, name, flags, Mode::empty())?)
            }
            Err(errno) => return Err(errno.into()),
        };
        let metadata = file.metadata()?;
        Ok((file, metadata))
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Rights added to one file or folder until this is dropped.
struct Lent {
    path_only: OwnedFd,
    before: Metadata,
}

impl Lent {
    fn new(parent: BorrowedFd<'_>, name: &OsStr, rights: u32) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(openat(parent, name, flags, Mode::empty())?);
        let before = file.metadata()?;
        if !before.is_dir() && !before.is_file() {
            return Err(Errno::ACCESS.into());
        }
        let lent = Self { path_only: file.into(), before };
        lent.set_mode(lent.before.mode() | rights)?;
        Ok(lent)
    }

    /// Changes the very inode that was opened: a descriptor that is good for paths only cannot be given
    /// to `fchmod`, and a name could have become a link meanwhile.
    fn set_mode(&self, mode: u32) -> io::Result<()> {
        let path = format!("/proc/self/fd/{}", self.path_only.as_raw_fd());
        Ok(chmod(path, Mode::from_raw_mode(mode & 0o7777))?)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // Nothing is lost when this fails: what was lent is the owner's anyway.
        let _ = self.set_mode(self.before.mode());
    }
}
