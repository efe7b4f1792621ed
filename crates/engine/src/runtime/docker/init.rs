//! The first process of a container: this program itself, as root of the container.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;

use rustix::fs::{Gid, Uid, fchown};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::stdio::{dup2_stderr, dup2_stdout};

use super::give_back::Owner;
use super::{GIVE_BACK_COMMAND, INIT_COMMAND, LEFT, Order, SOCKET};
use crate::explain::chain;
use crate::image::User;
use crate::plan::Identity;
use crate::runtime::jail::init::{Rules, message, order, reap_all, run, tell};
use crate::runtime::jail::{Message, Program, RunAs, SetupError, at, step};
use crate::sys;

const ML: &str = "/opt/ml";
/// An overlay, where there is one: what lies in it must not be touched, for that would copy it.
const CHANNELS: &str = "/opt/ml/input/data";
const TMP: &str = "/tmp";

/// What the program does as the first process of a container, when it is started with the hidden
/// subcommand that is given; none if it is another.
pub fn container_init(command: &str) -> Option<ExitCode> {
    match command {
        INIT_COMMAND => Some(instance()),
        GIVE_BACK_COMMAND => {
            let left = Path::new(LEFT);
            let given = Owner::of(left).and_then(|owner| owner.take_all(left));
            Some(if given.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        _ => None,
    }
}

fn instance() -> ExitCode {
    sys::close_inherited();
    // Without a supervisor there is nobody to tell.
    let Ok(mut socket) = UnixStream::connect(SOCKET) else { return ExitCode::from(2) };
    match carry_out(&mut socket) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let told = tell(&mut socket, &message(&error));
            told.map_or(ExitCode::from(2), |()| ExitCode::FAILURE)
        }
    }
}

fn carry_out(socket: &mut UnixStream) -> Result<(), SetupError> {
    take_streams(socket).map_err(step("take over the streams"))?;
    // Nobody inside may look into this process or take its socket.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(step("hide from debuggers"))?;
    let order: Order = order(socket)?;
    let channels = Path::new(CHANNELS);
    if order.channels.iter().any(|channel| !channels.join(channel).is_dir()) {
        let reason = "the daemon does not show it".to_owned();
        return tell(socket, &Message::OverlayRefused { target: channels.to_owned(), reason });
    }
    let submitter = Owner::of(Path::new(ML)).map_err(at("find", Path::new(ML)))?;
    let user = match User::resolve_inside(&order.user) {
        Ok(user) => user,
        Err(error) => return tell(socket, &Message::NotStarted { code: 126, explanation: chain(&error) }),
    };
    // The daemon limits the number of processes.
    let rules = Rules { stop_signal: order.stop_signal, most_processes: None, instead: None };
    let shared = order.shared.clone();
    let ran = hand_over(&user, &shared).and_then(|()| {
        let (program, run_as) = program(order, user);
        run(&program, Some(&run_as), rules, socket)
    });
    // Whatever became of it: nothing goes on, and what was written belongs to who has submitted the job.
    sys::signal_all(libc::SIGKILL);
    ran.and(reap_all())?;
    if let Some(bytes) = memory_peak() {
        tell(socket, &Message::MemoryPeak { bytes })?;
    }
    give_back(submitter, &shared)
}

/// What the kernel has counted in the container's own control group, of version 2 or 1.
fn memory_peak() -> Option<u64> {
    let files = ["memory.peak", "memory/memory.max_usage_in_bytes"];
    let read = |file| fs_err::read_to_string(Path::new("/sys/fs/cgroup").join(file));
    files.into_iter().find_map(|file| read(file).ok()?.trim().parse().ok())
}

/// Takes the pipes that come with the supervisor's first byte as standard output and error.
fn take_streams(socket: &UnixStream) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let streams = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors.collect::<Vec<OwnedFd>>()),
        _ => None,
    });
    match streams.as_deref() {
        Some([stdout, stderr]) => Ok(dup2_stdout(stdout).and_then(|()| dup2_stderr(stderr))?),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Gives the image's user what it must be able to write: `/opt/ml`, and the streams, which it may open
/// again as `/dev/stdout`.
fn hand_over(user: &User, shared: &[String]) -> Result<(), SetupError> {
    let owner = Owner { uid: user.uid, gid: user.gid };
    owner.take_all(Path::new(ML)).map_err(at("give to the image's user", Path::new(ML)))?;
    if user.uid != 0 {
        // Root may write there as it is.
        let channels = Path::new(CHANNELS);
        owner.take_folders(channels, shared).map_err(at("give to the image's user", channels))?;
    }
    let (uid, gid) = (Some(Uid::from_raw(user.uid)), Some(Gid::from_raw(user.gid)));
    fchown(io::stdout(), uid, gid).map_err(step("give standard output to the image's user"))?;
    fchown(io::stderr(), uid, gid).map_err(step("give standard error to the image's user"))
}

fn give_back(submitter: Owner, shared: &[String]) -> Result<(), SetupError> {
    for folder in [ML, TMP].map(Path::new) {
        submitter.take_all(folder).map_err(at("give back", folder))?;
    }
    let channels = Path::new(CHANNELS);
    if channels.is_dir() {
        submitter.take_folders(channels, shared).map_err(at("give back", channels))?;
    }
    Ok(())
}

fn program(order: Order, user: User) -> (Program, RunAs) {
    let mut environment = order.environment;
    environment.entry("HOME".to_owned()).or_insert(user.home);
    let program = Program {
        command: order.command,
        environment,
        working_directory: order.working_directory,
        run_as: None,
    };
    let user = Identity { uid: user.uid, gid: user.gid, groups: user.groups };
    (program, RunAs { user, owns: ML.into() })
}
