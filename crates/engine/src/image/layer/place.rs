//! Puts one entry where it belongs.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, chmodat, linkat, mknodat, openat, symlinkat, unlinkat};
use rustix::io::Errno;

use super::folder::{FOLDER, Root, kind, make};
use super::metadata::{Pending, set_file, set_folder, set_unopened};
use super::path::{LayerPath, shown};
use super::{LayerError, Unpacker, at, marks};
use crate::artifact::remove_tree;
use crate::image::tar::Entry;

impl Root {
    /// Deletes `name`, which stands beside `path`, of the layers below. What this layer itself has there
    /// stays, whatever the order in the archive.
    pub(super) fn delete(&self, path: &LayerPath<'_>, name: &[u8]) -> Result<(), LayerError> {
        let failed = |errno| at("delete", &path.bytes(), errno);
        let parent = self.parent(path)?;
        match kind(&parent, name).map_err(failed)? {
            None => marks::whiteout(&parent, name).map_err(failed),
            Some(FileType::Directory) => {
                let folder = openat(&parent, name, FOLDER, Mode::empty()).map_err(failed)?;
                marks::opaque(&folder).map_err(failed)
            }
            Some(_) => Ok(()),
        }
    }

    /// Makes the folder of `path` hide what lies below.
    pub(super) fn make_opaque(&self, path: &LayerPath<'_>) -> Result<(), LayerError> {
        marks::opaque(&self.parent(path)?).map_err(|errno| at("delete", &path.bytes(), errno))
    }

    pub(super) fn make_folder(
        &self,
        path: &LayerPath<'_>,
        entry: &Entry,
        pending: &mut Pending,
    ) -> Result<(), LayerError> {
        let failed = |errno| at("make the folder", &entry.path, errno);
        let parent = self.parent(path)?;
        let folder = match make(&parent, path.name()) {
            Err(Errno::EXIST) if kind(&parent, path.name()) == Ok(Some(FileType::Directory)) => {
                openat(&parent, path.name(), FOLDER, Mode::empty())
            }
            Err(Errno::EXIST) => {
                clear(&parent, path.name(), entry)?;
                make(&parent, path.name())
            }
            made => made,
        };
        pending.add(path.bytes(), entry)?;
        set_folder(self, folder.map_err(failed)?, entry)
    }

    pub(super) fn make_symlink(&self, path: &LayerPath<'_>, entry: &Entry) -> Result<(), LayerError> {
        let parent = self.parent(path)?;
        replace(&parent, path, entry, "make the link", || {
            symlinkat(entry.link.as_slice(), &parent, path.name())
        })?;
        set_unopened(self, &parent, path, entry)
    }

    /// The owner of a FIFO can be told, but not its mode while it is made: the process has a mask.
    pub(super) fn make_fifo(&self, path: &LayerPath<'_>, entry: &Entry) -> Result<(), LayerError> {
        let parent = self.parent(path)?;
        replace(&parent, path, entry, "make the FIFO", || {
            mknodat(&parent, path.name(), FileType::Fifo, Mode::empty(), 0)
        })?;
        chmodat(&parent, path.name(), Mode::from_raw_mode(entry.mode), AtFlags::empty())
            .map_err(|errno| at("set the mode of", &entry.path, errno))?;
        set_unopened(self, &parent, path, entry)
    }

    pub(super) fn make_hard_link(&self, path: &LayerPath<'_>, entry: &Entry) -> Result<(), LayerError> {
        let (link, target) = (|| path.shown(), || shown(&entry.link));
        let Ok(Some(there)) = LayerPath::parse(&entry.link) else {
            return Err(LayerError::LinkOutside { path: link(), target: target() });
        };
        if there.bytes() == path.bytes() {
            return Err(LayerError::LinkMissing { path: link(), target: target() });
        }
        let missing = |_| LayerError::LinkMissing { path: link(), target: target() };
        let folder = self.find_folder(&there.parents().join(&b'/')).map_err(missing)?;
        if !matches!(kind(&folder, there.name()), Ok(Some(kind)) if kind != FileType::Directory) {
            return Err(LayerError::LinkMissing { path: link(), target: target() });
        }
        let parent = self.parent(path)?;
        replace(&parent, path, entry, "make the link", || {
            linkat(&folder, there.name(), &parent, path.name(), AtFlags::empty())
        })
    }

    /// A new file that nobody else can open yet.
    fn create_file(&self, path: &LayerPath<'_>, entry: &Entry) -> Result<File, LayerError> {
        let parent = self.parent(path)?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = replace(&parent, path, entry, "make the file", || {
            openat(&parent, path.name(), flags, Mode::RUSR | Mode::WUSR)
        })?;
        Ok(file.into())
    }
}

impl<R: Read> Unpacker<'_, R> {
    pub(super) fn write_file(&mut self, path: &LayerPath<'_>, entry: &Entry) -> Result<(), LayerError> {
        let mut file = self.root.create_file(path, entry)?;
        match &entry.segments {
            None => self.copy(&mut file, entry.stored, entry)?,
            Some(sparse) => {
                for &(offset, length) in &sparse.segments {
                    file.seek(SeekFrom::Start(offset)).map_err(|error| at("write", &entry.path, error))?;
                    self.copy(&mut file, length, entry)?;
                }
                file.set_len(sparse.size).map_err(|error| at("write", &entry.path, error))?;
            }
        }
        set_file(&self.root, &file, entry)
    }

    fn copy(&mut self, file: &mut File, mut length: u64, entry: &Entry) -> Result<(), LayerError> {
        while length > 0 {
            let wanted = self.buffer.len().min(usize::try_from(length).unwrap_or(usize::MAX));
            let count = self.entries.read_content(&mut self.buffer[..wanted])?;
            if let Err(error) = file.write_all(&self.buffer[..count]) {
                return Err(self.write_failed(entry, error));
            }
            length -= count as u64;
            self.written += count as u64;
            self.account(count as u64)?;
        }
        Ok(())
    }

    fn write_failed(&self, entry: &Entry, error: io::Error) -> LayerError {
        let full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        match self.free() {
            Ok(free) if full => self.no_room(free),
            _ => at("write", &entry.path, error),
        }
    }
}

/// Makes something where something else may be, which then is removed.
fn replace<T>(
    parent: &OwnedFd,
    path: &LayerPath<'_>,
    entry: &Entry,
    step: &'static str,
    make: impl Fn() -> Result<T, Errno>,
) -> Result<T, LayerError> {
    let made = match make() {
        Err(Errno::EXIST) => {
            clear(parent, path.name(), entry)?;
            make()
        }
        made => made,
    };
    made.map_err(|errno| at(step, &entry.path, errno))
}

fn clear(parent: &OwnedFd, name: &[u8], entry: &Entry) -> Result<(), LayerError> {
    match unlinkat(parent, name, AtFlags::empty()) {
        Err(Errno::ISDIR) => {
            let folder = Path::new("/proc/self/fd").join(parent.as_raw_fd().to_string());
            remove_tree(&folder.join(OsStr::from_bytes(name)))
                .map_err(|error| at("replace", &entry.path, error.source))
        }
        result => result.map_err(|errno| at("replace", &entry.path, errno)),
    }
}
