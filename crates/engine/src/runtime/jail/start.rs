//! The supervisor's side of a jail: starts it, watches it, and makes it end.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as Socket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, Stdio};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, getuid, pidfd_open, pidfd_send_signal};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::pipe::Receiver;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use super::ids::Ids;
use super::{Command, INIT_COMMAND, InsteadOfOverlay, Jail, Message, Order, refusal};
use crate::network::{Namespaces, send};
use crate::run::Exit;
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

/// A running jail. Dropping it kills everything in it, for its socket ends.
#[derive(Debug)]
pub(crate) struct Running {
    init: Child,
    /// PID 1, once it is there.
    first: Option<OwnedFd>,
    ended: AsyncFd<OwnedFd>,
    messages: BufReader<OwnedReadHalf>,
    commands: OwnedWriteHalf,
    line: Vec<u8>,
}

/// What the processes of a jail write.
#[derive(Debug)]
pub(crate) struct Output {
    /// Standard output.
    pub(crate) stdout: Receiver,
    /// Standard error.
    pub(crate) stderr: Receiver,
}

/// Starts `self_program` as the first process of a jail, in the network of its job if there is one.
///
/// # Errors
/// The kernel refuses it, or the program does not know `instance-init`.
pub(crate) async fn start(
    self_program: &Path,
    jail: &Jail,
    network: Option<&Namespaces>,
) -> Result<(Running, Output), StartError> {
    let (mut running, output) = ordered(self_program, &Order::Start(Box::new(jail.clone())), network).await?;
    running.begun().await?;
    Ok((running, output))
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
    let (mut running, _output) = ordered(self_program, &Order::TakeBack(folder.to_owned()), None).await?;
    let answer = running.message().await;
    running.ended().await.map_err(|source| StartError::Io { step: "wait for a process", source })?;
    match answer {
        Some(Message::TakenBack) => Ok(()),
        other => Err(unexpected(other)),
    }
}

/// Starts `instance-init` and gives it an order; the namespaces of a network go with its first bytes.
async fn ordered(
    self_program: &Path,
    order: &Order,
    network: Option<&Namespaces>,
) -> Result<(Running, Output), StartError> {
    let (init, socket) = spawn(self_program)
        .map_err(|source| StartError::Io { step: "start the first process of the instance", source })?;
    let order = serde_json::to_vec(order)
        .map_err(|error| StartError::Broken { explanation: format!("can't write down the jail: {error}") })?;
    let descriptors = network.map(Namespaces::descriptors);
    let length = (order.len() as u64).to_le_bytes();
    let talking = |source| StartError::Io { step: "talk to the instance", source };
    send(&socket, &length, descriptors.as_ref().map_or(&[], |both| both)).map_err(talking)?;
    let (mut running, output) = running(init, socket).map_err(talking)?;
    running.commands.write_all(&order).await.map_err(talking)?;
    Ok((running, output))
}

fn spawn(self_program: &Path) -> io::Result<(Child, Socket)> {
    let (ours, theirs) = Socket::pair()?;
    let init = Process::new(self_program)
        .arg(INIT_COMMAND)
        // The instance could read it in /proc.
        .env_clear()
        .current_dir("/")
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    Ok((init, ours))
}

fn running(mut init: Child, socket: Socket) -> io::Result<(Running, Output)> {
    let taken = (init.stdout.take(), init.stderr.take());
    let (Some(stdout), Some(stderr)) = taken else { return Err(io::ErrorKind::BrokenPipe.into()) };
    let output = Output {
        stdout: Receiver::from_owned_fd(stdout.into())?,
        stderr: Receiver::from_owned_fd(stderr.into())?,
    };
    socket.set_nonblocking(true)?;
    let (read, commands) = UnixStream::from_std(socket)?.into_split();
    let ended = watch_readable(pidfd_open(Pid::from_child(&init), PidfdFlags::empty())?)?;
    let running =
        Running { init, first: None, ended, messages: BufReader::new(read), commands, line: Vec::new() };
    Ok((running, output))
}

impl Running {
    /// The next message; none when there will be no more. Nothing is lost when it is not awaited to
    /// its end.
    async fn message(&mut self) -> Option<Message> {
        self.messages.read_until(b'\n', &mut self.line).await.ok()?;
        let line = std::mem::take(&mut self.line);
        serde_json::from_slice(&line).ok()
    }

    /// Waits until PID 1 is there.
    async fn begun(&mut self) -> Result<(), StartError> {
        let pid = match self.message().await {
            Some(Message::Begun { pid }) => pid,
            other => return Err(unexpected(other)),
        };
        let opened =
            Pid::from_raw(pid).ok_or(Errno::SRCH).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()));
        let first = opened.map_err(|errno| StartError::Io {
            step: "watch the first process of the instance",
            source: errno.into(),
        })?;
        self.first = Some(first);
        Ok(())
    }

    /// Waits until the program runs; tells what shows its image if not the usual.
    pub(crate) async fn started(&mut self) -> Result<Option<InsteadOfOverlay>, StartError> {
        match self.message().await {
            Some(Message::Started { instead }) => Ok(instead),
            Some(Message::NotStarted { code, explanation }) => Err(StartError::Program { code, explanation }),
            Some(Message::OverlayRefused { target, reason }) => Err(StartError::Overlay { target, reason }),
            other => Err(unexpected(other)),
        }
    }

    /// Waits until the program has ended; how, only the first process of the instance knows, and
    /// it may have been killed.
    pub(crate) async fn exited(&mut self) -> Option<Exit> {
        match self.message().await {
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
    ///
    /// The instance may have ended at the same moment, which is no error.
    pub(crate) async fn command(&mut self, command: Command) {
        let _ = self.commands.write_all(&[command.byte()]).await;
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
