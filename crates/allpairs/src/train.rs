//! One host's work from the channel to the part.

use crate::checkpoint::{Blocks, CheckpointError, Checkpoints};
use crate::full::Full;
use crate::machine::{FloatKernel, return_large_buffers};
use crate::matrix::{Loaded, Matrix};
use crate::output::{Layout, PairWriter, PartError};
use crate::problem::MatrixError;
use crate::report::{TrainReport, ZeroRows};
use crate::settings::{HyperparameterError, Settings, Wanted};
use crate::symmetric;
use crate::work::{Tally, Work};
use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use thiserror::Error;
use trainyard_toolkit::split::row_range;

/// All that one host's work depends on.
pub struct TrainInput<'a> {
    /// Folder of the channel `matrix`.
    pub matrix: &'a Path,
    /// Folder of the channel `query`: its rows are compared with those of the matrix, not these with one another.
    pub query: Option<&'a Path>,
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
    /// Where finished blocks of rows are kept, if they are.
    pub checkpoints: Option<Checkpoints<'a>>,
    /// Threads to compute with; as many as the CPUs that the process may use if `None`.
    pub threads: Option<NonZeroUsize>,
    /// Ends the work within a moment once it is set, leaving no part.
    pub stop: &'a AtomicBool,
    /// Called again and again while rows are finished.
    pub progress: &'a (dyn Fn(Progress) + Sync),
    /// Told what a reader of the log wants to know.
    pub note: &'a (dyn Fn(&str) + Sync),
}

/// All that the pairs of a matrix depend on, outside of a job or in it.
pub struct PairsInput<'a> {
    /// The matrix: a file, or a folder whose files are one matrix in the order of their names.
    pub matrix: &'a Path,
    /// Rows that are compared with those of the matrix, instead of these with one another.
    pub query: Option<&'a Path>,
    /// What to find.
    pub settings: &'a Settings,
    /// Name of this host, for the report and the checkpoints.
    pub host: &'a str,
    /// Number of this host, from 0, and the number of hosts: its rows follow from both.
    pub share: (usize, usize),
    /// The file to write.
    pub part: &'a Path,
    /// The report to write: a path to which `.json` and `.svg` are added.
    pub report: Option<&'a Path>,
    /// Where finished blocks of rows are kept, if they are.
    pub checkpoints: Option<Checkpoints<'a>>,
    /// Threads to compute with; as many as the CPUs that the process may use if `None`.
    pub threads: Option<NonZeroUsize>,
    /// Ends the work within a moment once it is set, leaving no file.
    pub stop: &'a AtomicBool,
    /// Called again and again while rows are finished.
    pub progress: &'a (dyn Fn(Progress) + Sync),
    /// Told what a reader of the log wants to know.
    pub note: &'a (dyn Fn(&str) + Sync),
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
    /// A checkpoint can not be taken up or saved.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The whole matrix of scores is larger than is written without being forced to.
    #[error(
        "all scores of {rows} x {columns} rows take {bytes} bytes ({:.1} GiB) on this instance, which is above the limit \
         of 10 GiB: `force` writes them all the same",
        *bytes as f64 / f64::from(1 << 30)
    )]
    FullSize {
        /// Rows of this host.
        rows: u64,
        /// Rows that they are compared with.
        columns: u64,
        /// Bytes of the result.
        bytes: u64,
    },
    /// The stop flag was set.
    #[error("stopped before all rows were done; no part was written")]
    Stopped,
}

