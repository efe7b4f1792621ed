//! The third phase: packs what the instance hands back.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::available_parallelism;
use std::time::Duration;

use fs_err as fs;
use glob::Pattern;
use tokio::task::{JoinError, JoinHandle, spawn_blocking};

use super::Scene;
use super::elsewhere::large_files;
use super::reports::{PROGRESS_INTERVAL, Reports};
use super::upload::{self, UploadError};
use crate::artifact::{IndexError, PackError, PackOptions, PackedPart, index_path, largest, pack};
use crate::explain::bytes;
use crate::plan::Role;
use crate::run::{InstanceDirectory, Part, Parts, Report, RunDirectoryError};
use crate::spec::OutputCompression;
use crate::storage::Upload;

/// Why an instance can't hand back what it wrote.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CollectError {
    #[error("{path} was replaced by a link or a file; only a folder is handed back")]
    NotAFolder { path: &'static str },
    #[error("can't pack {path}")]
    Pack { path: &'static str, source: PackError },
    #[error("Artifact upload failed: what is in {path}")]
    Upload { path: &'static str, source: UploadError },
    #[error("can't see what is in {path}")]
    Index { path: &'static str, source: IndexError },
    #[error("the uploads are not known")]
    Uploads(#[from] RunDirectoryError),
    #[error("the merging instance has left {found} files in /opt/ml/model instead of one")]
    NotOneFile { found: usize },
    #[error("can't hand back the merged file")]
    Merged(#[source] io::Error),
    #[error("the packing broke off")]
    Broken(#[from] JoinError),
}

/// So many folders are named in a warning.
const LARGEST: usize = 3;

/// Packs `/opt/ml/model` and `/opt/ml/output/data`, whatever became of `train`.
pub(crate) async fn collect(
    scene: &Scene<'_>,
    directory: &InstanceDirectory,
    reports: &mut Reports,
) -> Result<Parts, CollectError> {
    if scene.plan.role == Role::Merge {
        return hand_back_merged(scene, directory).map(|()| Parts::default());
    }
    let packed = Arc::new(AtomicU64::new(0));
    let uploads = scene.run.uploads()?;
    let (to_model, to_output) = uploads.map(|uploads| (uploads.model, uploads.output)).unzip();
    let level = scene.plan.compression_level;
    let model_level = match scene.plan.model {
        OutputCompression::Gzip | OutputCompression::Zstd => level,
        // It is unpacked in the end.
        OutputCompression::None => 0,
    };
    let mut packing = Packing { scene, reports, packed: &packed };
    let model =
        packing.part("/opt/ml/model", (directory.model_part(), model_level), to_model.flatten()).await?;
    let output = packing.part("/opt/ml/output/data", (directory.output_part(), level), to_output).await?;
    Ok(Parts { model, output })
}

/// Names large files that are about to be lost, if nothing was handed back.
pub(crate) fn warn_of_loss(scene: &Scene<'_>, parts: &Parts, reports: &mut Reports) {
    if scene.plan.role == Role::Merge || parts.model.is_some() {
        return;
    }
    let lost = large_files(scene.scratch);
    if !lost.is_empty() {
        reports.warn(format!(
            "/opt/ml/model is empty, but large files lie elsewhere and are not kept: {}",
            lost.join(", ")
        ));
    }
}

struct Packing<'a, 'b> {
    scene: &'a Scene<'b>,
    reports: &'a mut Reports,
    packed: &'a Arc<AtomicU64>,
}

impl Packing<'_, '_> {
    async fn part(
        &mut self,
        path: &'static str,
        (part, level): (PathBuf, u32),
        upload: Option<Upload>,
    ) -> Result<Option<Part>, CollectError> {
        let folder = self.folder(path)?;
        if fs::read_dir(&folder).is_ok_and(|mut entries| entries.next().is_none()) {
            return Ok(None);
        }
        let options = PackOptions {
            container_path: path.to_owned(),
            codec: self.scene.plan.model.codec(),
            level,
            // Checked when the job was submitted.
            ignore: self.scene.plan.ignore.iter().filter_map(|glob| Pattern::new(glob).ok()).collect(),
            threads: available_parallelism().map_or(1, usize::from),
        };
        let (host, target) = (self.scene.plan.host.clone(), part.clone());
        let packed = Arc::clone(self.packed);
        let count = move |bytes| {
            packed.fetch_add(bytes, Ordering::Relaxed);
        };
        let packing = spawn_blocking(move || pack(&folder, &host, &target, &options, &count));
        let packed = self.told(packing).await?.map_err(|source| CollectError::Pack { path, source })?;
        let Some(kept) = self.keep(packed, &part) else { return Ok(None) };
        if kept.tar_bytes > self.scene.plan.warn_above {
            self.warn_of_size(path, &part, kept.tar_bytes)?;
        }
        let Some(upload) = upload else { return Ok(Some(kept)) };
        let (plan, credentials) = (self.scene.plan.clone(), self.scene.own.credentials.clone());
        let sent = Arc::clone(self.packed);
        let uploading = spawn_blocking(move || upload::upload(&plan, &credentials, &upload, &part, &sent));
        let uploaded = self.told(uploading).await?.map_err(|source| CollectError::Upload { path, source })?;
        Ok(Some(Part { uploaded, ..kept }))
    }

    /// Names what takes most, so that somebody who keeps every checkpoint finds out why it takes so long.
    fn warn_of_size(&mut self, path: &'static str, part: &Path, whole: u64) -> Result<(), CollectError> {
        let most = largest(part, LARGEST).map_err(|source| CollectError::Index { path, source })?;
        let most: Vec<_> = most.iter().map(|(name, size)| format!("{name} {}", bytes(*size))).collect();
        self.reports.warn(format!(
            "{path} holds {}; most is in {}. What nobody needs can be left out with Trainyard.Output.Ignore",
            bytes(whole),
            most.join(", ")
        ));
        Ok(())
    }

    /// Tells of the bytes that have gone through while something works.
    async fn told<T>(&mut self, mut work: JoinHandle<T>) -> Result<T, CollectError> {
        let mut tick = tokio::time::interval(PROGRESS_INTERVAL);
        tick.reset_after(Duration::from_millis(20));
        loop {
            tokio::select! {
                done = &mut work => return Ok(done?),
                _ = tick.tick() => {
                    let bytes = self.packed.load(Ordering::Relaxed);
                    self.reports.progress(|| Report::Collecting { bytes });
                }
            }
        }
    }

    /// The folder of the machine. The instance may have put a link in its place, or in the place of
    /// the folder above it, which must not be followed.
    fn folder(&self, path: &'static str) -> Result<PathBuf, CollectError> {
        let ml = Path::new("/opt/ml");
        let mut folder = self.scene.scratch.ml();
        for name in Path::new(path).strip_prefix(ml).unwrap_or(ml).components() {
            folder.push(name);
            if fs::symlink_metadata(&folder).is_ok_and(|found| !found.is_dir()) {
                return Err(CollectError::NotAFolder { path });
            }
        }
        Ok(folder)
    }

    /// A part without entries is not handed back.
    fn keep(&mut self, packed: PackedPart, part: &Path) -> Option<Part> {
        for warning in packed.warnings {
            self.reports.warn(warning);
        }
        if packed.entries == 0 {
            // They need not be there, and nobody reads them.
            let _ = fs::remove_file(part);
            let _ = fs::remove_file(index_path(part));
            return None;
        }
        Some(Part {
            entries: packed.entries,
            tar_bytes: packed.tar_bytes,
            compressed_bytes: packed.compressed_bytes,
            crc32: packed.crc32,
            codec: packed.codec,
            uploaded: Vec::new(),
        })
    }
}

/// Moves the one file that a merging instance has written to where the engine looks for it.
fn hand_back_merged(scene: &Scene<'_>, directory: &InstanceDirectory) -> Result<(), CollectError> {
    let entries = fs::read_dir(scene.scratch.ml().join("model")).map_err(CollectError::Merged)?;
    let entries: Vec<_> = entries.collect::<io::Result<_>>().map_err(CollectError::Merged)?;
    match &entries[..] {
        [entry] if entry.file_type().is_ok_and(|kind| kind.is_file()) => {
            fs::rename(entry.path(), directory.merged_file()).map_err(CollectError::Merged)
        }
        others => Err(CollectError::NotOneFile { found: others.len() }),
    }
}
