//! What an instance has left belongs to the ids of its users, which are strangers to the user who submitted
//! the job. It is given back from inside a user namespace with the same ids, where they are known.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use fs_err as fs;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, Uid, chownat, openat, statat};
use rustix::io::Errno;
use rustix::process::getuid;

use super::{SetupError, at};

/// Whether anything in a folder of the machine, which need not be there, belongs to somebody else or can't be
/// looked at.
pub(crate) fn holds_others_files(folder: &Path) -> bool {
    match holds(folder, getuid().as_raw()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        held => held.unwrap_or(true),
    }
}

fn holds(path: &Path, own: u32) -> io::Result<bool> {
    let found = fs::symlink_metadata(path)?;
    if found.uid() != own {
        return Ok(true);
    }
    if !found.is_dir() {
        return Ok(false);
    }
    for entry in fs::read_dir(path)? {
        if holds(&entry?.path(), own)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Gives everything in a folder to user id 0, from within the user namespace.
pub(super) fn take_back(folder: &Path) -> Result<(), SetupError> {
    give_tree(folder).map_err(at("take back", folder))
}

/// Only one folder is open at a time, so that no depth of tree takes many descriptors or recursion. No
/// process of the instance is left that could move a folder while this is in it.
fn give_tree(root: &Path) -> io::Result<()> {
    give(CWD, root)?;
    let mut here = enter(CWD, root)?;
    let mut levels = vec![give_entries(&here)?];
    while let Some(level) = levels.last_mut() {
        if let Some(name) = level.pop() {
            match enter(&here, name.as_c_str()) {
                Ok(folder) => {
                    here = folder;
                    levels.push(give_entries(&here)?);
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        } else {
            levels.pop();
            if !levels.is_empty() {
                here = enter(&here, c"..")?;
            }
        }
    }
    Ok(())
}

fn enter(parent: impl std::os::fd::AsFd, name: impl rustix::path::Arg) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(parent, name, flags, Mode::empty())?)
}

/// Gives all that lies in a folder and returns the folders among it.
fn give_entries(folder: &OwnedFd) -> io::Result<Vec<CString>> {
    let mut folders = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name: &CStr = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        match give(folder, name) {
            Ok(FileType::Directory) => folders.push(name.to_owned()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(folders)
}

/// Gives one file or folder, if it is not the user's already, and tells what it is; a link is a link.
fn give(parent: impl std::os::fd::AsFd + Copy, name: impl rustix::path::Arg + Copy) -> io::Result<FileType> {
    let found = statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if (found.st_uid, found.st_gid) != (0, 0) {
        match chownat(parent, name, Some(Uid::ROOT), Some(Gid::ROOT), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(FileType::from_raw_mode(found.st_mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_own_files_need_not_be_taken_back() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("folder")).unwrap();
        fs::os::unix::fs::symlink("/nowhere", folder.path().join("folder/link")).unwrap();
        assert!(!holds_others_files(folder.path()));
        assert!(!holds_others_files(Path::new("/nonexistent")));
        // One of an ordinary user's, or of root's for an ordinary user.
        let others = if getuid().is_root() {
            chownat(CWD, folder.path(), Some(Uid::from_raw(1)), None, AtFlags::empty()).unwrap();
            folder.path()
        } else {
            Path::new("/etc")
        };
        assert!(holds_others_files(others));
    }
}
