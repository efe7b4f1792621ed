//! Puts the objects of a channel into a folder: by link where the folder is never written to, else
//! by a copy that shares blocks with the source where the file system can.

use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fs_err as fs;
use rustix::fs::{AtFlags, CWD, ioctl_ficlone, linkat, statvfs};
use rustix::io::Errno;

use crate::plan::ObjectPlan;

/// Copied between two looks at whether to go on.
const STRIDE: u64 = 16 << 20;

/// How far the staging of an instance has come; shared with the thread that does it.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    pub(crate) objects: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) cancelled: AtomicBool,
}

impl Progress {
    /// Counts objects that are there.
    pub(crate) fn count(&self, objects: &[ObjectPlan]) {
        self.objects.fetch_add(objects.len() as u64, Ordering::Relaxed);
        self.bytes.fetch_add(objects.iter().map(|object| object.size).sum(), Ordering::Relaxed);
    }
}

/// Whether a folder's files may be the source files themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Links {
    /// Nobody can write to the folder.
    Allowed,
    /// What is written to the folder must not reach the source.
    Never,
}

/// An object that can't be put into its place.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ObjectError {
    #[error("{}: listed with {listed} bytes when the job was planned, but it is gone now", path.display())]
    Gone { path: PathBuf, listed: u64 },
    #[error("{}: listed with {listed} bytes when the job was planned, but it has {found} now", path.display())]
    Changed { path: PathBuf, listed: u64, found: u64 },
    #[error("{}: not a file", path.display())]
    NotAFile { path: PathBuf },
    #[error("{}: permission denied: the user who runs the job can't read it", path.display())]
    Denied { path: PathBuf },
    #[error("{}: can't be read", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{relative:?}: this path leads out of the channel's folder")]
    Outside { relative: String },
    #[error("{relative:?}: another object of the channel is in the way")]
    Clash { relative: String },
    #[error("{}: the disk is too small: {needed} bytes are needed, {free} are free", folder.display())]
    NoRoom { folder: PathBuf, needed: u64, free: u64 },
    #[error("{}: the disk is full", path.display())]
    Full { path: PathBuf },
    #[error("{}: can't be written", path.display())]
    Unwritable { path: PathBuf, source: io::Error },
    #[error("stopped while objects were fetched")]
    Cancelled,
}

/// Puts all objects below a folder, which exists and is empty.
///
/// # Errors
/// The first object that can't be put there; what was put there before stays.
pub(crate) fn put_all(
    folder: &Path,
    objects: &[ObjectPlan],
    links: Links,
    progress: &Progress,
) -> Result<(), ObjectError> {
    let mut put = Put { folder, links, room_checked: false, progress };
    let mut remaining: u64 = objects.iter().map(|object| object.size).sum();
    for object in objects {
        put.one(object, remaining)?;
        remaining -= object.size;
        progress.objects.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

struct Put<'a> {
    folder: &'a Path,
    links: Links,
    room_checked: bool,
    progress: &'a Progress,
}

impl Put<'_> {
    fn one(&mut self, object: &ObjectPlan, remaining: u64) -> Result<(), ObjectError> {
        let source = open_checked(object)?;
        let target = self.folder.join(inside(&object.relative)?);
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent).map_err(|error| unwritable(object, parent, error))?;
        }
        if self.links == Links::Allowed
            && link(&source, &target).map_err(|error| unwritable(object, &target, error))?
        {
            self.progress.bytes.fetch_add(object.size, Ordering::Relaxed);
            return self.go_on();
        }
        self.copy(object, &source, &target, remaining)
    }

    fn copy(
        &mut self,
        object: &ObjectPlan,
        source: &fs::File,
        path: &Path,
        remaining: u64,
    ) -> Result<(), ObjectError> {
        let options = fs::OpenOptions::from_options(
            std::fs::OpenOptions::new().write(true).create_new(true).mode(0o644).to_owned(),
        );
        let target = options.open(path).map_err(|error| unwritable(object, path, error))?;
        if ioctl_ficlone(&target, source).is_ok() {
            self.progress.bytes.fetch_add(object.size, Ordering::Relaxed);
            return self.go_on();
        }
        self.check_room(remaining)?;
        let mut whole = 0;
        loop {
            // In the kernel where it can, also between file systems.
            let copied = io::copy(&mut source.file().take(STRIDE), &mut target.file())
                .map_err(|error| unwritable(object, path, error))?;
            whole += copied;
            if copied == 0 {
                break;
            }
            self.progress.bytes.fetch_add(copied, Ordering::Relaxed);
            self.go_on()?;
        }
        let (path, listed) = (object.source.clone(), object.size);
        if whole == listed { Ok(()) } else { Err(ObjectError::Changed { path, listed, found: whole }) }
    }

    fn check_room(&mut self, needed: u64) -> Result<(), ObjectError> {
        if self.room_checked {
            return Ok(());
        }
        self.room_checked = true;
        let folder = self.folder.to_owned();
        let Ok(system) = statvfs(&folder) else { return Ok(()) };
        let free = system.f_bavail.saturating_mul(system.f_frsize);
        if free < needed { Err(ObjectError::NoRoom { folder, needed, free }) } else { Ok(()) }
    }

    fn go_on(&self) -> Result<(), ObjectError> {
        if self.progress.cancelled.load(Ordering::Relaxed) { Err(ObjectError::Cancelled) } else { Ok(()) }
    }
}

