//! New namespaces for a process with a single thread.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::process;

use rustix::process::{Pid, WaitOptions, getppid, waitpid};
use rustix::thread::UnshareFlags;
use serde::{Deserialize, Serialize};

use super::ids::{self, Mapped};
use crate::explain::chain;
use crate::sys::{self, Fork};

/// Namespaces that could not be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NamespaceError {
    /// The kernel refuses them to this user.
    #[error("the kernel refuses namespaces")]
    Refused(#[source] io::Error),
    /// The ids can't be mapped.
    #[error("can't map user ids: {0}")]
    Ids(String),
    /// A system call on the way.
    #[error("can't start the process that maps user ids")]
    Io(#[from] io::Error),
}

/// Moves this process into a new user namespace, in which it may do everything, and into further new
/// namespaces that belong to it. Returns why it has not got the ids that are set aside for its user, if that is so.
///
/// Must be called before any thread exists. Only a process outside can map other ids than the one; so
/// one is left there until it has done so. It is in the namespaces in which this process was.
pub(crate) fn unshare(further: UnshareFlags) -> Result<Option<String>, NamespaceError> {
    let (mut ours, theirs) = UnixStream::pair()?;
    let outside = match sys::fork()? {
        Fork::Child => {
            drop(ours);
            map_ids_of_parent(theirs);
        }
        Fork::Parent(pid) => pid,
    };
    drop(theirs);
    let unshared = sys::unshare(UnshareFlags::NEWUSER | further).map_err(NamespaceError::Refused);
    let mapped = unshared.and_then(|()| ask_for_map(&mut ours));
    // Without having been asked it ends as well.
    drop(ours);
    reap(outside)?;
    mapped
}

/// What the process outside says of the ids.
#[derive(Serialize, Deserialize)]
enum Answer {
    Mapped(Mapped),
    Failed(String),
}

fn ask_for_map(outside: &mut UnixStream) -> Result<Option<String>, NamespaceError> {
    outside.write_all(b"m")?;
    outside.shutdown(Shutdown::Write)?;
    let mut answer = Vec::new();
    outside.read_to_end(&mut answer)?;
    match serde_json::from_slice(&answer) {
        Ok(Answer::Mapped(Mapped::All)) => Ok(None),
        Ok(Answer::Mapped(Mapped::OwnAlone { refusal })) => Ok(Some(refusal)),
        Ok(Answer::Failed(problem)) => Err(NamespaceError::Ids(problem)),
        Err(_) => Err(NamespaceError::Ids("the process that does so was killed".to_owned())),
    }
}

/// What the process outside does, all its life.
fn map_ids_of_parent(mut parent: UnixStream) -> ! {
    let mut asked = [0];
    if parent.read_exact(&mut asked).is_ok() {
        let mapped = match getppid() {
            Some(process) => ids::map(process),
            None => Err(io::ErrorKind::NotFound.into()),
        };
        let answer = mapped.map_or_else(|error| Answer::Failed(chain(&error)), Answer::Mapped);
        // Who does not listen any more has ended.
        let _ = serde_json::to_writer(&mut parent, &answer);
    }
    process::exit(0)
}

fn reap(process: Pid) -> io::Result<()> {
    loop {
        match waitpid(Some(process), WaitOptions::empty()) {
            Err(rustix::io::Errno::INTR) => {}
            other => return Ok(other.map(|_| ())?),
        }
    }
}
