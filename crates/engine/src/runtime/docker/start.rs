//! The supervisor's side of a container: makes it, watches it, and makes it end.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bollard::query_parameters::{CreateContainerOptions, RemoveContainerOptions, WaitContainerOptions};
use fs_err as fs;
use futures_util::StreamExt;
use rustix::fs::{FlockOperation, flock};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::getuid;
use tokio::net::UnixListener;
use tokio::net::unix::pipe::Receiver;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::network::{self, Network};
use super::{Container, Left, Memory, create, give_back};
use crate::docker::{Daemon, DaemonError, Kind, reason, status};
use crate::instance::Source;
use crate::run::Exit;
use crate::runtime::jail::start::{Output, StartError};
use crate::runtime::jail::{Command, Message, Mount};
use crate::runtime::talk::Talk;

/// How long the first process may take to end its container before the daemon is asked to.
const PATIENCE: Duration = Duration::from_secs(10);

/// Between two questions to a daemon that does not answer, and how many there are.
const ASK_AGAIN: Duration = Duration::from_millis(500);
const MOST_QUESTIONS: u32 = 120;

/// A running container. Dropping it kills everything in it, for its socket ends.
#[derive(Debug)]
pub(crate) struct Running {
    talk: Talk,
    /// Ends when the container is no more.
    watched: JoinHandle<io::Result<Ending>>,
    ending: Option<Ending>,
    kill: Kill,
    _lock: fs::File,
}

/// How a container has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ending {
    code: i64,
    out_of_memory: bool,
}

/// What it takes to end a container from outside.
#[derive(Clone)]
struct Kill {
    daemon: Daemon,
    id: String,
}

impl std::fmt::Debug for Kill {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kill").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Starts a container with `self_program` as its first process, and tells it what to do.
///
/// # Errors
/// There is no daemon, it refuses, or the program can't run in the container.
pub(crate) async fn start(
    self_program: &Path,
    container: &Container,
) -> Result<(Running, Output), StartError> {
    let left = container.left(self_program);
    let lock = lock(&left).map_err(io_error("lock the container's file"))?;
    let daemon = Daemon::connect(&container.plan.socket).await.map_err(refused)?;
    if let Some(target) = impossible_overlay(container) {
        let reason = "the daemon can't make it of these folders".to_owned();
        return Err(StartError::Overlay { target, reason });
    }
    if container.mounts.iter().any(|mount| matches!(mount, Mount::WhenRead { .. })) {
        let explanation =
            "files of a store that are fetched when they are read can't be shown in a container";
        return Err(StartError::Broken { explanation: explanation.to_owned() });
    }
    let (path, listener) = listen(container).map_err(io_error("listen to the instance"))?;
    let (id, joined) = begin(&daemon, container, &left, &path).await?;
    drop(joined);
    let kill = Kill { daemon: daemon.clone(), id: id.clone() };
    let watch = watch(daemon, container.clone(), id, left);
    let mut watched = tokio::spawn(watch);
    let socket = tokio::select! {
        accepted = listener.accept() => accepted.and_then(|(socket, _)| socket.into_std()),
        ending = &mut watched => return Err(ended_early(ending)),
    };
    let greeted = async {
        // Only one is expected, and nobody else may come.
        fs::remove_file(&path)?;
        let socket = socket?;
        let output = send_streams(&socket)?;
        let mut talk = Talk::new(socket)?;
        talk.order(&container.order).await?;
        Ok((talk, output))
    };
    let (talk, output) = greeted.await.map_err(io_error("talk to the instance"))?;
    Ok((Running { talk, watched, ending: None, kill, _lock: lock }, output))
}

impl Running {
    /// Who knows what it takes of the machine.
    pub(crate) fn counted(&self) -> Source {
        Source::Container(self.kill.daemon.clone(), self.kill.id.clone())
    }

    /// Waits until the program runs.
    pub(crate) async fn started(&mut self) -> Result<(), StartError> {
        match self.talk.message().await {
            Some(Message::Started { .. }) => Ok(()),
            Some(Message::NotStarted { code, explanation }) => Err(StartError::Program { code, explanation }),
            Some(Message::OverlayRefused { target, reason }) => Err(StartError::Overlay { target, reason }),
            Some(Message::Broken { explanation }) => Err(StartError::Broken { explanation }),
            Some(other) => Err(StartError::Broken {
                explanation: format!("the first process of the container sent {other:?} out of turn"),
            }),
            None => Err(StartError::Broken {
                explanation: "the container was ended before it had started the program".to_owned(),
            }),
        }
    }

    /// How the program has ended; the first process may have been killed before it could tell.
    pub(crate) async fn exited(&mut self) -> Option<Exit> {
        match self.talk.message().await {
            Some(Message::Exited(exit)) => Some(exit),
            _ => None,
        }
    }

