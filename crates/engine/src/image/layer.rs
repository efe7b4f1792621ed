//! Unpacks one layer into a folder of its own, as overlayfs wants it, and never outside of it.
//!
//! Paths are looked up by `openat2` with the layer's folder as root: links of the layer are followed as
//! they would be in the image, and nothing leads out. Deletions become overlay whiteouts and opaque
//! folders, see [`marks`].

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, open, statvfs, syncfs};
use rustix::io::Errno;

mod folder;
mod marks;
mod metadata;
mod path;
mod place;

use self::folder::Root;
use self::metadata::Pending;
use self::path::{Deletion, LayerPath};
use super::tar::{Entries, Entry, Kind, TarError};

/// How much of what a layer claims is believed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Most entries.
    pub(super) entries: u64,
    /// Bytes that stay free on the file system.
    pub(super) reserve: u64,
}

impl Default for Limits {
    fn default() -> Self {
        // The largest images have some hundred thousand files.
        Self { entries: 4_000_000, reserve: 256 << 20 }
    }
}

/// A layer that can't be unpacked.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    /// The archive is damaged.
    #[error(transparent)]
    Tar(#[from] TarError),
    /// `..`, a path from the root, or no path at all.
    #[error(
        "the layer has an entry {path:?}, which leads out of the image: its paths must be relative, without .."
    )]
    Outside {
        /// The entry's path.
        path: String,
    },
    /// A hard link to something outside.
    #[error("the layer's entry {path:?} is a hard link to {target:?}, which leads out of the image")]
    LinkOutside {
        /// The entry's path.
        path: String,
        /// What it links to.
        target: String,
    },
    /// A hard link to nothing.
    #[error("the layer's entry {path:?} is a hard link to {target:?}, which is no file of the same layer")]
    LinkMissing {
        /// The entry's path.
        path: String,
        /// What it links to.
        target: String,
    },
    /// A path through something that is no folder.
    #[error("the layer's entry {path:?} lies below something that is no folder of the image")]
    NoFolder {
        /// The entry's path.
        path: String,
    },
    /// A device.
    #[error(
        "the layer's entry {path:?} is a device ({major}, {minor}): images may hold none, instances have \
         the usual ones anyway"
    )]
    Device {
        /// The entry's path.
        path: String,
        /// Its major number.
        major: u32,
        /// Its minor number.
        minor: u32,
    },
    /// A deletion of nothing that can be named.
    #[error("the layer's entry {path:?} deletes nothing that could be in a folder")]
    Whiteout {
        /// The entry's path.
        path: String,
    },
    /// A path that no system call takes.
    #[error("the layer has an entry of {length} bytes, {path:?}…: paths have at most 4096, names 255")]
    TooLong {
        /// The beginning of the entry's path.
        path: String,
        /// The length of all of it, in bytes.
        length: usize,
    },
    /// More entries than any image has.
    #[error("the layer has more than {limit} entries")]
    Entries {
        /// What is allowed.
        limit: u64,
    },
    /// The disk would become full.
    #[error(
        "there is no room for the layer in {}: {free} bytes are free, of which {reserve} stay so",
        folder.display()
    )]
    NoRoom {
        /// Where it was to be unpacked.
        folder: PathBuf,
        /// What is free, in bytes.
        free: u64,
        /// What has to stay free, in bytes.
        reserve: u64,
    },
    /// A system call that fails.
    #[error("can't {step} {path:?} of the layer")]
    At {
        /// What failed.
        step: &'static str,
        /// The entry's path.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// Nobody wants the layer any more.
    #[error("unpacking was given up")]
    Cancelled,
}

