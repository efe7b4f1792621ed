//! The entries of a folder in archive order: by the bytes of their paths, folders written with a slash at
//! the end. In that order a folder comes right before what is in it, so that one walk gives it, and only
//! the names of the folders on the way down are in memory.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use glob::{MatchOptions, Pattern};
use rustix::fs::FileType;
use rustix::io::Errno;

use super::folder::{Folder, LIST};
use super::links::{self, NotFollowed, Target};
use super::warnings::Warnings;

/// Each level holds a descriptor or two, and an ordinary process may open 1,024.
const MAX_DEPTH: usize = 256;

/// One file or folder to be archived.
pub(super) struct Entry {
    /// Path in the archive; a folder's ends in a slash.
    pub(super) path: Vec<u8>,
    /// As it was before anything was made readable.
    pub(super) metadata: Metadata,
    /// None for a folder.
    pub(super) file: Option<File>,
}

/// A walk in progress.
pub(super) struct Walk {
    frames: Vec<Frame>,
    container_path: Vec<Vec<u8>>,
    ignore: Vec<Pattern>,
    /// What is left out, and what turned out odd.
    pub(super) warnings: Warnings,
}

/// A folder on the way down.
struct Frame {
    folder: Folder,
    names: std::vec::IntoIter<Name>,
    /// Its path in the archive, with the slash; empty for the packed folder itself.
    path: Vec<u8>,
    /// Where it really lies below the packed folder: another place when a link led here.
    place: Vec<Vec<u8>>,
}

/// Ordered by the bytes that stand in the archive.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Name {
    /// With a slash at the end for a folder.
    bytes: Vec<u8>,
    linked: bool,
}

impl Name {
    fn new(mut bytes: Vec<u8>, kind: FileType, linked: bool) -> Self {
        if kind == FileType::Directory {
            bytes.push(b'/');
        }
        Self { bytes, linked }
    }

    fn bare(&self) -> &[u8] {
        self.bytes.strip_suffix(b"/").unwrap_or(&self.bytes)
    }

    fn is_folder(&self) -> bool {
        self.bytes.ends_with(b"/")
    }
}

/// A folder or file could not be read, for a reason that is not its own.
#[derive(Debug)]
pub(super) struct WalkError {
    pub(super) path: PathBuf,
    pub(super) source: io::Error,
}

impl Walk {
    /// Starts at an opened folder that its writer saw at `container_path`.
    pub(super) fn new(folder: Folder, container_path: &str, ignore: &[Pattern]) -> Result<Self, WalkError> {
        let mut walk = Self {
            frames: Vec::new(),
            ignore: ignore.to_vec(),
            container_path: links::components(container_path),
            warnings: Warnings::default(),
        };
        walk.enter(folder, Vec::new(), Vec::new())?;
        Ok(walk)
    }

    /// The next entry in archive order.
    pub(super) fn next_entry(&mut self) -> Result<Option<Entry>, WalkError> {
        while let Some(frame) = self.frames.last_mut() {
            let Some(name) = frame.names.next() else {
                self.frames.pop();
                continue;
            };
            let path = [frame.path.as_slice(), &name.bytes].concat();
            let visited = match (name.linked, name.is_folder()) {
                (true, _) => self.visit_link(&name, &path),
                (false, true) => self.visit_folder(&name, &path),
                (false, false) => self.visit_file(&name, &path),
            };
            match visited {
                Ok(Some(entry)) => return Ok(Some(entry)),
                Ok(None) => {}
                Err(error) => self.left_out(&path, error)?,
            }
        }
        Ok(None)
    }

    fn visit_file(&mut self, name: &Name, path: &[u8]) -> io::Result<Option<Entry>> {
        let Some(frame) = self.frames.last() else { return Ok(None) };
        let opened = frame.folder.open_file(name.bare())?;
        Ok(self.file_entry(path, opened))
    }

    fn file_entry(&mut self, path: &[u8], (file, metadata): (File, Metadata)) -> Option<Entry> {
        if !metadata.is_file() {
            self.warnings.push(format!("{:?} changed while it was packed and is left out", shown(path)));
            return None;
        }
        Some(Entry { path: path.to_vec(), metadata, file: Some(file) })
    }

    fn visit_folder(&mut self, name: &Name, path: &[u8]) -> io::Result<Option<Entry>> {
        let Some(frame) = self.frames.last() else { return Ok(None) };
        let folder = frame.folder.open(name.bare(), LIST)?;
        let mut place = frame.place.clone();
        place.push(name.bare().to_vec());
        self.folder_entry(folder, path, place)
    }