    /// Whether the kernel killed a program of the container for want of memory, once it has ended and was asked how.
    pub(crate) async fn memory(&mut self) -> Memory {
        let peak = match self.talk.message().await {
            Some(Message::MemoryPeak { bytes }) => Some(bytes),
            _ => None,
        };
        Memory { ran_out: self.ending.is_some_and(|ending| ending.out_of_memory), peak }
    }

    /// Waits until the container is no more.
    pub(crate) async fn ended(&mut self) -> io::Result<()> {
        if self.ending.is_none() {
            self.ending = Some((&mut self.watched).await.map_err(io::Error::other)??);
        }
        Ok(())
    }

    /// Kills a container whose first process may not listen yet.
    pub(crate) fn give_up(&self) {
        self.kill_after(Duration::ZERO);
    }

    fn kill_after(&self, patience: Duration) {
        let kill = self.kill.clone();
        tokio::spawn(async move {
            sleep(patience).await;
            // It may have ended meanwhile.
            let _ = kill.daemon.client.kill_container(&kill.id, None).await;
        });
    }

    /// Sends a command to every process of the container.
    pub(crate) async fn command(&mut self, command: Command) {
        self.talk.command(command).await;
        if command == Command::Kill {
            self.kill_after(PATIENCE);
        }
    }
}

/// Held until the supervisor ends, so that others know that the container is somebody's.
fn lock(left: &Left) -> io::Result<fs::File> {
    let file = fs::File::create(&left.lock)?;
    flock(&file, FlockOperation::LockExclusive)?;
    Ok(file)
}

/// An overlay that the daemon could not make, or not be told of.
fn impossible_overlay(container: &Container) -> Option<PathBuf> {
    let can = |mount| container.plan.overlays && create::overlay_options(mount).is_some();
    container.mounts.iter().find_map(|mount| match mount {
        Mount::Overlay { target, .. } if !can(mount) => Some(target.clone()),
        _ => None,
    })
}

/// A socket in the scratch folder. It is named by way of the folder's descriptor, for names of sockets
/// are short.
fn listen(container: &Container) -> io::Result<(PathBuf, UnixListener)> {
    let folder = fs::File::open(&container.scratch)?;
    let listener = UnixListener::bind(format!("/proc/self/fd/{}/supervisor", folder.as_raw_fd()))?;
    Ok((container.scratch.join("supervisor"), listener))
}

/// Makes and starts the container. What is returned beside its id keeps the network from being removed
/// until the container is part of it.
async fn begin(
    daemon: &Daemon,
    container: &Container,
    left: &Left,
    socket: &Path,
) -> Result<(String, Option<fs::File>), StartError> {
    let make = |network| make(daemon, container, left, socket, network);
    let Some(expected) = network::expected(container) else {
        let id = run(daemon, container, make(None).await?).await?;
        return Ok((id, None));
    };
    // Docker takes a container whose network is not there yet, so that both can be made at once.
    let early = async {
        match daemon.kind {
            Kind::Docker => make(Some(&expected)).await.ok(),
            Kind::Podman => None,
        }
    };
    let (joined, early) = tokio::join!(network::join(daemon, container, &left.program), early);
    let fits = joined.as_ref().is_ok_and(|(network, _)| *network == expected);
    let early = match early {
        Some(id) if !fits => {
            remove(daemon, &id).await;
            None
        }
        early => early,
    };
    let (network, joined) = joined.map_err(refused)?;
    let id = match early {
        Some(id) => id,
        None => make(Some(&network)).await?,
    };
    Ok((run(daemon, container, id).await?, Some(joined)))
}

async fn make(
    daemon: &Daemon,
    container: &Container,
    left: &Left,
    socket: &Path,
    network: Option<&Network>,
) -> Result<String, StartError> {
    let body = create::instance(container, left, socket, network);
    let created = daemon.client.create_container(None::<CreateContainerOptions>, body).await;
    Ok(created.map_err(|error| not_started(daemon, container, "make the container", error))?.id)
}

/// Starts a container that has been made; one that does not start is removed.
async fn run(daemon: &Daemon, container: &Container, id: String) -> Result<String, StartError> {
    match daemon.client.start_container(&id, None).await {
        Ok(()) => Ok(id),
        Err(error) => {
            remove(daemon, &id).await;
            Err(not_started(daemon, container, "start the container", error))
        }
    }
}

/// Waits until a container has ended and removes it with all that belongs to it alone.
async fn watch(daemon: Daemon, container: Container, id: String, left: Left) -> io::Result<Ending> {
    let ending = wait(&daemon, &id).await?;
    // A container that has ended is part of no network any more, and nothing of it is mounted.
    let ((), (), taken) =
        tokio::join!(remove(&daemon, &id), network::leave(&daemon, &container), take_back(&daemon, &left));
    taken.map_err(io::Error::other)?;
    Ok(ending)
}

/// Waits until the container does not run any more. A daemon that is started again meanwhile is asked
/// again.
pub(super) async fn wait(daemon: &Daemon, id: &str) -> io::Result<Ending> {
    let mut questions = MOST_QUESTIONS;
    loop {
        let mut waiting = daemon.client.wait_container(id, None::<WaitContainerOptions>);
        while waiting.next().await.is_some_and(|answer| answer.is_ok()) {}
        match daemon.client.inspect_container(id, None).await {
            Ok(found) => {
                let state = found.state.unwrap_or_default();
                if state.running != Some(true) {
                    return Ok(Ending {
                        code: state.exit_code.unwrap_or_default(),
                        out_of_memory: state.oom_killed == Some(true),
                    });
                }
            }
            Err(error) if status(&error) == Some(404) => {
                return Ok(Ending { code: 137, out_of_memory: false });
            }
            Err(error) if questions == 0 => return Err(io::Error::other(reason(&error))),
            Err(_) => questions -= 1,
        }
        sleep(ASK_AGAIN).await;
    }
}

/// Removes a container, whatever it does, with its volumes.
pub(super) async fn remove(daemon: &Daemon, id: &str) {
    let options = RemoveContainerOptions { force: true, v: true, ..RemoveContainerOptions::default() };
    // What can't be removed now is found by its labels the next time.
    let _ = daemon.client.remove_container(id, Some(options)).await;
}

/// Sees to it that all in the scratch folder belongs to this process's user, who has to remove it.
///
/// The first process has done so, but for what was written into channels that are an overlay, and only
/// if it could.
pub(super) async fn take_back(daemon: &Daemon, left: &Left) -> Result<(), DaemonError> {
    let own = getuid();
    // The kernel's own folder belongs to root and is empty.
    let _ = fs::remove_dir(left.scratch.join("work/work"));
    if own.is_root() || !left.scratch.exists() || !give_back::is_foreign(&left.scratch, own.as_raw()) {
        return Ok(());
    }
    let body = create::give_back(left);
    let created = daemon.client.create_container(None::<CreateContainerOptions>, body).await;
    let id = created.map_err(daemon.failed("make a container that gives back what was written"))?.id;
    let started = daemon.client.start_container(&id, None).await;
    if started.is_ok() {
        // How it ended shows when the files are used.
        let _ = wait(daemon, &id).await;
    }
    remove(daemon, &id).await;
    started.map_err(daemon.failed("start a container that gives back what was written"))
}

/// Sends the ends of two pipes to the first process and keeps the others.
fn send_streams(socket: &std::os::unix::net::UnixStream) -> io::Result<Output> {
    socket.set_nonblocking(false)?;
    let (stdout, theirs_out) = pipe_with(PipeFlags::CLOEXEC)?;
    let (stderr, theirs_err) = pipe_with(PipeFlags::CLOEXEC)?;
    let descriptors = [theirs_out.as_fd(), theirs_err.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(socket, &[IoSlice::new(b"s")], &mut control, SendFlags::empty())?;
    Ok(Output { stdout: Receiver::from_owned_fd(stdout)?, stderr: Receiver::from_owned_fd(stderr)? })
}

fn io_error(step: &'static str) -> impl FnOnce(io::Error) -> StartError {
    move |source| StartError::Io { step, source }
}

fn refused(error: DaemonError) -> StartError {
    StartError::Broken { explanation: error.to_string() }
}

/// Tells an overlay that the daemon can't mount from everything else.
fn not_started(
    daemon: &Daemon,
    container: &Container,
    what: &'static str,
    error: bollard::errors::Error,
) -> StartError {
    let reason = reason(&error);
    let overlay = container.mounts.iter().find_map(|mount| match mount {
        Mount::Overlay { target, .. } => Some(target.clone()),
        _ => None,
    });
    match overlay {
        Some(target) if reason.contains("volume") => StartError::Overlay { target, reason },
        _ => refused(daemon.failed(what)(error)),
    }
}

/// The first process has never come to the socket.
fn ended_early(ending: Result<io::Result<Ending>, tokio::task::JoinError>) -> StartError {
    let explanation = match ending.map_err(io::Error::other).and_then(|ending| ending) {
        Ok(ending) if ending.out_of_memory => {
            "the container ran out of memory before it had started the program".to_owned()
        }
        Ok(ending) => format!(
            "the container ended with exit code {} before it had started the program: it could not reach its \
             supervisor",
            ending.code
        ),
        Err(error) => format!("the container can't be watched: {error}"),
    };
    StartError::Broken { explanation }
}
