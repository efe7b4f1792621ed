//! The supervisor's side of a jail: starts it, watches it, and makes it end.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use rustix::process::{Pid, PidfdFlags, Signal, getuid, pidfd_open, pidfd_send_signal};
use tokio::io::unix::AsyncFd;
use tokio::net::unix::pipe::Receiver;

use super::ids::Ids;
use super::{Command, INIT_COMMAND, InsteadOfOverlay, Jail, Message, Order, refusal};
use crate::backend::local::Process;
use crate::cgroup::Group;
use crate::network::{Namespaces, send};
use crate::run::Exit;
use crate::runtime::talk::Talk;
use crate::sys::watch_readable;

/// A jail in which nothing has been started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// A system call of the supervisor.
    #[error("can't {step}")]
    Io {
        /// What was tried.
        step: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// The kernel refuses namespaces to this user.
    #[error("{explanation}")]
    Namespaces {
        /// Which setting refuses them and what to do.
        explanation: String,
    },
    /// The kernel refuses an overlay.
    #[error("the kernel refuses an overlay at {}: {reason}", target.display())]
    Overlay {
        /// In the jail.
        target: PathBuf,
        /// In words.
        reason: String,
    },
    /// A step of the recipe failed.
    #[error("{explanation}")]
    Broken {
        /// What was wrong and where.
        explanation: String,
    },
    /// The program could not be started.
    #[error("{explanation}")]
    Program {
        /// 126 or 127.
        code: i32,
        /// What was wrong and where.
        explanation: String,
    },
}

/// The first byte to `instance-init`, with which the namespaces of a network come.
pub(super) const NETWORK: &[u8; 1] = b"n";
/// The same, with a door for the devices of file systems after them.
pub(super) const WITH_DOOR: &[u8; 1] = b"d";

/// What an instance has of its job and its supervisor beside its order.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Along<'a> {
    /// The control group that everything is in.
    pub(crate) group: Option<&'a Group>,
    /// The network that everything is in.
    pub(crate) network: Option<&'a Namespaces>,
    /// Where the devices of its file systems are put in.
    pub(crate) door: Option<BorrowedFd<'a>>,
}

/// A running jail. Dropping it kills everything in it, for its socket ends.
#[derive(Debug)]
pub(crate) struct Running {
    init: Child,
    /// PID 1, once it is there.
    first: Option<OwnedFd>,
    /// Whether it has other user ids than 0.
    other_ids: bool,
    ended: AsyncFd<OwnedFd>,
    talk: Talk,
}

/// What the processes of an instance write.
#[derive(Debug)]
pub(crate) struct Output {
    /// Standard output.
    pub(crate) stdout: Receiver,
    /// Standard error.
    pub(crate) stderr: Receiver,
}

/// Starts `self_program` as the first process of a jail.
///
/// # Errors
/// The kernel refuses it, or the program does not know `instance-init`.
pub(crate) async fn start(
    self_program: &Path,
    jail: &Jail,
    along: Along<'_>,
) -> Result<(Running, Output), StartError> {
    let order = Order::Start(Box::new(jail.clone()));
    let (mut running, output) = ordered(self_program, &order, along).await?;
    running.begun().await?;
    Ok((running, output))
}

/// Whether the kernel gives this user the namespaces of a jail. Returns why it does not give the ids that are set
/// aside for the user, if that is so.
///
/// # Errors
/// It refuses them, or the program does not know `instance-init`.
pub(crate) async fn probe(self_program: &Path) -> Result<Option<String>, StartError> {
    let (mut running, _output) = ordered(self_program, &Order::Try, Along::default()).await?;
    let answer = running.talk.message().await;
    running.ended().await.map_err(|source| StartError::Io { step: "wait for a process", source })?;
    match answer {
        Some(Message::Unshared { refusal }) => Ok(refusal),
        other => Err(unexpected(other)),
    }
}

/// Makes everything in a folder the user's own again after an instance that had more than one user id; after
/// any other it is.
///
/// # Errors
/// Something in it still belongs to another.
pub(crate) async fn take_back(self_program: &Path, folder: &Path) -> Result<(), StartError> {
    if !matches!(Ids::of_this_user(), Ids::Subordinate(_)) {
        return Ok(());
    }
    let order = Order::TakeBack(folder.to_owned());
    let (mut running, _output) = ordered(self_program, &order, Along::default()).await?;
    let answer = running.talk.message().await;
    running.ended().await.map_err(|source| StartError::Io { step: "wait for a process", source })?;
    match answer {
        Some(Message::TakenBack) => Ok(()),
        other => Err(unexpected(other)),
    }
}

