//! Removing a scratch tree whatever its modes and depth.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, renameat, unlinkat};
use rustix::io::Errno;

use super::folder::{CHANGE, Folder};
use super::walk::shown;

/// A scratch tree could not be removed, or not all of it.
#[derive(Debug, thiserror::Error)]
#[error("cannot remove {path:?}")]
pub struct RemoveError {
    /// What could not be removed.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
}

/// Removes `path` and everything below it, also folders that shut out their owner. Links are removed,
/// never followed; a `path` that is not there is no error.
pub fn remove_tree(path: &Path) -> Result<(), RemoveError> {
    let failed = |source: io::Error| RemoveError { path: path.to_owned(), source };
    let root = match Folder::open_root(path, CHANGE) {
        Ok(root) => root,
        Err(error) => return remove_other(path, error),
    };
    empty(&root, path)?;
    drop(root);
    fs_err::remove_dir(path).map_err(failed)
}

/// `path` could not be opened as a folder: it may be something else, or nothing.
fn remove_other(path: &Path, error: io::Error) -> Result<(), RemoveError> {
    let result = match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        io::ErrorKind::NotADirectory => fs_err::remove_file(path),
        _ => Err(error),
    };
    result.map_err(|source| RemoveError { path: path.to_owned(), source })
}

/// Empties `root` level by level: what lies in a folder of the root is removed or, when it is a folder
/// itself, moved up into the root. So no depth of tree takes more than two descriptors or any recursion.
fn empty(root: &Folder, path: &Path) -> Result<(), RemoveError> {
    let mut moved = 0;
    loop {
        let names = root.names().map_err(|source| RemoveError { path: path.to_owned(), source })?;
        if names.is_empty() {
            return Ok(());
        }
        for (name, kind) in names {
            let failed = |source: io::Error| RemoveError { path: path.join(shown(&name)), source };
            if kind == FileType::Directory {
                lift_folders(root, &name, &mut moved).map_err(failed)?;
                unlinkat(root, name.as_slice(), AtFlags::REMOVEDIR).map_err(|errno| failed(errno.into()))?;
            } else {
                unlinkat(root, name.as_slice(), AtFlags::empty()).map_err(|errno| failed(errno.into()))?;
            }
        }
    }
}

/// Empties the folder `name` of the root; the folders in it end up in the root.
fn lift_folders(root: &Folder, name: &[u8], moved: &mut u64) -> io::Result<()> {
    let folder = root.open(name, CHANGE)?;
    for (child, kind) in folder.names()? {
        if kind == FileType::Directory {
            lift(root, &folder, &child, moved)?;
        } else {
            unlinkat(&folder, child.as_slice(), AtFlags::empty())?;
        }
    }
    Ok(())
}

fn lift(root: &Folder, folder: &Folder, child: &[u8], moved: &mut u64) -> io::Result<()> {
    // Giving a folder another parent takes the right to write into the folder itself.
    let _opened = folder.open(child, CHANGE)?;
    loop {
        *moved += 1;
        match renameat(folder, child, root, format!("lifted-{moved}")) {
            Ok(()) => return Ok(()),
            // The name is taken by something of the tree itself.
            Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}
