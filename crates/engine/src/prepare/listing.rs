//! What each channel of a job is on this machine: its objects, those that its manifest names, or a folder.

use std::io;
use std::path::PathBuf;

use futures_util::{StreamExt, TryStreamExt, stream};

use super::{Machine, PrepareError};
use crate::fastfile::{self, DEVICE};
use crate::manifest::{self, Attribute, LIMIT, Line, ManifestError};
use crate::plan::{Entry, Listing, Names, ObjectPlan, Piece};
use crate::spec::{ChannelSource, ChannelSpec, InputMode, ObjectUri, S3DataType};
use crate::storage::{Bytes, Object, StorageError, Stores};

/// Objects of a store that are looked for at once.
const AT_ONCE: usize = 32;

/// A channel that is not what its source says.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// Its objects can't be listed.
    #[error(transparent)]
    Storage(Box<StorageError>),
    /// Its manifest can't be used.
    #[error("the manifest {uri}")]
    Manifest {
        /// Of the manifest.
        uri: String,
        /// What is wrong with it.
        source: ManifestError,
    },
    /// There is no manifest.
    #[error("there is no manifest {uri}{}", place_of(path.as_ref()))]
    NoManifest {
        /// The URI.
        uri: String,
        /// What it stands for on this machine; none in a store.
        path: Option<PathBuf>,
    },
    /// The manifest names an object that is not there.
    #[error("the manifest {uri}, {place}: there is no object {object}{}", place_of(path.as_ref()))]
    NoObject {
        /// Of the manifest.
        uri: String,
        /// Element or line.
        place: String,
        /// Its URI.
        object: String,
        /// What that stands for on this machine; none in a store.
        path: Option<PathBuf>,
    },
    /// An object that the manifest names can't be looked at.
    #[error("the manifest {uri}, {place}")]
    Named {
        /// Of the manifest.
        uri: String,
        /// Element or line.
        place: String,
        /// What is wrong.
        source: Box<StorageError>,
    },
    /// What is in a store can't be read on demand on this machine.
    #[error(
        "InputMode FastFile needs {DEVICE} for objects of a store, such as {object}, and this user can't open it: let \
         the user read and write it, or use File or Pipe"
    )]
    NoFastFile {
        /// Its URI.
        object: String,
        /// Why the device can't be opened.
        source: io::Error,
    },
    /// What is in a store can't be read on demand in a container of a daemon.
    #[error(
        "InputMode FastFile is not supported for objects of a store, such as {object}, in a container of Docker or \
         Podman: use File or Pipe, or run the image without a daemon (--runtime oci)"
    )]
    FastFileInContainer {
        /// Its URI.
        object: String,
    },
    /// Nothing is known of the file system.
    #[error(
        "FileSystemId {id}: nobody has said which folder of this machine stands for the file system: say it with \
         --file-system {id}=DIR, or below [file_systems] in the configuration file"
    )]
    UnknownFileSystem {
        /// Its identity.
        id: String,
    },
    /// The folder would not be in the file system.
    #[error("DirectoryPath {directory}: a path may not hold the segment {segment:?}")]
    Segment {
        /// The path.
        directory: String,
        /// `.` or `..`.
        segment: String,
    },
    /// There is no such folder.
    #[error("DirectoryPath {directory} of file system {id}: {path:?} is not a folder")]
    NoFolder {
        /// The path in the file system.
        directory: String,
        /// The file system.
        id: String,
        /// On this machine.
        path: PathBuf,
    },
}

impl From<StorageError> for ChannelError {
    fn from(error: StorageError) -> Self {
        Self::Storage(Box::new(error))
    }
}

/// Whether a daemon's container can have a channel: nothing can be mounted in one.
pub(super) fn check_container(channel: &ChannelSpec, listing: &Listing) -> Result<(), PrepareError> {
    let far = listing.objects.iter().find(|object| object.source.path().is_none());
    match (channel.input_mode, far) {
        (InputMode::FastFile, Some(object)) => {
            let source = Box::new(ChannelError::FastFileInContainer { object: object.source.name() });
            Err(PrepareError::Channel { channel: channel.name.clone(), source })
        }
        _ => Ok(()),
    }
}

/// What stands behind a URI on this machine.
fn place_of(path: Option<&PathBuf>) -> String {
    path.map(|path| format!(" ({path:?} is not a file)")).unwrap_or_default()
}

/// What a channel is on this machine.
pub(super) async fn listing(
    channel: &ChannelSpec,
    machine: &Machine,
    stores: &Stores,
) -> Result<Listing, PrepareError> {
    let look = Look { machine, stores };
    let found = match &channel.source {
        ChannelSource::S3 { data_type, uri, attribute_names, .. } => match data_type {
            // Conversations are refused before: there is no capability for them.
            S3DataType::S3Prefix | S3DataType::Converse => look.prefix(uri, channel.input_mode).await,
            S3DataType::ManifestFile => look.of_manifest(uri).await,
            S3DataType::AugmentedManifestFile => look.of_lines(uri, attribute_names).await,
        },
        ChannelSource::FileSystem { id, directory, .. } => folder(id, directory, machine),
        // Refused before, like conversations.
        ChannelSource::Dataset { .. } => Ok(empty(String::new(), None)),
    };
    let failed = |source| PrepareError::Channel { channel: channel.name.clone(), source: Box::new(source) };
    found.map_err(failed)
}