/// Finds the neighbours of this host's rows and writes them.
///
/// # Errors
/// Whatever keeps the result from being complete; nothing that looks like a part is left then.
pub fn train(input: &TrainInput) -> Result<TrainReport, TrainError> {
    let settings = Settings::parse(input.hyperparameters)?;
    check_host(input)?;
    fs_err::create_dir_all(input.output).map_err(TrainError::Report)?;
    let ending = match settings.wanted {
        Wanted::Neighbours { .. } => settings.format.name(),
        Wanted::Full { .. } => "npy",
    };
    pairs(&PairsInput {
        matrix: input.matrix,
        query: input.query,
        settings: &settings,
        host: input.host,
        share: (input.rank, input.world_size),
        part: &input.output.join(format!("part-{}.{ending}", input.host)),
        report: Some(&input.output.join(format!("report-{}", input.host))),
        checkpoints: input.checkpoints,
        threads: input.threads,
        stop: input.stop,
        progress: input.progress,
        note: input.note,
    })
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

/// Finds pairs and writes them to one file.
///
/// # Errors
/// Whatever keeps the result from being complete; no file of the result's name is left or changed then.
pub fn pairs(input: &PairsInput) -> Result<TrainReport, TrainError> {
    let started = Instant::now();
    return_large_buffers();
    if input.query.is_some() {
        input.settings.check_query()?;
    }
    let threads = match input.threads {
        Some(threads) => threads.get(),
        // Heeds the CPU limit of the control group and the CPUs that the process may run on.
        None => std::thread::available_parallelism().map_or(1, NonZeroUsize::get),
    };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().map_err(TrainError::Threads)?;
    let compared = matches!(input.settings.wanted, Wanted::Neighbours { .. });
    let load = || Matrix::load(input.matrix, input.query, (&input.settings.reading, compared), input.stop);
    let loaded = pool.install(load).map_err(|error| match error {
        MatrixError::Stopped => TrainError::Stopped,
        other => TrainError::Matrix(other),
    })?;
    let rows = own_rows(&loaded, input.share);
    let before = Instant::now();
    let tally = pool.install(|| write_part(input, &loaded, rows.clone()))?;
    let comparing = before.elapsed();
    let dense = matches!(loaded.matrix, Matrix::Dense(_));
    let peak = (dense && comparing >= WORTH_A_PROBE).then(|| pool.install(peak_flops));
    let times = Times { all: started.elapsed(), comparing, peak, threads };
    let report = report(input, &loaded, (rows, tally), &times);
    if let Some(name) = input.report {
        report.write(name).map_err(TrainError::Report)?;
    }
    Ok(report)
}

/// The rows of a host: of the query if there is one, which come first, else of the matrix.
fn own_rows(loaded: &Loaded, (rank, world_size): (usize, usize)) -> Range<usize> {
    let rows = if loaded.query_rows > 0 { loaded.query_rows } else { loaded.matrix.rows() };
    let rows = row_range(rank, world_size, rows as u64);
    // The matrix is in memory, so its row numbers fit.
    rows.start as usize..rows.end as usize
}

fn write_part(input: &PairsInput, loaded: &Loaded, rows: Range<usize>) -> Result<Tally, TrainError> {
    let (settings, stop, progress, note) = (input.settings, input.stop, input.progress, input.note);
    let (selection, listing, mutual) = match settings.wanted {
        Wanted::Neighbours { selection, listing, mutual } => (selection, listing, mutual),
        Wanted::Full { force } => {
            let (measure, path) = (settings.measure, input.part);
            return Full { loaded, measure, force, rows, path, stop, progress, note }.run();
        }
    };
    let row_ids = if loaded.query_rows > 0 { loaded.query_ids.as_ref() } else { loaded.ids.as_ref() };
    let partial = symmetric::choose(input, loaded, (selection, listing, mutual));
    let layout = Layout {
        format: settings.format,
        measure: settings.measure,
        rows: rows.clone(),
        columns: loaded.matrix.rows() - loaded.query_rows,
        partial,
        row_ids,
        column_ids: loaded.ids.as_ref(),
    };
    let blocks = input.checkpoints.map(|checkpoints| {
        let (columns, others) = (loaded.matrix.columns(), layout.columns as u64);
        let content = loaded.facts.content;
        let everything = format!("{content:x} {} {columns} {others} {selection:?}", loaded.query_rows);
        let searched = if mutual { 0..loaded.matrix.rows() } else { rows.clone() };
        let row_work = others.saturating_mul(work_of_a_pair(loaded));
        Blocks::new(&checkpoints, input.host, searched, row_work, &everything)
    });
    let work = Work { loaded, selection, listing, mutual, partial, rows, blocks, stop, progress, note };
    let mut writer = PairWriter::create(input.part, &layout)?;
    let tally = work.run(&mut writer)?;
    // Unmapping a large matrix takes as long as completing the file does.
    let (finished, ()) = rayon::join(|| writer.finish(), || loaded.matrix.let_go());
    finished?;
    Ok(tally)
}

/// About how many multiplications one pair of rows takes.
fn work_of_a_pair(loaded: &Loaded) -> u64 {
    /// For sparse rows, most of which have no column in common.
    const SPARSE: u64 = 64;
    match loaded.matrix {
        Matrix::Dense(_) => loaded.matrix.columns(),
        Matrix::Sparse(_) => SPARSE,
    }
}

/// Work that takes less time says nothing about the machine.
const WORTH_A_PROBE: Duration = Duration::from_millis(200);

/// Operations on float32 a second that all threads of the current pool can do: each by its fastest stretch, since
/// somebody else may have the CPU for the others.
fn peak_flops() -> f64 {
    const LONG_ENOUGH: Duration = Duration::from_millis(1);
    const ROUNDS: usize = 20;
    let Some(kernel) = FloatKernel::available().first().copied() else { return 0.0 };
    let of_each = rayon::broadcast(|_| {
        let (started, mut fastest) = (Instant::now(), 0.0f64);
        while started.elapsed() < LONG_ENOUGH {
            let before = Instant::now();
            let operations = kernel.spin(ROUNDS);
            fastest = fastest.max(operations as f64 / before.elapsed().as_secs_f64());
        }
        fastest
    });
    of_each.iter().sum()
}

/// How long what took.
struct Times {
    all: Duration,
    comparing: Duration,
    /// Operations a second that would have been possible.
    peak: Option<f64>,
    threads: usize,
}

fn report(
    input: &PairsInput,
    loaded: &Loaded,
    (rows, tally): (Range<usize>, Tally),
    times: &Times,
) -> TrainReport {
    let matrix = &loaded.matrix;
    let (query, all) = (loaded.query_rows, matrix.rows());
    let others = (all - query) as u64;
    let count = rows.len() as u64;
    // Without a query, no row is compared with itself.
    let compared = count * if query > 0 { others } else { others - 1 };
    let seconds = times.comparing.as_secs_f64();
    let operations = 2.0 * matrix.columns() as f64 * compared as f64;
    let zero_rows = ZeroRows::of(&matrix.norms()[rows.clone()], rows.start as u64);
    let zeros = matrix.norms().iter().filter(|norm| **norm == 0.0).count() as u64;
    TrainReport {
        host: input.host.to_owned(),
        matrix_rows: others,
        matrix_columns: matrix.columns(),
        query_rows: (query > 0).then_some(query as u64),
        first_row: rows.start as u64,
        rows: count,
        symmetric: tally.symmetric,
        pairs: tally.pairs,
        zero_rows,
        duplicate_rows: loaded.facts.duplicates,
        unit_rows: loaded.facts.unit_rows,
        already_normalised: loaded.facts.unit_rows + zeros == all as u64,
        bytes_read: loaded.bytes,
        seconds: times.all.as_secs_f64(),
        compare_seconds: seconds,
        rows_per_second: count as f64 / times.all.as_secs_f64(),
        compared_pairs: compared,
        compared_pairs_per_second: compared as f64 / seconds,
        threads: times.threads as u64,
        peak_gflops: times.peak.map(|peak| peak / 1e9),
        share_of_peak: times.peak.map(|peak| operations / seconds / peak),
        scores: tally.scores,
    }
}
