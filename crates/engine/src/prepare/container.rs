//! A container image from its name to layers on this machine, and whether it has what is to be run.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::docker::DaemonError;
use crate::image::{
    BringError, Credentials, CredentialsError, ImageConfig, ImageReference, ImageStore, Obtain, ObtainError,
    Platform, Progress, ReferenceError, StoreError, UnpackedImage, User, UserError,
};
use crate::plan::{Image, InstancePlan};
use crate::signal::{SIGTERM, signal_number};

/// Told how far each layer of an image is, from any thread.
pub type ImageProgress = Arc<dyn Fn(Progress) + Send + Sync>;

/// Folders of which an image says nothing: each instance has its own.
const OWN_FOLDERS: [&str; 5] = ["/opt/ml", "/tmp", "/dev", "/proc", "/sys"];

/// A container image that can't be run here.
#[derive(Debug, thiserror::Error)]
pub enum ContainerError {
    /// The name is none.
    #[error("TrainingImage")]
    Reference(#[from] ReferenceError),
    /// The image can't be brought here.
    #[error("TrainingImage {image:?}{}", hint(image, source))]
    Obtain {
        /// The name as sent.
        image: String,
        /// Why.
        source: Box<ObtainError>,
    },
    /// The daemon can't be brought to have the image.
    #[error("TrainingImage {image:?}")]
    Bring {
        /// The name as sent.
        image: String,
        /// Why.
        source: Box<BringError>,
    },
    /// There is no daemon.
    #[error("the Docker runtime can't be used")]
    Daemon(#[from] DaemonError),
    /// Neither the kernel nor a daemon runs images.
    #[error(
        "TrainingImage {image:?}: images can't be run on this machine, neither without a daemon: {namespaces}; nor \
         through one: {docker}"
    )]
    NoRuntime {
        /// The name as sent.
        image: String,
        /// Why not without a daemon.
        namespaces: String,
        /// Why not through one.
        docker: String,
    },
    /// This program can't be the first process of any container.
    #[error(
        "the Docker runtime can't be used: {} is linked dynamically, and would not run in every image; link it \
         statically, as the default build does", program.display()
    )]
    Dynamic {
        /// This program's own file.
        program: PathBuf,
    },
    /// What belongs to jobs would not be found again.
    #[error("the daemon can't be written down in the data folder")]
    Remember(#[source] io::Error),
    /// Images can't be kept.
    #[error("images can't be kept on this machine")]
    Store(#[from] StoreError),
    /// The user's credentials can't be found out.
    #[error("TrainingImage {image:?}")]
    Credentials {
        /// The name as sent.
        image: String,
        /// Why.
        source: CredentialsError,
    },
    /// The image runs as somebody it does not know.
    #[error("TrainingImage {image:?}")]
    User {
        /// The name as sent.
        image: String,
        /// Why.
        source: UserError,
    },
    /// The image wants to be stopped by a signal that does not exist.
    #[error(
        "TrainingImage {image:?} has the STOPSIGNAL {signal:?}, which is no signal: it must be a name such as \
         SIGTERM or SIGRTMIN+3, or a number from 1 to 64"
    )]
    StopSignal {
        /// The name as sent.
        image: String,
        /// As the image has it.
        signal: String,
    },
    /// Nothing of this name on the image's `PATH`.
    #[error(
        "TrainingImage {image:?} has no program {program:?} in its PATH ({searched}): put an executable of \
         that name there, or name another with ContainerEntrypoint"
    )]
    NotInPath {
        /// The name as sent.
        image: String,
        /// What was to be run.
        program: String,
        /// The folders of the image, with colons between them.
        searched: String,
    },
    /// Nothing at this path of the image.
    #[error("TrainingImage {image:?} has no program {program}: its entrypoint must be a file of the image")]
    NoProgram {
        /// The name as sent.
        image: String,
        /// What was to be run.
        program: String,
    },
}

