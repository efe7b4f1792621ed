//! Supervisors as processes of this machine.
//!
//! They are detached: they outlive this process, and a new one finds them again by process id and
//! start time, which together are never used twice. Their end is an event (a pidfd becomes
//! readable), so nothing is polled.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use async_trait::async_trait;
use fs_err as fs;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};

use super::{Backend, BackendError, Launch, Placement, Presence, Stop, Supervisor, launch_all};
use crate::artifact::{RemoveError, remove_tree};
use crate::network::JobNetwork;
use crate::plan::NetworkPlan;
use crate::run::InstanceDirectory;
use crate::runtime::jail::start::take_back;
use crate::spec::Capabilities;

const NAME: &str = "local";

/// Starts supervisors on this machine.
#[derive(Clone, Debug)]
pub struct LocalBackend {
    /// The program that is started as `PROGRAM instance FOLDER`.
    program: PathBuf,
}

impl LocalBackend {
    /// `program` is started as `PROGRAM instance FOLDER` for each host.
    pub fn new(program: PathBuf) -> Self {
        Self { program }
    }

    /// The process of a job's network, written down, for hosts that are to be in one.
    fn network(&self, launch: &Launch) -> Result<Option<(JobNetwork, String)>, BackendError> {
        let start = || -> io::Result<_> {
            let Some(first) = launch.hosts.first() else { return Ok(None) };
            let plan = launch.run.instance(first).plan().map_err(io::Error::other)?;
            if plan.network == NetworkPlan::Alone {
                return Ok(None);
            }
            let (network, mut process) = JobNetwork::start(&self.program, &launch.run)?;
            let written = || {
                let id = Process::of(process.id())?.to_string();
                launch.run.write_network(&id).map(|()| id).map_err(io::Error::other)
            };
            match written() {
                Ok(id) => Ok(Some((network, id))),
                Err(error) => Err(ended(&mut process, error)),
            }
        };
        let what = || format!("starting the network of {}", launch.run.root().display());
        start().map_err(|source| BackendError::Unavailable { backend: NAME, what: what(), source })
    }

    fn start(
        &self,
        host: &str,
        directory: &InstanceDirectory,
        network: Option<&JobNetwork>,
    ) -> Result<Supervisor, BackendError> {
        let what = || format!("starting {} for {host}", self.program.display());
        let spawn = || -> io::Result<Supervisor> {
            // A missing plan is found here, not by a supervisor that nobody listens to yet.
            let plan = directory.plan().map_err(io::Error::other)?;
            let place = network.map(|network| network.join(&plan)).transpose()?;
            let log = fs::File::create(directory.supervisor_log())?;
            let mut child = Command::new(&self.program)
                .arg("instance")
                .arg(directory.root())
                // A signal to the engine's group, as terminals send it, is none for a supervisor, also while it starts.
                .process_group(0)
                .stdin(place.map_or_else(Stdio::null, Stdio::from))
                .stdout(log.file().try_clone()?)
                .stderr(log.into_file())
                .spawn()?;
            written_down(host, child.id(), directory).map_err(|error| ended(&mut child, error))
        };
        spawn().map_err(|source| BackendError::Unavailable { backend: NAME, what: what(), source })
    }
}

#[async_trait]
impl Backend for LocalBackend {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            network_isolation: true,
            output_kms: true,
            output_uncompressed: true,
            pipe: true,
            fast_file: true,
            manifest_files: true,
            augmented_manifests: true,
            file_systems: true,
            vpc: true,
            channel_gzip: true,
            record_io: true,
            shuffle: true,
            instance_groups: true,
            metrics_time_series: true,
            profiler: true,
            experiment: true,
            infra_check: true,
            session_chaining: true,
            ..Capabilities::none()
        }
    }

    async fn launch(&self, launch: &Launch) -> Result<Placement, BackendError> {
        let (network, id) = self.network(launch)?.unzip();
        // Once nobody can ask for a place any more, the network ends with its last instance.
        let start = |host: &str, directory| self.start(host, &directory, network.as_ref());
        launch_all(self, launch, Vec::from_iter(id), start).await
    }

    async fn observe(
        &self,
        placement: &Placement,
        known: &[Presence],
    ) -> Result<Vec<Presence>, BackendError> {
        let mut waits = Vec::new();
        let mut current = Vec::new();
        for supervisor in &placement.supervisors {
            match open(&supervisor.id).map_err(unavailable(&supervisor.host))? {
                Some(pidfd) => {
                    current.push(Presence::Alive);
                    waits.push(pidfd);
                }
                None => current.push(Presence::Gone),
            }
        }
        if current != known {
            return Ok(current);
        }
        first_end(waits).await.map_err(unavailable("the job"))?;
        self.observe(placement, known).await
    }

    async fn stop(&self, stop: &Stop<'_>) -> Result<(), BackendError> {
        for host in stop.placement.hosts().filter(|host| stop.hosts.iter().any(|wanted| wanted == host)) {
            stop.run.instance(host).request_stop(stop.grace).map_err(|error| BackendError::Unavailable {
                backend: NAME,
                what: format!("asking {host} to stop"),
                source: io::Error::other(error),
            })?;
        }
        Ok(())
    }

    async fn release(&self, placement: &Placement) -> Result<(), BackendError> {
        // The instance's processes die with their supervisor.
        for Supervisor { host, id } in &placement.supervisors {
            kill(id).await.map_err(unavailable(host))?;
        }
        for id in &placement.networks {
            kill(id).await.map_err(unavailable("the network"))?;
        }
        Ok(())
    }

    async fn remove(&self, folder: &Path) -> Result<(), RemoveError> {
        for _ in 1..REMOVE_TRIES {
            if remove_tree(folder).is_ok() {
                return Ok(());
            }
            // What still can't be removed afterwards says why itself.
            let _ = take_back(&self.program, folder).await;
        }
        remove_tree(folder)
    }
}

