//! Which images are there, and what they were called when they were brought.

use std::collections::BTreeSet;
use std::io;
use std::time::SystemTime;

use fs_err as fs;
use rustix::fs::{FlockOperation, flock};

use super::{ImageStore, StoreError, at};
use crate::image::config::ImageConfig;
use crate::image::digest::Digest;

/// An image of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredImage {
    /// Digest of its config, which Docker calls the image's id.
    pub digest: Digest,
    /// By which names it was obtained, the last one first.
    pub names: Vec<String>,
    /// Bytes of the files of each layer, lowest first; 0 where the store does not know. Other images may share them.
    pub layers: Vec<u64>,
    /// When it was obtained last.
    pub used: SystemTime,
    /// Whether somebody uses it now.
    pub in_use: bool,
}

impl ImageStore {
    /// All images, the one that was used last first.
    ///
    /// # Errors
    ///
    /// Fails if the store can't be read.
    pub fn list(&self) -> Result<Vec<StoredImage>, StoreError> {
        let mut found = Vec::new();
        for (name, path) in self.entries("images")? {
            let Some(digest) = Digest::from_hex(&name) else { continue };
            let image = || -> io::Result<StoredImage> {
                let file = fs::File::open(&path)?;
                let in_use = flock(&file, FlockOperation::NonBlockingLockExclusive).is_err();
                let config = ImageConfig::parse(&fs::read(&path)?);
                let diff_ids = config.map(|config| config.diff_ids).unwrap_or_default();
                Ok(StoredImage {
                    digest,
                    names: self.read_names(&digest)?,
                    layers: diff_ids.iter().map(|layer| self.layer_size(layer)).collect(),
                    used: file.metadata()?.modified()?,
                    in_use,
                })
            };
            match image() {
                Ok(image) => found.push(image),
                // It was removed just now.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(source) => return Err(at("read", &path, source)),
            }
        }
        found.sort_by_key(|image| std::cmp::Reverse(image.used));
        Ok(found)
    }

    /// Writes down by which name an image was obtained.
    pub(crate) fn add_name(&self, digest: &Digest, name: &str) -> Result<(), StoreError> {
        let path = self.names_of(digest);
        let known = self.read_names(digest).map_err(|source| at("read", &path, source))?;
        if known.first().is_some_and(|first| first == name) {
            return Ok(());
        }
        let others = known.iter().map(String::as_str).filter(|known| *known != name);
        let lines: String = std::iter::once(name).chain(others).map(|name| format!("{name}\n")).collect();
        self.write(&path, lines.as_bytes(), true)
    }

    fn read_names(&self, digest: &Digest) -> io::Result<Vec<String>> {
        let mut seen = BTreeSet::new();
        match fs::read_to_string(self.names_of(digest)) {
            Ok(text) => Ok(text.lines().filter(|line| seen.insert(*line)).map(str::to_owned).collect()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    fn layer_size(&self, layer: &Digest) -> u64 {
        let text = fs::read_to_string(self.layer(layer).join("size")).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }
}
