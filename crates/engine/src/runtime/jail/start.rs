//! The supervisor's side of a jail: starts it, watches it, and makes it end.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, Stdio};

use fs_err as fs;
use rustix::process::{Pid, PidfdFlags, getgid, getuid, pidfd_open};
use tokio::io::unix::AsyncFd;
use tokio::net::unix::pipe::Receiver;

use super::{Command, INIT_COMMAND, Jail, Message};
use crate::run::Exit;
use crate::runtime::talk::Talk;
use crate::sys::watch_readable;

mod refusal;

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

/// Starts `self_program` as the first process of a jail, up to namespaces with their id maps.
///
/// # Errors
/// The kernel refuses it, or the program does not know `instance-init`.
pub(crate) async fn start(self_program: &Path, jail: &Jail) -> Result<(Running, Output), StartError> {
    let (mut running, output) = unshared(self_program).await?;
    write_id_maps(running.init.id())
        .map_err(|source| StartError::Io { step: "map user ids into the instance", source })?;
    running
        .talk
        .order(jail)
        .await
        .map_err(|source| StartError::Io { step: "talk to the instance", source })?;
    Ok((running, output))
}

/// Whether the kernel gives this user the namespaces of a jail.
///
/// # Errors
/// It refuses them, or the program does not know `instance-init`.
pub(crate) async fn probe(self_program: &Path) -> Result<(), StartError> {
    let (running, output) = unshared(self_program).await?;
    let Running { mut init, talk, .. } = running;
    // With the socket it ends.
    drop((talk, output));
    init.wait().map(drop).map_err(|source| StartError::Io { step: "end a process in namespaces", source })
}

/// Starts the first process of a jail, up to its namespaces.
async fn unshared(self_program: &Path) -> Result<(Running, Output), StartError> {
    let (mut running, output) = spawn(self_program)
        .map_err(|source| StartError::Io { step: "start the first process of the instance", source })?;
    match running.talk.message().await {
        Some(Message::Unshared) => {}
        Some(Message::NamespacesRefused { errno }) => return Err(refusal::explain(errno)),
        other => return Err(unexpected(other)),
    }
    Ok((running, output))
}

fn spawn(self_program: &Path) -> io::Result<(Running, Output)> {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    let mut init = Process::new(self_program)
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
    let running = Running { init, ended, talk: Talk::new(ours)? };
    Ok((running, output))
}

impl Running {
    /// Waits until the program runs.
    pub(crate) async fn started(&mut self) -> Result<(), StartError> {
        match self.talk.message().await {
            Some(Message::Started) => Ok(()),
            Some(Message::NotStarted { code, explanation }) => Err(StartError::Program { code, explanation }),
            Some(Message::OverlayRefused { target, reason }) => Err(StartError::Overlay { target, reason }),
            other => Err(unexpected(other)),
        }
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

    /// Sends a command to every process of the instance.
    pub(crate) async fn command(&mut self, command: Command) {
        self.talk.command(command).await;
    }
}

fn unexpected(message: Option<Message>) -> StartError {
    let explanation = match message {
        Some(Message::Broken { explanation }) => match refusal::refusing_settings() {
            Some(settings) if !getuid().is_root() => format!("{explanation} ({settings})"),
            _ => explanation,
        },
        Some(other) => format!("the first process of the instance sent {other:?} out of turn"),
        None => "the first process of the instance ended before it had started the program".to_owned(),
    };
    StartError::Broken { explanation }
}

/// All ids of this process's own namespace for who may map them, else the one id as 0.
fn write_id_maps(pid: u32) -> io::Result<()> {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let all = fs::read_to_string("/proc/self/uid_map")?;
    // Root of a container may lack the right to map other ids.
    if getuid().is_root() && fs::write(process.join("uid_map"), identity(&all)).is_ok() {
        let all = fs::read_to_string("/proc/self/gid_map")?;
        return fs::write(process.join("gid_map"), identity(&all));
    }
    fs::write(process.join("setgroups"), "deny")?;
    fs::write(process.join("uid_map"), format!("0 {} 1\n", getuid().as_raw()))?;
    fs::write(process.join("gid_map"), format!("0 {} 1\n", getgid().as_raw()))
}

/// The map that gives every id of a namespace the same number in a namespace inside it;
/// user_namespaces(7) has the format.
fn identity(own: &str) -> String {
    let ranges = own.lines().filter_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        Some((fields.next()?, fields.nth(1)?))
    });
    ranges.map(|(first, count)| format!("{first} {first} {count}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identity_map_covers_what_the_outer_namespace_has() {
        assert_eq!(identity("         0          0 4294967295\n"), "0 0 4294967295\n");
        assert_eq!(identity("0 1000 1\n1 100000 65536\n"), "0 0 1\n1 1 65536\n");
    }
}
