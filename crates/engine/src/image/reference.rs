//! What an image is called: an archive, a folder, or a name in a registry.

use std::fmt;
use std::path::{Path, PathBuf};

use super::digest::Digest;

/// Where an image is to be taken from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageReference {
    /// `docker-archive:FILE[:TAG]`, a file as `docker save` writes it.
    DockerArchive {
        /// The file.
        file: PathBuf,
        /// Which of its images, needed only if it holds several.
        tag: Option<String>,
    },
    /// `oci-archive:FILE[:TAG]`, an OCI image layout in one tar file.
    OciArchive {
        /// The file.
        file: PathBuf,
        /// Which of its images, needed only if it holds several.
        tag: Option<String>,
    },
    /// `oci:DIR[:TAG]`, an OCI image layout as a folder.
    OciFolder {
        /// The folder.
        folder: PathBuf,
        /// Which of its images, needed only if it holds several.
        tag: Option<String>,
    },
    /// `[HOST[:PORT]/]REPOSITORY[:TAG][@DIGEST]`.
    Registry(RegistryReference),
}

/// An image in a registry, with Docker's defaults: the registry `docker.io`, its repositories
/// `library/…`, the tag `latest`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryReference(oci_client::Reference);

/// A text that names no image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    /// Nothing at all.
    #[error("the name of the image is empty")]
    Empty,
    /// A form without its file or folder.
    #[error("image {reference:?} names no {what}: write {form}")]
    NoPath {
        /// The text.
        reference: String,
        /// `file` or `folder`.
        what: &'static str,
        /// How it is written.
        form: &'static str,
    },
    /// An address as for a browser.
    #[error("image {reference:?} begins with a scheme: write it without {scheme}://")]
    Scheme {
        /// The text.
        reference: String,
        /// What stands before `://`.
        scheme: String,
    },
    /// Upper-case letters in a repository.
    #[error("image {reference:?}: the repository must be in lower-case letters")]
    UpperCase {
        /// The text.
        reference: String,
    },
    /// A digest that is none.
    #[error("image {reference:?}: what follows the @ must be sha256: and 64 hexadecimal digits")]
    Digest {
        /// The text.
        reference: String,
    },
    /// Anything else.
    #[error(
        "image {reference:?} is no name of an image: [HOST[:PORT]/]REPOSITORY[:TAG][@DIGEST], \
         docker-archive:FILE, oci-archive:FILE or oci:FOLDER is expected"
    )]
    Malformed {
        /// The text.
        reference: String,
    },
}

impl ImageReference {
    /// Reads a reference. Relative paths are relative to `folder`. The path ends at the first colon.
    ///
    /// # Errors
    ///
    /// Fails where the text names no image.
    pub fn parse(text: &str, folder: &Path) -> Result<Self, ReferenceError> {
        let place = |rest: &str, what, form| {
            let (path, tag) = rest.split_once(':').map_or((rest, None), |(path, tag)| (path, Some(tag)));
            if path.is_empty() {
                return Err(ReferenceError::NoPath { reference: text.to_owned(), what, form });
            }
            Ok((folder.join(path), tag.filter(|tag| !tag.is_empty()).map(str::to_owned)))
        };
        if let Some(rest) = text.strip_prefix("docker-archive:") {
            let (file, tag) = place(rest, "file", "docker-archive:FILE")?;
            return Ok(Self::DockerArchive { file, tag });
        }
        if let Some(rest) = text.strip_prefix("oci-archive:") {
            let (file, tag) = place(rest, "file", "oci-archive:FILE")?;
            return Ok(Self::OciArchive { file, tag });
        }
        if let Some(rest) = text.strip_prefix("oci:") {
            let (folder, tag) = place(rest, "folder", "oci:FOLDER")?;
            return Ok(Self::OciFolder { folder, tag });
        }
        RegistryReference::parse(text).map(Self::Registry)
    }
}

impl fmt::Display for ImageReference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (form, path, tag) = match self {
            Self::DockerArchive { file, tag } => ("docker-archive", file, tag),
            Self::OciArchive { file, tag } => ("oci-archive", file, tag),
            Self::OciFolder { folder, tag } => ("oci", folder, tag),
            Self::Registry(reference) => return reference.fmt(formatter),
        };
        write!(formatter, "{form}:{}", path.display())?;
        tag.as_ref().map_or(Ok(()), |tag| write!(formatter, ":{tag}"))
    }
}

