//! How deletions are stored for overlayfs.
//!
//! A deleted name is a character device with number 0:0, which since Linux 5.8 everybody may make. On
//! a file system that has no such thing it is an empty file with the attribute `overlay.whiteout` in a
//! folder with `overlay.opaque` = `x` (Linux 6.7). A folder that hides what lies below has
//! `overlay.opaque` = `y`.
//!
//! The attributes stand in the name space `user`, so that the same layers serve everybody: whoever
//! mounts them says `userxattr`. Root writes them into `trusted` too.

use std::os::fd::OwnedFd;

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, XattrFlags, fgetxattr, fsetxattr, makedev, mknodat, openat, unlinkat,
};
use rustix::io::Errno;

use super::folder::kind;

/// Deletes `name` of the layers below; nothing has that name in the folder.
pub(super) fn whiteout(folder: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
    match mknodat(folder, name, FileType::CharacterDevice, Mode::empty(), makedev(0, 0)) {
        Err(Errno::PERM | Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS) => whiteout_file(folder, name),
        result => result,
    }
}

/// The other form of a deletion. A folder that hides everything needs none, and would show it.
pub(super) fn whiteout_file(folder: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
    if value(folder, "user.overlay.opaque") == Some(b'y') {
        return Ok(());
    }
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(folder, name, flags, Mode::from_raw_mode(0o600))?;
    mark(&file, "whiteout", b"y")?;
    mark(folder, "opaque", b"x")
}

/// Makes a folder hide what lies below.
pub(super) fn opaque(folder: &OwnedFd) -> Result<(), Errno> {
    if value(folder, "user.overlay.opaque") == Some(b'x') {
        remove_whiteout_files(folder)?;
    }
    mark(folder, "opaque", b"y")
}

/// Whether `name` stands for a deletion.
pub(super) fn is_whiteout(folder: &OwnedFd, name: &[u8]) -> Result<bool, Errno> {
    Ok(match kind(folder, name)? {
        // There are no others in a layer.
        Some(FileType::CharacterDevice) => true,
        Some(FileType::RegularFile) => is_whiteout_file(folder, name),
        _ => false,
    })
}

fn is_whiteout_file(folder: &OwnedFd, name: &[u8]) -> bool {
    let file = openat(folder, name, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
    file.is_ok_and(|file| value(&file, "user.overlay.whiteout").is_some())
}

fn remove_whiteout_files(folder: &OwnedFd) -> Result<(), Errno> {
    let mut found = Vec::new();
    for entry in rustix::fs::Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        // Opening a FIFO would wait for somebody to write into it.
        if entry.file_type() == FileType::RegularFile && is_whiteout_file(folder, name) {
            found.push(name.to_owned());
        }
    }
    found.iter().try_for_each(|name| unlinkat(folder, name.as_slice(), AtFlags::empty()))
}

/// The value of an attribute that has one byte.
fn value(file: &OwnedFd, name: &str) -> Option<u8> {
    let mut value = [0; 1];
    (fgetxattr(file, name, &mut value) == Ok(1)).then_some(value[0])
}

fn mark(file: &OwnedFd, name: &str, value: &[u8]) -> Result<(), Errno> {
    fsetxattr(file, format!("user.overlay.{name}"), value, XattrFlags::empty())?;
    match fsetxattr(file, format!("trusted.overlay.{name}"), value, XattrFlags::empty()) {
        // Not root, or root only of a container.
        Err(Errno::PERM | Errno::OPNOTSUPP) => Ok(()),
        result => result,
    }
}
