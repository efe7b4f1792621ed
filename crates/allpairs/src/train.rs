//! One host's work from the channel to the part.

use crate::matrix::Matrix;
use crate::part::{PartError, PartWriter};
use crate::problem::MatrixError;
use crate::report::{TrainReport, ZeroRows};
use crate::search::{Ended, Search};
use crate::settings::{HyperparameterError, Settings};
use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;
use thiserror::Error;
use trainyard_toolkit::split::row_range;

/// All that one host's work depends on.
pub struct TrainInput<'a> {
    /// Folder of the channel `matrix`.
    pub matrix: &'a Path,
    /// The hyperparameters as they were sent; see [`Settings`].
    pub hyperparameters: &'a BTreeMap<String, String>,
    /// Name of this host; part and report are named after it.
    pub host: &'a str,
    /// Number of this host, from 0.
    pub rank: usize,
    /// Number of hosts.
    pub world_size: usize,
    /// Folder for part and report; made if it is missing.
    pub output: &'a Path,
    /// Threads to compute with; as many as the CPUs that the process may use if `None`.
    pub threads: Option<NonZeroUsize>,
    /// Ends the work within a moment once it is set, leaving no part.
    pub stop: &'a AtomicBool,
    /// Called again and again while rows are finished.
    pub progress: &'a (dyn Fn(Progress) + Sync),
}

/// How far the work is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Rows' worth of work that is done: rows are finished together in some ways of searching.
    pub rows_done: u64,
    /// Rows of this host.
    pub rows: u64,
    /// Pairs written so far.
    pub pairs: u64,
}

/// Why the work could not be done.
#[derive(Debug, Error)]
pub enum TrainError {
    /// A hyperparameter is unusable.
    #[error(transparent)]
    Hyperparameter(#[from] HyperparameterError),
    /// The host's number is not below the number of hosts.
    #[error("host `{host}` has number {rank} of {world_size} hosts; numbers begin at 0")]
    Rank {
        /// The host.
        host: String,
        /// Its number.
        rank: usize,
        /// Number of hosts.
        world_size: usize,
    },
    /// The host's name can not stand in a file name.
    #[error("`{host}` is no host name: letters, digits, `-`, `_` and `.` may stand in one")]
    Host {
        /// The name.
        host: String,
    },
    /// The matrix can not be used.
    #[error(transparent)]
    Matrix(#[from] MatrixError),
    /// The threads can not be started.
    #[error("threads can not be started")]
    Threads(#[source] rayon::ThreadPoolBuildError),
    /// The part can not be written.
    #[error(transparent)]
    Part(#[from] PartError),
    /// The output folder can not be made or the report not be written; the source names the path.
    #[error("the report can not be written")]
    Report(#[source] io::Error),
    /// The stop flag was set.
    #[error("stopped before all rows were done; no part was written")]
    Stopped,
}

/// Finds the neighbours of this host's rows and writes them.
///
/// # Errors
/// Whatever keeps the result from being complete; nothing that looks like a part is left then.
pub fn train(input: &TrainInput) -> Result<TrainReport, TrainError> {
    let started = Instant::now();
    let settings = Settings::parse(input.hyperparameters)?;
    check_host(input)?;
    let threads = match input.threads {
        Some(threads) => threads.get(),
        // Heeds the CPU limit of the control group and the CPUs that the process may run on.
        None => std::thread::available_parallelism().map_or(1, NonZeroUsize::get),
    };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().map_err(TrainError::Threads)?;
    let matrix = pool.install(|| Matrix::load(input.matrix, input.stop)).map_err(|error| match error {
        MatrixError::Stopped => TrainError::Stopped,
        other => TrainError::Matrix(other),
    })?;
    fs_err::create_dir_all(input.output).map_err(TrainError::Report)?;
    let rows = row_range(input.rank, input.world_size, matrix.rows() as u64);
    let pairs = pool.install(|| write_part(input, &settings, &matrix))?;
    let seconds = started.elapsed().as_secs_f64();
    let count = rows.end - rows.start;
    let report = TrainReport {
        host: input.host.to_owned(),
        matrix_rows: matrix.rows() as u64,
        matrix_columns: matrix.columns(),
        first_row: rows.start,
        rows: count,
        pairs,
        zero_rows: ZeroRows::of(&matrix.norms()[rows.start as usize..rows.end as usize], rows.start),
        seconds,
        rows_per_second: count as f64 / seconds,
        threads: threads as u64,
    };
    write_report(input, &report)?;
    Ok(report)
}

fn check_host(input: &TrainInput) -> Result<(), TrainError> {
    let host = input.host.to_owned();
    if input.rank >= input.world_size {
        return Err(TrainError::Rank { host, rank: input.rank, world_size: input.world_size });
    }
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if host.is_empty() || !host.chars().all(fits) {
        return Err(TrainError::Host { host });
    }
    Ok(())
}

fn write_part(input: &TrainInput, settings: &Settings, matrix: &Matrix) -> Result<u64, TrainError> {
    let rows = row_range(input.rank, input.world_size, matrix.rows() as u64);
    let pairs = AtomicU64::new(0);
    let most_done = AtomicU64::new(0);
    let progress = |rows_done: usize| {
        // A search that begins anew in another way does not show less than was shown before.
        let rows_done = most_done.fetch_max(rows_done as u64, Ordering::Relaxed).max(rows_done as u64);
        let rows = rows.end - rows.start;
        (input.progress)(Progress { rows_done, rows, pairs: pairs.load(Ordering::Relaxed) });
    };
    let search = Search {
        matrix,
        selection: settings.selection,
        // The matrix is in memory, so its row numbers fit.
        rows: rows.start as usize..rows.end as usize,
        others: 0..matrix.rows(),
        stop: input.stop,
        done: &progress,
    };
    let mut part = PartWriter::create(input.output, input.host)?;
    let outcome = search.run(|row, neighbours| {
        pairs.fetch_add(neighbours.len() as u64, Ordering::Relaxed);
        part.push(row, neighbours)
    });
    match outcome {
        Ok(()) => part.finish()?,
        Err(Ended::Stopped) => return Err(TrainError::Stopped),
        Err(Ended::Taker(error)) => return Err(TrainError::Part(error)),
    }
    progress(search.rows.len());
    Ok(pairs.into_inner())
}

fn write_report(input: &TrainInput, report: &TrainReport) -> Result<(), TrainError> {
    let path = input.output.join(format!("report-{}.json", input.host));
    let mut text = serde_json::to_vec_pretty(report).map_err(|source| TrainError::Report(source.into()))?;
    text.push(b'\n');
    fs_err::write(path, text).map_err(TrainError::Report)
}
