//! Files of an archive put into a folder: whatever their names and whatever lies there already, nothing outside of the
//! folder is touched.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, Timespec, Timestamps, futimens, mkdirat, openat, renameat, unlinkat,
};

/// A file until it is whole.
const UNFINISHED: &str = ".trainyard-unfinished";

/// A folder that files are put into.
#[derive(Debug)]
pub(crate) struct Target {
    root: OwnedFd,
}

/// What a file becomes beside its content.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marks {
    pub(crate) mode: u32,
    /// In seconds since 1970.
    pub(crate) modified: Option<u64>,
}

impl Target {
    /// Opens the folder, making it if need be.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        fs_err::create_dir_all(path)?;
        Ok(Self { root: openat(CWD, path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())? })
    }

    /// Makes a folder and those that it is in. `path` has no empty, `.` or `..` component.
    pub(crate) fn folder(&self, path: &[u8]) -> io::Result<OwnedFd> {
        let mut folder = self.root.try_clone()?;
        for name in path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
            check(name)?;
            let name = OsStr::from_bytes(name);
            match mkdirat(&folder, name, Mode::from_raw_mode(0o777)) {
                Err(error) if error != rustix::io::Errno::EXIST => return Err(error.into()),
                _ => {}
            }
            // A link that lies there could lead out of the folder.
            let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            folder = openat(&folder, name, flags, Mode::empty())?;
        }
        Ok(folder)
    }

    /// Writes a file, in the place of one that is there; it appears at once and whole.
    pub(crate) fn file(&self, path: &[u8], marks: Marks, content: &mut impl Read) -> io::Result<u64> {
        let slash = path.iter().rposition(|&byte| byte == b'/');
        let (above, name) = slash.map_or((&path[..0], path), |at| (&path[..at], &path[at + 1..]));
        check(name)?;
        let folder = self.folder(above)?;
        let written = write(&folder, marks, content).and_then(|bytes| {
            Ok(renameat(&folder, UNFINISHED, &folder, OsStr::from_bytes(name)).map(|()| bytes)?)
        });
        if written.is_err() {
            // The first error is the one to tell.
            let _ = unlinkat(&folder, UNFINISHED, AtFlags::empty());
        }
        written
    }
}

/// The reader of archives lets no other names through; this is the last door.
fn check(name: &[u8]) -> io::Result<()> {
    if matches!(name, b"" | b"." | b"..") {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a name that leads out of the folder"));
    }
    Ok(())
}

fn write(folder: &impl AsFd, marks: Marks, content: &mut impl Read) -> io::Result<u64> {
    match unlinkat(folder, UNFINISHED, AtFlags::empty()) {
        Err(error) if error != rustix::io::Errno::NOENT => return Err(error.into()),
        _ => {}
    }
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // The file is for reading in any case; the rest is the mode of the archive, within the user's mask.
    let mode = Mode::from_raw_mode(0o600 | marks.mode);
    let mut file = std::fs::File::from(openat(folder, UNFINISHED, flags, mode)?);
    let bytes = io::copy(content, &mut file)?;
    if let Some(seconds) = marks.modified.and_then(|seconds| i64::try_from(seconds).ok()) {
        let time = Timespec { tv_sec: seconds, tv_nsec: 0 };
        futimens(&file, &Timestamps { last_access: time, last_modification: time })?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    const MARKS: Marks = Marks { mode: 0o755, modified: Some(1_440_938_160) };

    #[test]
    fn a_file_has_the_time_and_the_mode_of_the_archive_and_replaces_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let target = Target::open(&folder.path().join("new/one")).unwrap();
        for content in ["first", "second"] {
            assert_eq!(target.file(b"a/b/c", MARKS, &mut content.as_bytes()).unwrap(), content.len() as u64);
        }
        let path = folder.path().join("new/one/a/b/c");
        let found = fs_err::metadata(&path).unwrap();
        assert_eq!(fs_err::read_to_string(&path).unwrap(), "second");
        assert_eq!((found.mtime(), found.mode() & 0o100), (1_440_938_160, 0o100));
        assert_eq!(fs_err::read_dir(folder.path().join("new/one/a/b")).unwrap().count(), 1);
    }

    #[test]
    fn links_that_lie_in_the_folder_lead_nowhere() {
        let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs_err::write(outside.path().join("victim"), "mine").unwrap();
        symlink(outside.path(), folder.path().join("way")).unwrap();
        symlink(outside.path().join("victim"), folder.path().join("file")).unwrap();
        symlink(outside.path().join("victim"), folder.path().join(UNFINISHED)).unwrap();
        let target = Target::open(folder.path()).unwrap();
        assert!(target.file(b"way/new", MARKS, &mut "x".as_bytes()).is_err());
        target.file(b"file", MARKS, &mut "x".as_bytes()).unwrap();
        assert_eq!(fs_err::read_to_string(folder.path().join("file")).unwrap(), "x");
        assert_eq!(fs_err::read_to_string(outside.path().join("victim")).unwrap(), "mine");
        assert_eq!(fs_err::read_dir(outside.path()).unwrap().count(), 1);
        for name in [&b".."[..], b"a/../b", b"", b"a/"] {
            assert!(target.file(name, MARKS, &mut "x".as_bytes()).is_err());
        }
    }

    #[test]
    fn of_a_content_that_breaks_off_nothing_is_left() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("broken"))
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let target = Target::open(folder.path()).unwrap();
        target.file(b"a", MARKS, &mut "whole".as_bytes()).unwrap();
        assert!(target.file(b"a", MARKS, &mut Broken).is_err());
        assert_eq!(fs_err::read_to_string(folder.path().join("a")).unwrap(), "whole");
        assert_eq!(fs_err::read_dir(folder.path()).unwrap().count(), 1);
    }
}
