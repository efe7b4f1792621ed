//! Puts the objects of a channel into a folder: by link where the folder is never written to, else
//! by a copy that shares blocks with the source where the file system can.

use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use fs_err as fs;
use rustix::fs::{AtFlags, CWD, ioctl_ficlone, linkat, statvfs};
use rustix::io::Errno;
use tokio::sync::Notify;

use crate::explain::bytes;
use crate::plan::{ChannelPlan, ObjectPlan};
use crate::storage::{ObjectSource, StorageError};

/// Copied between two looks at whether to go on.
const STRIDE: u64 = 16 << 20;

/// How far the staging of an instance has come; shared with the thread that does it.
#[derive(Debug)]
pub(crate) struct Progress {
    pub(crate) objects: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) of_objects: u64,
    pub(crate) of_bytes: u64,
    pub(crate) since: Instant,
    pub(crate) unverified: Unverified,
    cancelled: AtomicBool,
    cancel: Notify,
}

impl Progress {
    /// Nothing yet of so many channels.
    pub(crate) fn of(channels: &[ChannelPlan]) -> Self {
        let staged = |channel: &&ChannelPlan| !channel.is_fetched_when_read();
        let objects = || channels.iter().filter(staged).flat_map(|channel| &channel.objects);
        Self {
            objects: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            of_objects: objects().count() as u64,
            of_bytes: objects().map(|object| object.size).sum(),
            since: Instant::now(),
            unverified: Unverified::default(),
            cancelled: AtomicBool::new(false),
            cancel: Notify::new(),
        }
    }

    /// Whoever works here is to stop.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
        self.cancel.notify_one();
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Waits until it is to stop.
    pub(crate) async fn cancelled(&self) {
        self.cancel.notified().await;
    }

    /// Counts bytes that are there; an error if nobody wants any more.
    pub(crate) fn add(&self, bytes: u64) -> Result<(), ObjectError> {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if self.is_cancelled() { Err(ObjectError::Cancelled) } else { Ok(()) }
    }

    /// Counts objects that are there.
    pub(crate) fn count(&self, objects: &[ObjectPlan]) {
        self.objects.fetch_add(objects.len() as u64, Ordering::Relaxed);
        self.bytes.fetch_add(objects.iter().map(|object| object.size).sum(), Ordering::Relaxed);
    }
}

/// Objects whose ETag looks like an MD5 and is not that of their content, which came twice the same.
#[derive(Debug, Default)]
pub(crate) struct Unverified(Mutex<(u64, String)>);

impl Unverified {
    pub(crate) fn add(&self, object: &ObjectSource) {
        let mut found = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if found.0 == 0 {
            found.1 = object.name();
        }
        found.0 += 1;
    }

