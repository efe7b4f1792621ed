//! What a merge says when it is done.

use serde::Serialize;

use crate::part::{Part, PartName};

/// Names that a report or an error lists before it goes over to counting.
pub(crate) const NAMES_SHOWN: usize = 20;

/// What was merged.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct MergeReport {
    /// Parts joined.
    pub parts: usize,
    /// Rows in the output, without a CSV header.
    pub rows: u64,
    /// Size of the output.
    pub bytes: u64,
    /// Files of the archive that were no parts.
    pub skipped: Skipped,
    /// What the user may want to look at.
    pub warnings: Vec<Warning>,
}

/// Files that a merge left aside.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// How many there were.
    pub count: u64,
    /// The first of them, 20 at most.
    pub first: Vec<String>,
}

/// Something unusual that did not stop the merge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Warning {
    /// A link fits the pattern; links are never followed.
    Link {
        /// Its path in the archive.
        path: String,
    },
    /// Several hosts have a part at the same path; all were joined.
    SamePath {
        /// The path they share.
        path: String,
        /// How many parts lie there.
        parts: usize,
    },
}

impl std::fmt::Display for Warning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Link { path } => write!(f, "{path} is a link and was left out"),
            Self::SamePath { path, parts } => write!(f, "{path} came {parts} times, all were joined"),
        }
    }
}

impl Skipped {
    pub(crate) fn add(&mut self, path: String) {
        self.count += 1;
        if self.first.len() < NAMES_SHOWN {
            self.first.push(path);
        }
    }
}

impl MergeReport {
    /// Warns of links, up to a bound: an archive can hold any number of them.
    pub(crate) fn warn_of_link(&mut self, path: String) {
        if self.warnings.len() < NAMES_SHOWN {
            self.warnings.push(Warning::Link { path });
        }
    }

    /// Warns of paths that several parts share: often each instance wrote the whole result.
    pub(crate) fn note_same_paths(&mut self, parts: &[Part]) {
        let mut names: Vec<&PartName> = parts.iter().map(|part| &part.name).collect();
        names.sort_by(|a, b| a.path.cmp(&b.path));
        let shared = names.chunk_by(|a, b| a.path == b.path).filter(|group| group.len() > 1);
        self.warnings.extend(
            shared
                .take(NAMES_SHOWN)
                .map(|group| Warning::SamePath { path: group[0].path.clone(), parts: group.len() }),
        );
    }
}
