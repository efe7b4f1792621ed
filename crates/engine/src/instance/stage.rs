//! The first phase: makes the `/opt/ml` tree and brings the objects of the channels to the machine.
//!
//! A channel's objects are put into a *base*, a folder that nobody ever writes to, once per machine
//! for a channel that every host gets whole. Each instance sees it through an overlay of its own.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fs_err as fs;
use rustix::fs::{FlockOperation, flock};
use tokio::task::{JoinError, spawn_blocking};

use super::Scene;
use super::fetch::fetch_all;
use super::objects::{Links, ObjectError, Progress, Put, put_all};
use super::reports::{PROGRESS_INTERVAL, Reports};
use super::scratch::target;
use crate::artifact::{RemoveError, remove_tree};
use crate::explain::bytes;
use crate::plan::{ChannelPlan, Delivery, InstancePlan};
use crate::run::{Report, RunDirectory};
use crate::runtime::Places;
use crate::runtime::jail::Mount;

/// Why an instance is not ready to train.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StageError {
    /// It was asked to stop.
    #[error("stopped")]
    Stopped,
    /// An object could not be fetched.
    #[error("channel {channel:?}")]
    Object {
        /// The channel's name.
        channel: String,
        /// Which object, and why.
        source: ObjectError,
    },
    /// The tree could not be made.
    #[error("can't make the instance's file tree")]
    Tree(#[from] io::Error),
    /// What an earlier supervisor has left is in the way.
    #[error("can't make room for the channel's objects")]
    Remains(#[from] RemoveError),
    /// A thread of the supervisor ended early.
    #[error("the staging broke off")]
    Broken(#[from] JoinError),
}

/// Makes everything ready for `train` and returns the places that show it.
pub(crate) async fn stage(scene: &Scene<'_>, reports: &mut Reports) -> Result<Places, StageError> {
    let Scene { plan, run, scratch, .. } = scene;
    let progress = Arc::new(Progress::of(&plan.channels));
    reports.tell(staging(&progress));
    scratch.build(plan, &run.manifests())?;
    let mut bases = Vec::new();
    let here = |channel: &&ChannelPlan| !channel.objects.is_empty() && !channel.is_fetched_when_read();
    for channel in plan.channels.iter().filter(here) {
        let base = Base::of(run, plan, channel);
        let mut stager = Stager { scene, reports, progress: &progress };
        stager.make(&base, channel).await?;
        if channel.delivery == Delivery::Files {
            bases.push((base.folder, channel.name.as_str()));
        }
    }
    let mut places = scratch.places(plan);
    if has_pipes(plan) {
        places.mounts.extend(scratch.overlays(&bases)?);
    } else if !bases.is_empty() {
        places.mounts.push(scratch.overlay(bases.into_iter().map(|(base, _)| base).collect())?);
    }
    places.mounts.extend(own_mounts(run, plan));
    if scene.stop.kill_at().is_some() {
        return Err(StageError::Stopped);
    }
    reports.tell(staging(&progress));
    Ok(places)
}

/// Gives the instance copies of its own where the kernel refuses overlays, and returns the
/// places that are left.
pub(crate) async fn stage_copies(scene: &Scene<'_>, reports: &mut Reports) -> Result<Places, StageError> {
    let progress = Arc::new(Progress::of(&scene.plan.channels));
    for channel in scene.plan.channels.iter().filter(|channel| channel.delivery == Delivery::Files) {
        let folder = scene.scratch.channel(&channel.name);
        let mut stager = Stager { scene, reports, progress: &progress };
        stager.put(channel, folder, Links::Never).await?;
    }
    let mut places = scene.scratch.places(scene.plan);
    places.mounts.extend(own_mounts(scene.run, scene.plan));
    Ok(places)
}

fn has_pipes(plan: &InstancePlan) -> bool {
    plan.channels.iter().any(|channel| matches!(channel.delivery, Delivery::Pipe(_)))
}

/// Channels that are mounts of their own over the folder of the channels.
fn own_mounts(run: &RunDirectory, plan: &InstancePlan) -> Vec<Mount> {
    let mount = |channel: &ChannelPlan| {
        let target = target(&channel.name);
        match &channel.delivery {
            Delivery::Files | Delivery::Pipe(_) => None,
            Delivery::WhenRead if channel.objects.is_empty() => None,
            Delivery::WhenRead if channel.is_fetched_when_read() => Some(Mount::WhenRead { target }),
            Delivery::WhenRead => {
                let source = Base::of(run, plan, channel).folder.join(&channel.name);
                Some(Mount::ReadOnly { source, target })
            }
            Delivery::Folder(folder) if folder.read_only => {
                Some(Mount::ReadOnly { source: folder.source.clone(), target })
            }
            Delivery::Folder(folder) => Some(Mount::Writable { source: folder.source.clone(), target }),
        }
    };
    plan.channels.iter().filter_map(mount).collect()
}

/// Where the bases are that only one host uses.
pub(crate) fn own_bases(run: &RunDirectory, host: &str) -> PathBuf {
    run.bases().join(host)
}

/// A folder whose one entry is the folder of a channel with its objects.
#[derive(Clone)]
struct Base {
    /// There once it is complete.
    folder: PathBuf,
    /// Held by who makes it.
    lock: PathBuf,
    /// The folder while it is being made.
    unfinished: PathBuf,
}

impl Base {
    fn of(run: &RunDirectory, plan: &InstancePlan, channel: &ChannelPlan) -> Self {
        let owner = if channel.replicated { run.bases().join("all") } else { own_bases(run, &plan.host) };
        Self {
            folder: owner.join("complete").join(&channel.name),
            lock: owner.join("locks").join(&channel.name),
            unfinished: owner.join("unfinished").join(&channel.name),
        }
    }

    /// Waits for its turn. The lock goes with the file that is returned.
    fn lock(&self) -> io::Result<fs::File> {
        for path in [&self.folder, &self.lock, &self.unfinished] {
            fs::create_dir_all(path.parent().unwrap_or(path))?;
        }
        let file = fs::File::create(&self.lock)?;
        flock(&file, FlockOperation::LockExclusive)?;
        Ok(file)
    }
}

/// Puts objects into folders and tells about it.
struct Stager<'a, 'b> {
    scene: &'a Scene<'b>,
    reports: &'a mut Reports,
    progress: &'a Arc<Progress>,
}

impl Stager<'_, '_> {
    /// Makes a base unless another instance has made it.
    async fn make(&mut self, base: &Base, channel: &ChannelPlan) -> Result<(), StageError> {
        let locked = base.clone();
        let locking = spawn_blocking(move || locked.lock());
        // When the wait is given up, the thread that waits is left behind; all it does is to hold
        // the lock until this program ends.
        let _lock = tokio::select! {
            locked = locking => locked??,
            () = self.scene.stop.requested() => return Err(StageError::Stopped),
        };
        if base.folder.exists() {
            self.progress.count(&channel.objects);
            return Ok(());
        }
        // Somebody may have been killed while making it.
        remove_if_there(&base.unfinished)?;
        let folder = base.unfinished.join(&channel.name);
        fs::create_dir_all(&folder)?;
        self.put(channel, folder, Links::Allowed).await?;
        Ok(fs::rename(&base.unfinished, &base.folder)?)
    }

    async fn put(&mut self, channel: &ChannelPlan, folder: PathBuf, links: Links) -> Result<(), StageError> {
        let (objects, progress) = (channel.objects.clone(), Arc::clone(self.progress));
        let (storage, credentials) = (self.scene.plan.storage.clone(), self.scene.own.credentials.clone());
        let put = Put::new(folder, &objects, links);
        let copied = put.copied();
        let mut putting = spawn_blocking(move || {
            put_all(&put, &objects, &progress)?;
            fetch_all(put, &objects, &storage, &credentials, &progress)
        });
        let mut tick = tokio::time::interval(PROGRESS_INTERVAL);
        tick.reset_after(Duration::from_millis(20));
        let result = loop {
            tokio::select! {
                result = &mut putting => break result?,
                () = self.scene.stop.requested(), if !self.progress.is_cancelled() => {
                    self.progress.cancel();
                }
                _ = tick.tick() => self.reports.progress(|| staging(self.progress)),
            }
        };
        if let Some(warning) = self.progress.unverified.take_warning() {
            self.reports.warn(format!("channel {:?}: {warning}", channel.name));
        }
        if channel.delivery == Delivery::WhenRead {
            self.warn_of_copies(&channel.name, copied.load(Ordering::Relaxed));
        }
        result.map_err(|source| match source {
            ObjectError::Cancelled => StageError::Stopped,
            source => StageError::Object { channel: channel.name.clone(), source },
        })
    }

    /// Warns where a channel of FastFile mode has cost what it is there to save.
    fn warn_of_copies(&mut self, channel: &str, copied: u64) {
        if copied > 0 {
            self.reports.warn(format!(
                "channel {channel:?}: InputMode FastFile has copied {}, because the data folder is on another file \
                 system than the objects; on the same one they are linked (--data-dir)",
                bytes(copied)
            ));
        }
    }
}

fn staging(progress: &Progress) -> Report {
    Report::Staging {
        objects: progress.objects.load(Ordering::Relaxed),
        bytes: progress.bytes.load(Ordering::Relaxed),
        of_objects: progress.of_objects,
        of_bytes: progress.of_bytes,
        millis: u64::try_from(progress.since.elapsed().as_millis()).unwrap_or(u64::MAX),
    }
}

/// Removes a folder with all that is in it; that there is none is no error.
pub(crate) fn remove_if_there(folder: &Path) -> Result<(), RemoveError> {
    if fs::symlink_metadata(folder).is_err() {
        return Ok(());
    }
    remove_tree(folder)
}
