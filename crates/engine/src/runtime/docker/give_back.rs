//! Who owns the files of an instance, seen from within its container by root.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, Stat, StatxAttributes, StatxFlags, Uid, chownat, openat,
    statat, statx,
};

/// A user and a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

impl Owner {
    /// Who owns what is at a path.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        Ok(Self::from(&statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)?))
    }

    /// Gives a file, a folder or a link, and all below it that is not mounted there, to this owner.
    ///
    /// Links are given and never followed.
    pub(super) fn take_all(self, path: &Path) -> io::Result<()> {
        let stat = statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)?;
        self.take(CWD, path, &stat)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            return Ok(());
        }
        let mut open = vec![open_folder(CWD, path)?];
        while let Some(folder) = open.pop() {
            self.take_below(&folder, stat.st_dev, &mut open)?;
        }
        Ok(())
    }

    /// Gives a folder and those directly in it to this owner, but for some, and nothing else.
    pub(super) fn take_folders(self, path: &Path, but: &[String]) -> io::Result<()> {
        self.take(CWD, path, &statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)?)?;
        let folder = open_folder(CWD, path)?;
        for name in names(&folder)? {
            let stat = statat(&folder, name.as_slice(), AtFlags::SYMLINK_NOFOLLOW)?;
            let passed_over = but.iter().any(|but| but.as_bytes() == name);
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory && !passed_over {
                self.take(folder.as_fd(), name.as_slice(), &stat)?;
            }
        }
        Ok(())
    }

    fn take_below(self, folder: &OwnedFd, device: u64, open: &mut Vec<OwnedFd>) -> io::Result<()> {
        for name in names(folder)? {
            let stat = statat(folder, name.as_slice(), AtFlags::SYMLINK_NOFOLLOW)?;
            if stat.st_dev != device || is_mounted(folder, &name, &stat)? {
                continue;
            }
            self.take(folder.as_fd(), name.as_slice(), &stat)?;
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                open.push(open_folder(folder.as_fd(), name.as_slice())?);
            }
        }
        Ok(())
    }

    fn take(self, folder: impl AsFd, name: impl rustix::path::Arg, stat: &Stat) -> io::Result<()> {
        if Self::from(stat) != self {
            let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
            chownat(folder, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(())
    }
}

impl From<&Stat> for Owner {
    fn from(stat: &Stat) -> Self {
        Self { uid: stat.st_uid, gid: stat.st_gid }
    }
}

/// Whether anything below a folder, the folder included, belongs to somebody else, or can't be looked at.
pub(super) fn is_foreign(path: &Path, own: u32) -> bool {
    let look = || -> io::Result<bool> {
        let mut open = vec![open_folder(CWD, path)?];
        while let Some(folder) = open.pop() {
            for name in names(&folder)? {
                let stat = statat(&folder, name.as_slice(), AtFlags::SYMLINK_NOFOLLOW)?;
                if stat.st_uid != own {
                    return Ok(true);
                }
                if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                    open.push(open_folder(folder.as_fd(), name.as_slice())?);
                }
            }
        }
        Ok(false)
    };
    look().unwrap_or(true)
}

/// Whether a folder is one of the same file system that is shown there, such as one of the user's.
fn is_mounted(folder: &OwnedFd, name: &[u8], stat: &Stat) -> io::Result<bool> {
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return Ok(false);
    }
    let found = statx(folder, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::TYPE)?;
    Ok(found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

fn open_folder(parent: impl AsFd, name: impl rustix::path::Arg) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(parent, name, flags, Mode::empty())?)
}

fn names(folder: &OwnedFd) -> io::Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(name);
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use fs_err as fs;

    use super::*;

    #[test]
    fn what_is_somebody_elses_is_found_at_any_depth() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("a/b")).unwrap();
        fs::write(folder.path().join("a/b/file"), "").unwrap();
        let own = Owner::of(folder.path()).unwrap();
        assert!(!is_foreign(folder.path(), own.uid));
        assert!(is_foreign(folder.path(), own.uid + 1));
        assert!(is_foreign(&folder.path().join("absent"), own.uid));
    }

    #[test]
    fn links_are_given_and_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        fs::os::unix::fs::symlink("/", folder.path().join("root")).unwrap();
        fs::os::unix::fs::symlink("absent", folder.path().join("absent")).unwrap();
        // Taking what is one's own is allowed to everybody, so it shows only that nothing else is touched.
        Owner::of(folder.path()).unwrap().take_all(folder.path()).unwrap();
    }
}
