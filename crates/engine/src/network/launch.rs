//! The backend's side of a network: starts its process and asks for the instances' places.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use fs_err as fs;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::{COMMAND, Join, tell};
use crate::plan::InstancePlan;
use crate::run::RunDirectory;

/// A network that places can be asked of. When this is dropped, the network lasts as long as the
/// connections of the instances do.
#[derive(Debug)]
pub(crate) struct JobNetwork {
    requests: OwnedFd,
}

impl JobNetwork {
    /// Starts the process of a network.
    pub(crate) fn start(program: &Path, run: &RunDirectory) -> io::Result<(Self, Child)> {
        let (requests, theirs) = connection()?;
        let log = fs::File::create(run.network_log())?.into_file();
        let process = Command::new(program)
            .arg(COMMAND)
            .arg(run.root())
            .env_clear()
            .current_dir("/")
            .stdin(theirs)
            .stdout(Stdio::null())
            .stderr(log)
            // An interrupt from the terminal is for the driver.
            .process_group(0)
            .spawn()?;
        Ok((Self { requests }, process))
    }

    /// Asks for an instance's place. What is returned is for its supervisor, which finds the answer there.
    pub(crate) fn join(&self, plan: &InstancePlan) -> io::Result<OwnedFd> {
        let (ours, theirs) = connection()?;
        tell(&self.requests, &Join::of(plan)?, &[theirs.as_fd()])?;
        Ok(ours)
    }
}

fn connection() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}