/// Opens an object's file and compares it with what the plan says.
pub(crate) fn open_checked(object: &ObjectPlan) -> Result<fs::File, ObjectError> {
    let (path, listed) = (object.source.clone(), object.size);
    let unreadable = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => ObjectError::Gone { path: object.source.clone(), listed },
        io::ErrorKind::PermissionDenied => ObjectError::Denied { path: object.source.clone() },
        _ => ObjectError::Unreadable { path: object.source.clone(), source: error },
    };
    // Where the path is a pipe by now, opening it must not wait for a writer.
    let nonblocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
    let options = std::fs::OpenOptions::new().read(true).custom_flags(nonblocking).to_owned();
    let file = fs::OpenOptions::from_options(options).open(&path).map_err(unreadable)?;
    let found = file.metadata().map_err(unreadable)?;
    if !found.is_file() {
        return Err(ObjectError::NotAFile { path });
    }
    if found.len() != listed {
        return Err(ObjectError::Changed { path, listed, found: found.len() });
    }
    Ok(file)
}

/// Tells whether the source could be linked; file systems and kernels have many reasons to refuse.
fn link(source: &fs::File, target: &Path) -> io::Result<bool> {
    // By descriptor, so that it is the file that was checked and never a link that points to it.
    let opened = format!("/proc/self/fd/{}", source.as_raw_fd());
    match linkat(CWD, opened, CWD, target, AtFlags::SYMLINK_FOLLOW) {
        Ok(()) => Ok(true),
        Err(error @ (Errno::EXIST | Errno::NOSPC | Errno::DQUOT)) => Err(error.into()),
        Err(_) => Ok(false),
    }
}

/// The path of an object below its channel's folder, if that is where it leads.
fn inside(relative: &str) -> Result<&Path, ObjectError> {
    let path = Path::new(relative);
    let normal = path.components().all(|component| matches!(component, Component::Normal(_)));
    if normal && !relative.is_empty() && !relative.contains('\0') && !relative.ends_with('/') {
        Ok(path)
    } else {
        Err(ObjectError::Outside { relative: relative.to_owned() })
    }
}

fn unwritable(object: &ObjectPlan, path: &Path, source: io::Error) -> ObjectError {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            ObjectError::Full { path: path.to_owned() }
        }
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory => {
            ObjectError::Clash { relative: object.relative.clone() }
        }
        _ => ObjectError::Unwritable { path: path.to_owned(), source },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_path_leads_out_of_the_folder(relative in "[a./]{0,12}") {
            if let Ok(path) = inside(&relative) {
                let mut depth = 0;
                for component in path.components() {
                    prop_assert!(matches!(component, Component::Normal(_)));
                    depth += 1;
                }
                prop_assert!(depth > 0);
            } else {
                let odd = relative.is_empty()
                    || relative.starts_with(['/', '.'])
                    || relative.ends_with('/')
                    || relative.split('/').any(|part| part == "..");
                prop_assert!(odd, "{:?} was refused", relative);
            }
        }
    }

    #[test]
    fn what_was_put_is_counted_and_equal_with_and_without_links() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("source");
        fs::write(&source, "12345").unwrap();
        let object = ObjectPlan { source, relative: "a/b".to_owned(), size: 5 };
        for (name, links) in [("linked", Links::Allowed), ("copied", Links::Never)] {
            let target = folder.path().join(name);
            fs::create_dir(&target).unwrap();
            let progress = Progress::default();
            put_all(&target, std::slice::from_ref(&object), links, &progress).unwrap();
            assert_eq!(fs::read_to_string(target.join("a/b")).unwrap(), "12345");
            assert_eq!(progress.objects.load(Ordering::Relaxed), 1);
            assert_eq!(progress.bytes.load(Ordering::Relaxed), 5);
        }
        fs::write(folder.path().join("copied/a/b"), "changed").unwrap();
        assert_eq!(fs::read_to_string(folder.path().join("source")).unwrap(), "12345");
    }

    #[test]
    fn a_cancelled_staging_ends_at_the_next_object() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("source");
        fs::write(&source, "1").unwrap();
        let object =
            |relative: &str| ObjectPlan { source: source.clone(), relative: relative.into(), size: 1 };
        let progress = Progress::default();
        progress.cancelled.store(true, Ordering::Relaxed);
        let put = put_all(folder.path(), &[object("a"), object("b")], Links::Allowed, &progress);
        assert!(matches!(put, Err(ObjectError::Cancelled)));
        assert!(!folder.path().join("b").exists());
    }
}
