//! Built-in workloads, as the `train` of an instance.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};
use trainyard_allpairs::{Progress, TrainReport, train_here};

use crate::exit::Exit;
use crate::show::out;

/// Between two lines of progress.
const INTERVAL: Duration = Duration::from_secs(2);

/// Cosine similarity between all rows of the channel `matrix`; run inside an instance
#[derive(Debug, clap::Args)]
pub(super) struct Allpairs {
    /// Where the contract's tree is
    #[arg(long, default_value = trainyard_toolkit::contract::ROOT)]
    root: PathBuf,
}

impl Default for Allpairs {
    fn default() -> Self {
        Self { root: trainyard_toolkit::contract::ROOT.into() }
    }
}

impl Allpairs {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let stop = stop_on_sigterm()?;
        let pace = Pace::new();
        let report = train_here(&self.root, &stop, &|progress| pace.show(progress))?;
        out(&summary(&report))?;
        Ok(Exit::Completed)
    }
}

/// Set once SIGTERM comes: a stopped job ends within a moment.
fn stop_on_sigterm() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut terminate = runtime.block_on(async { signal(SignalKind::terminate()) })?;
    std::thread::spawn(move || {
        runtime.block_on(terminate.recv());
        flag.store(true, Ordering::Relaxed);
    });
    Ok(stop)
}

/// Prints progress now and then.
struct Pace {
    started: Instant,
    last: Mutex<Instant>,
}

impl Pace {
    fn new() -> Self {
        let now = Instant::now();
        Self { started: now, last: Mutex::new(now) }
    }

    fn show(&self, progress: Progress) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.elapsed() < INTERVAL || progress.rows_done == 0 {
            return;
        }
        *last = Instant::now();
        let seconds = self.started.elapsed().as_secs_f64();
        let rate = progress.rows_done as f64 / seconds;
        let left = progress.rows.saturating_sub(progress.rows_done) as f64 / rate;
        // Whoever reads the log may have gone; the work goes on.
        let _ = out(&format!(
            "{} of {} rows, {rate:.0} rows/s, {:.0} pairs/s, {left:.0} s left",
            progress.rows_done,
            progress.rows,
            progress.pairs as f64 / seconds,
        ));
    }
}

/// What was done, for the log; the report file beside the part has it all.
fn summary(report: &TrainReport) -> String {
    let rows = format!("rows {}..{}", report.first_row, report.first_row + report.rows);
    let matrix = format!("{} x {}", report.matrix_rows, report.matrix_columns);
    let mut text = format!("{rows} of {matrix}: {} pairs in {:.2} s", report.pairs, report.seconds);
    if report.zero_rows.count > 0 {
        text = format!(
            "{text}\nwarning: {} rows are zero and score 0 with every row; the first are {:?}",
            report.zero_rows.count, report.zero_rows.first
        );
    }
    text
}
