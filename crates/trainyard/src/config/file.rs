//! The configuration file: TOML, of which every key must be known.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::resources::{Gpus, Limits};
use super::serve::ServeLimits;
use super::storage::{CacheTable, GcTable, StorageTable};
use super::{Origin, Runtime, Setting, notify};

/// What a file says, and which file it is.
#[derive(Debug, Default)]
pub(super) struct File {
    path: PathBuf,
    pub(super) settings: Settings,
}

/// All that a file can say.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Settings {
    pub(super) runtime: Option<Runtime>,
    pub(super) data_dir: Option<PathBuf>,
    pub(super) limits: Option<Limits>,
    pub(super) gpus: Option<Gpus>,
    #[serde(default)]
    pub(super) buckets: BTreeMap<String, PathBuf>,
    #[serde(default)]
    pub(super) file_systems: BTreeMap<String, PathBuf>,
    #[serde(default)]
    pub(super) images: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) notify: BTreeMap<String, notify::Written>,
    #[serde(default)]
    pub(super) serve: ServeLimits,
    #[serde(default)]
    pub(super) storage: StorageTable,
    #[serde(default)]
    pub(super) cache: CacheTable,
    #[serde(default)]
    pub(super) gc: GcTable,
}

/// A file that can't be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum FileError {
    /// It can't be read.
    #[error("configuration file")]
    Read(#[from] io::Error),
    /// Something in it is wrong.
    #[error("configuration file {}, line {line}, column {column}: {what}", path.display())]
    Wrong { path: PathBuf, line: usize, column: usize, what: String },
}

impl fmt::Display for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "configuration file {}", self.path.display())
    }
}

impl File {
    /// Reads the file at an absolute path.
    pub(super) fn read(path: &Path) -> Result<Self, FileError> {
        let text = fs_err::read_to_string(path)?;
        let settings = parse(&text).map_err(|(at, what)| {
            let (line, column) = line_and_column(&text, at);
            FileError::Wrong { path: path.to_owned(), line, column, what }
        })?;
        Ok(Self { path: path.to_owned(), settings })
    }

    /// Who has set what the file says.
    pub(super) fn origin(&self) -> Origin {
        Origin::File(self.path.clone())
    }

    /// Where relative paths of the file start.
    pub(super) fn folder(&self) -> PathBuf {
        self.path.parent().unwrap_or(Path::new("/")).to_owned()
    }

    pub(super) fn setting<T>(&self, value: T) -> Setting<T> {
        Setting { value, origin: Origin::File(self.path.clone()) }
    }
}

/// What is wrong, if anything, and at which byte.
fn parse(text: &str) -> Result<Settings, (usize, String)> {
    toml::from_str(text).map_err(|error| {
        let what = error.message().lines().collect::<Vec<_>>().join(", ");
        (error.span().map_or(0, |span| span.start), what)
    })
}

/// Both count from 1, columns in characters.
fn line_and_column(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line = before.rsplit('\n').next().unwrap_or_default();
    (before.matches('\n').count() + 1, line.chars().count() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_told_with_its_place_and_what_is_known() {
        let table = [
            ("data_dirs = '/x'", (1, 1), vec!["data_dirs", "data_dir", "buckets", "images"]),
            ("runtime = 'podman'", (1, 11), vec!["podman", "auto", "oci", "docker"]),
            ("\n[buckets]\nb = 7\n", (3, 5), vec!["string"]),
            ("# é\ndata_dir = ", (2, 12), vec![]),
            ("data_dir = '/a'\ndata_dir = '/b'", (2, 1), vec!["duplicate"]),
        ];
        for (text, place, words) in table {
            let (at, what) = parse(text).unwrap_err();
            assert_eq!(line_and_column(text, at), place, "{text}: {what}");
            for word in words {
                assert!(what.contains(word), "{text}: {what}");
            }
        }
    }

    #[test]
    fn an_empty_file_sets_nothing() {
        assert_eq!(parse("# nothing\n"), Ok(Settings::default()));
    }
}
