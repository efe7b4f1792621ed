//! What this machine and its user's environment have to say to a job.

use std::env;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use indexmap::IndexMap;
use trainyard_engine::docker::Sockets;
use trainyard_engine::prepare::{ImageSource, Machine};
use trainyard_engine::storage::{Buckets, StoreCredentials};

use crate::config::Config;

/// Where SageMaker's own examples run; only programs that ask for the region see it.
const DEFAULT_REGION: &str = "us-east-1";
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Puts together what is configured and what the environment has; `grace` is `--grace SECONDS`.
pub(crate) fn machine(config: &Config, grace: Option<Duration>) -> anyhow::Result<Machine> {
    let data = &config.data_dir.value;
    let file_systems = config.places.file_systems.iter();
    let images = config.places.images.iter();
    Ok(Machine {
        program: env::current_exe().context("finding this program's own file")?,
        base_environment: base_environment(),
        region: region(),
        buckets: buckets(config),
        file_systems: file_systems.map(|(id, folder)| (id.clone(), folder.value.clone())).collect(),
        credentials: store_credentials(),
        cache_limit: config.storage.cache_limit(data),
        images: images.map(|(name, source)| (name.clone(), source.value.clone())).collect(),
        data: data.clone(),
        runtime: config.runtime.value.into(),
        docker: docker_sockets(),
        image_source: ImageSource { store: data.join("images"), docker_config: docker_config() },
        grace,
        limits: config.resources.limits.value.into(),
        gpus: config.resources.gpus.value.into(),
    })
}

/// Which bucket is where.
pub(crate) fn buckets(config: &Config) -> Buckets {
    let folders = config.places.buckets.iter();
    let folders = folders.map(|(name, folder)| (name.clone(), folder.value.clone()));
    Buckets::new(folders.collect(), config.data_dir.value.join("s3"))
        .with_stores(config.storage.buckets.clone(), config.storage.others.clone())
}

/// What the environment of this process says about credentials of stores.
pub(crate) fn store_credentials() -> StoreCredentials {
    let variables = env::vars_os();
    let variables =
        variables.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    StoreCredentials::new(variables, env::home_dir())
}

/// The region that jobs and clients are told.
pub(crate) fn region() -> String {
    env::var("AWS_REGION").unwrap_or_else(|_| DEFAULT_REGION.to_owned())
}

/// What programs of this machine need to be found and to work; nothing else of the user's
/// environment reaches a job, so no secret does.
fn base_environment() -> IndexMap<String, String> {
    let mut environment = IndexMap::new();
    let path = env::var("PATH").unwrap_or_else(|_| DEFAULT_PATH.to_owned());
    environment.insert("PATH".to_owned(), path);
    environment.insert("HOME".to_owned(), env::var("HOME").unwrap_or_else(|_| "/".to_owned()));
    let language = env::var("LANG").unwrap_or_else(|_| "C.UTF-8".to_owned());
    environment.insert("LANG".to_owned(), language);
    environment
}

/// Where Docker and Podman listen: what `DOCKER_HOST` says, else the usual places of the machine and of
/// the user.
pub(crate) fn docker_sockets() -> Sockets {
    let named = env::var("DOCKER_HOST").ok().filter(|given| !given.is_empty());
    let own = env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let of_user = own.iter().flat_map(|own| [own.join("docker.sock"), own.join("podman/podman.sock")]);
    let of_machine = ["/var/run/docker.sock", "/run/podman/podman.sock"].map(PathBuf::from);
    Sockets { named, usual: of_machine.into_iter().chain(of_user).collect() }
}

/// Where `docker login` keeps what it was told.
pub(crate) fn docker_config() -> Option<PathBuf> {
    let given = env::var_os("DOCKER_CONFIG").filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let folder = given.or_else(|| env::home_dir().map(|home| home.join(".docker")));
    folder.map(|folder| folder.join("config.json"))
}
