//! Where parts come from: an archive, unpacked in a stream, or a folder, read in place.

mod archive;
mod folder;

use std::path::Path;

use crate::error::MergeError;
use crate::options::Progress;
use crate::part::Part;
use crate::report::MergeReport;
use crate::scratch::Scratch;
use crate::select::Selection;

/// Longest path of a part that is accepted, as on Linux.
const LONGEST_PATH: usize = 4096;

/// The parts found, and what the report has to say about the rest.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    pub(crate) parts: Vec<Part>,
    pub(crate) report: MergeReport,
}

/// Finds the parts in `archive` and puts those of a tar into `scratch`.
pub(crate) fn take_out(
    archive: &Path,
    selection: &Selection,
    scratch: &Scratch,
    progress: &dyn Fn(Progress),
) -> Result<Taken, MergeError> {
    if archive.is_dir() {
        folder::take_out(archive, selection, scratch.output(), progress)
    } else {
        archive::take_out(archive, selection, scratch, progress)
    }
}
