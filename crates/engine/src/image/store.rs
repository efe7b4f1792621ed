//! The content store: what all jobs of this machine share of images.
//!
//! ```text
//! lock                     shared while images are obtained, exclusive while some are removed
//! images/DIGEST            configs; shared lock: somebody uses the image; time: last obtained
//! names/DIGEST             by which names the image was obtained, one a line
//! manifests/DIGEST         manifests and indexes of registries
//! layers/DIGEST/tree       unpacked layers by the digest of their tar archives
//! layers/DIGEST/size       how many bytes of files they hold
//! layers/DIGEST.lock       exclusive while a layer is fetched and unpacked
//! layers/DIGEST.unpacking  a layer that is not complete
//! blobs/LAYER.BLOB.partial compressed layers while they are fetched
//! incoming/                files that get their names when they are complete
//! ```
//!
//! Everything gets its name by a rename when it is complete and has the right digest, so any number of
//! processes may share a store, and each may be killed at any time. Compressed layers are not kept.

use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use fs_err as fs;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

mod list;
mod remove;
mod unpack;

pub use list::StoredImage;
pub use remove::{RemoveUnusedError, Unused};
pub(super) use unpack::{PackedLayer, UnpackError};

use super::UnpackedImage;
use super::config::{ConfigError, ImageConfig};
use super::digest::Digest;
use super::lowers::Lowers;

/// Between two tries to get a lock that somebody else has.
const LOCK_INTERVAL: Duration = Duration::from_millis(50);

/// Folders of a store.
const FOLDERS: [&str; 6] = ["images", "names", "manifests", "layers", "blobs", "incoming"];

/// Images on this machine, unpacked.
#[derive(Clone, Debug)]
pub struct ImageStore {
    root: PathBuf,
}

/// The store can't be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A system call that fails.
    #[error("can't {step} {}", path.display())]
    At {
        /// What failed.
        step: &'static str,
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// An image that was damaged after it was stored.
    #[error("the stored image {digest} is damaged: remove {}", path.display())]
    Damaged {
        /// Which.
        digest: Digest,
        /// Where.
        path: PathBuf,
        /// Why.
        source: ConfigError,
    },
}

pub(super) fn at(step: &'static str, path: &Path, source: impl Into<io::Error>) -> StoreError {
    StoreError::At { step, path: path.to_owned(), source: source.into() }
}

