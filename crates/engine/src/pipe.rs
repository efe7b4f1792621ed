//! The pipes of a channel: one named pipe after the other, an epoch each, for as long as somebody reads.
//!
//! The instance's folder of channels is a folder of the machine, in which the supervisor makes the pipes. It never
//! waits for a reader in the kernel: a pipe that nobody reads is looked at now and then, and forgotten when the
//! instance has ended. The next pipe is there before the last byte of one is sent, so that a reader need not wait
//! for it.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::pipe::fcntl_setpipe_size;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe::Sender;
use tokio::task::JoinSet;

use crate::plan::{ChannelPlan, Delivery, PipePlan};
use crate::storage::Stores;

mod node;
mod stream;

pub(crate) use node::make_first;
pub(crate) use stream::StreamError;

use node::{make, open, remove};
use stream::Chunks;

/// Asked of the kernel for a pipe. All pipes of a user share 64 MiB by default.
const PIPE_SIZE: usize = 1 << 20;

/// Between two looks for a reader: at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// Serves the pipes of an instance until it is dropped.
#[derive(Debug, Default)]
pub(crate) struct Pipes {
    channels: JoinSet<Broken>,
}

/// A channel whose data can't be sent. Its pipe stays open as long as this is kept: a reader must not take what it
/// has got for all.
#[derive(Debug)]
pub(crate) struct Broken {
    /// The channel's name.
    pub(crate) channel: String,
    /// Why.
    pub(crate) error: PipeError,
    _open: Option<Sender>,
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "channel {:?}", self.channel)
    }
}

impl std::error::Error for Broken {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// Why the data of a channel can't be sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PipeError {
    #[error(transparent)]
    Stream(#[from] StreamError),
    #[error("the pipe {name} can't be made")]
    Make { name: String, source: io::Error },
    #[error("the pipe {name} can't be written to")]
    Write { name: String, source: io::Error },
    #[error("the reading of the channel's objects broke off")]
    BrokenOff,
}

impl Pipes {
    /// Begins to serve the pipes of all channels; `folder` is the folder of the channels, and the first pipe of
    /// each is there.
    pub(crate) fn serve(channels: &[ChannelPlan], stores: &Stores, folder: &Path) -> io::Result<Self> {
        let mut pipes = Self::default();
        let streamed = channels.iter().filter_map(|channel| match &channel.delivery {
            Delivery::Pipe(plan) => Some((&channel.name, plan)),
            Delivery::Files | Delivery::WhenRead | Delivery::Folder(_) => None,
        });
        for (name, plan) in streamed {
            let folder = node::open_folder(folder)?;
            let (name, stores, plan) = (name.clone(), stores.clone(), Arc::new(plan.clone()));
            let channel = Channel { folder, name, stores, plan };
            pipes.channels.spawn(channel.serve());
        }
        Ok(pipes)
    }

    /// Waits until a channel's data can't be sent; for ever if all is well.
    pub(crate) async fn broken(&mut self) -> Broken {
        loop {
            match self.channels.join_next().await {
                Some(Ok(broken)) => return broken,
                Some(Err(error)) if error.is_cancelled() => {}
                Some(Err(_)) => {
                    return Broken { channel: String::new(), error: PipeError::BrokenOff, _open: None };
                }
                None => std::future::pending().await,
            }
        }
    }
}

struct Channel {
    /// The folder that was there before the instance could put something else in its place.
    folder: OwnedFd,
    name: String,
    stores: Stores,
    plan: Arc<PipePlan>,
}

impl Channel {
    async fn serve(self) -> Broken {
        let mut epoch = 0;
        loop {
            let mut open = None;
            if let Err(error) = self.epoch(epoch, &mut open).await {
                return Broken { channel: self.name, error, _open: open };
            }
            epoch += 1;
        }
    }

    /// Sends one epoch to its reader; one that closes its end early has had enough.
    async fn epoch(&self, epoch: u64, open: &mut Option<Sender>) -> Result<(), PipeError> {
        let name = self.pipe(epoch);
        // What is read ahead waits for the reader.
        let mut chunks = Chunks::of(Arc::clone(&self.plan), self.stores.clone(), epoch);
        let sender = open.insert(self.reader(&name).await?);
        let next = self.pipe(epoch + 1);
        make(&self.folder, &next).map_err(|source| PipeError::Make { name: next, source })?;
        while let Some(chunk) = chunks.next().await {
            match sender.write_all(&chunk?).await {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => break,
                Err(source) => return Err(PipeError::Write { name, source }),
            }
        }
        // Nobody can open it any more once its reader sees the end.
        remove(&self.folder, &name);
        Ok(())
    }

    /// Waits until somebody opens the pipe to read it.
    async fn reader(&self, name: &str) -> Result<Sender, PipeError> {
        let failed = |source: io::Error| PipeError::Write { name: name.to_owned(), source };
        let mut pause = FIRST_PAUSE;
        loop {
            match open(&self.folder, name) {
                Ok(pipe) => {
                    // Users have a limit for it, and the usual size works as well.
                    let _ = fcntl_setpipe_size(&pipe, PIPE_SIZE);
                    return Sender::from_owned_fd(pipe).map_err(failed);
                }
                Err(Errno::NXIO) => {}
                // The instance itself has removed it, or put something in its place: nobody will read it.
                Err(Errno::NOENT | Errno::LOOP | Errno::INVAL) => std::future::pending().await,
                Err(error) => return Err(failed(error.into())),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn pipe(&self, epoch: u64) -> String {
        format!("{}_{epoch}", self.name)
    }
}

#[cfg(test)]
mod tests;
