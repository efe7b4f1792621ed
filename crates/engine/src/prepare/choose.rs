//! Which runtime a container image gets on this machine.

use std::path::Path;

use super::Machine;
use super::container::{self, ContainerError, ImageProgress};
use crate::docker::{Daemon, Kind};
use crate::explain::chain;
use crate::image::{
    Bring, DaemonImage, ImageConfig, ImageReference, LoadedImages, ObtainError, Platform, UnpackedImage,
};
use crate::plan::{DockerPlan, Image};
use crate::runtime;

/// How container images are run; programs of the machine and built-in images need no choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RuntimeChoice {
    /// Without a daemon where the kernel lets this user, else through a daemon. An image that no
    /// registry gives and the daemon has is run by the daemon too.
    #[default]
    Auto,
    /// Without a daemon.
    Oci,
    /// Through Docker or Podman.
    Docker,
}

/// A container image that can be run. As long as this is kept, nobody removes it.
#[derive(Debug)]
pub enum PreparedImage {
    /// One that is run without a daemon.
    Unpacked(Box<UnpackedImage>),
    /// One that a daemon has.
    OfDaemon(Box<DaemonImage>),
}

impl PreparedImage {
    /// How it wants to be run.
    pub fn config(&self) -> &ImageConfig {
        match self {
            Self::Unpacked(image) => &image.config,
            Self::OfDaemon(image) => &image.config,
        }
    }
}

/// An image that can be run, and what keeps it.
pub(super) struct Obtained {
    pub(super) image: Image,
    pub(super) kept: Option<PreparedImage>,
    pub(super) warning: Option<String>,
}

/// Brings a container image to where it is run.
pub(super) async fn obtain(
    name: &str,
    machine: &Machine,
    progress: ImageProgress,
) -> Result<Obtained, ContainerError> {
    match machine.runtime {
        RuntimeChoice::Oci => without_daemon(name, machine, progress).await,
        RuntimeChoice::Docker => {
            let daemon = Daemon::find(&machine.docker).await?;
            through(&daemon, name, machine, progress).await
        }
        RuntimeChoice::Auto => by_what_is_there(name, machine, progress).await,
    }
}

async fn by_what_is_there(
    name: &str,
    machine: &Machine,
    progress: ImageProgress,
) -> Result<Obtained, ContainerError> {
    if let Err(refused) = runtime::probe(&machine.program).await {
        return match Daemon::find(&machine.docker).await {
            Ok(daemon) => through(&daemon, name, machine, progress).await,
            Err(docker) => Err(ContainerError::NoRuntime {
                image: name.to_owned(),
                namespaces: chain(&refused),
                docker: docker.to_string(),
            }),
        };
    }
    match without_daemon(name, machine, progress.clone()).await {
        Err(error) if not_given(&error) => match Daemon::find(&machine.docker).await {
            Ok(daemon) if Bring::has(&daemon, name).await? => through(&daemon, name, machine, progress).await,
            _ => Err(error),
        },
        obtained => obtained,
    }
}

/// Whether a registry has been asked in vain.
fn not_given(error: &ContainerError) -> bool {
    let ContainerError::Obtain { source, .. } = error else { return false };
    matches!(
        **source,
        ObtainError::Network { .. } | ObtainError::NotFound { .. } | ObtainError::NoAccess { .. }
    )
}

async fn without_daemon(
    name: &str,
    machine: &Machine,
    progress: ImageProgress,
) -> Result<Obtained, ContainerError> {
    let (image, unpacked) = machine.image_source.obtain(name, progress).await?;
    Ok(Obtained { image, kept: Some(PreparedImage::Unpacked(Box::new(unpacked))), warning: None })
}

async fn through(
    daemon: &Daemon,
    name: &str,
    machine: &Machine,
    progress: ImageProgress,
) -> Result<Obtained, ContainerError> {
    if !runtime::runs_in_any_image(&machine.program) {
        return Err(ContainerError::Dynamic { program: machine.program.clone() });
    }
    let reference = ImageReference::parse(name, Path::new("/"))?;
    let bring = Bring {
        daemon,
        platform: Platform::of_this_machine(),
        credentials: machine.image_source.credentials(name, &reference)?,
        scratch: machine.data.clone(),
        loaded: LoadedImages::of(&machine.data),
        progress,
    };
    let brought = bring.bring(&reference, name).await;
    let brought = brought
        .map_err(|source| ContainerError::Bring { image: name.to_owned(), source: Box::new(source) })?;
    runtime::remember(&machine.data, &daemon.socket).map_err(ContainerError::Remember)?;
    let docker = DockerPlan {
        socket: daemon.socket.clone(),
        image: brought.id.clone(),
        user: brought.config.user.clone(),
        working_directory: brought.config.working_directory.clone(),
        stop_signal: container::stop_signal(name, &brought.config)?,
        // Podman has volumes of the same kind by name only, and leaves out what it does not know.
        overlays: daemon.kind == Kind::Docker,
        isolated: false,
        data: machine.data.clone(),
    };
    let image = Image::OfDaemon { docker, config: Box::new(brought.config.clone()) };
    let warning = brought.warning.clone();
    Ok(Obtained { image, kept: Some(PreparedImage::OfDaemon(Box::new(brought))), warning })
}
