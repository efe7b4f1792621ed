//! Manifests and indexes, both Docker's and OCI's: they differ in nothing that is needed here.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::digest::Digest;
use super::platform::Platform;

/// Manifests, indexes and configs larger than this are refused, in bytes; registries use the same limit.
pub(super) const DOCUMENT_LIMIT: u64 = 4 << 20;

/// A pointer to some content.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Descriptor {
    pub(super) digest: Digest,
    pub(super) size: u64,
    pub(super) platform: Option<Platform>,
    pub(super) annotations: Option<BTreeMap<String, String>>,
}

/// What a reference points to.
#[derive(Debug)]
pub(super) enum Manifest {
    /// One image.
    Image { config: Descriptor, layers: Vec<Descriptor> },
    /// The same image for several platforms, or several images.
    Index(Vec<Descriptor>),
}

/// A manifest that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// No JSON of the right form.
    #[error("the manifest is damaged")]
    Json(#[from] serde_json::Error),
    /// A format that Docker gave up in 2017.
    #[error("the manifest has schema version {version}; only version 2 is supported: push the image again")]
    Schema {
        /// What it says.
        version: u64,
    },
    /// Something that is stored like an image.
    #[error("this is no container image: its manifest lists neither layers nor other manifests")]
    NoImage,
    /// An index without an image for this machine.
    #[error("the image is there for {}, but not for {wanted}", there.join(", "))]
    Platform {
        /// What was looked for.
        wanted: Platform,
        /// What there is, as `os/architecture`.
        there: Vec<String>,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    schema_version: Option<u64>,
    config: Option<Descriptor>,
    layers: Option<Vec<Descriptor>>,
    manifests: Option<Vec<Descriptor>>,
}

impl Manifest {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, ManifestError> {
        let wire: Wire = serde_json::from_slice(bytes)?;
        match (wire.schema_version, wire.config, wire.manifests) {
            (Some(version), ..) if version != 2 => Err(ManifestError::Schema { version }),
            (_, Some(config), _) => {
                Ok(Self::Image { config, layers: wire.layers.ok_or(ManifestError::NoImage)? })
            }
            (_, None, Some(manifests)) => Ok(Self::Index(manifests)),
            (_, None, None) => Err(ManifestError::NoImage),
        }
    }
}

/// Chooses what suits a machine best. An entry without a platform suits if there is no other.
pub(super) fn choose(manifests: &[Descriptor], wanted: &Platform) -> Result<Descriptor, ManifestError> {
    if let [only] = manifests
        && only.platform.is_none()
    {
        return Ok(only.clone());
    }
    let distance = |entry: &&Descriptor| entry.platform.as_ref().and_then(|there| wanted.distance(there));
    let best = manifests.iter().filter(|entry| distance(entry).is_some()).min_by_key(distance);
    best.cloned().ok_or_else(|| ManifestError::Platform {
        wanted: wanted.clone(),
        there: manifests
            .iter()
            .filter_map(|entry| entry.platform.as_ref())
            // Signatures and other attachments are listed so.
            .filter(|platform| platform.os != "unknown")
            .map(ToString::to_string)
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// System, processor and variant of a platform.
    type Words<'a> = (&'a str, &'a str, Option<&'a str>);

    fn index(platforms: &[Option<Words<'_>>]) -> Vec<Descriptor> {
        let entry = |(number, platform): (usize, &Option<Words<'_>>)| Descriptor {
            digest: Digest::of(&[u8::try_from(number).unwrap()]),
            size: 1,
            platform: platform.map(|(os, architecture, variant)| Platform {
                os: os.into(),
                architecture: architecture.into(),
                variant: variant.map(Into::into),
            }),
            annotations: None,
        };
        platforms.iter().enumerate().map(entry).collect()
    }

    #[test]
    fn the_nearest_platform_is_chosen() {
        let arm = Platform { os: "linux".into(), architecture: "arm".into(), variant: Some("v7".into()) };
        let there = index(&[
            Some(("linux", "arm", Some("v6"))),
            Some(("linux", "arm", Some("v7"))),
            Some(("linux", "arm64", None)),
        ]);
        assert_eq!(choose(&there, &arm).unwrap().digest, there[1].digest);
        assert_eq!(choose(&there[..1], &arm).unwrap().digest, there[0].digest);
        assert_eq!(choose(&index(&[None]), &arm).unwrap().digest, there[0].digest);
    }

    #[test]
    fn a_platform_that_is_not_there_is_told_with_those_that_are() {
        let amd = Platform { os: "linux".into(), architecture: "amd64".into(), variant: None };
        let there = index(&[
            Some(("linux", "arm64", Some("v8"))),
            Some(("unknown", "unknown", None)),
            Some(("windows", "amd64", None)),
        ]);
        let error = choose(&there, &amd).unwrap_err().to_string();
        assert_eq!(error, "the image is there for linux/arm64/v8, windows/amd64, but not for linux/amd64");
    }

    #[test]
    fn other_documents_are_refused_by_what_they_are() {
        let parse = |text: &str| Manifest::parse(text.as_bytes()).unwrap_err();
        assert!(matches!(
            parse(r#"{"schemaVersion":1,"fsLayers":[]}"#),
            ManifestError::Schema { version: 1 }
        ));
        assert!(matches!(parse(r#"{"schemaVersion":2}"#), ManifestError::NoImage));
        assert!(matches!(parse("[]"), ManifestError::Json(_)));
        let digest = r#"{"schemaVersion":2,"config":{"digest":"sha256:../x","size":1},"layers":[]}"#;
        assert!(matches!(parse(digest), ManifestError::Json(_)));
    }
}
