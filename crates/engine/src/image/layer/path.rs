//! The path of an entry: relative, without `..`, and short enough; and what its name means.

use super::LayerError;

/// Before the name of what a layer deletes.
const WHITEOUT: &[u8] = b".wh.";
/// The name of an entry that deletes all of its folder.
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Before the names of the private files of aufs.
const PRIVATE: &[u8] = b".wh..wh.";

/// A path that does not lead out of the layer by itself; links in it still can.
#[derive(Debug)]
pub(super) struct LayerPath<'a> {
    components: Vec<&'a [u8]>,
}

/// What an entry deletes of the layers below.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Deletion<'a> {
    /// What has this name in the folder.
    Name(&'a [u8]),
    /// All that is in the folder.
    Everything,
    /// Nothing: it is a file of aufs itself.
    Ignored,
}

impl<'a> LayerPath<'a> {
    /// None for the root itself, also if it is written as `/`.
    pub(super) fn parse(path: &'a [u8]) -> Result<Option<Self>, LayerError> {
        let components: Vec<&[u8]> =
            path.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".").collect();
        if components.is_empty() && !path.is_empty() {
            return Ok(None);
        }
        if path.is_empty() || path[0] == b'/' || path.contains(&0) || components.contains(&&b".."[..]) {
            return Err(LayerError::Outside { path: shown(path) });
        }
        if path.len() > 4096 || components.iter().any(|component| component.len() > 255) {
            let path_start = &path[..path.len().min(100)];
            return Err(LayerError::TooLong { path: shown(path_start), length: path.len() });
        }
        Ok(Some(Self { components }))
    }

    pub(super) fn name(&self) -> &'a [u8] {
        self.components.last().copied().unwrap_or_default()
    }

    /// The folders above, from the root down.
    pub(super) fn parents(&self) -> &[&'a [u8]] {
        self.components.split_last().map_or(&[], |(_, parents)| parents)
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        self.components.join(&b'/')
    }

    pub(super) fn shown(&self) -> String {
        shown(&self.bytes())
    }

    /// What the entry deletes, if that is what it is for.
    pub(super) fn deletion(&self) -> Result<Option<Deletion<'a>>, LayerError> {
        let name = self.name();
        if self.parents().iter().any(|parent| parent.starts_with(PRIVATE)) {
            return Ok(Some(Deletion::Ignored));
        }
        if self.parents().iter().any(|parent| parent.starts_with(WHITEOUT)) {
            return Err(LayerError::Whiteout { path: self.shown() });
        }
        Ok(match name.strip_prefix(WHITEOUT) {
            None => None,
            Some(_) if name == OPAQUE => Some(Deletion::Everything),
            Some(_) if name.starts_with(PRIVATE) => Some(Deletion::Ignored),
            Some(b"" | b"." | b"..") => return Err(LayerError::Whiteout { path: self.shown() }),
            Some(deleted) => Some(Deletion::Name(deleted)),
        })
    }
}

pub(super) fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}
