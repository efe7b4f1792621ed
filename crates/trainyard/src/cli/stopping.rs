//! What the commands that compute have in common: a flag that signals set, and progress.

use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use tokio::signal::unix::{SignalKind, signal};
use trainyard_allpairs::Progress;

use crate::show::out;

/// Between two lines of progress.
const INTERVAL: Duration = Duration::from_secs(2);

/// Set once SIGTERM or SIGINT comes: what is computed ends within a moment.
pub(super) fn stop_on_signals() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut terminate, mut interrupt) = runtime.block_on(async {
        io::Result::Ok((signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?))
    })?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        });
        flag.store(true, Ordering::Relaxed);
    });
    Ok(stop)
}

/// Shows progress now and then: as a bar if somebody is looking, else as lines.
pub(super) struct Pace {
    started: Instant,
    last: Mutex<Instant>,
    bar: Option<ProgressBar>,
    /// Whether lines go to standard output, where a job's log is read.
    to_log: bool,
}

impl Pace {
    /// For a person at a terminal, or a program that reads standard output; lines go to standard error.
    pub(super) fn new(quiet: bool) -> Self {
        let bar = (!quiet && io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::no_length();
            if let Ok(style) = ProgressStyle::with_template("{bar:30} {percent}% {msg}") {
                bar.set_style(style);
            }
            bar
        });
        Self { to_log: false, bar, ..Self::in_a_job() }
    }

    /// For the log of a job.
    pub(super) fn in_a_job() -> Self {
        let now = Instant::now();
        Self { started: now, last: Mutex::new(now), bar: None, to_log: true }
    }

    pub(super) fn show(&self, progress: Progress) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let interval = if self.bar.is_some() { INTERVAL / 10 } else { INTERVAL };
        if last.elapsed() < interval || progress.rows_done == 0 {
            return;
        }
        *last = Instant::now();
        let seconds = self.started.elapsed().as_secs_f64();
        let rate = progress.rows_done as f64 / seconds;
        let left = progress.rows.saturating_sub(progress.rows_done) as f64 / rate;
        let text = format!(
            "{} of {} rows, {rate:.0} rows/s, {:.0} pairs/s, {left:.0} s left",
            progress.rows_done,
            progress.rows,
            progress.pairs as f64 / seconds,
        );
        match &self.bar {
            Some(bar) => {
                bar.set_length(progress.rows);
                bar.set_position(progress.rows_done);
                bar.set_message(text);
            }
            None => self.line(&text),
        }
    }

    /// Says something beside the progress.
    pub(super) fn note(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            None => self.line(text),
        }
    }

    /// Takes the bar away.
    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn line(&self, text: &str) {
        if self.to_log {
            // Whoever reads the log may have gone; the work goes on.
            let _ = out(text);
        } else {
            eprintln!("{text}");
        }
    }
}
