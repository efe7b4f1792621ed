//! Putting the artifacts where the request says.

use std::io;
use std::path::{Path, PathBuf};

use fs_err as fs;

use super::{Engine, tidy};
use crate::artifact::{CombineError, PackedPart, PartFile, combine};
use crate::explain::chain;
use crate::job::{Event, Job, Published};
use crate::plan::OutputPlan;
use crate::run::{InstanceDirectory, Part};

/// The artifact that holds what every instance wrote to `/opt/ml/model`.
pub(super) const MODEL: &str = "model.tar.gz";
/// The artifact that holds what every instance wrote to `/opt/ml/output/data`.
const OUTPUT: &str = "output.tar.gz";

/// The parts of all instances, in host order.
pub(super) struct AllParts {
    model: Vec<PartFile>,
    output: Vec<PartFile>,
}

/// Where the parts of a job are; those of earlier attempts are used as they are.
pub(super) fn parts(engine: &Engine, job: &Job) -> AllParts {
    let mut all = AllParts { model: Vec::new(), output: Vec::new() };
    for instance in &job.instances {
        let root = engine.attempt_folder(&job.name, instance.attempt);
        let directory = InstanceDirectory::open(&root.join("instances").join(&instance.host));
        let file = |part: &Part, path| PartFile { host: instance.host.clone(), path, packed: packed(part) };
        all.model.extend(instance.parts.model.as_ref().map(|part| file(part, directory.model_part())));
        all.output.extend(instance.parts.output.as_ref().map(|part| file(part, directory.output_part())));
    }
    all
}

fn packed(part: &Part) -> PackedPart {
    PackedPart {
        entries: part.entries,
        tar_bytes: part.tar_bytes,
        compressed_bytes: part.compressed_bytes,
        crc32: part.crc32,
        // Supervisors have reported them already.
        warnings: Vec::new(),
    }
}

/// Joins the parts into `model.tar.gz` and `output.tar.gz`.
pub(super) fn artifacts(parts: &AllParts, output: &OutputPlan) -> Event {
    match try_artifacts(parts, output) {
        Ok(published) => Event::Published(published),
        Err(error) => Event::PublishFailed { explanation: chain(&error) },
    }
}

/// Why artifacts can't be published.
#[derive(Debug, thiserror::Error)]
enum PublishError {
    #[error("cannot make the output folder")]
    Folder(#[from] io::Error),
    #[error(transparent)]
    Combine(#[from] CombineError),
}

fn try_artifacts(parts: &AllParts, output: &OutputPlan) -> Result<Published, PublishError> {
    fs::create_dir_all(&output.folder)?;
    let model = combine(&parts.model, &output.folder.join(MODEL))?;
    let other = combine(&parts.output, &output.folder.join(OUTPUT))?;
    let uri = |bytes: Option<u64>, name: &str| bytes.map(|_| format!("{}/{name}", output.uri));
    let mut clashes = model.clashes;
    clashes.extend(other.clashes);
    clashes.retain(|clash| !clash.same_content);
    Ok(Published {
        model: uri(model.bytes, MODEL),
        output: uri(other.bytes, OUTPUT),
        clashes,
        clashes_not_listed: model.clashes_not_listed + other.clashes_not_listed,
    })
}

/// Puts the file that the merging instance has handed back beside the artifact.
pub(super) fn merged(file: &Path, output: &OutputPlan, name: &str) -> Event {
    match move_into(file, &output.folder, name) {
        Ok(()) => Event::Merged { uri: format!("{}/{name}", output.uri) },
        Err(error) => Event::MergeFailed { explanation: chain(&error) },
    }
}

/// Moves a file so that it appears at once and whole, also from another file system.
fn move_into(file: &Path, folder: &Path, name: &str) -> io::Result<()> {
    let target = folder.join(name);
    match fs::rename(file, &target) {
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {}
        result => return result,
    }
    let unfinished: PathBuf = folder.join(format!(".{name}.unfinished"));
    let copied = fs::copy(file, &unfinished).and_then(|_| fs::rename(&unfinished, &target));
    if copied.is_err() {
        // The first error is the one to tell.
        let _ = fs::remove_file(&unfinished);
    }
    copied?;
    fs::remove_file(file)
}

/// Removes what an earlier job of this name has published: a job that writes nothing must not seem
/// to have written that.
pub(super) fn remove_earlier(output: &OutputPlan, merged: Option<&str>) -> io::Result<()> {
    for name in [Some(MODEL), Some(OUTPUT), merged].into_iter().flatten() {
        tidy::remove_file(&output.folder.join(name))?;
    }
    Ok(())
}
