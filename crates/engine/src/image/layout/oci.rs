//! The image layout of the OCI: `oci-layout`, `index.json`, and blobs by digest.

use super::docker::is_called;
use super::{Layout, LayoutError};
use crate::image::manifest::{Descriptor, Manifest, ManifestError, choose};
use crate::image::platform::Platform;

/// The document that lists a layout's images.
const INDEX: &str = "index.json";

/// Where the name of an image stands: the OCI's place, and containerd's.
const NAMES: [&str; 2] = ["io.containerd.image.name", "org.opencontainers.image.ref.name"];

/// Indexes in indexes in … end here.
const DEEPEST: u32 = 4;

/// An image that can't be found in a layout.
pub(in crate::image) enum FindError {
    Layout(LayoutError),
    Manifest(ManifestError),
}

impl From<LayoutError> for FindError {
    fn from(error: LayoutError) -> Self {
        Self::Layout(error)
    }
}

impl From<ManifestError> for FindError {
    fn from(error: ManifestError) -> Self {
        Self::Manifest(error)
    }
}

/// Finds the image that `tag` names, or the only one, for a platform: its config and layers.
pub(in crate::image) fn find(
    layout: &Layout,
    tag: Option<&str>,
    platform: &Platform,
) -> Result<(Descriptor, Vec<Descriptor>), FindError> {
    if !layout.has(INDEX) {
        let hint = match layout.has("manifest.json") {
            true => "it is an archive of Docker's, write docker-archive: before its name",
            false => "an OCI image layout has one",
        };
        return Err(LayoutError::NoImage { path: layout.path.clone(), lacks: INDEX, hint }.into());
    }
    let Manifest::Index(images) = Manifest::parse(&layout.document(INDEX)?)? else {
        return Err(ManifestError::NoImage.into());
    };
    let mut manifests = named(layout, images, tag)?;
    for _ in 0..DEEPEST {
        let chosen = choose(&manifests, platform)?;
        match Manifest::parse(&layout.blob(&chosen.digest)?)? {
            Manifest::Image { config, layers } => return Ok((config, layers)),
            Manifest::Index(inner) => manifests = inner,
        }
    }
    Err(ManifestError::NoImage.into())
}

fn named(
    layout: &Layout,
    images: Vec<Descriptor>,
    tag: Option<&str>,
) -> Result<Vec<Descriptor>, LayoutError> {
    let path = || layout.path.clone();
    let there = || {
        let mut names: Vec<String> = images.iter().filter_map(name).map(str::to_owned).collect();
        names.dedup();
        names
    };
    match tag {
        None if there().len() > 1 => Err(LayoutError::Ambiguous { path: path(), there: there() }),
        None => Ok(images),
        Some(tag) => {
            let is_meant = |image: &&Descriptor| names(image).any(|name| is_called(name, tag));
            let meant: Vec<Descriptor> = images.iter().filter(is_meant).cloned().collect();
            if meant.is_empty() {
                return Err(LayoutError::Tag { path: path(), tag: tag.to_owned(), there: there() });
            }
            Ok(meant)
        }
    }
}

fn names(image: &Descriptor) -> impl Iterator<Item = &str> {
    let annotations = image.annotations.as_ref();
    NAMES.iter().filter_map(move |&key| annotations?.get(key)).map(String::as_str)
}

fn name(image: &Descriptor) -> Option<&str> {
    names(image).next()
}