    fn folder_entry(
        &mut self,
        folder: Folder,
        path: &[u8],
        place: Vec<Vec<u8>>,
    ) -> io::Result<Option<Entry>> {
        let metadata = folder.metadata.clone();
        if self.frames.len() > MAX_DEPTH {
            let text =
                format!("{:?} lies more than {MAX_DEPTH} folders deep; its content is left out", shown(path));
            self.warnings.push(text);
        } else {
            self.enter(folder, path.to_vec(), place).map_err(|error| error.source)?;
        }
        Ok(Some(Entry { path: path.to_vec(), metadata, file: None }))
    }

    /// The link was looked at when its folder was listed; if it leads elsewhere by now, it is left out.
    fn visit_link(&mut self, name: &Name, path: &[u8]) -> io::Result<Option<Entry>> {
        match self.follow(name.bare()) {
            Ok(Target::Folder(folder, place)) if name.is_folder() => self.folder_entry(folder, path, place),
            Ok(Target::Other(holder, target, FileType::RegularFile)) if !name.is_folder() => {
                let Some(first) = self.frames.first() else { return Ok(None) };
                let opened = holder.as_ref().unwrap_or(&first.folder).open_file(&target)?;
                Ok(self.file_entry(path, opened))
            }
            Err(NotFollowed::Io(error)) => Err(error),
            _ => {
                self.warnings.push(format!("{:?} changed while it was packed and is left out", shown(path)));
                Ok(None)
            }
        }
    }

    /// Follows a link of the folder that is being walked.
    fn follow(&self, name: &[u8]) -> Result<Target, NotFollowed> {
        let (Some(root), Some(frame)) = (self.frames.first(), self.frames.last()) else {
            return Err(NotFollowed::Dangling);
        };
        self.follow_from(&root.folder, &frame.place, name)
    }

    fn follow_from(&self, root: &Folder, place: &[Vec<u8>], name: &[u8]) -> Result<Target, NotFollowed> {
        let target = links::follow(root, &self.container_path, place, name)?;
        if let Target::Folder(folder, _) = &target
            && self.frames.iter().any(|frame| frame.folder.identity() == folder.identity())
        {
            return Err(NotFollowed::Loop);
        }
        Ok(target)
    }

    fn enter(&mut self, folder: Folder, path: Vec<u8>, place: Vec<Vec<u8>>) -> Result<(), WalkError> {
        let failed = |source| WalkError { path: shown(&path).to_owned(), source };
        let mut found = folder.names().map_err(failed)?;
        found.retain(|(name, _)| !is_ignored(&self.ignore, &path, name));
        self.frames.push(Frame { folder, names: Vec::new().into_iter(), path, place });
        let mut names = Vec::with_capacity(found.len());
        let mut skipped = Vec::new();
        for (name, kind) in found {
            match self.classify(&name, kind) {
                Ok(Some(kind_behind)) => names.push(Name::new(name, kind_behind, kind == FileType::Symlink)),
                Ok(None) => skipped.push((name, "it is neither a file nor a folder".to_owned())),
                Err(reason) => skipped.push((name, reason.to_string())),
            }
        }
        names.sort_unstable();
        skipped.sort_unstable();
        if let Some(frame) = self.frames.last_mut() {
            frame.names = names.into_iter();
            for (name, reason) in skipped {
                let path = [frame.path.as_slice(), &name].concat();
                self.warnings.push(format!("{:?} is left out: {reason}", shown(&path)));
            }
        }
        Ok(())
    }

    /// The kind under which a name is archived; none if it is not.
    fn classify(&self, name: &[u8], kind: FileType) -> Result<Option<FileType>, NotFollowed> {
        let kind = match kind {
            FileType::Symlink => match self.follow(name)? {
                Target::Folder(..) => FileType::Directory,
                Target::Other(_, _, kind) => kind,
            },
            other => other,
        };
        Ok(matches!(kind, FileType::Directory | FileType::RegularFile).then_some(kind))
    }

    /// What cannot be opened is left out with a warning when that is its own doing; otherwise packing ends.
    fn left_out(&mut self, path: &[u8], error: io::Error) -> Result<(), WalkError> {
        match Errno::from_io_error(&error) {
            Some(Errno::ACCESS | Errno::PERM | Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
                self.warnings.push(format!("{:?} is left out: {error}", shown(path)));
                Ok(())
            }
            _ => Err(WalkError { path: shown(path).to_owned(), source: error }),
        }
    }
}

/// Whether a pattern says that a name in a folder is left out.
fn is_ignored(patterns: &[Pattern], folder: &[u8], name: &[u8]) -> bool {
    let options = MatchOptions { require_literal_separator: true, ..MatchOptions::new() };
    let name_alone = String::from_utf8_lossy(name);
    let path = [folder, name].concat();
    let path = String::from_utf8_lossy(&path);
    patterns.iter().any(|pattern| {
        let whole = if pattern.as_str().contains('/') { &path } else { &name_alone };
        pattern.matches_with(whole, options)
    })
}

/// A path of the archive as the system writes paths.
pub(super) fn shown(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(path))
}
