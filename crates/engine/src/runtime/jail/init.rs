//! `instance-init`: from a process of the machine to PID 1 of an instance.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use fs_err as fs;
use rustix::process::{
    DumpableBehavior, Pid, Resource, Rlimit, Signal, WaitOptions, WaitStatus, getrlimit,
    set_dumpable_behavior, set_parent_process_death_signal, setrlimit, setsid, wait, waitpid,
};
use rustix::system::sethostname;
use rustix::thread::UnshareFlags;
use serde::de::DeserializeOwned;

use super::mounts::Tree;
use super::namespaces::{self, NamespaceError};
use super::start::WITH_DOOR;
use super::{
    Command, InsteadOfOverlay, Jail, Message, Order, Program, Root, RunAs, SetupError, ids, layers, machine,
    privileges, program, root, step, take_back,
};
use crate::backend::local::Process;
use crate::explain::chain;
use crate::network::{self, Namespaces};
use crate::run::Exit;
use crate::sys::{self, Fork};

/// What the program does when a supervisor started it with the hidden subcommand `instance-init`.
///
/// Must be called first thing in `main`, before any thread exists: a user namespace can be left
/// only by a process with a single thread.
pub fn instance_init() -> ExitCode {
    sys::close_inherited();
    let Ok(socket) = io::stdin().as_fd().try_clone_to_owned() else { return ExitCode::FAILURE };
    let mut socket = UnixStream::from(socket);
    match outer(&mut socket) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let told = tell(&mut socket, &message(&error));
            told.map_or(ExitCode::from(2), |()| ExitCode::FAILURE)
        }
    }
}

fn outer(socket: &mut UnixStream) -> Result<(), SetupError> {
    // It may wait for the programs that give it its ids, and does not listen meanwhile.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(step("depend on the supervisor"))?;
    let (network, door) = sent_along(socket)?;
    let order = order(socket)?;
    // Never in the machine's network for want of another.
    if matches!(&order, Order::Start(jail) if jail.in_network_of_job != network.is_some()) {
        return Err(SetupError::NoNetwork);
    }
    let refusal = match enter(network) {
        Err(SetupError::Namespace(NamespaceError::Refused(error))) => {
            let errno = error.raw_os_error().unwrap_or_default();
            return tell(socket, &Message::NamespacesRefused { errno });
        }
        other => other?,
    };
    let jail = match order {
        Order::Try => return tell(socket, &Message::Unshared { refusal }),
        Order::Start(jail) => jail,
        Order::TakeBack(folder) => {
            take_back::take_back(&folder)?;
            return tell(socket, &Message::TakenBack);
        }
    };
    match sys::fork().map_err(step("start the first process of the instance"))? {
        Fork::Child => first_process(&jail, door, socket),
        // That it has ended means that the whole namespace is empty.
        Fork::Parent(pid) => {
            drop(door);
            wait_for(pid)
        }
    }
}

/// Enters the network of the job, or makes one for this instance alone, and all other namespaces below it. Returns why
/// this process has not got the ids that are set aside for its user, if that is so.
fn enter(network: Option<Namespaces>) -> Result<Option<String>, SetupError> {
    let mut further =
        UnshareFlags::NEWNS | UnshareFlags::NEWPID | UnshareFlags::NEWUTS | UnshareFlags::NEWIPC;
    match network {
        Some(network) => network.enter().map_err(step("enter the network of the job"))?,
        None => further |= UnshareFlags::NEWNET,
    }
    Ok(namespaces::unshare(further)?)
}

/// What comes with the first byte: the instance's place in the network of its job, and the door for the devices of its
/// file systems, as far as it has them.
fn sent_along(socket: &UnixStream) -> Result<(Option<Namespaces>, Option<OwnedFd>), SetupError> {
    let mut byte = [0];
    match network::receive(socket, &mut byte) {
        Ok((1, mut descriptors)) => {
            let door = if byte == *WITH_DOOR { descriptors.pop() } else { None };
            Ok((Namespaces::of(descriptors), door))
        }
        Ok(_) | Err(_) => Err(SetupError::Gone),
    }
}

