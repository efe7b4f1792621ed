//! How a supervisor starts one `train`: in a [`jail`], or in a container of a daemon.
//!
//! The Host runtime shows the machine's own file system below the instance's tree, the Oci runtime the
//! layers of a container image. They differ only in what lies below, see [`jail::Root`]. The [`docker`]
//! runtime leaves the place to a daemon; what happens in it is the same.

use std::io;
use std::path::{Path, PathBuf};

use indexmap::IndexMap;

use crate::cgroup::machine_memory;
use crate::instance::{Processes, Source};
use crate::plan::{DeviceEdits, Exposed, Identity, InstancePlan, NetworkPlan, RuntimePlan};
use crate::run::{Exit, RunDirectory};
use crate::signal::SIGTERM;

pub(crate) mod docker;
pub(crate) mod jail;
mod talk;

pub use docker::{container_init, remember, sweep};
pub use jail::ids::{NoSubordinateIds, subordinate_ids};
pub use jail::init::instance_init;

pub(crate) use docker::Memory;

use docker::Container;
pub(crate) use jail::start::{Along, StartError};

use jail::start::Output;
use jail::{Changes, Command, InsteadOfOverlay, Jail, Mount, Program, Root, RunAs};

/// What stands between an instance and the machine's file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shield {
    /// Writes outside the instance's own folders go to memory and are forgotten.
    #[default]
    Overlay,
    /// Writes outside the instance's own folders are refused.
    ReadOnly,
}

/// The places of the machine that an instance has for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Places {
    /// What the instance sees as `/opt/ml`.
    pub(crate) ml: PathBuf,
    /// Where changes of an image go.
    pub(crate) changes: Changes,
    /// All that is shown in the instance.
    pub(crate) mounts: Vec<Mount>,
}

/// What it takes to start a plan's `train`.
#[derive(Debug)]
pub(crate) enum Recipe {
    /// In a jail of this machine.
    Jail(Box<Jail>),
    /// In a container of a daemon.
    Container(Box<Container>),
}

/// A `train` that has been started. Dropping it kills everything that belongs to it.
#[derive(Debug)]
pub(crate) enum Running {
    /// In a jail of this machine.
    Jail(jail::start::Running),
    /// In a container of a daemon.
    Container(docker::Running),
}

/// How a plan's `train` is to be started.
pub(crate) fn recipe(plan: &InstancePlan, run: &RunDirectory, shield: Shield, places: Places) -> Recipe {
    let Places { ml, changes, mut mounts } = places;
    let mut links = Vec::new();
    let (root, run_as, working_directory, stop_signal) = match &plan.runtime {
        RuntimePlan::Docker(docker) => {
            return Recipe::Container(Box::new(docker::container(plan, docker, run, mounts)));
        }
        RuntimePlan::Host { exposed, working_directory } => {
            let there = |exposed: &Exposed| exposed.source == exposed.target;
            show_gpus(&plan.gpus.edits, there, &mut mounts);
            mounts.extend(exposed.iter().map(shown));
            (Root::Machine { overlay: shield == Shield::Overlay }, None, working_directory, SIGTERM)
        }
        RuntimePlan::Oci { layers, user, working_directory, stop_signal } => {
            show_gpus(&plan.gpus.edits, |_| false, &mut mounts);
            links.clone_from(&plan.gpus.edits.links);
            let root = Root::Layers { lower: layers.clone(), changes };
            (root, run_as(user, ml), working_directory, *stop_signal)
        }
    };
    let jail = Jail {
        root,
        hostname: plan.host.clone(),
        in_network_of_job: matches!(plan.network, NetworkPlan::Job { .. }),
        mounts,
        links,
        groups: Vec::new(),
        most_processes: None,
        shm_size: shm_size(plan),
        stop_signal,
        program: Program {
            command: plan.command.clone(),
            environment: plan.environment.clone(),
            working_directory: working_directory.clone(),
            run_as,
        },
    };
    Recipe::Jail(Box::new(jail))
}

/// Whether the kernel gives this user the namespaces of a jail, and why not the ids that are set aside, if that is so.
pub(crate) async fn probe(self_program: &Path) -> Result<Option<String>, StartError> {
    jail::start::probe(self_program).await
}

