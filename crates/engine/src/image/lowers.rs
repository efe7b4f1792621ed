//! The unpacked layers of an image, and what they show when they lie over each other.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use fs_err as fs;
use rustix::fs::lgetxattr;

/// As many links are followed on the way to a file; the kernel has the same limit.
const MOST_LINKS: u32 = 40;

/// The folders that lie below an instance, the top-most first, as overlayfs lists them.
///
/// They are to be mounted with the option `userxattr`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lowers {
    folders: Vec<PathBuf>,
}

/// What has one path in several layers: a single file, or folders that are seen as one.
#[derive(Clone, Debug)]
enum Found {
    File(PathBuf),
    Link(PathBuf),
    Folders(Vec<PathBuf>),
}

impl Lowers {
    pub(super) fn new(folders: Vec<PathBuf>) -> Self {
        Self { folders }
    }

    /// The file system of this process, as it is.
    pub fn own() -> Self {
        Self::new(vec![PathBuf::from("/")])
    }

    /// The folders, the top-most first.
    pub fn folders(&self) -> &[PathBuf] {
        &self.folders
    }

    /// Where on this machine the file lies that has `path` in the image; links are followed as they
    /// would be inside. None if there is nothing, or a folder.
    ///
    /// # Errors
    ///
    /// Fails if the layers can't be read.
    pub fn find(&self, path: &Path) -> io::Result<Option<PathBuf>> {
        let mut todo: VecDeque<OsString> = components(path).collect();
        let mut inside: Vec<Vec<PathBuf>> = vec![self.folders.clone()];
        let mut links = 0;
        while let Some(name) = todo.pop_front() {
            if name == ".." {
                inside.truncate(inside.len().saturating_sub(1).max(1));
                continue;
            }
            match look_up(inside.last().map_or(&[], Vec::as_slice), &name)? {
                None => return Ok(None),
                Some(Found::Folders(folders)) => inside.push(folders),
                Some(Found::File(file)) => return Ok(todo.is_empty().then_some(file)),
                Some(Found::Link(link)) => {
                    links += 1;
                    if links > MOST_LINKS {
                        return Ok(None);
                    }
                    let target = fs::read_link(link)?;
                    if target.is_absolute() {
                        inside.truncate(1);
                    }
                    for name in components(&target).rev() {
                        todo.push_front(name);
                    }
                }
            }
        }
        Ok(None)
    }
}

fn components(path: &Path) -> impl DoubleEndedIterator<Item = OsString> {
    let bytes = path.as_os_str().as_bytes();
    let parts = bytes.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".");
    parts.map(|part| OsString::from_vec(part.to_vec()))
}

/// What `name` is in folders that lie over each other.
fn look_up(folders: &[PathBuf], name: &OsStr) -> io::Result<Option<Found>> {
    let mut merged = Vec::new();
    for folder in folders {
        let path = folder.join(name);
        let found = match fs::symlink_metadata(&path) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        if found.is_dir() {
            let last = is_opaque(&path);
            merged.push(path);
            if last {
                break;
            }
            continue;
        }
        if is_deletion(&path, &found) || !merged.is_empty() {
            break;
        }
        let link = found.is_symlink();
        return Ok(Some(if link { Found::Link(path) } else { Found::File(path) }));
    }
    Ok((!merged.is_empty()).then_some(Found::Folders(merged)))
}

/// Whether a folder hides what lies below.
pub(super) fn is_opaque(folder: &Path) -> bool {
    has_mark(folder, "opaque", b'y')
}

/// Whether a file stands for the deletion of what lies below.
pub(super) fn is_deletion(path: &Path, found: &Metadata) -> bool {
    found.file_type().is_char_device() && found.rdev() == 0
        || found.is_file() && found.len() == 0 && has_mark(path, "whiteout", b'y')
}

fn has_mark(path: &Path, name: &str, value: u8) -> bool {
    let mut found = [0; 1];
    lgetxattr(path, format!("user.overlay.{name}"), &mut found) == Ok(1) && found[0] == value
}
