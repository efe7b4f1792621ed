//! Keys in order, page by page.

use std::io;
use std::iter::Peekable;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::vec::IntoIter;

use fs_err as fs;

use crate::folder::text;
use crate::{Bucket, BucketError, HIDDEN, Key, Object};

/// Which keys to list.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListRequest<'a> {
    /// What all keys start with.
    pub prefix: &'a str,
    /// Keys that have it behind the prefix are told as one common prefix, up to and with it.
    pub delimiter: Option<&'a str>,
    /// Keys and common prefixes up to this one are left out.
    pub after: &'a str,
    /// At most so many keys and common prefixes.
    pub limit: usize,
}

/// One page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// In order of their bytes.
    pub entries: Vec<Entry>,
    /// Whether there are more.
    pub truncated: bool,
}

/// A line of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// An object.
    Object(Object),
    /// What the keys of several objects start with.
    Prefix(String),
}

impl Entry {
    /// The key or the common prefix.
    pub fn name(&self) -> &str {
        match self {
            Self::Object(object) => object.key.as_str(),
            Self::Prefix(prefix) => prefix,
        }
    }
}

impl Bucket {
    /// Lists keys in order of their bytes.
    ///
    /// Files whose names are not UTF-8 have no key; links that lead nowhere and files of the kernel's are no
    /// objects.
    ///
    /// # Errors
    /// A folder can't be read.
    pub fn list(&self, request: &ListRequest<'_>) -> Result<Listing, BucketError> {
        let odd = match self.open().known()? {
            Some(index) => index.odd(request.prefix, request.after)?,
            None => Vec::new(),
        };
        let page = Page { request, odd: odd.into_iter().peekable(), names: Vec::new() };
        let root = self.folder.root();
        let parents = fs::metadata(root).iter().map(|found| (found.dev(), found.ino())).collect();
        let mut walk = Walk { page, root, parents };
        if request.limit > 0 && walk.folder(Path::new(""), "")?.is_continue() {
            walk.page.rest();
        }
        let mut names = walk.page.names;
        let truncated = names.len() > request.limit;
        names.truncate(request.limit);
        let mut entries = Vec::with_capacity(names.len());
        for name in names {
            match name {
                Name::Prefix(prefix) => entries.push(Entry::Prefix(prefix)),
                // It may have been removed just now.
                Name::Key(key) => entries.extend(self.described(&key)?.map(Entry::Object)),
            }
        }
        Ok(Listing { entries, truncated })
    }

    /// Whether nothing at all is in the bucket.
    ///
    /// # Errors
    /// A folder can't be read.
    pub fn is_empty(&self) -> Result<bool, BucketError> {
        let first = ListRequest { limit: 1, ..ListRequest::default() };
        Ok(self.list(&first)?.entries.is_empty())
    }

    fn described(&self, key: &str) -> Result<Option<Object>, BucketError> {
        let Ok(key) = Key::new(key) else { return Ok(None) };
        let odd = key.odd_path();
        let plain = key.path().and_then(|path| fs::metadata(self.folder.root().join(path)).ok());
        let plain = plain.filter(|found| found.is_file());
        let found = match plain {
            Some(found) => Some(found),
            None => fs::metadata(self.folder.root().join(odd)).ok(),
        };
        found.map(|found| self.open().describe(&key, &found)).transpose()
    }
}

/// What a page will tell.
enum Name {
    Key(String),
    Prefix(String),
}

/// A page while it is filled, up to one more than asked for.
struct Page<'a> {
    request: &'a ListRequest<'a>,
    /// Keys that lie in the hidden folder.
    odd: Peekable<IntoIter<String>>,
    names: Vec<Name>,
}

