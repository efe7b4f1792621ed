//! Images of files that daemons were given: which they are, and their removal when nobody needs them any more.
//!
//! For each there is a file in the data folder, named by the digest of its config: the daemon's socket and the names
//! by which the image was brought, one a line. Who uses the image holds a shared lock on the file; the file's time is
//! the last use.

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use bollard::models::ImageInspect;
use bollard::query_parameters::RemoveImageOptions;
use fs_err as fs;
use rustix::fs::{FlockOperation, flock};

use super::inspect;
use crate::docker::{Daemon, DaemonError, status};
use crate::image::digest::Digest;

/// Images of files are kept by the daemon under this name, with their digest as the tag.
const REPOSITORY: &str = "trainyard/loaded";

/// The images that daemons were given for jobs of a data folder.
#[derive(Clone, Debug)]
pub struct LoadedImages {
    folder: PathBuf,
}

/// An image that a daemon was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedImage {
    /// Digest of its config.
    pub digest: Digest,
    /// Where the daemon listens.
    pub socket: PathBuf,
    /// By which names it was brought, the last one first.
    pub names: Vec<String>,
    /// When it was brought or used last.
    pub used: SystemTime,
    /// Whether a job uses it now.
    pub in_use: bool,
}

/// An image that can't be removed from its daemon.
#[derive(Debug, thiserror::Error)]
pub enum RemoveLoadedError {
    /// A job uses it.
    #[error("a job uses the image {digest} at the moment: stop it, or try again when it has ended")]
    InUse {
        /// The image.
        digest: Digest,
    },
    /// The daemon does not do it.
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    /// What is written down of it.
    #[error("what is written down of the image {digest}")]
    Note {
        /// The image.
        digest: Digest,
        /// What is wrong with it.
        source: io::Error,
    },
}

pub(super) fn tag(digest: &Digest) -> String {
    format!("{REPOSITORY}:{}", digest.hex())
}

impl LoadedImages {
    /// Those of a data folder, which need not be there.
    pub fn of(data: &Path) -> Self {
        Self { folder: data.join("docker-images") }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes down that a daemon gets an image, or that it is used again. The lock is the caller's as long as it keeps
    /// the file.
    pub(super) fn note(&self, digest: &Digest, socket: &Path, name: &str) -> io::Result<fs::File> {
        fs::create_dir_all(&self.folder)?;
        let path = self.path(digest);
        loop {
            let file = fs::OpenOptions::new().create(true).append(true).read(true).open(&path)?;
            flock(&file, FlockOperation::LockShared)?;
            // Whoever removes it has it locked, and may have done so before the lock was ours.
            if same_file(&file, &path)? {
                let known = read(&path)?;
                let others = known.1.iter().map(String::as_str).filter(|known| *known != name);
                let names = std::iter::once(name).chain(others);
                let lines: String = names.map(|name| format!("{name}\n")).collect();
                let text = format!("{}\n{lines}", socket.display());
                if fs::read_to_string(&path)? != text {
                    fs::write(&path, text)?;
                }
                file.file().set_modified(SystemTime::now())?;
                return Ok(file);
            }
        }
    }

    /// Removes what was noted of an image that the daemon has not taken, unless somebody else tries too.
    pub(super) fn forget(&self, digest: &Digest, noted: fs::File) {
        if flock(&noted, FlockOperation::NonBlockingLockExclusive).is_ok() {
            // It does no harm, and is removed with what nobody uses.
            let _ = fs::remove_file(self.path(digest));
        }
    }

    /// All of them, the one that was used last first.
    ///
    /// # Errors
    ///
    /// Fails if the folder can't be read.
    pub fn list(&self) -> io::Result<Vec<LoadedImage>> {
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let Some(digest) = Digest::from_hex(name) else { continue };
            let file = fs::File::open(&path)?;
            let (socket, names) = read(&path)?;
            let in_use = flock(&file, FlockOperation::NonBlockingLockExclusive).is_err();
            found.push(LoadedImage { digest, socket, names, used: file.metadata()?.modified()?, in_use });
        }
        found.sort_by_key(|image| std::cmp::Reverse(image.used));
        Ok(found)
    }