/// Ends a process that was started in vain, and gives back why. Nobody would know of it; it can't have
/// got far, and its end is no other's.
fn ended(process: &mut Child, why: io::Error) -> io::Error {
    let _ = process.kill().and_then(|()| process.wait());
    why
}

/// Kills a process that this backend has started, if it still runs, and waits for its end.
async fn kill(id: &str) -> io::Result<()> {
    let Some(pidfd) = open(id)? else { return Ok(()) };
    match rustix::process::pidfd_send_signal(&pidfd, Signal::KILL) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(errno) => return Err(errno.into()),
    }
    first_end(vec![pidfd]).await?;
    reap(id);
    Ok(())
}

/// How often it is tried: processes of an instance whose supervisor was killed may be ending just now.
const REMOVE_TRIES: u32 = 5;

/// Writes down a supervisor that has just been started.
fn written_down(host: &str, pid: u32, directory: &InstanceDirectory) -> io::Result<Supervisor> {
    let supervisor = Supervisor { host: host.to_owned(), id: Process::of(pid)?.to_string() };
    directory.write_supervisor(&supervisor).map_err(io::Error::other)?;
    Ok(supervisor)
}

fn unavailable(host: &str) -> impl FnOnce(io::Error) -> BackendError {
    let what = format!("watching the processes of {host}");
    move |source| BackendError::Unavailable { backend: NAME, what, source }
}

/// A process, if it still runs.
fn open(id: &str) -> io::Result<Option<OwnedFd>> {
    let Some(process) = Process::parse(id) else { return Ok(None) };
    let Some(pidfd) = process.open()? else { return Ok(None) };
    if has_ended(&pidfd)? {
        reap(id);
        return Ok(None);
    }
    Ok(Some(pidfd))
}

/// A process that has ended but was not waited for yet still has a number and a start time.
fn has_ended(pidfd: &OwnedFd) -> io::Result<bool> {
    let mut polled = [rustix::event::PollFd::new(pidfd, rustix::event::PollFlags::IN)];
    Ok(rustix::event::poll(&mut polled, Some(&rustix::event::Timespec::default()))? > 0)
}

/// Waits until one of these processes has ended; for ever if there is none.
async fn first_end(pidfds: Vec<OwnedFd>) -> io::Result<()> {
    let mut waits = tokio::task::JoinSet::new();
    for pidfd in pidfds {
        let watched = crate::sys::watch_readable(pidfd)?;
        waits.spawn(async move { watched.readable().await.map(drop) });
    }
    match waits.join_next().await {
        Some(Ok(result)) => result,
        Some(Err(error)) => Err(io::Error::other(error)),
        None => std::future::pending().await,
    }
}

/// Takes the exit status of a child that has ended; others' children are not ours to take.
fn reap(id: &str) {
    if let Some(process) = Process::parse(id) {
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        // An error means that it is not our child, for instance after a restart.
        let _ = rustix::process::waitid(WaitId::Pid(process.pid), ended);
    }
}

/// A process id and when it was started, in clock ticks since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pid: Pid,
    start: u64,
}

impl Process {
    /// Reads the start time from `/proc/<pid>/stat`, field 22 (proc(5)).
    pub(crate) fn of(pid: u32) -> io::Result<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // The second field is the program's name in brackets and may itself hold brackets and blanks.
        let start = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(19));
        let start = start.and_then(|start| start.parse().ok());
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        match (pid, start) {
            (Some(pid), Some(start)) => Ok(Self { pid, start }),
            _ => {
                Err(io::Error::new(io::ErrorKind::InvalidData, format!("/proc/{pid:?}/stat is not readable")))
            }
        }
    }

    /// A descriptor of it; none if it is no more.
    pub(crate) fn open(self) -> io::Result<Option<OwnedFd>> {
        let pidfd = match rustix::process::pidfd_open(self.pid, PidfdFlags::empty()) {
            Ok(pidfd) => pidfd,
            Err(rustix::io::Errno::SRCH) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        // Checked after opening: from here on the number can't pass to another process.
        Ok(self.exists().then_some(pidfd))
    }

    /// Whether it still has its number, also when it has ended and was not waited for.
    pub(crate) fn exists(self) -> bool {
        Self::of(self.pid.as_raw_nonzero().get().unsigned_abs()).is_ok_and(|now| now == self)
    }

    pub(crate) fn parse(id: &str) -> Option<Self> {
        let (pid, start) = id.split_once('@')?;
        Some(Self { pid: Pid::from_raw(pid.parse().ok()?)?, start: start.parse().ok()? })
    }
}

impl std::fmt::Display for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}@{}", self.pid.as_raw_nonzero(), self.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_id_is_written_and_read_back() {
        let own = Process::of(std::process::id()).unwrap();
        assert_eq!(Process::parse(&own.to_string()), Some(own));
        assert_eq!(Process::parse("12"), None);
    }

    #[tokio::test]
    async fn a_number_that_has_passed_to_another_process_counts_as_gone() {
        let own = Process::of(std::process::id()).unwrap();
        let earlier = Process { start: own.start - 1, ..own };
        let supervisor = Supervisor { host: "algo-1".into(), id: earlier.to_string() };
        let placement = Placement { supervisors: vec![supervisor], networks: Vec::new() };
        let backend = LocalBackend::new("/nonexistent".into());
        assert_eq!(backend.observe(&placement, &[Presence::Alive]).await.unwrap(), [Presence::Gone]);
        backend.release(&placement).await.unwrap();
    }
}