impl Page<'_> {
    /// Takes the next key of the folder, with all odd ones before it.
    fn key(&mut self, key: &str) -> ControlFlow<()> {
        while let Some(odd) = self.odd.next_if(|odd| odd.as_str() <= key) {
            if odd != key {
                self.take(&odd)?;
            }
        }
        self.take(key)
    }

    fn rest(&mut self) {
        while let Some(odd) = self.odd.next() {
            if self.take(&odd).is_break() {
                return;
            }
        }
    }

    fn take(&mut self, key: &str) -> ControlFlow<()> {
        let Some(rest) = key.strip_prefix(self.request.prefix) else { return ControlFlow::Continue(()) };
        let cut = self.request.delimiter.and_then(|delimiter| Some(rest.find(delimiter)? + delimiter.len()));
        let name = match cut {
            Some(length) => &key[..self.request.prefix.len() + length],
            None => key,
        };
        let known = matches!(self.names.last(), Some(Name::Prefix(last)) if last == name);
        if name <= self.request.after || known {
            return ControlFlow::Continue(());
        }
        let name = name.to_owned();
        self.names.push(if cut.is_some() { Name::Prefix(name) } else { Name::Key(name) });
        match self.names.len() > self.request.limit {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    /// Whether all keys below a folder, which start with `folder`, need not be looked at.
    fn passes(&self, folder: &str) -> bool {
        let ListRequest { prefix, after, .. } = *self.request;
        let other = !folder.starts_with(prefix) && !prefix.starts_with(folder);
        // All of them come before it.
        other || (folder < after && !after.starts_with(folder))
    }

    /// Whether one key below a folder stands for all of them.
    fn is_one(&self, folder: &str) -> bool {
        let rest = folder.strip_prefix(self.request.prefix);
        self.request.delimiter == Some("/") && rest.is_some_and(|rest| !rest.is_empty())
    }
}

/// The way through the folders of a bucket in order of the keys.
struct Walk<'a> {
    page: Page<'a>,
    root: &'a Path,
    /// Device and inode of the folders above, for links may lead back to them.
    parents: Vec<(u64, u64)>,
}

impl Walk<'_> {
    /// Goes through a folder whose keys start with `prefix`.
    fn folder(&mut self, relative: &Path, prefix: &str) -> io::Result<ControlFlow<()>> {
        for (key, path) in self.sorted(relative, prefix)? {
            if !key.ends_with('/') {
                if self.page.key(&key).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
                continue;
            }
            if self.page.passes(&key) {
                continue;
            }
            if self.below(&path, &key)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn below(&mut self, path: &Path, key: &str) -> io::Result<ControlFlow<()>> {
        let found = match fs::metadata(self.root.join(path)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(ControlFlow::Continue(())),
            found => found?,
        };
        let identity = (found.dev(), found.ino());
        if self.parents.contains(&identity) {
            return Ok(ControlFlow::Continue(()));
        }
        self.parents.push(identity);
        let flow = if self.page.is_one(key) {
            match self.first(path)? {
                Some(name) => self.page.key(&format!("{key}{name}")),
                None => ControlFlow::Continue(()),
            }
        } else {
            self.folder(path, key)?
        };
        self.parents.pop();
        Ok(flow)
    }

    /// Some key below a folder.
    fn first(&mut self, path: &Path) -> io::Result<Option<String>> {
        for (key, below) in self.sorted(path, "")? {
            if !key.ends_with('/') {
                return Ok(Some(key));
            }
            let Ok(found) = fs::metadata(self.root.join(&below)) else { continue };
            let identity = (found.dev(), found.ino());
            if self.parents.contains(&identity) {
                continue;
            }
            self.parents.push(identity);
            let first = self.first(&below)?;
            self.parents.pop();
            if let Some(first) = first {
                return Ok(Some(key + &first));
            }
        }
        Ok(None)
    }

    /// The entries of a folder in order of the keys: names of folders count with their slash.
    fn sorted(&self, relative: &Path, prefix: &str) -> io::Result<Vec<(String, PathBuf)>> {
        let entries = match fs::read_dir(self.root.join(relative)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut sorted = Vec::new();
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            let Some(name) = text(&name).filter(|&name| name != HIDDEN) else { continue };
            let kind = entry.file_type()?;
            let kind = if kind.is_symlink() {
                match fs::metadata(entry.path()) {
                    Ok(found) => found.file_type(),
                    Err(_) => continue,
                }
            } else {
                kind
            };
            if kind.is_dir() {
                sorted.push((format!("{prefix}{name}/"), relative.join(name)));
            } else if kind.is_file() {
                sorted.push((format!("{prefix}{name}"), relative.join(name)));
            }
        }
        sorted.sort_unstable();
        Ok(sorted)
    }
}