/// What else would work where a registry does not give an image.
fn hint(image: &str, error: &ObtainError) -> String {
    match error {
        ObtainError::Network { .. } | ObtainError::NotFound { .. } | ObtainError::NoAccess { .. } => format!(
            " (with --image {image}=SOURCE another is run in its place: host:PATH, docker-archive:FILE, \
             oci-archive:FILE, oci:FOLDER or another registry's)"
        ),
        _ => String::new(),
    }
}

/// Where images come from and where they are kept.
#[derive(Clone, Debug)]
pub struct ImageSource {
    /// The folder of the store.
    pub store: PathBuf,
    /// Docker's `config.json` with the user's credentials for registries; it need not be there.
    pub docker_config: Option<PathBuf>,
}

impl ImageSource {
    /// Brings an image here. As long as the second part of the answer is kept, nobody removes the
    /// image.
    ///
    /// # Errors
    ///
    /// Fails if the name is none, or the image can't be brought here or run here.
    pub async fn obtain(
        &self,
        name: &str,
        progress: ImageProgress,
    ) -> Result<(Image, UnpackedImage), ContainerError> {
        let image = || name.to_owned();
        let reference = ImageReference::parse(name, Path::new("/"))?;
        let credentials = self.credentials(name, &reference)?;
        let how = Obtain { platform: Platform::of_this_machine(), credentials, progress };
        let unpacked = ImageStore::open(&self.store)?.obtain(&reference, &how).await;
        let unpacked =
            unpacked.map_err(|source| ContainerError::Obtain { image: image(), source: Box::new(source) })?;
        let user = User::resolve(&unpacked.config.user, &unpacked.lowers)
            .map_err(|source| ContainerError::User { image: image(), source })?;
        let stop_signal = stop_signal(name, &unpacked.config)?;
        let container = Image::Container {
            layers: unpacked.lowers.folders().to_vec(),
            config: Box::new(unpacked.config.clone()),
            user,
            stop_signal,
        };
        Ok((container, unpacked))
    }

    /// Who the user is to the image's registry.
    pub(super) fn credentials(
        &self,
        name: &str,
        reference: &ImageReference,
    ) -> Result<Credentials, ContainerError> {
        match (reference, &self.docker_config) {
            (ImageReference::Registry(_), Some(path)) => Credentials::read(path)
                .map_err(|source| ContainerError::Credentials { image: name.to_owned(), source }),
            _ => Ok(Credentials::default()),
        }
    }
}

/// What asks the processes of an image to end.
pub(super) fn stop_signal(image: &str, config: &ImageConfig) -> Result<i32, ContainerError> {
    let Some(signal) = &config.stop_signal else { return Ok(SIGTERM) };
    signal_number(signal)
        .ok_or_else(|| ContainerError::StopSignal { image: image.to_owned(), signal: signal.clone() })
}

/// Whether the image has the program that an instance is to run, as far as the image alone can tell.
pub(super) fn check_program(
    name: &str,
    image: &UnpackedImage,
    plan: &InstancePlan,
) -> Result<(), ContainerError> {
    let Some(program) = plan.command.first() else { return Ok(()) };
    let folder = &image.config.working_directory;
    // What can't be read is told when it is run.
    let is_there = |path: &Path| is_own(path) || !matches!(image.lowers.find(path), Ok(None));
    if program.contains('/') {
        if is_there(&folder.join(program)) {
            return Ok(());
        }
        return Err(ContainerError::NoProgram { image: name.to_owned(), program: program.clone() });
    }
    let searched = plan.environment.get("PATH").cloned().unwrap_or_default();
    if searched.split(':').any(|entry| is_there(&folder.join(entry).join(program))) {
        return Ok(());
    }
    Err(ContainerError::NotInPath { image: name.to_owned(), program: program.clone(), searched })
}

fn is_own(path: &Path) -> bool {
    // Another path may lead there as well.
    path.components().any(|part| part.as_os_str() == "..")
        || OWN_FOLDERS.iter().any(|own| path.starts_with(own))
}
