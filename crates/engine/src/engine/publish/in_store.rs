//! Artifacts in stores: instances have uploaded most of them, the engine completes the uploads.

use fs_err as fs;
use tokio::task::{JoinError, spawn_blocking};

use super::archives;
use super::tree::{self, TreeError};
use crate::artifact::{CombineError, Combined, HostPart, PartFile, Segment, UploadPart, assemble, combine};
use crate::engine::Engine;
use crate::explain::chain;
use crate::job::{Event, Published};
use crate::plan::{OutputPlace, OutputPlan, StoreOutput};
use crate::run::{RunDirectory, RunDirectoryError, Uploads};
use crate::spec::OutputCompression;
use crate::storage::{Buckets, StorageError, StoreKind, Stores, Upload, Written, read_range};

/// The parts of all instances, in host order, and how many hosts there are.
pub(in crate::engine) struct StoreParts {
    pub(super) model: Vec<HostPart>,
    pub(super) output: Vec<HostPart>,
    pub(super) hosts: usize,
}

/// Why artifacts are not in the store.
#[derive(Debug, thiserror::Error)]
pub(in crate::engine) enum StoreOutputError {
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error(transparent)]
    Combine(#[from] CombineError),
    #[error(transparent)]
    Run(#[from] RunDirectoryError),
    #[error(transparent)]
    Tree(#[from] TreeError),
    #[error("a part can't be read")]
    Read(#[from] std::io::Error),
    #[error("the publishing broke off")]
    Broken(#[from] JoinError),
    #[error("{uri} is not there")]
    Missing { uri: String },
}

/// The store of an output.
pub(in crate::engine) fn stores(engine: &Engine, output: &StoreOutput) -> Stores {
    impatient(engine, output).patient()
}

/// The same for what can as well be done later.
fn impatient(engine: &Engine, output: &StoreOutput) -> Stores {
    let addresses = [(output.bucket.clone(), output.address.clone())].into();
    Stores::new(Buckets::in_stores(addresses), engine.credentials.clone())
}

/// Begins the uploads of an attempt, unless they have been begun. There are none in stores that do not speak S3: their
/// uploads don't take the parts of several instances.
pub(in crate::engine) async fn begin(
    stores: &Stores,
    output: &StoreOutput,
    form: OutputCompression,
    run: &RunDirectory,
) -> Result<Option<Uploads>, StoreOutputError> {
    if output.address.kind != StoreKind::S3 {
        return Ok(None);
    }
    if let Some(uploads) = run.uploads()? {
        return Ok(Some(uploads));
    }
    let begin = async |name: String| {
        stores.begin(&output.bucket, &output.key(&name), output.kms_key.as_deref()).await
    };
    let model = match form {
        OutputCompression::Gzip | OutputCompression::Zstd => Some(begin(form.model_archive()).await?),
        OutputCompression::None => None,
    };
    let uploads = Uploads { model, output: begin(form.output_archive()).await? };
    run.write_uploads(&uploads)?;
    Ok(Some(uploads))
}

/// Gives up what of the uploads of an attempt has not been completed.
pub(in crate::engine) async fn give_up(engine: &Engine, run: &RunDirectory) -> Result<(), StoreOutputError> {
    let Some(uploads) = run.uploads()? else { return Ok(()) };
    if let OutputPlace::Store(output) = run.plan()?.output.place {
        let stores = impatient(engine, &output);
        for upload in uploads.model.iter().chain([&uploads.output]) {
            stores.abort(upload).await?;
            stores.abort_all(&upload.bucket, &upload.key).await?;
        }
    }
    Ok(run.remove_uploads()?)
}

/// Completes the uploads of an attempt. Nothing of an artifact is seen before.
pub(in crate::engine) async fn artifacts(
    engine: Engine,
    parts: StoreParts,
    output: OutputPlan,
    run: RunDirectory,
) -> Event {
    match complete_all(&engine, parts, &output, &run).await {
        Ok(published) => Event::Published(published),
        Err(error) => Event::PublishFailed { explanation: chain(&error) },
    }
}

async fn complete_all(
    engine: &Engine,
    parts: StoreParts,
    output: &OutputPlan,
    run: &RunDirectory,
) -> Result<Published, StoreOutputError> {
    let OutputPlace::Store(place) = &output.place else { return Ok(Published::default()) };
    let stores = stores(engine, place);
    let Some(uploads) = begin(&stores, place, output.model, run).await? else {
        return whole(&stores, parts, (place, output), run).await;
    };
    let StoreParts { model, output: other, hosts } = parts;
    let model = match &uploads.model {
        Some(upload) => complete(&stores, upload, model, hosts).await?,
        None => {
            let parts = model.into_iter().map(|part| part.part).collect();
            tree::in_store(&stores, parts, place, run).await?
        }
    };
    let other = complete(&stores, &uploads.output, other, hosts).await?;
    Ok(super::published(model, other, output))
}

/// Joins the parts on this machine and sends the archives from here.
async fn whole(
    stores: &Stores,
    parts: StoreParts,
    (place, output): (&StoreOutput, &OutputPlan),
    run: &RunDirectory,
) -> Result<Published, StoreOutputError> {
    let files = |parts: Vec<HostPart>| parts.into_iter().map(|part| part.part).collect::<Vec<_>>();
    let model = match output.model {
        OutputCompression::None => tree::in_store(stores, files(parts.model), place, run).await?,
        form => put_whole(stores, files(parts.model), (place, form.model_archive()), run).await?,
    };
    let other = (place, output.model.output_archive());
    let other = put_whole(stores, files(parts.output), other, run).await?;
    Ok(super::published(model, other, output))
}

async fn put_whole(
    stores: &Stores,
    parts: Vec<PartFile>,
    (place, name): (&StoreOutput, String),
    run: &RunDirectory,
) -> Result<Combined, StoreOutputError> {
    let file = run.root().join(&name);
    let destination = file.clone();
    let combined = spawn_blocking(move || combine(&parts, &destination)).await??;
    if combined.bytes.is_some() {
        stores.put_file(&place.bucket, &place.key(&name), &file, None).await?;
        fs::remove_file(&file)?;
    }
    Ok(combined)
}

/// Completes one upload, or gives it up if nobody has packed anything.
async fn complete(
    stores: &Stores,
    upload: &Upload,
    parts: Vec<HostPart>,
    hosts: usize,
) -> Result<Combined, StoreOutputError> {
    let (combined, pieces) = spawn_blocking(move || assemble(&parts, hosts)).await??;
    let Some(size) = combined.bytes else {
        stores.abort(upload).await?;
        return Ok(combined);
    };
    let mut numbers = Vec::with_capacity(pieces.len());
    for piece in pieces {
        numbers.push(match piece {
            UploadPart::There { number, etag } => (number, etag),
            UploadPart::Missing { number, content } => {
                let body = spawn_blocking(move || joined(&content)).await??;
                (number, stores.put_part(upload, number, body.into()).await?)
            }
        });
    }
    stores.complete(upload, &numbers, size).await?;
    Ok(combined)
}

fn joined(content: &[Segment]) -> std::io::Result<Vec<u8>> {
    let mut body = Vec::new();
    for segment in content {
        match segment {
            Segment::Bytes(bytes) => body.extend_from_slice(bytes),
            Segment::File { path, range } => {
                body.extend_from_slice(&read_range(&fs::File::open(path)?, range.clone())?);
            }
        }
    }
    Ok(body)
}

/// Puts the file that the merging instance has handed back beside the artifact.
pub(in crate::engine) async fn merged(
    stores: Stores,
    file: std::path::PathBuf,
    output: (StoreOutput, String),
    name: String,
) -> Event {
    let (place, uri) = output;
    let put = stores.put_file(&place.bucket, &place.key(&name), &file, place.kms_key.as_deref()).await;
    match put {
        Ok(()) => Event::Merged { uri: format!("{uri}/{name}") },
        Err(error) => Event::MergeFailed { explanation: chain(&error) },
    }
}

/// The archive that has been published, for the merging instance.
pub(in crate::engine) async fn archive(
    stores: &Stores,
    output: &StoreOutput,
    form: OutputCompression,
) -> Result<Written, StoreOutputError> {
    let key = output.key(&form.model_archive());
    let found = stores.written(&output.bucket, &key).await?;
    found.ok_or_else(|| StoreOutputError::Missing { uri: format!("s3://{}/{key}", output.bucket) })
}

/// Removes what an earlier job of this name has published.
pub(in crate::engine) async fn remove_earlier(
    stores: &Stores,
    output: &StoreOutput,
    form: OutputCompression,
    merged: Option<&str>,
) -> Result<(), StorageError> {
    // Plain files have to be listed, which a job that leaves an archive need not be allowed to.
    if form == OutputCompression::None {
        tree::remove_from_store(stores, output).await?;
    }
    for name in archives().chain(merged.map(str::to_owned)) {
        stores.delete(&output.bucket, &output.key(&name)).await?;
    }
    Ok(())
}
