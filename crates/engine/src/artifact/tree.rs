//! Parts as plain files: the tree that a model becomes whose archive nobody wants.
//!
//! The parts are read from the last host's to the first's, so that a path that is taken is taken by a later host: its
//! version stays, as plain extraction of the archive would leave it, and the earlier one goes to a folder of its host
//! beside the tree. The tree itself is all that has to be remembered.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::combine::{CombineError, Combined, PartFile, archive_tail, survey};
use super::read::{ArchiveEntry, ArchiveReader, EntryKind, ReadError};

/// Where the files of parts go: both folders exist, are empty and on one file system.
#[derive(Clone, Copy, Debug)]
pub struct Tree<'a> {
    /// The last host's version of each path.
    pub files: &'a Path,
    /// A folder for each host with the versions of it that others have replaced.
    pub replaced: &'a Path,
}

/// Parts could not become files. What has been written is left.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// A part or its index cannot be read.
    #[error(transparent)]
    Part(#[from] CombineError),
    /// A part is damaged.
    #[error("cannot unpack the part of {host}")]
    Damaged {
        /// Whose part.
        host: String,
        /// What is wrong with it.
        source: ReadError,
    },
    /// A file or folder cannot be written.
    #[error("cannot write {path:?} of {host}")]
    Write {
        /// Whose file.
        host: String,
        /// Its path below the folder that was packed.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Writes the files and folders of `parts`, which are in host order, into a tree.
///
/// Modes and times are kept. A version that is the same as the one that has replaced it is not kept. The bytes that are
/// returned are those of all files and headers; none if no part has an entry.
///
/// # Errors
/// A part can't be read or is damaged, or a file can't be written.
pub fn unpack(parts: &[PartFile], tree: Tree<'_>) -> Result<Combined, UnpackError> {
    let mut combined = survey(parts)?;
    let parts: Vec<_> = parts.iter().filter(|part| part.packed.entries > 0).collect();
    for part in parts.iter().rev() {
        unpack_part(part, tree)?;
    }
    combined.bytes = (!parts.is_empty()).then(|| parts.iter().map(|part| part.packed.tar_bytes).sum());
    Ok(combined)
}

fn unpack_part(part: &PartFile, tree: Tree<'_>) -> Result<(), UnpackError> {
    let unreadable = |source| CombineError::Part { host: part.host.clone(), path: part.path.clone(), source };
    let damaged = |source| UnpackError::Damaged { host: part.host.clone(), source };
    let (file, _) = fs_err::File::open(&part.path).map_err(unreadable)?.into_parts();
    let tail = archive_tail(&[part]).map_err(unreadable)?;
    let mut archive = ArchiveReader::new(part.packed.codec.header().chain(file).chain(tail.as_slice()));
    while let Some(mut entry) = archive.next_entry().map_err(damaged)? {
        let path = PathBuf::from(std::ffi::OsStr::from_bytes(&entry.path));
        let unpacked = unpack_entry(&mut entry, &part.host, &path, tree);
        unpacked.map_err(|error| match error.downcast::<ReadError>() {
            Ok(source) => damaged(source),
            Err(source) => UnpackError::Write { host: part.host.clone(), path, source },
        })?;
    }
    Ok(())
}

fn unpack_entry<R: Read>(
    entry: &mut ArchiveEntry<'_, R>,
    host: &str,
    path: &Path,
    tree: Tree<'_>,
) -> io::Result<()> {
    let place = tree.files.join(path);
    match entry.kind {
        // A file of that name is a later host's; what is in this folder goes elsewhere.
        EntryKind::Folder => is_room(fs_err::create_dir_all(&place)).map(drop),
        EntryKind::File => {
            // No host has this name.
            let unfinished = tree.replaced.join(".unfinished");
            write(entry, &unfinished)?;
            put(&unfinished, &place, &tree.replaced.join(host).join(path))
        }
        // Parts have none.
        EntryKind::Other => Ok(()),
    }
}

fn write<R: Read>(entry: &mut ArchiveEntry<'_, R>, path: &Path) -> io::Result<()> {
    let mut options = fs_err::OpenOptions::new();
    fs_err::os::unix::fs::OpenOptionsExt::mode(
        options.write(true).create(true).truncate(true),
        0o600 | entry.mode,
    );
    let (mut file, _) = options.open(path)?.into_parts();
    let modified = entry.modified;
    io::copy(entry, &mut file)?;
    file.flush()?;
    match modified.and_then(|seconds| SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))) {
        Some(modified) => file.set_modified(modified),
        None => Ok(()),
    }
}

/// Gives a whole file its place, or the other if that is taken by another content.
fn put(file: &Path, place: &Path, other: &Path) -> io::Result<()> {
    let above = place.parent().unwrap_or(place);
    if is_room(fs_err::create_dir_all(above))? {
        match fs_err::symlink_metadata(place) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return fs_err::rename(file, place),
            Ok(there) if there.is_file() && same(file, place)? => return fs_err::remove_file(file),
            Ok(_) => {}
            Err(error) => return Err(error),
        }
    }
    fs_err::create_dir_all(other.parent().unwrap_or(other))?;
    fs_err::rename(file, other)
}

/// Whether a folder is there; not if a file is in its place or on the way to it.
fn is_room(made: io::Result<()>) -> io::Result<bool> {
    match made {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

fn same(one: &Path, other: &Path) -> io::Result<bool> {
    let open = |path| -> io::Result<File> { Ok(fs_err::File::open(path)?.into_parts().0) };
    let (mut one, mut other) = (open(one)?, open(other)?);
    let mut left = one.metadata()?.len();
    if other.metadata()?.len() != left {
        return Ok(false);
    }
    let (mut a, mut b) = (vec![0; 256 << 10], vec![0; 256 << 10]);
    while left > 0 {
        let now = a.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        one.read_exact(&mut a[..now])?;
        other.read_exact(&mut b[..now])?;
        if a[..now] != b[..now] {
            return Ok(false);
        }
        left -= now as u64;
    }
    Ok(true)
}
