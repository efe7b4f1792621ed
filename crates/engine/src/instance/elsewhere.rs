//! Large files that an instance wrote to places from which nothing is kept.

use std::path::{Path, PathBuf};

use fs_err as fs;

use super::scratch::Scratch;

/// Smaller files are not worth a warning.
const LARGE: u64 = 1 << 20;

/// Named at most.
const NAMED: usize = 3;

/// After so many entries the search ends: it must not hold up the end of a job.
const MOST_ENTRIES: usize = 100_000;

/// Names the largest files below `/opt/ml` and `/tmp` that are lost when the instance ends, with
/// their sizes.
pub(crate) fn large_files(scratch: &Scratch) -> Vec<String> {
    let mut search = Search { found: Vec::new(), entries: 0 };
    search.folder(&scratch.tmp(), Path::new("/tmp"));
    search.folder(&scratch.ml(), Path::new("/opt/ml"));
    search.found.sort_unstable_by(|one, other| other.cmp(one));
    let named = search.found.into_iter().take(NAMED);
    named.map(|(size, path)| format!("{} ({} MB)", path.display(), size / 1_000_000)).collect()
}

struct Search {
    found: Vec<(u64, PathBuf)>,
    entries: usize,
}

impl Search {
    /// What can't be read is left out, and so is what is packed or came with the inputs.
    fn folder(&mut self, folder: &Path, shown_as: &Path) {
        if ["/opt/ml/model", "/opt/ml/output/data", "/opt/ml/input"]
            .iter()
            .any(|kept| shown_as == Path::new(kept))
        {
            return;
        }
        let Ok(entries) = fs::read_dir(folder) else { return };
        for entry in entries.flatten() {
            self.entries += 1;
            if self.entries > MOST_ENTRIES {
                return;
            }
            let path = shown_as.join(entry.file_name());
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() {
                self.folder(&entry.path(), &path);
            } else if kind.is_file() {
                let size = entry.metadata().map_or(0, |found| found.len());
                if size >= LARGE {
                    self.found.push((size, path));
                }
            }
        }
    }
}
