//! A copy of the layers of an image, as one folder: for where the kernel does not lay them over each other.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use fs_err as fs;
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags, lgetxattr, llistxattr,
    lsetxattr, mknodat, utimensat,
};
use rustix::io::Errno;

use super::lowers::{is_deletion, is_opaque};

/// Extended attributes are read up to this size, the longest that Linux has (xattr(7)).
const LONGEST_ATTRIBUTE: usize = 64 << 10;

/// Copies layers, the uppermost first, into an empty folder. Contents are shared where the file system can
/// do that.
pub(crate) fn copy_layers(layers: &[impl AsRef<Path>], target: &Path) -> io::Result<()> {
    let layers = layers.iter().map(|layer| layer.as_ref().to_owned()).collect();
    Copy { files: HashMap::new() }.folder(&Folders(layers), target)
}

/// The folders of several layers that have one path, the uppermost first.
struct Folders(Vec<PathBuf>);

/// What a path is, when the layers lie over each other.
enum Seen {
    Folders(Folders),
    Other(PathBuf),
}

impl Folders {
    /// What is seen in the folder, by name.
    fn entries(&self) -> io::Result<BTreeMap<OsString, Seen>> {
        let mut seen = BTreeMap::new();
        // Names of which nothing more is seen further down.
        let mut closed = BTreeSet::new();
        for folder in &self.0 {
            for entry in fs::read_dir(folder)? {
                let entry = entry?;
                let (name, path) = (entry.file_name(), entry.path());
                if closed.contains(&name) {
                    continue;
                }
                let found = fs::symlink_metadata(&path)?;
                let opaque = found.is_dir() && is_opaque(&path);
                match seen.get_mut(&name) {
                    Some(Seen::Folders(folders)) if found.is_dir() => folders.0.push(path),
                    Some(_) => {}
                    None if is_deletion(&path, &found) => {}
                    None if found.is_dir() => {
                        seen.insert(name.clone(), Seen::Folders(Self(vec![path])));
                    }
                    None => {
                        seen.insert(name.clone(), Seen::Other(path));
                    }
                }
                if !found.is_dir() || opaque {
                    closed.insert(name);
                }
            }
        }
        Ok(seen)
    }
}

/// A copy in progress.
struct Copy {
    /// Where each file with several names was copied to, by device and inode.
    files: HashMap<(u64, u64), PathBuf>,
}

impl Copy {
    fn folder(&mut self, folders: &Folders, target: &Path) -> io::Result<()> {
        for (name, seen) in folders.entries()? {
            let target = target.join(name);
            match seen {
                Seen::Folders(folders) => {
                    fs::create_dir(&target)?;
                    self.folder(&folders, &target)?;
                }
                Seen::Other(source) => self.other(&source, &target)?,
            }
        }
        let Some(uppermost) = folders.0.first() else { return Ok(()) };
        describe(uppermost, &fs::metadata(uppermost)?, target)
    }

