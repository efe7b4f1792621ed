//! A part: one file that an instance handed back.

use std::cmp::Ordering;
use std::path::PathBuf;

use crate::error::{MergeError, PartError};
use crate::format::Format;
use crate::host;

/// How messages name a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartName {
    /// Its path in the archive, or under the folder.
    pub path: String,
    /// The host that wrote it, if the archive or the path tells.
    pub host: Option<String>,
}

impl std::fmt::Display for PartName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.host {
            Some(host) if !self.path.contains(host.as_str()) => write!(f, "{} of {host}", self.path),
            _ => f.write_str(&self.path),
        }
    }
}

/// A part that lies on disk and can be read.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) name: PartName,
    /// The path's bytes, which need not be UTF-8; parts of one host are ordered by them.
    pub(crate) path_bytes: Vec<u8>,
    /// Its format by its ending, if that is a known one.
    pub(crate) format: Option<Format>,
    /// Where its bytes lie: never a name from the archive.
    pub(crate) file: PathBuf,
}

impl Part {
    /// A part at `path_bytes`, written by `host` or by the host that its path names.
    pub(crate) fn new(path_bytes: Vec<u8>, host: Option<String>, file: PathBuf) -> Self {
        let path = String::from_utf8_lossy(&path_bytes).into_owned();
        let host = host.or_else(|| host::from_path(&path).map(str::to_owned));
        let format = Format::of_name(base_name(&path));
        Self { name: PartName { path, host }, path_bytes, format, file }
    }

    /// The error that names this part.
    pub(crate) fn fault(&self, source: impl Into<PartError>) -> MergeError {
        MergeError::Part { part: self.name.clone(), source: Box::new(source.into()) }
    }
}

/// What follows the last slash.
pub(crate) fn base_name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, base)| base)
}

/// Puts parts into host order; those of no known host come last, in the order they were found.
pub(crate) fn sort(parts: &mut [Part]) {
    parts.sort_by(|a, b| match (&a.name.host, &b.name.host) {
        (Some(x), Some(y)) => host::compare(x, y).then_with(|| a.path_bytes.cmp(&b.path_bytes)),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => Ordering::Equal,
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_ordered_by_host_number_then_path_then_place() {
        let part = |path: &str, host: Option<&str>| {
            Part::new(path.into(), host.map(str::to_owned), PathBuf::from("unused"))
        };
        let mut parts = [
            part("z.csv", None),
            part("b.csv", Some("algo-10")),
            part("part-algo-3.csv", None),
            part("b.csv", Some("algo-2")),
            part("a.csv", Some("algo-10")),
            part("a.csv", None),
        ];
        sort(&mut parts);
        let names: Vec<String> = parts.iter().map(|part| part.name.to_string()).collect();
        assert_eq!(
            names,
            ["b.csv of algo-2", "part-algo-3.csv", "a.csv of algo-10", "b.csv of algo-10", "z.csv", "a.csv"]
        );
    }
}