fn wait_for(pid: Pid) -> Result<(), SetupError> {
    loop {
        match waitpid(Some(pid), WaitOptions::empty()) {
            Err(rustix::io::Errno::INTR) => {}
            other => return other.map(|_| ()).map_err(step("wait for the first process of the instance")),
        }
    }
}

/// What PID 1 does: the recipe, step by step.
fn first_process(jail: &Jail, door: Option<OwnedFd>, socket: &mut UnixStream) -> Result<(), SetupError> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(step("depend on the supervisor"))?;
    for ignored in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT] {
        sys::restore_default(ignored);
    }
    tell(socket, &begun()?)?;
    setsid().map_err(step("start a session"))?;
    sethostname(jail.hostname.as_bytes()).map_err(step("set the host name"))?;
    if !jail.in_network_of_job {
        network::start_loopback().map_err(step("start the loopback interface"))?;
    }

    let run_as = jail.program.run_as.as_ref().filter(|_| RunAs::is_possible());
    if let Some(run_as) = run_as {
        run_as.hand_over()?;
    }
    if !jail.groups.is_empty() {
        // The group that this process is in becomes the uppermost that can be seen.
        sys::unshare(UnshareFlags::NEWCGROUP).map_err(step("separate the control groups"))?;
    }
    // From the machine's file tree …
    let kernel = machine::trees(jail)?;
    let planned = jail.mounts.iter().map(|mount| Tree::planned(mount, door.as_ref().map(AsFd::as_fd)));
    let planned = planned.collect::<Result<Vec<_>, _>>()?;
    drop(door);
    let (new_root, instead) = root::assemble(jail)?;
    // … to the instance's own. The kernel's file systems are covered with all that protects them before
    // a link of an image can lead a mount to them.
    root::enter(&new_root)?;
    attach(kernel)?;
    machine::finish()?;
    attach(planned)?;
    if matches!(jail.root, Root::Layers { .. }) {
        layers::make_working_directory(&jail.program.working_directory)?;
    }
    machine::link(&jail.links)?;

    privileges::drop_privileges()?;
    // Nobody inside may look into this process or take its socket.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(step("hide from debuggers"))?;
    let rules = Rules { stop_signal: jail.stop_signal, most_processes: jail.most_processes, instead };
    run(&jail.program, run_as, rules, socket)
}

/// What PID 1 tells of itself. Its number outside of its namespace is what the machine's `/proc` shows as long as it is
/// there.
fn begun() -> Result<Message, SetupError> {
    let read = || -> io::Result<Message> {
        let pid = fs::read_link("/proc/self")?.to_string_lossy().parse().map_err(io::Error::other)?;
        let process = Process::of(pid)?.to_string();
        let other_ids = ids::has(&fs::read_to_string("/proc/self/uid_map")?, 1);
        Ok(Message::Begun { process, other_ids })
    };
    read().map_err(step("find the first process among those of the machine"))
}

fn attach(trees: Vec<Tree>) -> Result<(), SetupError> {
    trees.iter().try_for_each(Tree::attach)
}

/// What the first process of an instance keeps to beside its program.
pub(in crate::runtime) struct Rules {
    /// The signal by which [`Command::Terminate`] asks every process to end.
    pub(in crate::runtime) stop_signal: i32,
    /// Most processes, where no control group counts them.
    pub(in crate::runtime) most_processes: Option<u32>,
    /// What shows its image, if not the usual.
    pub(in crate::runtime) instead: Option<InsteadOfOverlay>,
}

