//! Turns the parts in a model archive into one result file.
//!
//! Each instance of a training job hands back a *part*; the published `model.tar.gz` holds them all. [`merge`]
//! takes the parts out of the archive in a stream and joins them into one file, in the order of their hosts or
//! of a named column.
//!
//! Two promises carry the design. Memory stays within a fixed budget however large the archive is: parts, sorted
//! runs and the unfinished result lie on disk, in a hidden folder beside the output that is removed on every way
//! out. And the bytes of the result depend on the rows and their sequence only, not on how they were cut into
//! parts: whoever runs the job on two instances or on twelve gets the same file.
//!
//! `docs/design/merge.md` says why things are as they are.

mod csv_part;
mod error;
mod format;
mod host;
mod join;
mod json_lines;
mod number;
mod options;
mod order;
mod part;
mod report;
mod scratch;
mod select;
mod source;
mod table;

use std::path::Path;

pub use error::{ArchivePlace, MergeError, NpyFault, PartError, SchemaDifference};
pub use format::Format;
pub use options::{DEFAULT_MEMORY, MergeOptions, Order, Progress};
pub use part::PartName;
pub use report::{MergeReport, Skipped, Warning};

/// Joins the parts in `archive` into the one file `output`, whose ending decides the format.
///
/// `archive` is a tar, gzipped or plain, or a folder. The output appears at once and whole: until the last byte
/// is written, a file that was there before stays as it was. `progress` is called now and then from the calling
/// thread.
///
/// # Errors
///
/// Every [`MergeError`] leaves the output path as it was and nothing beside it.
pub fn merge(
    archive: &Path,
    output: &Path,
    options: &MergeOptions,
    progress: &dyn Fn(Progress),
) -> Result<MergeReport, MergeError> {
    let format = Format::of_output(output)?;
    let selection = select::Selection::new(options.glob.as_deref())?;
    let scratch = scratch::Scratch::beside(output)?;
    let mut taken = source::take_out(archive, &selection, &scratch, progress)?;
    let from = select::shared_format(archive, &selection, &taken)?;
    part::sort(&mut taken.parts);
    taken.report.note_same_paths(&taken.parts);
    let joining = join::Joining { parts: &taken.parts, scratch: &scratch, memory: options.memory, progress };
    let rows = join::join(&joining, from, format, &options.order)?;
    let bytes = scratch.publish()?;
    Ok(MergeReport { parts: taken.parts.len(), rows, bytes, ..taken.report })
}
