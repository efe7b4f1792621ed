//! Container images: from a name to unpacked layers and what the image says about how it is run.
//!
//! An [`ImageReference`] says where an image is: in an archive, a folder or a registry. The
//! [`ImageStore`] brings it here, checks everything by its digest, unpacks each layer once for all
//! jobs, and hands out an [`UnpackedImage`]: folders to be laid over each other by overlayfs, and the
//! [`ImageConfig`]. What runs over these folders is no concern of this module. The choices behind it are
//! explained in `docs/design/images.md`.

use std::fs::File;

mod compression;
mod config;
mod copy;
mod credentials;
mod daemon;
mod digest;
mod export;
mod layer;
mod layout;
mod lowers;
mod manifest;
mod obtain;
mod platform;
mod reference;
mod registry;
mod store;
mod tar;
mod user;

pub(crate) use copy::copy_layers;

pub use config::{ConfigError, DEFAULT_PATH, ImageConfig};
pub use credentials::{Credentials, CredentialsError};
pub use daemon::{Amount, Bring, BringError, DaemonImage, LoadedImage, LoadedImages, RemoveLoadedError};
pub use digest::{Digest, DigestError};
pub use export::{ExportError, ProgramImage};
pub use layer::LayerError;
pub use layout::LayoutError;
pub use lowers::Lowers;
pub use manifest::ManifestError;
pub use obtain::{Obtain, ObtainError, Progress, Step};
pub use platform::Platform;
pub use reference::{ImageReference, ReferenceError, RegistryReference};
pub use store::{ImageStore, RemoveUnusedError, StoreError, StoredImage, Unused};
pub use tar::TarError;
pub use user::{User, UserError};

/// An image of which everything is in the store. As long as this is kept, nobody removes it there.
#[derive(Debug)]
pub struct UnpackedImage {
    /// Digest of the config, which Docker calls the image's id.
    pub digest: Digest,
    /// How the image wants to be run.
    pub config: ImageConfig,
    /// The unpacked layers.
    pub lowers: Lowers,
    /// Holds a shared lock.
    _in_use: File,
}

impl UnpackedImage {
    /// Bytes of the files of each layer, lowest first; 0 where the store does not know.
    pub fn layer_sizes(&self) -> Vec<u64> {
        let size = |folder: &std::path::PathBuf| {
            let text = fs_err::read_to_string(folder.with_file_name("size")).ok()?;
            text.trim().parse().ok()
        };
        self.lowers.folders().iter().rev().map(|folder| size(folder).unwrap_or(0)).collect()
    }
}