/// Starts the program and watches over it and all that it starts, as PID 1 does.
pub(in crate::runtime) fn run(
    program: &Program,
    run_as: Option<&RunAs>,
    rules: Rules,
    socket: &mut UnixStream,
) -> Result<(), SetupError> {
    let commands = socket.try_clone().map_err(step("listen to the supervisor"))?;
    let terminated = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&terminated);
    // Before the program, which may start so many processes that no thread can be had any more.
    thread::Builder::new()
        .spawn(move || obey(commands, rules.stop_signal, &flag))
        .map_err(step("listen to the supervisor"))?;
    if let Some(most) = rules.most_processes {
        limit_processes(most.into()).map_err(step("limit the number of processes"))?;
    }
    let train = match program::start(program, run_as) {
        Ok(child) => Pid::from_child(&child),
        Err(error) => {
            let (code, explanation) = (error.code(), chain(&error));
            return tell(socket, &Message::NotStarted { code, explanation });
        }
    };
    tell(socket, &Message::Started { instead: rules.instead })?;
    let exit = reap_until(train)?;
    if terminated.load(Ordering::SeqCst) {
        // Every process was asked to end and has the grace to do so, not only `train`.
        reap_all()?;
    }
    // When this process ends, the kernel kills what is left in its namespace.
    tell(socket, &Message::Exited(exit))
}

/// Limits the processes that this user has in this namespace; nobody may raise a limit of their own.
fn limit_processes(most: u64) -> rustix::io::Result<()> {
    let allowed = getrlimit(Resource::Nproc).maximum.map_or(most, |allowed| allowed.min(most));
    setrlimit(Resource::Nproc, Rlimit { current: Some(allowed), maximum: Some(allowed) })
}

/// Carries out the supervisor's commands; without a supervisor everything is killed.
fn obey(mut commands: UnixStream, stop_signal: i32, terminated: &AtomicBool) {
    let mut byte = [0];
    loop {
        match commands.read(&mut byte) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(1) if byte == [Command::Terminate.byte()] => {
                terminated.store(true, Ordering::SeqCst);
                sys::signal_all(stop_signal);
            }
            Ok(_) | Err(_) => return sys::signal_all(libc::SIGKILL),
        }
    }
}

/// Waits for all children, also those whose parents have ended, until `train` is among them.
fn reap_until(train: Pid) -> Result<Exit, SetupError> {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == train => return Ok(exit(status)),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).map_err(step("wait for the program")),
        }
    }
}

/// Waits until no other process of the instance is left.
pub(in crate::runtime) fn reap_all() -> Result<(), SetupError> {
    loop {
        match wait(WaitOptions::empty()) {
            Err(rustix::io::Errno::CHILD) => return Ok(()),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).map_err(step("wait for the program's children")),
        }
    }
}

fn exit(status: WaitStatus) -> Exit {
    match status.terminating_signal() {
        Some(signal) => Exit::Signal(signal),
        None => Exit::Code(status.exit_status().unwrap_or_default()),
    }
}

pub(in crate::runtime) fn message(error: &SetupError) -> Message {
    match error {
        SetupError::Overlay { target, source } => {
            Message::OverlayRefused { target: target.clone(), reason: source.to_string() }
        }
        other => Message::Broken { explanation: chain(other) },
    }
}

pub(in crate::runtime) fn tell(socket: &mut UnixStream, message: &Message) -> Result<(), SetupError> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    socket.write_all(&line).map_err(|_| SetupError::Gone)
}

/// Reads the supervisor's order byte for byte up to its end: what follows are commands.
pub(in crate::runtime) fn order<T: DeserializeOwned>(socket: &mut UnixStream) -> Result<T, SetupError> {
    let mut length = [0; 8];
    socket.read_exact(&mut length).map_err(|_| SetupError::Gone)?;
    let mut text = Vec::new();
    let limit = u64::from_le_bytes(length);
    socket.take(limit).read_to_end(&mut text).map_err(|_| SetupError::Gone)?;
    Ok(serde_json::from_slice(&text)?)
}