/// Starts `instance-init` and gives it an order.
async fn ordered(
    self_program: &Path,
    order: &Order,
    along: Along<'_>,
) -> Result<(Running, Output), StartError> {
    let (mut running, output) = spawn(self_program, along)
        .map_err(|source| StartError::Io { step: "start the first process of the instance", source })?;
    // It waits for the order and has started nothing yet, so nothing is left outside.
    along
        .group
        .map_or(Ok(()), |group| group.take(running.init.id()))
        .map_err(|source| StartError::Io { step: "put the instance into its control group", source })?;
    let sent = running.talk.order(order).await;
    sent.map_err(|source| StartError::Io { step: "talk to the instance", source })?;
    Ok((running, output))
}

fn spawn(self_program: &Path, along: Along<'_>) -> io::Result<(Running, Output)> {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    let mut init = std::process::Command::new(self_program)
        .arg(INIT_COMMAND)
        // The instance could read it in /proc.
        .env_clear()
        .current_dir("/")
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let taken = (init.stdout.take(), init.stderr.take());
    let (Some(stdout), Some(stderr)) = taken else { return Err(io::ErrorKind::BrokenPipe.into()) };
    let output = Output {
        stdout: Receiver::from_owned_fd(stdout.into())?,
        stderr: Receiver::from_owned_fd(stderr.into())?,
    };
    let ended = watch_readable(pidfd_open(Pid::from_child(&init), PidfdFlags::empty())?)?;
    let mut descriptors: Vec<_> = along.network.iter().flat_map(|network| network.descriptors()).collect();
    descriptors.extend(along.door);
    send(&ours, if along.door.is_some() { WITH_DOOR } else { NETWORK }, &descriptors)?;
    let running = Running { init, first: None, other_ids: false, ended, talk: Talk::new(ours)? };
    Ok((running, output))
}

impl Running {
    /// The process whose child is the first in the jail.
    pub(crate) fn process(&self) -> u32 {
        self.init.id()
    }

    /// Waits until PID 1 is there.
    async fn begun(&mut self) -> Result<(), StartError> {
        let (process, other_ids) = match self.talk.message().await {
            Some(Message::Begun { process, other_ids }) => (process, other_ids),
            other => return Err(unexpected(other)),
        };
        self.other_ids = other_ids;
        // A short program has ended already, and what was told of it is still to be read.
        let opened = Process::parse(&process).map_or(Ok(None), Process::open);
        let step = "watch the first process of the instance";
        self.first = opened.map_err(|source| StartError::Io { step, source })?;
        Ok(())
    }

    /// Waits until the program runs; tells what shows its image if not the usual.
    pub(crate) async fn started(&mut self) -> Result<Option<InsteadOfOverlay>, StartError> {
        match self.talk.message().await {
            Some(Message::Started { instead }) => Ok(instead),
            Some(Message::NotStarted { code, explanation }) => Err(StartError::Program { code, explanation }),
            Some(Message::OverlayRefused { target, reason }) => Err(StartError::Overlay { target, reason }),
            other => Err(unexpected(other)),
        }
    }

    /// Whether the instance lacks user ids that are set aside for its user.
    pub(crate) fn lacks_ids(&self) -> bool {
        !self.other_ids && matches!(Ids::of_this_user(), Ids::Subordinate(_))
    }

    /// Waits until the program has ended; how, only the first process of the instance knows, and
    /// it may have been killed.
    pub(crate) async fn exited(&mut self) -> Option<Exit> {
        match self.talk.message().await {
            Some(Message::Exited(exit)) => Some(exit),
            _ => None,
        }
    }

    /// Waits until no process of the instance is left.
    pub(crate) async fn ended(&mut self) -> io::Result<()> {
        self.ended.readable().await?.retain_ready();
        self.init.wait().map(|_| ())
    }

    /// Kills a jail that is still being made, whatever it waits for. PID 1 does not listen yet.
    pub(crate) fn give_up(&self) {
        // It may have ended at the same moment, which is no error.
        let _ = self.first.as_ref().map(|first| pidfd_send_signal(first, Signal::KILL));
    }

    /// Sends a command to every process of the instance.
    pub(crate) async fn command(&mut self, command: Command) {
        self.talk.command(command).await;
    }
}

fn unexpected(message: Option<Message>) -> StartError {
    let explanation = match message {
        Some(Message::NamespacesRefused { errno }) => {
            let explanation = refusal::explain(&io::Error::from_raw_os_error(errno));
            return StartError::Namespaces { explanation };
        }
        Some(Message::Broken { explanation }) => match refusal::refusing_settings() {
            Some(settings) if !getuid().is_root() => format!("{explanation} ({settings})"),
            _ => explanation,
        },
        Some(other) => format!("the first process of the instance sent {other:?} out of turn"),
        None => "the first process of the instance ended before it had started the program".to_owned(),
    };
    StartError::Broken { explanation }
}
