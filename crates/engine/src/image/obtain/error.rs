//! Why an image could not be obtained, told apart by what can be done about it.

use std::error::Error;
use std::fmt;

use crate::image::config::ConfigError;
use crate::image::credentials::CredentialsError;
use crate::image::digest::Digest;
use crate::image::layer::LayerError;
use crate::image::layout::LayoutError;
use crate::image::manifest::ManifestError;
use crate::image::platform::Platform;
use crate::image::store::StoreError;

/// An image that could not be obtained. Nothing of it is left but what a later try goes on with.
#[derive(Debug, thiserror::Error)]
pub enum ObtainError {
    /// There is no such image.
    #[error("registry {registry} has no image {image}: check its name and tag")]
    NotFound {
        /// Its name.
        image: String,
        /// Where it was looked for.
        registry: String,
        /// What the registry said.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The user may not read it. Some registries say so too if it is not there.
    #[error("registry {registry} gives no access to image {image}: {}", advice(*logged_in, registry))]
    NoAccess {
        /// Its name.
        image: String,
        /// Where.
        registry: String,
        /// Whether there were credentials for the registry.
        logged_in: bool,
        /// What the registry said.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The registry can't be reached, or the connection breaks again and again.
    #[error("registry {registry} can't be reached or does not answer in full")]
    Network {
        /// Which.
        registry: String,
        /// Why.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The registry answers something that was not expected.
    #[error("registry {registry} gives an answer about image {image} that can't be used")]
    Answer {
        /// Its name.
        image: String,
        /// Where.
        registry: String,
        /// What the registry said.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The image is for other machines.
    #[error("image {image} is for {}, this machine is {wanted}", there.join(", "))]
    Platform {
        /// Its name.
        image: String,
        /// What is needed.
        wanted: Platform,
        /// What there is.
        there: Vec<String>,
    },
    /// Something else came than what was named.
    #[error("a part of image {image} is damaged: it has digest {actual}, not {expected}")]
    Digest {
        /// Its name.
        image: String,
        /// How it was named.
        expected: Digest,
        /// What it has.
        actual: Digest,
    },
    /// A manifest or config that is too large to be one.
    #[error("image {image} has a manifest or config of {size} bytes; at most {limit} are allowed")]
    TooLarge {
        /// Its name.
        image: String,
        /// What it has, in bytes.
        size: u64,
        /// What is allowed.
        limit: u64,
    },
    /// The config and the manifest disagree.
    #[error("image {image} is damaged: its config names {config} layers, its manifest {manifest}")]
    Layers {
        /// Its name.
        image: String,
        /// Layers of the config.
        config: usize,
        /// Layers of the manifest.
        manifest: usize,
    },
    /// A manifest that can't be used.
    #[error("image {image} can't be used")]
    Manifest {
        /// Its name.
        image: String,
        /// Why.
        source: ManifestError,
    },
    /// A config that can't be used.
    #[error("image {image} can't be used")]
    Config {
        /// Its name.
        image: String,
        /// Why.
        source: ConfigError,
    },
    /// A layer that can't be unpacked.
    #[error("layer {layer} of image {image} can't be unpacked")]
    Layer {
        /// The image's name.
        image: String,
        /// Digest of the unpacked layer.
        layer: Digest,
        /// Why.
        source: LayerError,
    },
    /// An archive or a folder that can't be used.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The user's credentials can't be found out.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// The store can't be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn advice(logged_in: bool, registry: &str) -> String {
    if logged_in {
        "the user name or password is wrong, the account may not read it, or it is not there".to_owned()
    } else {
        format!("there are no credentials for it, run `docker login {registry}` first")
    }
}

impl ObtainError {
    pub(in crate::image) fn manifest(image: &impl fmt::Display, error: ManifestError) -> Self {
        let image = image.to_string();
        match error {
            ManifestError::Platform { wanted, there } if !there.is_empty() => {
                Self::Platform { image, wanted, there }
            }
            source => Self::Manifest { image, source },
        }
    }

    /// Whether the compressed layer was good as far as is known, so that a later try can go on with it.
    pub(super) fn spares_blob(&self) -> bool {
        let unfinished = |source: &LayerError| {
            matches!(source, LayerError::Cancelled | LayerError::NoRoom { .. } | LayerError::At { .. })
        };
        matches!(self, Self::Store(_)) || matches!(self, Self::Layer { source, .. } if unfinished(source))
    }

    /// Whether another try may help.
    pub(in crate::image) fn is_temporary(&self) -> bool {
        matches!(self, Self::Network { .. })
    }
}