/// Starts a program over an overlay in a folder, whose file system is tried so; the program itself may fail.
pub(crate) async fn try_overlay(self_program: &Path, folder: &Path) -> Result<(), StartError> {
    let [lower, upper, work] = ["lower", "changes", "work"].map(|name| folder.join(name));
    let made = [&lower, &upper, &work].into_iter().try_for_each(fs_err::create_dir);
    made.map_err(|source| StartError::Io { step: "make folders for an overlay", source })?;
    let jail = Jail {
        root: Root::Layers { lower: vec![lower], changes: Changes { upper, work } },
        hostname: "doctor".to_owned(),
        in_network_of_job: false,
        mounts: Vec::new(),
        links: Vec::new(),
        groups: Vec::new(),
        most_processes: None,
        shm_size: 1 << 20,
        stop_signal: SIGTERM,
        program: Program {
            command: vec!["/none".to_owned()],
            environment: IndexMap::new(),
            working_directory: PathBuf::from("/"),
            run_as: None,
        },
    };
    let (mut running, _output) = jail::start::start(self_program, &jail, Along::default()).await?;
    let started = running.started().await;
    running.command(Command::Kill).await;
    running.ended().await.map_err(|source| StartError::Io { step: "end what was tried", source })?;
    match started {
        // Whether there is such a program is known only when everything else is there.
        Ok(_) | Err(StartError::Program { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Whether a program needs no dynamic loader, which an image may not have.
pub(crate) fn runs_in_any_image(program: &Path) -> bool {
    crate::executable::look(program).interpreter.is_none()
}

/// Starts `train`, up to its first process; a jail with what comes along. The daemon makes another control group for a
/// container, and gives it a network.
///
/// # Errors
/// The machine or the daemon refuses.
pub(crate) async fn start(
    self_program: &Path,
    recipe: &Recipe,
    along: Along<'_>,
) -> Result<(Running, Output), StartError> {
    match recipe {
        Recipe::Jail(jail) => {
            let (running, output) = jail::start::start(self_program, jail, along).await?;
            Ok((Running::Jail(running), output))
        }
        Recipe::Container(container) => {
            let (running, output) = docker::start(self_program, container).await?;
            Ok((Running::Container(running), output))
        }
    }
}

impl Running {
    /// Waits until the program runs; tells what shows its image if not the usual.
    pub(crate) async fn started(&mut self) -> Result<Option<InsteadOfOverlay>, StartError> {
        match self {
            Self::Jail(running) => running.started().await,
            Self::Container(running) => running.started().await.map(|()| None),
        }
    }

    /// Whether the instance lacks user ids that are set aside for its user.
    pub(crate) fn lacks_ids(&self) -> bool {
        match self {
            Self::Jail(running) => running.lacks_ids(),
            Self::Container(_) => false,
        }
    }

    /// Waits until the program has ended; how, only the first process of the instance knows, and it may
    /// have been killed.
    pub(crate) async fn exited(&mut self) -> Option<Exit> {
        match self {
            Self::Jail(running) => running.exited().await,
            Self::Container(running) => running.exited().await,
        }
    }

    /// Waits until no process of the instance is left.
    pub(crate) async fn ended(&mut self) -> io::Result<()> {
        match self {
            Self::Jail(running) => running.ended().await,
            Self::Container(running) => running.ended().await,
        }
    }

    /// Kills what is still being made, whatever it waits for.
    pub(crate) fn give_up(&self) {
        match self {
            Self::Jail(running) => running.give_up(),
            Self::Container(running) => running.give_up(),
        }
    }

    /// Sends a command to every process of the instance.
    pub(crate) async fn command(&mut self, command: Command) {
        match self {
            Self::Jail(running) => running.command(command).await,
            Self::Container(running) => running.command(command).await,
        }
    }

    /// What its processes can be counted by; a control group of its own is better.
    pub(crate) fn counted(&self) -> Option<Source> {
        match self {
            Self::Jail(running) => Processes::below(running.process()).map(Source::Processes),
            Self::Container(running) => Some(running.counted()),
        }
    }

    /// Whether a program of the instance was killed for want of memory, once it has ended and was asked how; none
    /// where only the kernel's counters can tell.
    pub(crate) async fn memory(&mut self) -> Option<Memory> {
        match self {
            Self::Jail(_) => None,
            Self::Container(running) => Some(running.memory().await),
        }
    }
}

/// Shows what GPUs need, and returns the links to make for it. A program of the machine sees the machine's drivers
/// already, and lacks only the devices.
fn show_gpus(edits: &DeviceEdits, there: impl Fn(&Exposed) -> bool, mounts: &mut Vec<Mount>) {
    let writable = |exposed: &Exposed| Mount::Writable {
        source: exposed.source.clone(),
        target: exposed.target.clone(),
    };
    mounts.extend(edits.nodes.iter().map(writable));
    mounts.extend(edits.files.iter().filter(|exposed| !there(exposed)).map(shown));
    mounts.extend(edits.writable.iter().filter(|exposed| !there(exposed)).map(writable));
}

/// Half of the memory that an instance may have, unless the job says otherwise.
fn shm_size(plan: &InstancePlan) -> u64 {
    plan.shm_size.unwrap_or_else(|| plan.limits.memory.unwrap_or_else(machine_memory) / 2)
}

fn shown(exposed: &Exposed) -> Mount {
    Mount::ReadOnly { source: exposed.source.clone(), target: exposed.target.clone() }
}

/// Root needs no other identity, only the groups that its image gives it.
fn run_as(user: &Identity, ml: PathBuf) -> Option<RunAs> {
    let root = Identity { uid: 0, gid: 0, groups: Vec::new() };
    (*user != root).then(|| RunAs { user: user.clone(), owns: ml })
}
