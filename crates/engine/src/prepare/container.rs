//! A container image from its name to layers on this machine, and whether it has what is to be run.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::image::{
    Credentials, CredentialsError, ImageReference, ImageStore, Obtain, ObtainError, Platform, Progress,
    ReferenceError, StoreError, UnpackedImage, User, UserError,
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
        let credentials = match (&reference, &self.docker_config) {
            (ImageReference::Registry(_), Some(path)) => Credentials::read(path)
                .map_err(|source| ContainerError::Credentials { image: image(), source })?,
            _ => Credentials::default(),
        };
        let how = Obtain { platform: Platform::of_this_machine(), credentials, progress };
        let unpacked = ImageStore::open(&self.store)?.obtain(&reference, &how).await;
        let unpacked =
            unpacked.map_err(|source| ContainerError::Obtain { image: image(), source: Box::new(source) })?;
        let user = User::resolve(&unpacked.config.user, &unpacked.lowers)
            .map_err(|source| ContainerError::User { image: image(), source })?;
        let stop_signal = match &unpacked.config.stop_signal {
            Some(signal) => signal_number(signal)
                .ok_or_else(|| ContainerError::StopSignal { image: image(), signal: signal.clone() })?,
            None => SIGTERM,
        };
        let container = Image::Container {
            layers: unpacked.lowers.folders().to_vec(),
            config: Box::new(unpacked.config.clone()),
            user,
            stop_signal,
        };
        Ok((container, unpacked))
    }
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
