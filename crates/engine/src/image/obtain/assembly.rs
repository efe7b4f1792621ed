//! The layers of one image on their way into the store, several at once.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;

use futures_util::stream::{self, StreamExt};
use rustix::fs::statvfs;
use tokio::sync::watch;

use super::{Found, LayerSource, Obtain, ObtainError, Progress, Step, blocking};
use crate::image::UnpackedImage;
use crate::image::config::ImageConfig;
use crate::image::digest::Digest;
use crate::image::layer::{LayerError, Limits};
use crate::image::platform::Platform;
use crate::image::store::{ImageStore, PackedLayer, StoreError, UnpackError, at};

/// As many layers are fetched and unpacked at once.
const PARALLEL: usize = 4;

/// Progress is told after so many bytes of a layer.
const PROGRESS_STEP: u64 = 1 << 20;

/// An image whose layers are being unpacked.
pub(super) struct Assembly<'a> {
    pub(super) store: &'a ImageStore,
    pub(super) image: String,
    pub(super) how: &'a Obtain,
    pub(super) given_up: &'a GivenUp,
}

impl Assembly<'_> {
    pub(super) async fn complete(&self, found: Found) -> Result<UnpackedImage, ObtainError> {
        let image = || self.image.clone();
        let config = ImageConfig::parse(&found.config)
            .map_err(|source| ObtainError::Config { image: image(), source })?;
        self.check_platform(&config.platform)?;
        if config.diff_ids.len() != found.layers.len() {
            let (config, manifest) = (config.diff_ids.len(), found.layers.len());
            return Err(ObtainError::Layers { image: image(), config, manifest });
        }
        let mut seen = BTreeSet::new();
        let layers: Vec<_> = config
            .diff_ids
            .iter()
            .zip(found.layers)
            .filter(|(diff_id, _)| seen.insert(**diff_id))
            .map(|(diff_id, source)| self.layer(*diff_id, source))
            .collect();
        let mut results = stream::iter(layers).buffer_unordered(PARALLEL);
        let mut first_error = None;
        // The others are waited for: they clean up after themselves.
        while let Some(result) = results.next().await {
            if let Err(error) = result {
                self.given_up.set();
                first_error.get_or_insert(error);
            }
        }
        if let Some(error) = first_error {
            return Err(error);
        }
        let digest = Digest::of(&found.config);
        self.store.add_image(&digest, &found.config)?;
        self.store.touch_image(&digest)?;
        let missing = || StoreError::At {
            step: "find what was put into",
            path: self.store.image(&digest),
            source: io::ErrorKind::NotFound.into(),
        };
        Ok(self.store.get(&digest)?.ok_or_else(missing)?)
    }

    /// An image that does not say what it is for is taken as it is.
    fn check_platform(&self, there: &Platform) -> Result<(), ObtainError> {
        let wanted = &self.how.platform;
        if there.os.is_empty() || there.architecture.is_empty() || wanted.distance(there).is_some() {
            return Ok(());
        }
        let (image, there) = (self.image.clone(), vec![there.to_string()]);
        Err(ObtainError::Platform { image, wanted: wanted.clone(), there })
    }

    async fn layer(&self, diff_id: Digest, source: LayerSource) -> Result<(), ObtainError> {
        if self.store.has_layer(&diff_id) {
            return Ok(());
        }
        let lock = self.store.lock_layer(&diff_id).await?;
        if self.store.has_layer(&diff_id) || self.given_up.is_set() {
            return Ok(());
        }
        match source {
            LayerSource::Member { layout, name, blob } => {
                let content = layout.open(&name)?;
                let total = content.size;
                self.unpack(lock, (Box::new(content), total), diff_id, blob).await
            }
            LayerSource::Blob { repository, descriptor } => {
                let path = self.store.partial_blob(&diff_id, &descriptor.digest);
                let there = fs_err::metadata(&path).map_or(0, |found| found.len());
                self.check_room(&diff_id, descriptor.size.saturating_sub(there))?;
                let fetched = repository.fetch(&descriptor, &path, &*self.how.progress, diff_id);
                tokio::select! {
                    fetched = fetched => fetched?,
                    () = self.given_up.wait() => return Ok(()),
                }
                let file = fs_err::File::open(&path).map_err(|source| at("open", &path, source))?;
                let content = (Box::new(file) as Box<dyn Read + Send>, descriptor.size);
                let unpacked = self.unpack(lock, content, diff_id, Some(descriptor.digest)).await;
                if !unpacked.as_ref().is_err_and(ObtainError::spares_blob) {
                    fs_err::remove_file(&path).map_err(|source| at("remove", &path, source))?;
                }
                unpacked
            }
        }
    }

    /// Whether there is room for the rest of a compressed layer at all.
    fn check_room(&self, layer: &Digest, size: u64) -> Result<(), ObtainError> {
        let folder = self.store.incoming();
        let found = statvfs(&folder).map_err(|errno| at("look at", &folder, errno))?;
        let (free, reserve) = (found.f_bavail.saturating_mul(found.f_frsize), Limits::default().reserve);
        if size.saturating_add(reserve) <= free {
            return Ok(());
        }
        let source = LayerError::NoRoom { folder, free, reserve };
        Err(ObtainError::Layer { image: self.image.clone(), layer: *layer, source })
    }

    async fn unpack(
        &self,
        lock: File,
        (content, total): (Box<dyn Read + Send>, u64),
        diff_id: Digest,
        blob: Option<Digest>,
    ) -> Result<(), ObtainError> {
        let told = Arc::clone(&self.how.progress);
        let content = Counting { inner: content, done: 0, told: 0, total, layer: diff_id, progress: told };
        let packed = PackedLayer { content: Box::new(content), blob, diff_id };
        let (store, given_up) = (self.store.clone(), self.given_up.0.subscribe());
        let unpacked = blocking(move || {
            // The lock must outlive this even if nobody waits for it any more.
            let _lock = lock;
            store.unpack_layer(packed, &|| !*given_up.borrow())
        });
        let image = self.image.clone();
        unpacked.await.map_err(|error| match error {
            UnpackError::Layer(source) => ObtainError::Layer { image, layer: diff_id, source },
            UnpackError::Digest { expected, actual } => ObtainError::Digest { image, expected, actual },
            UnpackError::Store(error) => error.into(),
        })
    }
}

/// Tells all that works on an image that nobody wants it any more.
#[derive(Default)]
pub(super) struct GivenUp(watch::Sender<bool>);

impl GivenUp {
    fn set(&self) {
        self.0.send_replace(true);
    }

    fn is_set(&self) -> bool {
        *self.0.borrow()
    }

    async fn wait(&self) {
        // The sender is this one, so the only end is the value.
        let _ = self.0.subscribe().wait_for(|given_up| *given_up).await;
    }
}

impl Drop for GivenUp {
    fn drop(&mut self) {
        self.set();
    }
}

/// Tells how much was read.
struct Counting {
    inner: Box<dyn Read + Send>,
    done: u64,
    told: u64,
    total: u64,
    layer: Digest,
    progress: Arc<dyn Fn(Progress) + Send + Sync>,
}

impl Read for Counting {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.done += count as u64;
        if self.done - self.told >= PROGRESS_STEP || count == 0 && self.done != self.told {
            self.told = self.done;
            let (layer, done, total) = (self.layer.to_string(), self.done, self.total);
            (self.progress)(Progress { layer, step: Step::Unpack, done, total });
        }
        Ok(count)
    }
}
