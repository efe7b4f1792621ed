//! From a reference to an image that is unpacked in the store.

use std::path::PathBuf;
use std::sync::Arc;

mod assembly;
mod error;

pub use error::ObtainError;

use self::assembly::{Assembly, GivenUp};
use super::UnpackedImage;
use super::credentials::Credentials;
use super::digest::Digest;
use super::layout::{Layout, blob_name, docker, oci};
use super::manifest::Descriptor;
use super::platform::Platform;
use super::reference::ImageReference;
use super::registry::{Pulled, Repository};
use super::store::ImageStore;

/// What is to be obtained, and for whom.
#[derive(Clone)]
pub struct Obtain {
    /// What the image has to run on.
    pub platform: Platform,
    /// Who the user is to registries.
    pub credentials: Credentials,
    /// Told how far each layer is, from any thread.
    pub progress: Arc<dyn Fn(Progress) + Send + Sync>,
}

/// How far a layer is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Digest of the unpacked layer, or as much of it as a daemon tells.
    pub layer: String,
    /// What is done with it.
    pub step: Step,
    /// Compressed bytes so far.
    pub done: u64,
    /// All of them.
    pub total: u64,
}

/// What is done with a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It comes from a registry.
    Fetch,
    /// It is unpacked.
    Unpack,
}

/// An image before its layers are in the store.
pub(super) struct Found {
    pub(super) config: Vec<u8>,
    /// Lowest first.
    pub(super) layers: Vec<LayerSource>,
}

/// Where a layer comes from.
pub(super) enum LayerSource {
    Member { layout: Arc<Layout>, name: String, blob: Option<Digest> },
    Blob { repository: Arc<Repository>, descriptor: Descriptor },
}

impl ImageStore {
    /// Brings an image into the store and unpacks it, as far as it is not there already. A tag is looked
    /// up each time; what has a digest and is there needs no network.
    ///
    /// Whoever drops the future gives up; what was fetched so far is kept for the next time.
    ///
    /// # Errors
    ///
    /// Fails if the image is not there, not allowed, not for this platform, damaged or hostile.
    pub async fn obtain(
        &self,
        reference: &ImageReference,
        how: &Obtain,
    ) -> Result<UnpackedImage, ObtainError> {
        let _used = self.use_store().await?;
        let image = self.obtain_used(reference, how).await?;
        self.add_name(&image.digest, &reference.to_string())?;
        Ok(image)
    }

    async fn obtain_used(
        &self,
        reference: &ImageReference,
        how: &Obtain,
    ) -> Result<UnpackedImage, ObtainError> {
        let found = match reference {
            ImageReference::Registry(reference) => {
                let repository = Repository::new(reference, &how.credentials);
                let pulled = repository.find(self, &how.platform).await?;
                if let Some(image) = self.get(&pulled.config.digest)? {
                    self.touch_image(&image.digest)?;
                    return Ok(image);
                }
                pull(repository, pulled).await?
            }
            _ => self.find_in_files(reference, how).await?,
        };
        let given_up = GivenUp::default();
        let assembly = Assembly { store: self, image: reference.to_string(), how, given_up: &given_up };
        assembly.complete(found).await
    }

    async fn find_in_files(&self, reference: &ImageReference, how: &Obtain) -> Result<Found, ObtainError> {
        let (reference, platform, scratch) = (reference.clone(), how.platform.clone(), self.incoming());
        blocking(move || find_in_files(&reference, &platform, scratch)).await
    }
}

async fn pull(repository: Arc<Repository>, pulled: Pulled) -> Result<Found, ObtainError> {
    let config = repository.document(&pulled.config).await?;
    let blob = |descriptor| LayerSource::Blob { repository: Arc::clone(&repository), descriptor };
    Ok(Found { config, layers: pulled.layers.into_iter().map(blob).collect() })
}

pub(super) fn find_in_files(
    reference: &ImageReference,
    platform: &Platform,
    scratch: PathBuf,
) -> Result<Found, ObtainError> {
    let (layout, tag) = match reference {
        ImageReference::DockerArchive { file, tag } => {
            let layout = Arc::new(Layout::archive(file, &scratch)?);
            let saved = docker::find(&layout, tag.as_deref())?;
            let member = |name: String| LayerSource::Member {
                blob: name.strip_prefix("blobs/sha256/").and_then(Digest::from_hex),
                layout: Arc::clone(&layout),
                name,
            };
            return Ok(Found {
                config: saved.config,
                layers: saved.layers.into_iter().map(member).collect(),
            });
        }
        ImageReference::OciArchive { file, tag } => (Layout::archive(file, &scratch)?, tag),
        ImageReference::OciFolder { folder, tag } => (Layout::folder(folder), tag),
        // Looked for elsewhere.
        ImageReference::Registry(_) => return Ok(Found { config: Vec::new(), layers: Vec::new() }),
    };
    let layout = Arc::new(layout);
    let (config, layers) = match oci::find(&layout, tag.as_deref(), platform) {
        Ok(found) => found,
        Err(oci::FindError::Layout(error)) => return Err(error.into()),
        Err(oci::FindError::Manifest(error)) => return Err(ObtainError::manifest(reference, error)),
    };
    let member = |descriptor: Descriptor| LayerSource::Member {
        layout: Arc::clone(&layout),
        name: blob_name(&descriptor.digest),
        blob: Some(descriptor.digest),
    };
    Ok(Found { config: layout.blob(&config.digest)?, layers: layers.into_iter().map(member).collect() })
}

/// Runs what would block. A panic goes on in the caller.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await.map_err(tokio::task::JoinError::try_into_panic) {
        Ok(done) => done,
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        // The runtime is ending, and with it the caller.
        Err(Err(_)) => std::future::pending().await,
    }
}
