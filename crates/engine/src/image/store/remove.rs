//! What nothing uses any more, and its removal.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use fs_err as fs;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::{ImageStore, StoreError, at, open_lock};
use crate::artifact::{RemoveError, remove_tree};
use crate::image::config::ImageConfig;
use crate::image::digest::Digest;

/// Something in the store that nothing uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unused {
    /// An image's config; its layers are listed for themselves if no other image has them.
    Image(Digest),
    /// A layer of no other image.
    Layer {
        /// By which it is named.
        diff_id: Digest,
        /// Bytes of its files.
        bytes: u64,
    },
    /// A file that was not completed, or a manifest.
    File {
        /// Where.
        path: PathBuf,
        /// Its size.
        bytes: u64,
    },
}

/// Which images are meant.
#[derive(Clone, Copy)]
enum Which<'a> {
    /// Those that nobody has wanted since.
    NotSince(SystemTime),
    /// One.
    One(&'a Digest),
}

/// What is not used can't be removed.
#[derive(Debug, thiserror::Error)]
pub enum RemoveUnusedError {
    /// The image that is to be removed.
    #[error("a job uses the image {digest} at the moment: stop it, or try again when it has ended")]
    InUse {
        /// The image.
        digest: Digest,
    },
    /// Somebody needs the store as it is.
    #[error("images are being obtained at the moment: try again when that is done")]
    Busy,
    /// The store can't be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A layer that can't be removed.
    #[error(transparent)]
    Remove(#[from] RemoveError),
}

impl ImageStore {
    /// What [`ImageStore::remove_unused`] would remove.
    ///
    /// # Errors
    ///
    /// Fails if images are being obtained, or the store can't be read.
    pub fn unused(&self, before: SystemTime) -> Result<Vec<Unused>, RemoveUnusedError> {
        let _alone = self.lock_alone()?;
        Ok(self.find_unused(Which::NotSince(before))?.0)
    }

    /// Removes images that nobody uses and that were obtained last `before`, the layers of no other
    /// image, and all that was not completed. Returns what was removed.
    ///
    /// # Errors
    ///
    /// Fails if images are being obtained, or something can't be removed.
    pub fn remove_unused(&self, before: SystemTime) -> Result<Vec<Unused>, RemoveUnusedError> {
        let _alone = self.lock_alone()?;
        self.remove_which(Which::NotSince(before))
    }

    /// Removes one image and the layers that no other image needs. Returns what was removed.
    ///
    /// # Errors
    ///
    /// Fails if a job uses the image, images are being obtained, or something can't be removed.
    pub fn remove_image(&self, digest: &Digest) -> Result<Vec<Unused>, RemoveUnusedError> {
        let _alone = self.lock_alone()?;
        let removed = self.remove_which(Which::One(digest))?;
        if !removed.contains(&Unused::Image(*digest)) && self.image(digest).exists() {
            return Err(RemoveUnusedError::InUse { digest: *digest });
        }
        Ok(removed)
    }

    fn remove_which(&self, which: Which<'_>) -> Result<Vec<Unused>, RemoveUnusedError> {
        let (unused, _locks) = self.find_unused(which)?;
        for one in &unused {
            self.remove(one)?;
        }
        Ok(unused)
    }

    fn lock_alone(&self) -> Result<File, RemoveUnusedError> {
        let path = self.root.join("lock");
        let file = open_lock(&path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(file),
            Err(Errno::AGAIN) => Err(RemoveUnusedError::Busy),
            Err(errno) => Err(at("lock", &path, errno).into()),
        }
    }

    /// The locks keep what was found unused as it is. Images come first, so that none is left without
    /// its layers.
    fn find_unused(&self, which: Which<'_>) -> Result<(Vec<Unused>, Vec<File>), StoreError> {
        let (mut unused, mut locks, mut needed) = (Vec::new(), Vec::new(), BTreeSet::new());
        for (name, path) in self.entries("images")? {
            let Some(digest) = Digest::from_hex(&name) else { continue };
            let meant = match which {
                Which::NotSince(before) => was_obtained(&path)? < before,
                Which::One(one) => *one == digest,
            };
            match if meant { lock_unused(&path)? } else { None } {
                Some(lock) => {
                    locks.push(lock);
                    unused.push(Unused::Image(digest));
                }
                None => {
                    let text = fs::read(&path).map_err(|source| at("read", &path, source))?;
                    needed
                        .extend(ImageConfig::parse(&text).map(|config| config.diff_ids).unwrap_or_default());
                }
            }
        }
        for (name, path) in self.entries("layers")? {
            match Digest::from_hex(&name) {
                Some(diff_id) if !needed.contains(&diff_id) => {
                    let size = fs::read_to_string(path.join("size")).unwrap_or_default();
                    unused.push(Unused::Layer { diff_id, bytes: size.trim().parse().unwrap_or(0) });
                }
                Some(_) => {}
                None => unused.push(file(path)),
            }
        }
        if let Which::One(_) = which {
            unused.retain(|one| !matches!(one, Unused::File { .. }));
            return Ok((unused, locks));
        }
        for folder in ["blobs", "incoming"] {
            unused.extend(self.entries(folder)?.into_iter().map(|(_, path)| file(path)));
        }
        // Manifests are small, and say what a digest stands for as long as there are images.
        if needed.is_empty() {
            unused.extend(self.entries("manifests")?.into_iter().map(|(_, path)| file(path)));
        }
        Ok((unused, locks))
    }

    pub(super) fn entries(&self, folder: &str) -> Result<Vec<(String, PathBuf)>, StoreError> {
        let folder = self.root.join(folder);
        let listed = fs::read_dir(&folder).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let entries = listed.map_err(|source| at("list", &folder, source))?;
        let named = |entry: &fs::DirEntry| (entry.file_name().to_string_lossy().into_owned(), entry.path());
        Ok(entries.iter().map(named).collect())
    }

    fn remove(&self, unused: &Unused) -> Result<(), RemoveUnusedError> {
        match unused {
            Unused::Image(digest) => {
                remove_tree(&self.image(digest))?;
                if self.names_of(digest).exists() {
                    remove_tree(&self.names_of(digest))?;
                }
            }
            // Under another name first, so that half of it is never taken for all of it.
            Unused::Layer { diff_id, .. } => {
                let layer = self.layer(diff_id);
                let away = layer.with_extension("unpacking");
                fs::rename(&layer, &away).map_err(|source| at("remove", &layer, source))?;
                remove_tree(&away)?;
            }
            Unused::File { path, .. } => remove_tree(path)?,
        }
        Ok(())
    }
}

fn was_obtained(path: &Path) -> Result<SystemTime, StoreError> {
    let found = fs::metadata(path).and_then(|found| found.modified());
    found.map_err(|source| at("look at", path, source))
}

/// The lock of an image that nobody uses.
fn lock_unused(path: &Path) -> Result<Option<File>, StoreError> {
    let file = File::options().read(true).open(path).map_err(|source| at("open", path, source))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(Errno::AGAIN) => Ok(None),
        Err(errno) => Err(at("lock", path, errno)),
    }
}

fn file(path: PathBuf) -> Unused {
    let bytes = fs::symlink_metadata(&path).map_or(0, |found| found.len());
    Unused::File { path, bytes }
}