    fn other(&mut self, source: &Path, target: &Path) -> io::Result<()> {
        let found = fs::symlink_metadata(source)?;
        let kind = found.file_type();
        let key = (found.dev(), found.ino());
        if found.nlink() > 1 {
            if let Some(first) = self.files.get(&key) {
                return fs::hard_link(first, target);
            }
            self.files.insert(key, target.to_owned());
        }
        if kind.is_symlink() {
            fs::os::unix::fs::symlink(fs::read_link(source)?, target)?;
        } else if kind.is_file() {
            fs::copy(source, target)?;
        } else if kind.is_fifo() {
            mknodat(CWD, target, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
        } else {
            // Layers hold no devices, and a socket that nobody listens to is of no use.
            return Ok(());
        }
        describe(source, &found, target)
    }
}

/// Owner, mode, attributes and times, in an order in which none undoes another.
fn describe(source: &Path, found: &Metadata, target: &Path) -> io::Result<()> {
    rustix::fs::chownat(
        CWD,
        target,
        Some(Uid::from_raw(found.uid())),
        Some(Gid::from_raw(found.gid())),
        AtFlags::SYMLINK_NOFOLLOW,
    )?;
    if !found.is_symlink() {
        fs::set_permissions(target, std::fs::Permissions::from_mode(found.mode() & 0o7777))?;
    }
    copy_attributes(source, target)?;
    let time = |tv_sec, tv_nsec| Timespec { tv_sec, tv_nsec };
    let times = Timestamps {
        last_access: time(found.atime(), found.atime_nsec()),
        last_modification: time(found.mtime(), found.mtime_nsec()),
    };
    Ok(utimensat(CWD, target, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

fn copy_attributes(source: &Path, target: &Path) -> io::Result<()> {
    let mut names = vec![0; LONGEST_ATTRIBUTE];
    let length = match llistxattr(source, names.as_mut_slice()) {
        Err(Errno::OPNOTSUPP) | Ok(0) => return Ok(()),
        length => length?,
    };
    let mut value = vec![0; LONGEST_ATTRIBUTE];
    for name in names[..length].split(|&byte| byte == 0).filter(|name| is_copied(name)) {
        let length = lgetxattr(source, name, value.as_mut_slice())?;
        match lsetxattr(target, name, &value[..length], XattrFlags::empty()) {
            // The file system can't keep it, or this user may not write it.
            Err(Errno::OPNOTSUPP | Errno::PERM | Errno::NOSPC) => {}
            result => result?,
        }
    }
    Ok(())
}

/// The marks of the layers mean nothing in a copy.
fn is_copied(name: &[u8]) -> bool {
    let own = |prefix: &[u8]| name.starts_with(prefix);
    own(b"user.") && !own(b"user.overlay.") || name == b"security.capability"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn shown(folder: &Path) -> Vec<String> {
        let mut found = Vec::new();
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.is_symlink() {
                found.extend(shown(&path).into_iter().map(|name| format!("{}/{name}", name_of(&path))));
            } else {
                found.push(name_of(&path));
            }
        }
        found.sort();
        found
    }

    fn name_of(path: &Path) -> String {
        path.file_name().unwrap().to_string_lossy().into_owned()
    }

    #[test]
    fn a_copy_holds_what_an_overlay_would_show() {
        let folder = tempfile::tempdir().unwrap();
        let [top, middle, bottom, target] =
            ["top", "middle", "bottom", "target"].map(|name| folder.path().join(name));
        fs::create_dir(&target).unwrap();
        for (path, text) in [
            ("a/kept", "bottom"),
            ("a/replaced", "bottom"),
            ("deleted", ""),
            ("o/hidden", ""),
            ("turned/x", ""),
        ] {
            write(&bottom.join(path), text);
        }
        write(&middle.join("a/replaced"), "middle");
        write(&middle.join("turned"), "a file now");
        write(&middle.join("folder_again"), "");
        fs::hard_link(middle.join("turned"), middle.join("same")).unwrap();
        fs::os::unix::fs::symlink("/nowhere", middle.join("link")).unwrap();
        write(&top.join("o/new"), "");
        write(&top.join("folder_again/y"), "");
        lsetxattr(top.join("o"), "user.overlay.opaque", b"y", XattrFlags::empty()).unwrap();
        write(&top.join("deleted"), "");
        lsetxattr(top.join("deleted"), "user.overlay.whiteout", b"y", XattrFlags::empty()).unwrap();
        fs::set_permissions(bottom.join("a/kept"), std::fs::Permissions::from_mode(0o4750)).unwrap();

        copy_layers(&[top, middle, bottom.clone()], &target).unwrap();
        let expected = ["a/kept", "a/replaced", "folder_again/y", "link", "o/new", "same", "turned"];
        assert_eq!(shown(&target), expected);
        assert_eq!(fs::read_to_string(target.join("a/replaced")).unwrap(), "middle");
        let kept = fs::metadata(target.join("a/kept")).unwrap();
        assert_eq!(kept.mode() & 0o7777, 0o4750);
        assert_eq!(kept.mtime_nsec(), fs::metadata(bottom.join("a/kept")).unwrap().mtime_nsec());
        let inode = |name: &str| fs::metadata(target.join(name)).unwrap().ino();
        assert_eq!(inode("same"), inode("turned"));
        assert!(lgetxattr(target.join("o"), "user.overlay.opaque", &mut [0; 8]).is_err());
    }
}