impl RegistryReference {
    fn parse(text: &str) -> Result<Self, ReferenceError> {
        let reference = || text.to_owned();
        if text.is_empty() {
            return Err(ReferenceError::Empty);
        }
        if let Some((scheme, _)) = text.split_once("://") {
            return Err(ReferenceError::Scheme { reference: reference(), scheme: scheme.to_owned() });
        }
        if let Some((_, digest)) = text.split_once('@')
            && digest.parse::<Digest>().is_err()
        {
            return Err(ReferenceError::Digest { reference: reference() });
        }
        text.parse().map(Self).map_err(|_| {
            if text.to_lowercase().parse::<oci_client::Reference>().is_ok() {
                ReferenceError::UpperCase { reference: reference() }
            } else {
                ReferenceError::Malformed { reference: reference() }
            }
        })
    }

    /// The registry's host, and its port unless it is the usual one.
    pub fn registry(&self) -> &str {
        self.0.registry()
    }

    /// The digest that the manifest must have, if one was given.
    pub fn digest(&self) -> Option<Digest> {
        self.0.digest()?.parse().ok()
    }

    /// Whether the registry is on this machine, so that nobody can listen in.
    pub(super) fn is_loopback(&self) -> bool {
        let host = self.registry().split(':').next().unwrap_or_default();
        host == "localhost" || host.parse::<std::net::Ipv4Addr>().is_ok_and(|address| address.is_loopback())
    }

    pub(super) fn inner(&self) -> &oci_client::Reference {
        &self.0
    }
}

impl fmt::Display for RegistryReference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn parse(text: &str) -> Result<ImageReference, ReferenceError> {
        ImageReference::parse(text, Path::new("/here"))
    }

    #[test]
    fn a_name_is_completed_as_docker_does() {
        let table = [
            ("busybox", "docker.io/library/busybox:latest"),
            ("team/fit:2", "docker.io/team/fit:2"),
            ("index.docker.io/team/fit", "docker.io/team/fit:latest"),
            ("localhost/fit", "localhost/fit:latest"),
            ("localhost:5000/team/fit", "localhost:5000/team/fit:latest"),
            (
                "123456789012.dkr.ecr.eu-west-1.amazonaws.com/fit:1",
                "123456789012.dkr.ecr.eu-west-1.amazonaws.com/fit:1",
            ),
        ];
        for (text, whole) in table {
            assert_eq!(parse(text).unwrap().to_string(), whole);
        }
        let pinned = format!("host.example/fit:1@{DIGEST}");
        let ImageReference::Registry(reference) = parse(&pinned).unwrap() else { panic!("{pinned}") };
        assert_eq!(reference.digest(), Some(DIGEST.parse().unwrap()));
    }

    #[test]
    fn files_and_folders_are_told_by_their_prefix() {
        let file = PathBuf::from("/images/a.tar");
        let tag = Some("fit:1".to_owned());
        assert_eq!(
            parse("docker-archive:/images/a.tar:fit:1").unwrap(),
            ImageReference::DockerArchive { file: file.clone(), tag: tag.clone() }
        );
        assert_eq!(
            parse("oci-archive:/images/a.tar:fit:1").unwrap(),
            ImageReference::OciArchive { file, tag }
        );
        let folder = PathBuf::from("/here/layout");
        assert_eq!(parse("oci:layout").unwrap(), ImageReference::OciFolder { folder, tag: None });
        assert_eq!(parse("oci:layout:1").unwrap().to_string(), "oci:/here/layout:1");
    }

    #[test]
    fn what_is_wrong_with_a_name_is_said() {
        use ReferenceError::*;
        assert!(matches!(parse(""), Err(Empty)));
        assert!(matches!(parse("oci:"), Err(NoPath { what: "folder", .. })));
        assert!(matches!(parse("docker-archive::1"), Err(NoPath { .. })));
        assert!(matches!(parse("https://host/fit"), Err(Scheme { .. })));
        assert!(matches!(parse("Fit"), Err(UpperCase { .. })));
        assert!(matches!(parse("fit@sha256:12"), Err(Digest { .. })));
        assert!(matches!(parse("fit:"), Err(Malformed { .. })));
        assert!(matches!(parse("fit tool"), Err(Malformed { .. })));
        assert!(matches!(parse("../fit"), Err(Malformed { .. })));
    }

    #[test]
    fn only_registries_of_this_machine_are_loopback() {
        let loopback = |text: &str| match parse(text).unwrap() {
            ImageReference::Registry(reference) => reference.is_loopback(),
            other => panic!("{other}"),
        };
        assert!(loopback("localhost:5000/fit") && loopback("127.0.0.1:5000/fit"));
        assert!(
            !loopback("localhost.example:5000/fit") && !loopback("10.0.0.1:5000/fit") && !loopback("fit")
        );
    }
}
