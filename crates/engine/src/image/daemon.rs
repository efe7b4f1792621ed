//! Images for a daemon of Docker or Podman: bringing them to it, and what it says of them.
//!
//! Which image a name means: one without a registry in it (`fit:2`, `team/fit:2`) is the one that the
//! daemon has, else the one of Docker Hub. One with a registry is looked up there every time, as for the
//! other runtimes; the daemon's own takes its place where the registry does not give it, with a warning.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use bollard::auth::DockerCredentials;
use bollard::body_try_stream;
use bollard::errors::Error;
use bollard::models::{CreateImageInfo, ImageInspect, ProgressDetail};
use bollard::query_parameters::{CreateImageOptions, ImportImageOptions};
use futures_util::StreamExt;
use indexmap::IndexMap;

mod archive;
mod loaded;

pub use self::loaded::{Amount, LoadedImage, LoadedImages, RemoveLoadedError};

use self::archive::Archive;
use super::config::{ImageConfig, variables};
use super::credentials::{Credentials, CredentialsError, Login};
use super::digest::Digest;
use super::obtain::{Found, ObtainError, Progress, Step, find_in_files};
use super::platform::Platform;
use super::reference::{ImageReference, RegistryReference};
use crate::docker::{Daemon, DaemonError, reason, status};

/// An image that a daemon has.
#[derive(Clone, Debug)]
pub struct DaemonImage {
    /// Its id.
    pub id: String,
    /// How it wants to be run.
    pub config: ImageConfig,
    /// How large it is.
    pub amount: Amount,
    /// Where the daemon listens.
    pub socket: PathBuf,
    /// What the user should know of how it was found.
    pub warning: Option<String>,
    /// Of one that was loaded from files: as long as this is kept, nobody removes it from the daemon.
    _in_use: Option<Arc<fs_err::File>>,
}

impl DaemonImage {
    /// Bytes of each layer as the daemon counts them, lowest first; all of them 0 where it can't tell.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub async fn layer_sizes(&self) -> Result<Vec<u64>, DaemonError> {
        let daemon = Daemon::connect(&self.socket).await?;
        loaded::layer_sizes(&daemon, &self.id, self.amount.layers).await
    }
}

/// What is to be brought to a daemon, and for whom.
pub struct Bring<'a> {
    /// Where the daemon is.
    pub daemon: &'a Daemon,
    /// What the image has to run on.
    pub platform: Platform,
    /// Who the user is to registries.
    pub credentials: Credentials,
    /// A folder for an archive that has to be decompressed.
    pub scratch: PathBuf,
    /// What is written down of images that the daemon was given.
    pub loaded: LoadedImages,
    /// Told how far each layer is, from any thread.
    pub progress: Arc<dyn Fn(Progress) + Send + Sync>,
}