fn empty(prefix: String, place: Option<PathBuf>) -> Listing {
    Listing { prefix, place, objects: Vec::new(), names: Names::AfterFolder, lines: None }
}

/// What it takes to find objects.
struct Look<'a> {
    machine: &'a Machine,
    stores: &'a Stores,
}

impl Look<'_> {
    async fn prefix(&self, uri: &ObjectUri, mode: InputMode) -> Result<Listing, ChannelError> {
        let location = self.machine.buckets.locate(uri)?;
        let objects = location.list(self.stores).await?;
        let far = objects.iter().find(|object| object.source.path().is_none());
        if let (InputMode::FastFile, Some(object)) = (mode, far) {
            let object = object.source.name();
            fastfile::usable().map_err(|source| ChannelError::NoFastFile { object, source })?;
        }
        Ok(Listing { objects, ..empty(location.key().to_owned(), location.path()) })
    }

    async fn of_manifest(&self, uri: &ObjectUri) -> Result<Listing, ChannelError> {
        let named = manifest::objects(&self.manifest(uri).await?);
        let named = named.map_err(|source| ChannelError::Manifest { uri: uri.to_string(), source })?;
        let location = self.machine.buckets.locate(&named.prefix)?;
        // The first element is the prefix.
        let elements = stream::iter(named.objects.iter().zip(2..));
        let found = elements.map(|(object, number)| self.find(uri, format!("element {number}"), object));
        Ok(Listing {
            objects: found.buffered(AT_ONCE).try_collect().await?,
            names: Names::AfterPrefix,
            ..empty(location.key().to_owned(), location.path())
        })
    }

    async fn of_lines(&self, uri: &ObjectUri, names: &[String]) -> Result<Listing, ChannelError> {
        let lines = manifest::lines(&*self.manifest(uri).await?, names);
        let lines = lines.map_err(|source| ChannelError::Manifest { uri: uri.to_string(), source })?;
        let entries = stream::iter(lines).map(|line| self.entry(uri, line));
        let entries = entries.buffered(AT_ONCE).try_collect().await?;
        let location = self.machine.buckets.locate(uri)?;
        Ok(Listing { lines: Some(entries), ..empty(location.key().to_owned(), location.path()) })
    }

    async fn entry(&self, manifest: &ObjectUri, line: Line) -> Result<Entry, ChannelError> {
        let mut pieces = Vec::with_capacity(line.attributes.len());
        for attribute in line.attributes {
            pieces.push(match attribute {
                Attribute::Text(text) => Piece::Text(text),
                Attribute::Reference(object) => {
                    let found = self.find(manifest, format!("line {}", line.number), &object).await?;
                    let Object { key, source, size } = found;
                    Piece::Object(ObjectPlan { source, relative: key, size })
                }
            });
        }
        Ok(Entry(pieces))
    }

    /// The content of a manifest, of a size that can be held in memory.
    async fn manifest(&self, uri: &ObjectUri) -> Result<Bytes, ChannelError> {
        let location = self.machine.buckets.locate(uri)?;
        let Some(found) = location.object(self.stores).await? else {
            return Err(ChannelError::NoManifest { uri: uri.to_string(), path: location.path() });
        };
        Ok(self.stores.read(&found.source, found.size, LIMIT).await?)
    }

    /// An object that a manifest names.
    async fn find(
        &self,
        manifest: &ObjectUri,
        place: String,
        uri: &ObjectUri,
    ) -> Result<Object, ChannelError> {
        let failed = |source: StorageError| ChannelError::Named {
            uri: manifest.to_string(),
            place: place.clone(),
            source: Box::new(source),
        };
        let location = self.machine.buckets.locate(uri).map_err(failed)?;
        let found = location.object(self.stores).await.map_err(failed)?;
        found.ok_or_else(|| ChannelError::NoObject {
            uri: manifest.to_string(),
            place: place.clone(),
            object: uri.to_string(),
            path: location.path(),
        })
    }
}

/// The folder of a shared file system.
fn folder(id: &str, directory: &str, machine: &Machine) -> Result<Listing, ChannelError> {
    let unknown = || ChannelError::UnknownFileSystem { id: id.to_owned() };
    let root = machine.file_systems.get(id).ok_or_else(unknown)?;
    if let Some(segment) = directory.split('/').find(|segment| matches!(*segment, "." | "..")) {
        let (directory, segment) = (directory.to_owned(), segment.to_owned());
        return Err(ChannelError::Segment { directory, segment });
    }
    let path = root.join(directory.trim_start_matches('/'));
    if !path.is_dir() {
        let (directory, id) = (directory.to_owned(), id.to_owned());
        return Err(ChannelError::NoFolder { directory, id, path });
    }
    Ok(empty(String::new(), Some(path)))
}
