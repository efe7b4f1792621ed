//! Clashes: the same path in the parts of several instances, found by merging their sorted indexes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::index::{IndexEntry, IndexError, IndexKind, IndexReader};

/// Clashes listed in full, for those with the same content and for the others each.
const LISTED: usize = 1000;

/// One path that several instances wrote. No version is lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clash {
    /// The path in the archive; bytes that are not UTF-8 are replaced.
    pub path: String,
    /// Who wrote it, in host order. Plain extraction yields the last one's version.
    pub hosts: Vec<String>,
    /// Whether all versions are the same, so that nothing hides anything.
    pub same_content: bool,
    /// URI of the folder that holds, below the names of their hosts, the versions of all but the last; none if all are
    /// in the archive, in host order.
    #[serde(default)]
    pub kept_below: Option<String>,
}

impl fmt::Display for Clash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let content = if self.same_content { "the same" } else { "different" };
        write!(f, "{:?} was written with {content} content by {}", self.path, self.hosts.join(", "))
    }
}

/// All clashes, as far as a person wants to read them.
#[derive(Debug, Default)]
pub(super) struct Clashes {
    /// In the order of their paths.
    pub(super) listed: Vec<Clash>,
    listed_same: usize,
    /// Those that the list had no room for.
    pub(super) not_listed: u64,
}

impl Clashes {
    fn push(&mut self, clash: Clash) {
        let different = self.listed.len() - self.listed_same;
        let listed = if clash.same_content { self.listed_same } else { different };
        if listed == LISTED {
            self.not_listed += 1;
            return;
        }
        self.listed_same += usize::from(clash.same_content);
        self.listed.push(clash);
    }
}

/// Merges the indexes of `hosts`, both in host order.
pub(super) fn find(hosts: &[&str], indexes: Vec<IndexReader>) -> Result<Clashes, IndexError> {
    let mut clashes = Clashes::default();
    // Files that a folder of the same name may still follow: each is the beginning of the next, so there
    // are never more than a path has bytes.
    let mut files: Vec<Versions> = Vec::new();
    let mut merged = Merged::new(indexes)?;
    while let Some(versions) = merged.next_path()? {
        while files.last().is_some_and(|file| !versions.path.starts_with(&file.path)) {
            files.pop();
        }
        if versions.kind == IndexKind::File {
            clashes.extend_with(&versions, hosts);
            files.push(versions);
        } else if let Some(file) =
            files.iter().find(|file| versions.path[..versions.path.len() - 1] == file.path)
        {
            clashes.push(file_and_folder(file, &versions, hosts));
        }
    }
    Ok(clashes)
}

impl Clashes {
    fn extend_with(&mut self, versions: &Versions, hosts: &[&str]) {
        if versions.parts.len() > 1 {
            self.push(Clash {
                path: String::from_utf8_lossy(&versions.path).into_owned(),
                hosts: versions.parts.iter().map(|&part| hosts[part].to_owned()).collect(),
                same_content: versions.same_content,
                kept_below: None,
            });
        }
    }
}

/// A file of one instance has the name of another's folder; extraction can only give one of them.
fn file_and_folder(file: &Versions, folder: &Versions, hosts: &[&str]) -> Clash {
    let mut parts = [file.parts.as_slice(), &folder.parts].concat();
    parts.sort_unstable();
    Clash {
        path: String::from_utf8_lossy(&file.path).into_owned(),
        hosts: parts.into_iter().map(|part| hosts[part].to_owned()).collect(),
        same_content: false,
        kept_below: None,
    }
}

/// One path and the parts that have it, ascending.
struct Versions {
    path: Vec<u8>,
    kind: IndexKind,
    parts: Vec<usize>,
    same_content: bool,
}

/// Several sorted indexes read as one.
struct Merged {
    indexes: Vec<IndexReader>,
    heads: Vec<Option<IndexEntry>>,
    /// The paths of the heads and whose they are.
    order: BinaryHeap<Reverse<(Vec<u8>, usize)>>,
}

impl Merged {
    fn new(indexes: Vec<IndexReader>) -> Result<Self, IndexError> {
        let count = indexes.len();
        let mut merged = Self { indexes, heads: Vec::new(), order: BinaryHeap::new() };
        merged.heads.resize_with(count, || None);
        for part in 0..count {
            merged.take(part)?;
        }
        Ok(merged)
    }

    /// Takes the head of a part; its next entry becomes the head.
    fn take(&mut self, part: usize) -> Result<Option<IndexEntry>, IndexError> {
        let next = self.indexes[part].read()?;
        if let Some(entry) = &next {
            self.order.push(Reverse((entry.path.clone(), part)));
        }
        Ok(std::mem::replace(&mut self.heads[part], next))
    }

    fn next_path(&mut self) -> Result<Option<Versions>, IndexError> {
        let Some(Reverse((path, part))) = self.order.pop() else { return Ok(None) };
        let Some(first) = self.take(part)? else { return Ok(None) };
        let mut versions = Versions { path, kind: first.kind, parts: vec![part], same_content: true };
        while let Some(Reverse((next, part))) = self.order.peek()
            && *next == versions.path
        {
            let part = *part;
            self.order.pop();
            let entry = self.take(part)?;
            versions.same_content &= entry.is_some_and(|entry| entry.hash == first.hash);
            versions.parts.push(part);
        }
        Ok(Some(versions))
    }
}