/// Unpacks `archive` into the empty folder `target`; returns the number of bytes of all files. The
/// archive is read up to its end mark. `go_on` is asked now and then.
pub(super) fn unpack(
    archive: impl Read,
    target: &Path,
    limits: Limits,
    go_on: &dyn Fn() -> bool,
) -> Result<u64, LayerError> {
    let folder = open(target, OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY, Mode::empty());
    let folder = folder.map_err(|errno| at("open", b".", errno))?;
    let mut unpacker = Unpacker {
        entries: Entries::streaming(archive),
        root: Root::new(folder),
        target,
        limits,
        pending: Pending::default(),
        buffer: vec![0; 256 << 10],
        written: 0,
        unchecked: 0,
        go_on,
    };
    unpacker.check_room()?;
    unpacker.run()?;
    // The layer is taken as complete from now on, also after a power failure.
    syncfs(unpacker.root.fd()).map_err(|errno| at("write", b".", errno))?;
    Ok(unpacker.written)
}

struct Unpacker<'a, R> {
    entries: Entries<R>,
    root: Root,
    target: &'a Path,
    limits: Limits,
    pending: Pending,
    buffer: Vec<u8>,
    written: u64,
    /// Bytes written since there was a look at the free space.
    unchecked: u64,
    go_on: &'a dyn Fn() -> bool,
}

impl<R: Read> Unpacker<'_, R> {
    fn run(&mut self) -> Result<(), LayerError> {
        let mut count = 0;
        while let Some(entry) = self.entries.next_entry()? {
            count += 1;
            if count > self.limits.entries {
                return Err(LayerError::Entries { limit: self.limits.entries });
            }
            // An empty file takes room too, for its name and what is known about it.
            self.account(512)?;
            self.unpack_entry(&entry)?;
        }
        self.pending.settle(&self.root)
    }

    fn unpack_entry(&mut self, entry: &Entry) -> Result<(), LayerError> {
        let Some(path) = LayerPath::parse(&entry.path)? else {
            if entry.kind == Kind::Folder {
                self.pending.add(Vec::new(), entry)?;
                return metadata::set_folder(&self.root, self.root.fd(), entry);
            }
            return Err(LayerError::Outside { path: path::shown(&entry.path) });
        };
        match path.deletion()? {
            Some(Deletion::Ignored) => return Ok(()),
            Some(Deletion::Everything) => return self.root.make_opaque(&path),
            Some(Deletion::Name(name)) => return self.root.delete(&path, name),
            None => {}
        }
        match entry.kind {
            Kind::Folder => self.root.make_folder(&path, entry, &mut self.pending),
            Kind::File => self.write_file(&path, entry),
            Kind::Symlink => self.root.make_symlink(&path, entry),
            Kind::HardLink => self.root.make_hard_link(&path, entry),
            Kind::Fifo => self.root.make_fifo(&path, entry),
            // How overlayfs itself stores a deletion.
            Kind::CharDevice if entry.device == (0, 0) => self.root.delete(&path, path.name()),
            Kind::CharDevice | Kind::BlockDevice => Err(LayerError::Device {
                path: path::shown(&entry.path),
                major: entry.device.0,
                minor: entry.device.1,
            }),
        }
    }

    /// Counts bytes that are written and looks at the free space now and then.
    fn account(&mut self, bytes: u64) -> Result<(), LayerError> {
        self.unchecked += bytes;
        if self.unchecked >= 16 << 20 {
            self.unchecked = 0;
            self.check_room()?;
        }
        Ok(())
    }

    fn check_room(&self) -> Result<(), LayerError> {
        if !(self.go_on)() {
            return Err(LayerError::Cancelled);
        }
        let free = self.free().map_err(|errno| at("look at", b".", errno))?;
        if free < self.limits.reserve { Err(self.no_room(free)) } else { Ok(()) }
    }

    fn free(&self) -> Result<u64, Errno> {
        let found = statvfs(self.target)?;
        Ok(found.f_bavail.saturating_mul(found.f_frsize))
    }

    fn no_room(&self, free: u64) -> LayerError {
        LayerError::NoRoom { folder: self.target.to_owned(), free, reserve: self.limits.reserve }
    }
}

fn at(step: &'static str, path: &[u8], source: impl Into<io::Error>) -> LayerError {
    LayerError::At { step, path: path::shown(path), source: source.into() }
}

#[cfg(test)]
mod tests;