/// An image that a daemon can't be brought to have.
#[derive(Debug, thiserror::Error)]
pub enum BringError {
    /// The daemon does not do what it is asked for.
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    /// The archive can't be used.
    #[error(transparent)]
    Archive(#[from] ObtainError),
    /// The user's credentials can't be found out.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// Neither the registry nor the daemon has it.
    #[error("the daemon has no such image, and can't get it from registry {registry}: {reason}")]
    Pull {
        /// Where it was looked for.
        registry: String,
        /// What the daemon says.
        reason: String,
    },
    /// It is for other machines.
    #[error("the image is for {there}, this machine is {wanted}")]
    Platform {
        /// What is needed.
        wanted: Platform,
        /// What there is.
        there: Platform,
    },
    /// What the daemon was given can't be written down.
    #[error("can't write down in {} what the daemon was given", folder.display())]
    Note {
        /// Where.
        folder: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A thread ended early.
    #[error("reading the image broke off")]
    Broken(#[from] tokio::task::JoinError),
}

impl Bring<'_> {
    /// Sees to it that the daemon has an image. `name` is the reference as it was written.
    ///
    /// # Errors
    /// Neither the daemon nor the place that is named has it, or it is for other machines.
    pub async fn bring(&self, reference: &ImageReference, name: &str) -> Result<DaemonImage, BringError> {
        let (found, warning, in_use) = match reference {
            ImageReference::Registry(registry) => {
                let (found, warning) = self.of_registry(registry, name).await?;
                (found, warning, None)
            }
            _ => {
                let (found, in_use) = self.of_archive(reference).await?;
                (found, None, Some(Arc::new(in_use)))
            }
        };
        let amount = Amount::of(&found);
        let (id, config) = (found.id.clone().unwrap_or_default(), config(found));
        if self.platform.distance(&config.platform).is_none() {
            return Err(BringError::Platform { wanted: self.platform.clone(), there: config.platform });
        }
        Ok(DaemonImage { id, config, amount, socket: self.daemon.socket.clone(), warning, _in_use: in_use })
    }

    /// Whether the daemon has an image of this name already.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub async fn has(daemon: &Daemon, name: &str) -> Result<bool, DaemonError> {
        Ok(inspect(daemon, name).await?.is_some())
    }

    async fn of_registry(
        &self,
        registry: &RegistryReference,
        name: &str,
    ) -> Result<(ImageInspect, Option<String>), BringError> {
        let local = inspect(self.daemon, name).await?;
        let settled = registry.digest().is_some() || !names_registry(name);
        match (local, settled) {
            (Some(local), true) => Ok((local, None)),
            (Some(local), false) => match self.pull(registry, name).await {
                Ok(pulled) => Ok((pulled, None)),
                Err(BringError::Pull { registry, reason }) => {
                    let warning = format!(
                        "the image {name} is the one that the daemon has: registry {registry} did not give it: \
                         {reason}"
                    );
                    Ok((local, Some(warning)))
                }
                Err(error) => Err(error),
            },
            (None, _) => Ok((self.pull(registry, name).await?, None)),
        }
    }

    async fn pull(&self, registry: &RegistryReference, name: &str) -> Result<ImageInspect, BringError> {
        let host = registry.registry().to_owned();
        let credentials = self.credentials.login(&host).await?.map(|login| told(login, &host));
        let options = CreateImageOptions {
            from_image: Some(registry.to_string()),
            platform: self.platform.to_string(),
            ..CreateImageOptions::default()
        };
        let mut pulling = self.daemon.client.create_image(Some(options), None, credentials);
        while let Some(told) = pulling.next().await {
            match told {
                Ok(told) => self.show(told),
                Err(error) => return Err(BringError::Pull { registry: host, reason: reason(&error) }),
            }
        }
        let reason = || "it was pulled, but the daemon does not have it".to_owned();
        let found = inspect(self.daemon, name).await?;
        found.ok_or_else(|| BringError::Pull { registry: host, reason: reason() })
    }

    fn show(&self, told: CreateImageInfo) {
        let step = match told.status.as_deref() {
            Some("Downloading") => Step::Fetch,
            Some("Extracting") => Step::Unpack,
            _ => return,
        };
        let (Some(layer), Some(ProgressDetail { current: Some(done), total: Some(total) })) =
            (told.id, told.progress_detail)
        else {
            return;
        };
        let bytes = |count: i64| u64::try_from(count).unwrap_or_default();
        (self.progress)(Progress { layer, step, done: bytes(done), total: bytes(total) });
    }

    /// Loads an archive or a layout unless the daemon has its image from an earlier time. As long as the file that is
    /// returned is kept, nobody removes it there.
    async fn of_archive(
        &self,
        reference: &ImageReference,
    ) -> Result<(ImageInspect, fs_err::File), BringError> {
        let (searched, platform, scratch) = (reference.clone(), self.platform.clone(), self.scratch.clone());
        let finding = move || {
            fs_err::create_dir_all(&scratch).map_err(|source| super::store::at("make", &scratch, source))?;
            find_in_files(&searched, &platform, scratch)
        };
        let found: Found = tokio::task::spawn_blocking(finding).await??;
        let digest = Digest::of(&found.config);
        // First, so that it is found whatever comes next.
        let noted = self.loaded.note(&digest, &self.daemon.socket, &reference.to_string());
        let in_use =
            noted.map_err(|source| BringError::Note { folder: self.loaded.folder().to_owned(), source })?;
        let tag = loaded::tag(&digest);
        if let Some(loaded) = inspect(self.daemon, &tag).await? {
            return Ok((loaded, in_use));
        }
        match self.load(reference, found, &tag).await {
            Ok(loaded) => Ok((loaded, in_use)),
            Err(error) => {
                self.loaded.forget(&digest, in_use);
                Err(error)
            }
        }
    }

    async fn load(
        &self,
        reference: &ImageReference,
        found: Found,
        tag: &str,
    ) -> Result<ImageInspect, BringError> {
        let archive = Archive::new(reference, found, tag.to_owned(), Arc::clone(&self.progress))?;
        let body = body_try_stream(archive.stream());
        let mut loading = self.daemon.client.import_image(ImportImageOptions::default(), body, None);
        while let Some(told) = loading.next().await {
            told.map_err(self.daemon.failed("load the image"))?;
        }
        let missing = || Error::DockerStreamError { error: "it was loaded, but is not there".to_owned() };
        let loaded = inspect(self.daemon, tag).await?;
        Ok(loaded.ok_or_else(|| self.daemon.failed("load the image")(missing()))?)
    }
}

async fn inspect(daemon: &Daemon, name: &str) -> Result<Option<ImageInspect>, DaemonError> {
    match daemon.client.inspect_image(name).await {
        Err(error) if status(&error) == Some(404) => Ok(None),
        found => found.map(Some).map_err(daemon.failed("show an image")),
    }
}

/// Whether a name begins with a registry, by Docker's rule: only those have a dot, a port or the name
/// `localhost`.
fn names_registry(name: &str) -> bool {
    name.split_once('/').is_some_and(|(first, _)| first.contains(['.', ':']) || first == "localhost")
}

fn told(login: Login, registry: &str) -> DockerCredentials {
    let address = Some(registry.to_owned());
    match login {
        Login::Password { name, password } => DockerCredentials {
            username: Some(name),
            password: Some(password),
            serveraddress: address,
            ..DockerCredentials::default()
        },
        Login::Token(token) => DockerCredentials {
            registrytoken: Some(token),
            serveraddress: address,
            ..DockerCredentials::default()
        },
    }
}

fn config(found: ImageInspect) -> ImageConfig {
    let run = found.config.unwrap_or_default();
    let labels: BTreeMap<String, String> = run.labels.unwrap_or_default().into_iter().collect();
    let env: IndexMap<String, String> = variables(run.env.unwrap_or_default());
    ImageConfig {
        entrypoint: run.entrypoint.unwrap_or_default(),
        cmd: run.cmd.unwrap_or_default(),
        env,
        working_directory: PathBuf::from("/").join(run.working_dir.unwrap_or_default()),
        user: run.user.unwrap_or_default(),
        stop_signal: run.stop_signal.filter(|signal| !signal.is_empty()),
        platform: Platform {
            os: found.os.unwrap_or_default(),
            architecture: found.architecture.unwrap_or_default(),
            variant: found.variant.filter(|variant| !variant.is_empty()),
        },
        exposed_ports: run.exposed_ports.unwrap_or_default(),
        labels,
        diff_ids: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registry_in_a_name_has_a_dot_a_port_or_is_this_machine() {
        let table = [
            ("fit", false),
            ("fit:2", false),
            ("team/fit:2", false),
            ("localhost/fit", true),
            ("localhost:5000/fit", true),
            ("123456789012.dkr.ecr.eu-west-1.amazonaws.com/fit:1", true),
        ];
        for (name, expected) in table {
            assert_eq!(names_registry(name), expected, "{name}");
        }
    }
}
