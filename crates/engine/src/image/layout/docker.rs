//! What `docker save` writes: `manifest.json`, and the files that it names. Older versions name a
//! folder per layer, newer ones blobs by digest.

use serde::Deserialize;

use super::{Layout, LayoutError};
use crate::image::digest::Digest;

/// The document that lists an archive's images.
const MANIFEST: &str = "manifest.json";

#[derive(Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Listed {
    config: String,
    repo_tags: Option<Vec<String>>,
    layers: Option<Vec<String>>,
}

/// One image of an archive.
pub(in crate::image) struct Saved {
    pub(in crate::image) config: Vec<u8>,
    /// Names of the layers' files, lowest first.
    pub(in crate::image) layers: Vec<String>,
}

/// Finds the image that `tag` names, or the only one.
pub(in crate::image) fn find(layout: &Layout, tag: Option<&str>) -> Result<Saved, LayoutError> {
    if !layout.has(MANIFEST) {
        let hint = match layout.has("oci-layout") {
            true => "it is an OCI layout, write oci-archive: before its name",
            false => "docker save writes archives that have one",
        };
        return Err(LayoutError::NoImage { path: layout.path.clone(), lacks: MANIFEST, hint });
    }
    let images: Vec<Listed> = layout.json(MANIFEST)?;
    let image = choose(layout, &images, tag)?;
    let config = layout.document(&image.config)?;
    // The file is named after its digest.
    let stem = image.config.rsplit('/').next().unwrap_or_default().trim_end_matches(".json");
    let actual = Digest::of(&config);
    if Digest::from_hex(stem).is_some_and(|expected| expected != actual) {
        let (path, member) = (layout.path.clone(), image.config.clone());
        return Err(LayoutError::Digest { path, member, actual });
    }
    Ok(Saved { config, layers: image.layers.clone().unwrap_or_default() })
}

fn choose<'a>(layout: &Layout, images: &'a [Listed], tag: Option<&str>) -> Result<&'a Listed, LayoutError> {
    let path = || layout.path.clone();
    let tags = |image: &Listed| image.repo_tags.clone().unwrap_or_default();
    let there = || images.iter().flat_map(tags).collect();
    match (tag, images) {
        (None, [only]) => Ok(only),
        (None, []) => {
            Err(LayoutError::NoImage { path: path(), lacks: "image", hint: "its list of images is empty" })
        }
        (None, _) => Err(LayoutError::Ambiguous { path: path(), there: there() }),
        (Some(tag), _) => images
            .iter()
            .find(|image| tags(image).iter().any(|there| is_called(there, tag)))
            .ok_or_else(|| LayoutError::Tag { path: path(), tag: tag.to_owned(), there: there() }),
    }
}

/// Whether `tag` is all of a name, the name without `latest`, or the part behind its colon.
pub(super) fn is_called(name: &str, tag: &str) -> bool {
    name == tag
        || name.rsplit_once(':').is_some_and(|(front, back)| {
            !back.contains('/') && (back == tag || (back == "latest" && front == tag))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_a_whole_name_or_the_end_of_one() {
        for (name, tag, expected) in [
            ("fit:1", "fit:1", true),
            ("fit:1", "1", true),
            ("fit:latest", "fit", true),
            ("fit:1", "fit", false),
            ("host:5000/fit", "5000/fit", false),
            ("host:5000/fit:2", "2", true),
        ] {
            assert_eq!(is_called(name, tag), expected, "{name} {tag}");
        }
    }
}
