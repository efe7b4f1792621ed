//! A job on a terminal: log lines scroll by above one live line for each instance.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use indicatif::{HumanBytes, MultiProgress, ProgressBar, ProgressStyle};
use trainyard_engine::job::Job;
use trainyard_engine::run::Report;

use super::{HostNames, Speed, outcome_text, screen};

/// Instances beyond these have no line of their own: a terminal has few lines.
const MOST_LINES: usize = 16;

pub(super) struct Live {
    all: MultiProgress,
    bars: BTreeMap<String, ProgressBar>,
    hosts: HostNames,
}

impl Live {
    pub(super) fn new(job: &Job) -> Self {
        let all = MultiProgress::new();
        let hosts = HostNames::new(job.instances.iter().map(|instance| instance.host.clone()).collect());
        let mut live = Self { all, bars: BTreeMap::new(), hosts };
        for host in live.hosts.iter().take(MOST_LINES) {
            let bar = live.all.add(ProgressBar::new_spinner()).with_prefix(live.hosts.name(host).to_string());
            bar.set_style(style());
            bar.set_message("waiting");
            bar.enable_steady_tick(Duration::from_millis(100));
            live.bars.insert(host.clone(), bar);
        }
        live
    }

    pub(super) fn report(&self, host: &str, report: &Report) {
        let Some(bar) = self.bars.get(host) else { return };
        match report {
            Report::Staging { objects, bytes, of_objects, of_bytes, millis } => {
                let speed = Speed::of(*bytes, *of_bytes, *millis);
                bar.set_message(format!(
                    "staging     {objects} of {of_objects} objects, {} of {}{speed}",
                    HumanBytes(*bytes),
                    HumanBytes(*of_bytes)
                ));
            }
            Report::Training => bar.set_message("training"),
            Report::Exited(exit) => bar.set_message(format!("exit code {}", exit.code())),
            Report::Collecting { bytes } => bar.set_message(format!("collecting  {}", HumanBytes(*bytes))),
            Report::Ended { outcome, .. } => {
                bar.finish_with_message(screen(&outcome_text(outcome)).into_owned())
            }
            Report::Metric { .. } | Report::Warning { .. } => {}
        }
    }

    pub(super) fn log(&self, host: &str, line: &str) -> io::Result<()> {
        self.print(&format!("{} | {line}", self.hosts.name(host)))
    }

    /// Prints above the live lines, which text of others must not disturb.
    pub(super) fn print(&self, text: &str) -> io::Result<()> {
        let text = screen(text);
        self.all.suspend(|| writeln!(io::stdout().lock(), "{text}"))
    }

    pub(super) fn clear(&self) -> io::Result<()> {
        self.all.clear()
    }
}

fn style() -> ProgressStyle {
    let style = ProgressStyle::with_template("{prefix} {spinner} {wide_msg} {elapsed}");
    style.unwrap_or_else(|_| ProgressStyle::default_spinner())
}
