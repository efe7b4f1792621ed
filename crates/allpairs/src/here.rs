//! The workload inside a contract tree: reads where it is and what is asked, and says why it failed.

use crate::report::TrainReport;
use crate::train::{Progress, TrainError, TrainInput, train};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::error::Error as _;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use thiserror::Error;

/// Why the work could not be done in a contract tree.
#[derive(Debug, Error)]
pub enum HereError {
    /// A file of the contract can not be read; the source names it.
    #[error("a file of the contract can not be read")]
    Read(#[source] io::Error),
    /// A file of the contract is not what it should be.
    #[error("{}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// The resource config names a current host that is not among its hosts.
    #[error("{}: current host `{host}` is not among the hosts {hosts:?}", path.display())]
    Host {
        /// The file.
        path: PathBuf,
        /// The current host.
        host: String,
        /// All hosts.
        hosts: Vec<String>,
    },
    /// The work itself failed.
    #[error(transparent)]
    Train(#[from] TrainError),
}

#[derive(Deserialize)]
struct ResourceConfig {
    current_host: String,
    hosts: Vec<String>,
}

/// Does this host's work in the contract tree at `root` (`/opt/ml` in an instance).
///
/// Part and report go to `model`. If it fails, the reason is also written to `output/failure`.
///
/// # Errors
/// A contract file that is missing or wrong, or whatever [`train`] fails with.
pub fn train_here(
    root: &Path,
    stop: &AtomicBool,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<TrainReport, HereError> {
    let outcome = train_in(root, stop, progress);
    if let Err(error) = &outcome {
        // The error itself goes to the caller; without the file it only lacks its text in the job's reason.
        let _ = fs_err::create_dir_all(root.join("output"))
            .and_then(|()| fs_err::write(root.join("output/failure"), reason(error)));
    }
    outcome
}

fn train_in(
    root: &Path,
    stop: &AtomicBool,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<TrainReport, HereError> {
    let hyperparameters: BTreeMap<String, String> = read(&root.join("input/config/hyperparameters.json"))?;
    let path = root.join("input/config/resourceconfig.json");
    let resources: ResourceConfig = read(&path)?;
    let Some(rank) = resources.hosts.iter().position(|host| *host == resources.current_host) else {
        return Err(HereError::Host { path, host: resources.current_host, hosts: resources.hosts });
    };
    Ok(train(&TrainInput {
        matrix: &root.join("input/data/matrix"),
        hyperparameters: &hyperparameters,
        host: &resources.current_host,
        rank: rank as u64,
        world_size: resources.hosts.len() as u64,
        output: &root.join("model"),
        threads: None,
        stop,
        progress,
    })?)
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T, HereError> {
    let text = fs_err::read(path).map_err(HereError::Read)?;
    serde_json::from_slice(&text).map_err(|source| HereError::Content { path: path.to_owned(), source })
}

/// An error with all its causes in one line.
fn reason(error: &HereError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        text.push_str(": ");
        text.push_str(&source.to_string());
        cause = source.source();
    }
    text
}