impl ImageStore {
    /// The store in the folder `root`, which is made if it is not there. Only its owner may enter it:
    /// images hold programs that run with their owner's rights.
    ///
    /// # Errors
    ///
    /// Fails if the folder can't be made.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self, StoreError> {
        let root = root.into();
        for folder in FOLDERS.map(|name| root.join(name)) {
            fs::create_dir_all(&folder).map_err(|source| at("make", &folder, source))?;
        }
        fs::set_permissions(&root, Permissions::from_mode(0o700))
            .map_err(|source| at("close", &root, source))?;
        Ok(Self { root })
    }

    /// An image that is complete in the store; none if it is not. As long as the result is kept, the
    /// image is not removed.
    ///
    /// # Errors
    ///
    /// Fails if the store can't be read.
    pub fn get(&self, digest: &Digest) -> Result<Option<UnpackedImage>, StoreError> {
        let path = self.image(digest);
        let in_use = match File::options().read(true).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(at("open", &path, source)),
        };
        flock(&in_use, FlockOperation::LockShared).map_err(|errno| at("lock", &path, errno))?;
        // It may have been removed before the lock was there.
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(at("read", &path, source)),
        };
        let config = ImageConfig::parse(&text);
        let config = config.map_err(|source| StoreError::Damaged { digest: *digest, path, source })?;
        if config.diff_ids.iter().any(|layer| !self.has_layer(layer)) {
            return Ok(None);
        }
        let folders = config.diff_ids.iter().rev().map(|layer| self.layer(layer).join("tree")).collect();
        Ok(Some(UnpackedImage { digest: *digest, lowers: Lowers::new(folders), config, _in_use: in_use }))
    }

    /// Keeps an image whose layers are all there.
    pub(super) fn add_image(&self, digest: &Digest, config: &[u8]) -> Result<(), StoreError> {
        let path = self.image(digest);
        // Another file in its place would have none of the locks of those who use the image.
        if path.exists() { Ok(()) } else { self.write(&path, config, false) }
    }

    /// The time of a last use, so that images that nobody wants can be told.
    pub(super) fn touch_image(&self, digest: &Digest) -> Result<(), StoreError> {
        let path = self.image(digest);
        let file = File::options().read(true).open(&path).map_err(|source| at("open", &path, source))?;
        file.set_modified(SystemTime::now()).map_err(|source| at("mark", &path, source))
    }

    /// A manifest that was kept; none if there is none or it was damaged.
    pub(super) fn manifest(&self, digest: &Digest) -> Option<Vec<u8>> {
        let bytes = fs::read(self.root.join("manifests").join(digest.hex())).ok()?;
        (Digest::of(&bytes) == *digest).then_some(bytes)
    }

    pub(super) fn add_manifest(&self, digest: &Digest, manifest: &[u8]) -> Result<(), StoreError> {
        self.write(&self.root.join("manifests").join(digest.hex()), manifest, true)
    }

    pub(super) fn has_layer(&self, diff_id: &Digest) -> bool {
        self.layer(diff_id).is_dir()
    }

    pub(super) fn image(&self, digest: &Digest) -> PathBuf {
        self.root.join("images").join(digest.hex())
    }

    pub(super) fn names_of(&self, digest: &Digest) -> PathBuf {
        self.root.join("names").join(digest.hex())
    }

    pub(super) fn layer(&self, diff_id: &Digest) -> PathBuf {
        self.root.join("layers").join(diff_id.hex())
    }

    pub(super) fn partial_blob(&self, diff_id: &Digest, blob: &Digest) -> PathBuf {
        self.root.join("blobs").join(format!("{}.{}.partial", diff_id.hex(), blob.hex()))
    }

    /// For files that have no name yet.
    pub(super) fn incoming(&self) -> PathBuf {
        self.root.join("incoming")
    }

    /// Keeps others from removing anything as long as the result is kept.
    pub(super) async fn use_store(&self) -> Result<File, StoreError> {
        lock(&self.root.join("lock"), FlockOperation::NonBlockingLockShared).await
    }

    /// Keeps others from fetching and unpacking the same layer.
    pub(super) async fn lock_layer(&self, diff_id: &Digest) -> Result<File, StoreError> {
        lock(&self.layer(diff_id).with_extension("lock"), FlockOperation::NonBlockingLockExclusive).await
    }

    fn write(&self, path: &Path, bytes: &[u8], replace: bool) -> Result<(), StoreError> {
        let written = || {
            let mut file = tempfile::NamedTempFile::new_in(self.incoming())?;
            file.write_all(bytes)?;
            file.as_file().sync_all()?;
            if replace {
                file.persist(path)?;
                return Ok(());
            }
            match file.persist_noclobber(path) {
                Err(error) if error.error.kind() != io::ErrorKind::AlreadyExists => Err(error.error),
                _ => Ok(()),
            }
        };
        written().map_err(|source: io::Error| at("write", path, source))
    }
}

fn open_lock(path: &Path) -> Result<File, StoreError> {
    let file = File::options().create(true).truncate(false).write(true).open(path);
    file.map_err(|source| at("open", path, source))
}

/// Waits without blocking a thread, so that whoever does not want the lock any more need not wait.
async fn lock(path: &Path, operation: FlockOperation) -> Result<File, StoreError> {
    let file = open_lock(path)?;
    loop {
        match flock(&file, operation) {
            Ok(()) => return Ok(file),
            Err(Errno::AGAIN | Errno::INTR) => tokio::time::sleep(LOCK_INTERVAL).await,
            Err(errno) => return Err(at("lock", path, errno)),
        }
    }
}
