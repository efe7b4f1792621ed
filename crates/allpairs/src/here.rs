//! The workload inside a contract tree: reads where it is and what is asked, and says why it failed.

use crate::checkpoint::Checkpoints;
use crate::report::TrainReport;
use crate::train::{Progress, TrainError, TrainInput, train};
use std::collections::BTreeMap;
use std::error::Error as _;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use thiserror::Error;
use trainyard_toolkit::contract::{ConfigFile, Contract};
use trainyard_toolkit::{ChannelError, LoadError, Training, fail_in};

/// Why the work could not be done in a contract tree.
#[derive(Debug, Error)]
pub enum HereError {
    /// The contract tree does not say what is to be done.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The job has no channel `matrix`.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// The work itself failed.
    #[error(transparent)]
    Train(#[from] TrainError),
}

/// Does this host's work in the contract tree at `root` (`/opt/ml` in an instance).
///
/// The channel `query` is used if there is one, and finished blocks of rows are kept in the folder of checkpoints if
/// the job asks for them. Part and report go to `model`. If it fails, the reason is also written to `output/failure`, unless it was
/// asked to stop.
///
/// # Errors
/// A contract file that is missing or wrong, or whatever [`train`] fails with.
pub fn train_here(
    root: &Path,
    stop: &AtomicBool,
    progress: &(dyn Fn(Progress) + Sync),
    note: &(dyn Fn(&str) + Sync),
) -> Result<TrainReport, HereError> {
    let outcome = train_in(root, stop, progress, note);
    match &outcome {
        // Whoever asked for the stop knows why.
        Ok(_) | Err(HereError::Train(TrainError::Stopped)) => {}
        // The error itself goes to the caller; without the file it only lacks its text in the job's reason.
        Err(error) => drop(fail_in(&Contract::new(root), &reason(error))),
    }
    outcome
}

fn train_in(
    root: &Path,
    stop: &AtomicBool,
    progress: &(dyn Fn(Progress) + Sync),
    note: &(dyn Fn(&str) + Sync),
) -> Result<TrainReport, HereError> {
    let training = Training::load_from(root)?;
    let hyperparameters: BTreeMap<String, String> =
        training.hyperparameters().0.clone().into_iter().collect();
    let query = training.channel("query").ok();
    // The folder may be there without anybody keeping what is in it; the file only if the job asks for checkpoints.
    let asked = Contract::new(root).config_folder().join(ConfigFile::Checkpoint.name()).exists();
    let folder = training.checkpoints_folder();
    let checkpoints = (asked && folder.is_dir()).then_some(Checkpoints { folder, block_rows: None });
    Ok(train(&TrainInput {
        matrix: &training.channel("matrix")?,
        query: query.as_deref(),
        hyperparameters: &hyperparameters,
        host: training.host(),
        rank: training.rank(),
        world_size: training.world_size(),
        output: &training.model_folder(),
        checkpoints,
        threads: None,
        stop,
        progress,
        note,
    })?)
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