    /// What is to be said of those since the last call, if there are any.
    pub(crate) fn take_warning(&self) -> Option<String> {
        let (count, first) = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let others = match count {
            0 => return None,
            1 => String::new(),
            2 => " and another object".to_owned(),
            more => format!(" and {} other objects", more - 1),
        };
        Some(format!(
            "{first}{others}: the ETag is not the MD5 of the content, which came twice the same and was taken as it is"
        ))
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
    #[error("{}: the disk is too small: {needed} are needed, {free} are free", folder.display())]
    NoRoom { folder: PathBuf, needed: String, free: String },
    #[error("{}: the disk is full", path.display())]
    Full { path: PathBuf },
    #[error("{}: can't be written", path.display())]
    Unwritable { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error("the cache of objects can't be used")]
    Cache(#[source] io::Error),
    #[error("the fetching broke off")]
    Broken(#[source] io::Error),
    #[error("stopped while objects were fetched")]
    Cancelled,
}

/// Puts all objects that are files of this machine below a folder, which exists and is empty.
///
/// # Errors
/// The first object that can't be put there; what was put there before stays.
pub(crate) fn put_all(put: &Put, objects: &[ObjectPlan], progress: &Progress) -> Result<(), ObjectError> {
    for object in objects {
        let Some(source) = object.source.path() else { continue };
        put.one(object, source, Some(progress))?;
        progress.objects.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// A folder that objects are put into.
pub(crate) struct Put {
    folder: PathBuf,
    links: Links,
    /// Bytes that are still to come.
    left: AtomicU64,
    room_checked: AtomicBool,
    /// Bytes of files of this machine that had to be copied.
    copied: Arc<AtomicU64>,
}

impl Put {
    pub(crate) fn new(folder: PathBuf, objects: &[ObjectPlan], links: Links) -> Self {
        let left = objects.iter().map(|object| object.size).sum::<u64>().into();
        let (room_checked, copied) = (AtomicBool::new(false), Arc::default());
        Self { folder, links, left, room_checked, copied }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Counts bytes of files of this machine that had to be copied, because they could neither be linked nor share
    /// blocks.
    pub(crate) fn copied(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.copied)
    }

    /// Puts one object there, whose content is the file `source`. Its bytes are counted as they come, unless they have
    /// been before.
    pub(crate) fn one(
        &self,
        object: &ObjectPlan,
        source: &Path,
        progress: Option<&Progress>,
    ) -> Result<(), ObjectError> {
        let file = open_checked(source, object.size)?;
        let target = self.target(object)?;
        let count = |bytes| match progress {
            Some(progress) => progress.add(bytes),
            None => Ok(()),
        };
        let linked = self.links == Links::Allowed
            && link(&file, &target).map_err(|error| unwritable(object, &target, error))?;
        let counted =
            if linked { count(object.size) } else { self.copy(object, (source, &file), &target, &count) };
        self.left.fetch_sub(object.size, Ordering::Relaxed);
        counted
    }

    /// The path of an object, in a folder that is there.
    pub(crate) fn target(&self, object: &ObjectPlan) -> Result<PathBuf, ObjectError> {
        let target = self.folder.join(inside(&object.relative)?);
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent).map_err(|error| unwritable(object, parent, error))?;
        }
        Ok(target)
    }

    fn copy(
        &self,
        object: &ObjectPlan,
        (path, source): (&Path, &fs::File),
        target: &Path,
        count: &dyn Fn(u64) -> Result<(), ObjectError>,
    ) -> Result<(), ObjectError> {
        let file = create(object, target)?;
        if ioctl_ficlone(&file, source).is_ok() {
            return count(object.size);
        }
        if !self.room_checked.swap(true, Ordering::Relaxed) {
            check_room(&self.folder, self.left.load(Ordering::Relaxed))?;
        }
        if object.source.path().is_some() {
            self.copied.fetch_add(object.size, Ordering::Relaxed);
        }
        let mut whole = 0;
        loop {
            // In the kernel where it can, also between file systems.
            let copied = io::copy(&mut source.file().take(STRIDE), &mut file.file())
                .map_err(|error| unwritable(object, target, error))?;
            whole += copied;
            if copied == 0 {
                break;
            }
            count(copied)?;
        }
        let (path, listed) = (path.to_owned(), object.size);
        if whole == listed { Ok(()) } else { Err(ObjectError::Changed { path, listed, found: whole }) }
    }
}

/// The file of an object that is not there yet.
pub(crate) fn create(object: &ObjectPlan, path: &Path) -> Result<fs::File, ObjectError> {
    let options = fs::OpenOptions::from_options(
        std::fs::OpenOptions::new().read(true).write(true).create_new(true).mode(0o644).to_owned(),
    );
    options.open(path).map_err(|error| unwritable(object, path, error))
}

/// Whether there is room for so many bytes, as far as the file system tells.
pub(crate) fn check_room(folder: &Path, needed: u64) -> Result<(), ObjectError> {
    match free_bytes(folder) {
        Some(free) if free < needed => {
            Err(ObjectError::NoRoom { folder: folder.to_owned(), needed: bytes(needed), free: bytes(free) })
        }
        _ => Ok(()),
    }
}

/// What an ordinary user may still write there, if the file system tells.
pub(crate) fn free_bytes(folder: &Path) -> Option<u64> {
    let system = statvfs(folder).ok()?;
    Some(system.f_bavail.saturating_mul(system.f_frsize))
}

/// Opens an object's file and compares it with what the plan says.
pub(crate) fn open_checked(path: &Path, listed: u64) -> Result<fs::File, ObjectError> {
    let unreadable = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => ObjectError::Gone { path: path.to_owned(), listed },
        io::ErrorKind::PermissionDenied => ObjectError::Denied { path: path.to_owned() },
        _ => ObjectError::Unreadable { path: path.to_owned(), source: error },
    };
    // Where the path is a pipe by now, opening it must not wait for a writer.
    let nonblocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
    let options = std::fs::OpenOptions::new().read(true).custom_flags(nonblocking).to_owned();
    let file = fs::OpenOptions::from_options(options).open(path).map_err(unreadable)?;
    let found = file.metadata().map_err(unreadable)?;
    if !found.is_file() {
        return Err(ObjectError::NotAFile { path: path.to_owned() });
    }
    if found.len() != listed {
        return Err(ObjectError::Changed { path: path.to_owned(), listed, found: found.len() });
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
pub(crate) fn inside(relative: &str) -> Result<&Path, ObjectError> {
    let path = Path::new(relative);
    let normal = path.components().all(|component| matches!(component, Component::Normal(_)));
    if normal && !relative.is_empty() && !relative.contains('\0') && !relative.ends_with('/') {
        Ok(path)
    } else {
        Err(ObjectError::Outside { relative: relative.to_owned() })
    }
}

pub(crate) fn unwritable(object: &ObjectPlan, path: &Path, source: io::Error) -> ObjectError {
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
        let object = ObjectPlan { source: source.into(), relative: "a/b".to_owned(), size: 5 };
        for (name, links) in [("linked", Links::Allowed), ("copied", Links::Never)] {
            let target = folder.path().join(name);
            fs::create_dir(&target).unwrap();
            let progress = Progress::of(&[]);
            let objects = std::slice::from_ref(&object);
            put_all(&Put::new(target.clone(), objects, links), objects, &progress).unwrap();
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
            |relative: &str| ObjectPlan { source: source.clone().into(), relative: relative.into(), size: 1 };
        let progress = Progress::of(&[]);
        progress.cancel();
        let objects = [object("a"), object("b")];
        let put = Put::new(folder.path().to_owned(), &objects, Links::Allowed);
        let put = put_all(&put, &objects, &progress);
        assert!(matches!(put, Err(ObjectError::Cancelled)));
        assert!(!folder.path().join("b").exists());
    }
}
