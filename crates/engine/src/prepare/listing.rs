//! What each channel of a job is on this machine: its objects, those that its manifest names, or a folder.

use std::io::{self, BufReader, Read};
use std::path::PathBuf;

use fs_err as fs;

use super::{Machine, PrepareError};
use crate::manifest::{self, Attribute, LIMIT, ManifestError};
use crate::plan::{Entry, Listing, Names, ObjectPlan, Piece};
use crate::spec::{ChannelSource, ChannelSpec, ObjectUri, S3DataType};
use crate::storage::{Location, Object, StorageError};

/// A channel that is not what its source says.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// Its objects can't be listed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// Its manifest can't be used.
    #[error("the manifest {uri}")]
    Manifest {
        /// Of the manifest.
        uri: String,
        /// What is wrong with it.
        source: ManifestError,
    },
    /// There is no manifest.
    #[error("there is no manifest {uri} ({path:?} is not a file)")]
    NoManifest {
        /// The URI.
        uri: String,
        /// What it stands for.
        path: PathBuf,
    },
    /// The manifest names an object that is not there.
    #[error("the manifest {uri}, {place}: there is no object {object} ({path:?} is not a file)")]
    NoObject {
        /// Of the manifest.
        uri: String,
        /// Element or line.
        place: String,
        /// Its URI.
        object: String,
        /// What that stands for.
        path: PathBuf,
    },
    /// An object that the manifest names can't be looked at.
    #[error("the manifest {uri}, {place}")]
    Named {
        /// Of the manifest.
        uri: String,
        /// Element or line.
        place: String,
        /// What is wrong.
        source: StorageError,
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

/// What a channel is on this machine.
pub(super) fn listing(channel: &ChannelSpec, machine: &Machine) -> Result<Listing, PrepareError> {
    let found = match &channel.source {
        ChannelSource::S3 { data_type, uri, attribute_names, .. } => match data_type {
            // Conversations are refused before: there is no capability for them.
            S3DataType::S3Prefix | S3DataType::Converse => prefix(uri, machine),
            S3DataType::ManifestFile => of_manifest(uri, machine),
            S3DataType::AugmentedManifestFile => of_lines(uri, attribute_names, machine),
        },
        ChannelSource::FileSystem { id, directory, .. } => folder(id, directory, machine),
        // Refused before, like conversations.
        ChannelSource::Dataset { .. } => Ok(empty(String::new(), PathBuf::new())),
    };
    found.map_err(|source| PrepareError::Channel { channel: channel.name.clone(), source })
}

fn empty(prefix: String, place: PathBuf) -> Listing {
    Listing { prefix, place, objects: Vec::new(), names: Names::AfterFolder, lines: None }
}

fn prefix(uri: &ObjectUri, machine: &Machine) -> Result<Listing, ChannelError> {
    let location = machine.buckets.locate(uri)?;
    let objects = location.list()?;
    Ok(Listing { objects, ..empty(location.key.clone(), location.path()) })
}

fn of_manifest(uri: &ObjectUri, machine: &Machine) -> Result<Listing, ChannelError> {
    let mut text = Vec::new();
    let failed = |source| ChannelError::Manifest { uri: uri.to_string(), source };
    open_manifest(uri, machine)?
        .read_to_end(&mut text)
        .map_err(|error| failed(ManifestError::Read(error)))?;
    let named = manifest::objects(&text).map_err(failed)?;
    let location = machine.buckets.locate(&named.prefix)?;
    // The first element is the prefix.
    let objects = named.objects.iter().enumerate();
    let objects =
        objects.map(|(index, object)| find(uri, &format!("element {}", index + 2), object, machine));
    Ok(Listing {
        objects: objects.collect::<Result<_, _>>()?,
        names: Names::AfterPrefix,
        ..empty(location.key.clone(), location.path())
    })
}

fn of_lines(uri: &ObjectUri, names: &[String], machine: &Machine) -> Result<Listing, ChannelError> {
    let lines = manifest::lines(BufReader::new(open_manifest(uri, machine)?), names)
        .map_err(|source| ChannelError::Manifest { uri: uri.to_string(), source })?;
    let mut entries = Vec::with_capacity(lines.len());
    for line in lines {
        let place = format!("line {}", line.number);
        let piece = |attribute: Attribute| match attribute {
            Attribute::Text(text) => Ok(Piece::Text(text)),
            Attribute::Reference(object) => {
                let found = find(uri, &place, &object, machine)?;
                Ok(Piece::Object(ObjectPlan { source: found.path, relative: found.key, size: found.size }))
            }
        };
        entries.push(Entry(line.attributes.into_iter().map(piece).collect::<Result<_, ChannelError>>()?));
    }
    let location = machine.buckets.locate(uri)?;
    Ok(Listing { lines: Some(entries), ..empty(location.key.clone(), location.path()) })
}

/// A manifest, of a size that can be held in memory.
fn open_manifest(uri: &ObjectUri, machine: &Machine) -> Result<impl Read, ChannelError> {
    let location = machine.buckets.locate(uri)?;
    let Some(found) = object(&location)? else {
        return Err(ChannelError::NoManifest { uri: uri.to_string(), path: location.path() });
    };
    if found.size > LIMIT {
        let source = ManifestError::TooLarge { size: found.size };
        return Err(ChannelError::Manifest { uri: uri.to_string(), source });
    }
    Ok(fs::File::open(&found.path).map_err(StorageError::Io)?.take(LIMIT))
}

/// An object that a manifest names.
fn find(
    manifest: &ObjectUri,
    place: &str,
    uri: &ObjectUri,
    machine: &Machine,
) -> Result<Object, ChannelError> {
    let (manifest, place) = (manifest.to_string(), place.to_owned());
    let location = match machine.buckets.locate(uri) {
        Ok(location) => location,
        Err(source) => return Err(ChannelError::Named { uri: manifest, place, source }),
    };
    match object(&location) {
        Ok(Some(found)) => Ok(found),
        Ok(None) => {
            let (object, path) = (uri.to_string(), location.path());
            Err(ChannelError::NoObject { uri: manifest, place, object, path })
        }
        Err(source) => Err(ChannelError::Named { uri: manifest, place, source }),
    }
}

/// One object, if it is there.
fn object(location: &Location) -> Result<Option<Object>, StorageError> {
    let path = location.path();
    match fs::metadata(&path) {
        Ok(found) if found.is_file() => {
            Ok(Some(Object { key: location.key.clone(), path, size: found.len() }))
        }
        Ok(_) => Ok(None),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(error.into()),
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
    Ok(empty(String::new(), path))
}