    /// Removes an image from its daemon.
    ///
    /// # Errors
    ///
    /// A job uses it, also one of another data folder; or its daemon does not answer.
    pub async fn remove(&self, image: &LoadedImage) -> Result<(), RemoveLoadedError> {
        let digest = image.digest;
        let path = self.path(&digest);
        let note = |source| RemoveLoadedError::Note { digest, source };
        let file = fs::File::open(&path).map_err(note)?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(RemoveLoadedError::InUse { digest });
        }
        let daemon = Daemon::connect(&image.socket).await?;
        match daemon.client.remove_image(&tag(&digest), None::<RemoveImageOptions>, None).await {
            Ok(_) => {}
            Err(error) if status(&error) == Some(404) => {}
            // By a container, of whomever.
            Err(error) if status(&error) == Some(409) => return Err(RemoveLoadedError::InUse { digest }),
            Err(error) => return Err(daemon.failed("remove an image")(error).into()),
        }
        fs::remove_file(&path).map_err(note)
    }

    /// How large an image is at its daemon; none if the daemon has not got it.
    ///
    /// # Errors
    ///
    /// The daemon does not answer.
    pub async fn amount(image: &LoadedImage) -> Result<Option<Amount>, DaemonError> {
        let daemon = Daemon::connect(&image.socket).await?;
        Ok(inspect(&daemon, &tag(&image.digest)).await?.as_ref().map(Amount::of))
    }

    fn path(&self, digest: &Digest) -> PathBuf {
        self.folder.join(digest.hex())
    }
}

/// How large an image is at a daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amount {
    /// How many layers it has.
    pub layers: usize,
    /// Bytes of its files.
    pub bytes: u64,
}

impl Amount {
    pub(super) fn of(found: &ImageInspect) -> Self {
        let layers = found.root_fs.as_ref().and_then(|root| root.layers.as_ref()).map_or(0, Vec::len);
        Self { layers, bytes: found.size.and_then(|size| u64::try_from(size).ok()).unwrap_or_default() }
    }
}

/// Bytes of so many layers of an image, lowest first. The daemon lists steps and not layers: steps that have changed
/// no file count for nothing. An image whose config names no steps has layers of 0 bytes here.
pub(super) async fn layer_sizes(daemon: &Daemon, name: &str, layers: usize) -> Result<Vec<u64>, DaemonError> {
    let steps =
        daemon.client.image_history(name).await.map_err(daemon.failed("list the layers of an image"))?;
    let sizes = steps.iter().rev().filter_map(|step| u64::try_from(step.size).ok());
    let mut sizes: Vec<u64> = sizes.filter(|&size| size > 0).collect();
    sizes.resize(layers, 0);
    Ok(sizes)
}

fn read(path: &Path) -> io::Result<(PathBuf, Vec<String>)> {
    let text = fs::read_to_string(path)?;
    let mut lines = text.lines().map(str::to_owned);
    let socket = lines.next().unwrap_or_default();
    Ok((PathBuf::from(socket), lines.collect()))
}

fn same_file(file: &fs::File, path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    match fs::metadata(path) {
        Ok(now) => Ok(now.ino() == file.metadata()?.ino()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_noted_with_its_daemon_and_its_names() {
        let folder = tempfile::tempdir().unwrap();
        let images = LoadedImages::of(folder.path());
        assert_eq!(images.list().unwrap(), []);
        let digest = Digest::of(b"config");
        let socket = Path::new("/run/docker.sock");
        for name in ["oci:/a", "docker-archive:/b", "oci:/a"] {
            drop(images.note(&digest, socket, name).unwrap());
        }
        let held = images.note(&digest, socket, "oci:/a").unwrap();
        let found = images.list().unwrap();
        assert_eq!(found[0].names, ["oci:/a", "docker-archive:/b"]);
        assert_eq!((found[0].socket.as_path(), found[0].in_use, found.len()), (socket, true, 1));
        drop(held);
        assert!(!images.list().unwrap()[0].in_use);
    }
}
