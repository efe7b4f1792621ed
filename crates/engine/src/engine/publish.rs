//! Putting the artifacts where the request says.

use std::io;
use std::path::{Path, PathBuf};

use fs_err as fs;

use super::{Engine, EngineError, tidy};
use crate::artifact::{CombineError, Combined, HostPart, PackedPart, PartFile, combine};
use crate::explain::chain;
use crate::job::{Event, Job, Published};
use crate::plan::{OutputPlace, OutputPlan};
use crate::run::{InstanceDirectory, Part};
use crate::spec::OutputCompression;

pub(super) mod in_store;
mod tree;

use in_store::StoreParts;
use tree::TreeError;

/// The parts of all instances, in host order.
pub(super) struct AllParts {
    model: Vec<PartFile>,
    output: Vec<PartFile>,
}

/// Where the parts of a job are; those of earlier attempts are used as they are.
pub(super) fn parts(engine: &Engine, job: &Job) -> AllParts {
    let StoreParts { model, output, .. } = store_parts(engine, job);
    let files = |parts: Vec<HostPart>| parts.into_iter().map(|part| part.part).collect();
    AllParts { model: files(model), output: files(output) }
}

/// The same with what of them is in the uploads of this attempt.
pub(super) fn store_parts(engine: &Engine, job: &Job) -> StoreParts {
    let mut all = StoreParts { model: Vec::new(), output: Vec::new(), hosts: job.instances.len() };
    for (rank, instance) in job.instances.iter().enumerate() {
        let root = engine.attempt_folder(&job.name, instance.attempt);
        let directory = InstanceDirectory::open(&root.join("instances").join(&instance.host));
        let is_current = instance.attempt == job.attempt;
        let host_part = |part: &Part, path| HostPart {
            part: PartFile { host: instance.host.clone(), path, packed: packed(part) },
            rank,
            uploaded: if is_current { part.uploaded.clone() } else { Vec::new() },
        };
        all.model.extend(instance.parts.model.as_ref().map(|part| host_part(part, directory.model_part())));
        all.output
            .extend(instance.parts.output.as_ref().map(|part| host_part(part, directory.output_part())));
    }
    all
}

fn packed(part: &Part) -> PackedPart {
    PackedPart {
        entries: part.entries,
        tar_bytes: part.tar_bytes,
        compressed_bytes: part.compressed_bytes,
        crc32: part.crc32,
        codec: part.codec,
        // Supervisors have reported them already.
        warnings: Vec::new(),
    }
}

/// Joins the parts into the archive of the model, or plain files in its place, and that of other output.
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
    #[error(transparent)]
    Tree(#[from] TreeError),
}

fn try_artifacts(parts: &AllParts, output: &OutputPlan) -> Result<Published, PublishError> {
    let Some(folder) = output.folder() else { return Ok(Published::default()) };
    fs::create_dir_all(folder)?;
    let model = match output.model {
        OutputCompression::Gzip | OutputCompression::Zstd => {
            combine(&parts.model, &folder.join(output.model.model_archive()))?
        }
        OutputCompression::None => tree::in_folder(&parts.model, folder)?,
    };
    let other = combine(&parts.output, &folder.join(output.model.output_archive()))?;
    Ok(published(model, other, output))
}

/// What is to be told of both artifacts.
fn published(model: Combined, other: Combined, output: &OutputPlan) -> Published {
    let uri = |combined: &Combined, name: &str| combined.bytes.map(|_| format!("{}/{name}", output.uri));
    let mut clashes = model.clashes.clone();
    let model_uri = match output.model {
        OutputCompression::Gzip | OutputCompression::Zstd => uri(&model, &output.model.model_archive()),
        OutputCompression::None => {
            for clash in &mut clashes {
                clash.kept_below = Some(format!("{}/{}/", output.uri, tree::REPLACED));
            }
            uri(&model, &format!("{}/", tree::FILES))
        }
    };
    let output_uri = uri(&other, &output.model.output_archive());
    clashes.extend(other.clashes);
    clashes.retain(|clash| !clash.same_content);
    let clashes_not_listed = model.clashes_not_listed + other.clashes_not_listed;
    Published { model: model_uri, output: output_uri, clashes, clashes_not_listed }
}

/// Puts the file that the merging instance has handed back beside the artifact.
pub(super) fn merged(file: &Path, folder: &Path, uri: &str, name: &str) -> Event {
    match move_into(file, folder, name) {
        Ok(()) => Event::Merged { uri: format!("{uri}/{name}") },
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

/// The names of all archives that a job of any kind leaves.
fn archives() -> impl Iterator<Item = String> {
    let names = |form: OutputCompression| [form.model_archive(), form.output_archive()];
    [OutputCompression::Gzip, OutputCompression::Zstd].into_iter().flat_map(names)
}

/// Removes what an earlier job of this name has published: a job that writes nothing must not seem
/// to have written that.
pub(super) async fn remove_earlier(
    engine: &Engine,
    output: &OutputPlan,
    merged: Option<&str>,
) -> Result<(), EngineError> {
    match &output.place {
        OutputPlace::Store(place) => {
            let stores = in_store::stores(engine, place);
            in_store::remove_earlier(&stores, place, output.model, merged)
                .await
                .map_err(|error| EngineError::Output(error.into()))
        }
        OutputPlace::Folder(folder) => {
            for name in archives().chain(merged.map(str::to_owned)) {
                tidy::remove_file(&folder.join(name))?;
            }
            Ok(tree::remove_from(folder).map_err(std::io::Error::other)?)
        }
    }
}
