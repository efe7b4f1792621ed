//! Which files of an archive are parts.

use std::path::Path;

use glob::Pattern;

use crate::error::MergeError;
use crate::format::Format;
use crate::part::{Part, base_name};
use crate::source::Taken;

/// The rule by which files are chosen.
#[derive(Debug)]
pub(crate) struct Selection(Option<Pattern>);

impl Selection {
    pub(crate) fn new(glob: Option<&str>) -> Result<Self, MergeError> {
        let compile = |glob: &str| {
            Pattern::new(glob).map_err(|source| MergeError::Glob { glob: glob.to_owned(), source })
        };
        glob.map(compile).transpose().map(Self)
    }

    /// Whether the file at `path` is a part.
    pub(crate) fn wants(&self, path: &str) -> bool {
        let base = base_name(path);
        match &self.0 {
            Some(pattern) => pattern.matches(path) || pattern.matches(base),
            None => Format::of_name(base).is_some(),
        }
    }

    /// What was looked for, for a message.
    pub(crate) fn describe(&self) -> String {
        match &self.0 {
            Some(pattern) => format!("no file fits {pattern}"),
            None => "no file ends in .parquet, .csv, .jsonl, .arrow, .npy or .npz".to_owned(),
        }
    }
}

/// The one format of all parts; that there is none, or more than one, is an error.
pub(crate) fn shared_format(
    archive: &Path,
    selection: &Selection,
    taken: &Taken,
) -> Result<Format, MergeError> {
    let format_of =
        |part: &Part| part.format.ok_or_else(|| MergeError::PartFormat { part: part.name.clone() });
    let Some((first, rest)) = taken.parts.split_first() else {
        return Err(MergeError::NoPart {
            archive: archive.to_path_buf(),
            wanted: selection.describe(),
            held: taken.report.skipped.clone(),
        });
    };
    let format = format_of(first)?;
    for part in rest {
        if format_of(part)? != format {
            return Err(MergeError::MixedFormats { first: first.name.clone(), other: part.name.clone() });
        }
    }
    Ok(format)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_tried_on_the_path_and_on_the_base_name() {
        let table = [
            (Some("part-*.csv"), "algo-1/part-7.csv", true),
            (Some("algo-1/*"), "algo-1/part-7.csv", true),
            (Some("algo-1/*"), "algo-2/part-7.csv", false),
            (Some("part-?.csv"), "part-10.csv", false),
            (Some("part-*"), "part-1.log", true),
            (None, "deep/down/x.PARQUET", true),
            (None, "x.txt", false),
            (None, "folder.csv/readme", false),
        ];
        for (glob, path, wanted) in table {
            assert_eq!(Selection::new(glob).unwrap().wants(path), wanted, "{glob:?} {path}");
        }
    }

    #[test]
    fn a_broken_pattern_is_refused_with_its_text() {
        let error = Selection::new(Some("part-[")).unwrap_err();
        assert!(error.to_string().contains("part-["), "{error}");
    }
}
