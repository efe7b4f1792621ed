//! How a supervisor starts one `train`: in a [`jail`], or in a container of a daemon.
//!
//! The Host runtime shows the machine's own file system below the instance's tree, the Oci runtime the
//! layers of a container image. They differ only in what lies below, see [`jail::Root`]. The [`docker`]
//! runtime leaves the place to a daemon; what happens in it is the same.

use std::io;
use std::path::{Path, PathBuf};

use rustix::system::sysinfo;

use crate::plan::{Exposed, Identity, InstancePlan, RuntimePlan};
use crate::run::{Exit, RunDirectory};

pub(crate) mod docker;
pub(crate) mod jail;
mod talk;

pub use docker::{container_init, remember};
pub use jail::init::instance_init;

use docker::Container;
use jail::start::{Output, StartError};
use jail::{Changes, Command, Jail, Mount, Program, Root, RunAs};

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
    let (root, run_as, working_directory) = match &plan.runtime {
        RuntimePlan::Host { exposed, working_directory } => {
            mounts.extend(exposed.iter().map(shown));
            (Root::Machine { overlay: shield == Shield::Overlay }, None, working_directory)
        }
        RuntimePlan::Oci { layers, user, working_directory } => {
            let root = Root::Layers { lower: layers.clone(), changes };
            (root, run_as(user, ml), working_directory)
        }
        RuntimePlan::Docker(docker) => {
            return Recipe::Container(Box::new(docker::container(plan, docker, run, mounts)));
        }
    };
    let jail = Jail {
        root,
        hostname: plan.host.clone(),
        mounts,
        shm_size: plan.shm_size.unwrap_or_else(half_of_memory),
        program: Program {
            command: plan.command.clone(),
            environment: plan.environment.clone(),
            working_directory: working_directory.clone(),
            run_as,
        },
    };
    Recipe::Jail(Box::new(jail))
}

/// Whether the kernel gives this user the namespaces of a jail.
pub(crate) async fn probe(self_program: &Path) -> Result<(), StartError> {
    jail::start::probe(self_program).await
}

/// Whether a program needs no dynamic loader, which an image may not have.
pub(crate) fn runs_in_any_image(program: &Path) -> bool {
    jail::program::format::of(program).interpreter.is_none()
}

/// Starts `train`, up to its first process.
///
/// # Errors
/// The machine or the daemon refuses.
pub(crate) async fn start(self_program: &Path, recipe: &Recipe) -> Result<(Running, Output), StartError> {
    match recipe {
        Recipe::Jail(jail) => {
            let (running, output) = jail::start::start(self_program, jail).await?;
            Ok((Running::Jail(running), output))
        }
        Recipe::Container(container) => {
            let (running, output) = docker::start(self_program, container).await?;
            Ok((Running::Container(running), output))
        }
    }
}

impl Running {
    /// Waits until the program runs.
    pub(crate) async fn started(&mut self) -> Result<(), StartError> {
        match self {
            Self::Jail(running) => running.started().await,
            Self::Container(running) => running.started().await,
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

    /// Sends a command to every process of the instance.
    pub(crate) async fn command(&mut self, command: Command) {
        match self {
            Self::Jail(running) => running.command(command).await,
            Self::Container(running) => running.command(command).await,
        }
    }

    /// Whether a program of the instance was killed for want of memory, once it has ended; none where
    /// only the kernel's counters can tell.
    pub(crate) fn ran_out_of_memory(&self) -> Option<bool> {
        match self {
            Self::Jail(_) => None,
            Self::Container(running) => Some(running.ran_out_of_memory()),
        }
    }
}

fn shown(exposed: &Exposed) -> Mount {
    Mount::ReadOnly { source: exposed.source.clone(), target: exposed.target.clone() }
}

/// Root needs no other identity, only the groups that its image gives it.
fn run_as(user: &Identity, ml: PathBuf) -> Option<RunAs> {
    let root = Identity { uid: 0, gid: 0, groups: Vec::new() };
    (*user != root).then(|| RunAs { user: user.clone(), owns: ml })
}

fn half_of_memory() -> u64 {
    let machine = sysinfo();
    // The field's width differs between machines.
    #[expect(clippy::useless_conversion, reason = "u32 on 32-bit machines")]
    let total = u64::from(machine.totalram);
    total * u64::from(machine.mem_unit) / 2
}
