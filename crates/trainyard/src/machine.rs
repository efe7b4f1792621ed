//! What this machine and its user's environment have to say: the only place where they are read.

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use indexmap::IndexMap;
use trainyard_engine::plan::{GpuPolicy, LimitPolicy};
use trainyard_engine::prepare::{ImageSource, Machine};
use trainyard_engine::storage::Buckets;

/// Where SageMaker's own examples run; only programs that ask for the region see it.
const DEFAULT_REGION: &str = "us-east-1";
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What the command line says of the machine.
#[derive(Debug, Default)]
pub(crate) struct Given {
    /// `--bucket NAME=DIR`.
    pub(crate) buckets: Vec<(String, PathBuf)>,
    /// `--image NAME=SOURCE`.
    pub(crate) images: Vec<(String, String)>,
    /// `--grace SECONDS`.
    pub(crate) grace: Option<Duration>,
    /// `--limits`.
    pub(crate) limits: LimitPolicy,
    /// `--gpus`.
    pub(crate) gpus: GpuPolicy,
}

/// Puts together what the command line says and what the environment has.
pub(crate) fn machine(data: &Path, given: &Given) -> anyhow::Result<Machine> {
    let mut named = BTreeMap::new();
    for (name, folder) in &given.buckets {
        let folder = std::path::absolute(folder).with_context(|| format!("--bucket {name}"))?;
        named.insert(name.clone(), folder);
    }
    let mut images = BTreeMap::new();
    for (name, source) in &given.images {
        images.insert(name.clone(), crate::job_file::absolute_image(source, &env::current_dir()?));
    }
    Ok(Machine {
        program: env::current_exe().context("finding this program's own file")?,
        base_environment: base_environment(),
        region: env::var("AWS_REGION").unwrap_or_else(|_| DEFAULT_REGION.to_owned()),
        buckets: Buckets::new(named, data.join("s3")),
        images,
        image_source: ImageSource { store: data.join("images"), docker_config: docker_config() },
        grace: given.grace,
        limits: given.limits,
        gpus: given.gpus,
    })
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

/// Where `docker login` keeps what it was told.
fn docker_config() -> Option<PathBuf> {
    let given = env::var_os("DOCKER_CONFIG").filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let folder = given.or_else(|| env::home_dir().map(|home| home.join(".docker")));
    folder.map(|folder| folder.join("config.json"))
}

/// The data folder: what was asked for, else the user's own (XDG Base Directory Specification).
pub(crate) fn data_folder(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    let own = || {
        let share = env::var_os("XDG_DATA_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        let home = || env::home_dir().map(|home| home.join(".local/share"));
        share.or_else(home).map(|share| share.join("trainyard"))
    };
    let folder = given.map(Path::to_owned).or_else(own);
    let folder = folder.context("there is no home folder for jobs' data; name a folder with --data-dir")?;
    std::path::absolute(&folder).with_context(|| format!("data folder {}", folder.display()))
}
