//! Channels whose objects are in a store and are fetched no earlier than `train` reads them: FastFile mode.
//!
//! The first process of the instance mounts a file system for each of them (fuse(4)) and sends the open device through
//! a [door](FastFiles::door), so that the file system is in the instance's mounts alone and in its user namespace.
//! The supervisor answers what the kernel asks over that device. When either of them ends, so does the file system.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::{self, available_parallelism};

use fs_err as fs;
use fuser::{Config, Session, SessionACL};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::explain::chain;
use crate::instance::objects::ObjectError;
use crate::network::receive;
use crate::plan::{ChannelPlan, InstancePlan};
use crate::storage::Stores;

mod ahead;
mod blocks;
mod tree;
mod volume;

use blocks::Blocks;
use volume::{Shared, Volume};

/// By which a file system of this process gets its requests.
pub(crate) const DEVICE: &str = "/dev/fuse";
/// What of an instance's objects is held in memory, in bytes.
const HELD: u64 = 128 << 20;
/// Threads beyond these would only wait for the network.
const MOST_THREADS: usize = 4;
/// Objects that are named; of further ones only the number is told.
const MOST_NAMED: usize = 5;

/// Why there can be no such channels.
///
/// # Errors
/// The device is not there, or this user may not open it.
pub(crate) fn usable() -> io::Result<()> {
    fs::OpenOptions::new().read(true).write(true).open(DEVICE).map(drop)
}

/// Channels that can't be served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FastFileError {
    /// The objects make no tree.
    #[error("channel {channel:?}")]
    Object {
        /// The channel's name.
        channel: String,
        /// Which object, and why.
        source: Box<ObjectError>,
    },
    /// The system refuses what it takes.
    #[error("files that are fetched when they are read can't be served")]
    Io(#[from] io::Error),
}

/// An object that could not be read when somebody wanted to. Who read it got an error.
#[derive(Debug)]
struct Unread {
    channel: String,
    object: String,
    why: String,
}

/// Serves the files of an instance until it is dropped.
#[derive(Debug)]
pub(crate) struct FastFiles {
    /// None once nothing is served any more.
    runtime: Option<Runtime>,
    /// The other end is the one that the devices come out of.
    door: Option<UnixStream>,
    unread: UnboundedReceiver<Unread>,
    named: HashSet<String>,
    reason: Option<String>,
}

impl FastFiles {
    /// Begins to serve the channels whose objects are fetched when they are read, if there are any.
    ///
    /// # Errors
    /// The objects make no tree, or the system refuses threads.
    pub(crate) fn serve(plan: &InstancePlan, stores: Stores) -> Result<Self, FastFileError> {
        let channels = &plan.channels;
        let (sender, unread) = unbounded_channel();
        let mut files = Self { runtime: None, door: None, unread, named: HashSet::new(), reason: None };
        if !channels.iter().any(ChannelPlan::is_fetched_when_read) {
            return Ok(files);
        }
        let threads = available_parallelism().map_or(1, usize::from).min(MOST_THREADS);
        let runtime = Builder::new_multi_thread().worker_threads(threads).enable_all().build()?;
        let shared = Shared {
            blocks: Arc::new(Blocks::new(stores, plan.storage.clone(), HELD)),
            runtime: runtime.handle().clone(),
            unread: sender.clone(),
        };
        let (mut volumes, mut first) = (Vec::new(), 0);
        for channel in channels.iter().filter(|channel| channel.is_fetched_when_read()) {
            let volume = Volume::of(channel, first, shared.clone()).map_err(|source| {
                FastFileError::Object { channel: channel.name.clone(), source: Box::new(source) }
            })?;
            volumes.push((channel.name.clone(), volume));
            first += channel.objects.len();
        }
        let (ours, theirs) = UnixStream::pair()?;
        thread::Builder::new().name("fastfile".to_owned()).spawn(move || mounted(&ours, volumes, &sender))?;
        files.runtime = Some(runtime);
        files.door = Some(theirs);
        Ok(files)
    }

    /// Where the devices of the channels are to be put in, in the order of the channels.
    pub(crate) fn door(&self) -> Option<BorrowedFd<'_>> {
        self.door.as_ref().map(AsFd::as_fd)
    }

    /// Nobody else can put anything in.
    pub(crate) fn close_door(&mut self) {
        self.door = None;
    }

    /// Waits until an object can't be read and says so; for ever if all is well. Each object is named once.
    pub(crate) async fn unread(&mut self) -> String {
        loop {
            let Some(Unread { channel, object, why }) = self.unread.recv().await else {
                return std::future::pending().await;
            };
            let text = format!("channel {channel:?}: {why}; who read {object} got an I/O error");
            self.reason.get_or_insert_with(|| format!("channel {channel:?}: {why}"));
            if self.named.len() < MOST_NAMED && self.named.insert(object) {
                return text;
            }
        }
    }

    /// The first object that could not be read, if there is one.
    pub(crate) fn reason(&mut self) -> Option<String> {
        while let Ok(Unread { channel, why, .. }) = self.unread.try_recv() {
            self.reason.get_or_insert_with(|| format!("channel {channel:?}: {why}"));
        }
        self.reason.take()
    }

    /// Answers every request from now on with an error: a program can't be killed while it waits for an answer.
    pub(crate) fn cut_off(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for FastFiles {
    fn drop(&mut self) {
        self.cut_off();
    }
}

/// Takes the devices as they come and serves each in a thread of its own, which ends with the mount.
fn mounted(door: &UnixStream, volumes: Vec<(String, Volume)>, unread: &UnboundedSender<Unread>) {
    for (channel, volume) in volumes {
        let device = match receive(door, &mut [0]) {
            Ok((1, mut descriptors)) => descriptors.pop(),
            // The instance has ended before, and has told why.
            Ok(_) | Err(_) => return,
        };
        let served = device.ok_or_else(|| io::ErrorKind::InvalidData.into()).and_then(|device| {
            let session = Session::from_fd(volume, device, SessionACL::All, Config::default())?;
            session.spawn().map(drop)
        });
        if let Err(error) = served {
            let why = format!("its file system can't be served: {}", chain(&error));
            let object = "it".to_owned();
            // Nobody may be there any more to be told.
            let _ = unread.send(Unread { channel, object, why });
        }
    }
}
