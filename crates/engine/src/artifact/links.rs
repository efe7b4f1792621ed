//! Where a link inside a packed folder leads.
//!
//! The tree was written by a program for which the folder was mounted at `container_path`
//! (`/opt/ml/model`), so that is the root against which absolute targets and `..` are read. Nothing outside
//! of the folder is ever looked at: a path may pass through it by name only.

use std::io;

use rustix::fs::FileType;

use super::folder::{Folder, LIST};

/// As many links as the kernel itself follows for one path.
const MAX_HOPS: u32 = 40;

/// What a link leads to, inside of the folder.
pub(super) enum Target {
    /// A folder, with its path below the packed folder.
    Folder(Folder, Vec<Vec<u8>>),
    /// Anything else: the folder that holds it (none: the packed folder itself), its name and kind.
    Other(Option<Folder>, Vec<u8>, FileType),
}

/// Why a link is not followed.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotFollowed {
    #[error("it leads out of the folder")]
    LeadsOut,
    #[error("it points to nothing")]
    Dangling,
    #[error("it points to itself or to a folder that holds it")]
    Loop,
    #[error(transparent)]
    Io(io::Error),
}

impl From<io::Error> for NotFollowed {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Self::Dangling,
            _ => Self::Io(error),
        }
    }
}

/// Follows the link `name` that lies in the folder at `place` below `root`.
pub(super) fn follow(
    root: &Folder,
    container_path: &[Vec<u8>],
    place: &[Vec<u8>],
    name: &[u8],
) -> Result<Target, NotFollowed> {
    let mut follower = Follower { root, container_path, at: Vec::new(), opened: Vec::new(), hops: 0 };
    // What is still to be walked, the next component last.
    let mut ahead = vec![name.to_vec()];
    ahead.extend(container_path.iter().chain(place).rev().cloned());
    let mut last = None;
    while let Some(component) = ahead.pop() {
        if last.is_some() {
            return Err(NotFollowed::Dangling);
        }
        last = follower.step(component, &mut ahead)?;
    }
    follower.finish(last)
}

struct Follower<'a> {
    root: &'a Folder,
    container_path: &'a [Vec<u8>],
    /// The absolute path so far as the container saw it.
    at: Vec<Vec<u8>>,
    /// The opened folders of that part of `at` that lies below the packed folder.
    opened: Vec<Folder>,
    hops: u32,
}

impl Follower<'_> {
    /// Takes one component. Gives the name and kind of what is no folder; nothing may come after it.
    fn step(
        &mut self,
        component: Vec<u8>,
        ahead: &mut Vec<Vec<u8>>,
    ) -> Result<Option<(Vec<u8>, FileType)>, NotFollowed> {
        match component.as_slice() {
            b"" | b"." => return Ok(None),
            b".." => {
                self.at.pop();
                self.opened.pop();
                return Ok(None);
            }
            _ => {}
        }
        if !self.at.starts_with(self.container_path) {
            self.at.push(component);
            return Ok(None);
        }
        let folder = self.opened.last().unwrap_or(self.root);
        match folder.kind(&component)? {
            FileType::Directory => {
                let next = folder.open(&component, LIST)?;
                self.opened.push(next);
                self.at.push(component);
                Ok(None)
            }
            FileType::Symlink => {
                let target = folder.link_target(&component)?;
                self.redirect(&target, ahead)?;
                Ok(None)
            }
            other => Ok(Some((component, other))),
        }
    }

    fn redirect(&mut self, target: &[u8], ahead: &mut Vec<Vec<u8>>) -> Result<(), NotFollowed> {
        self.hops += 1;
        if self.hops > MAX_HOPS {
            return Err(NotFollowed::Loop);
        }
        if target.first() == Some(&b'/') {
            self.at.clear();
            self.opened.clear();
        }
        ahead.extend(target.split(|&byte| byte == b'/').rev().map(<[u8]>::to_vec));
        Ok(())
    }

    fn finish(mut self, last: Option<(Vec<u8>, FileType)>) -> Result<Target, NotFollowed> {
        if !self.at.starts_with(self.container_path) {
            return Err(NotFollowed::LeadsOut);
        }
        if let Some((name, kind)) = last {
            return Ok(Target::Other(self.opened.pop(), name, kind));
        }
        let place = self.at.split_off(self.container_path.len());
        // Without an opened folder it is the packed folder itself, which holds every link.
        let folder = self.opened.pop().ok_or(NotFollowed::Loop)?;
        Ok(Target::Folder(folder, place))
    }
}

/// The components of an absolute path.
pub(super) fn components(path: &str) -> Vec<Vec<u8>> {
    path.split('/')
        .filter(|part| !part.is_empty() && *part != ".")
        .map(|part| part.as_bytes().to_vec())
        .collect()
}
