//! A job on a terminal: log lines scroll by above one live line for each instance.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use console::{Color, Style, StyledObject};
use indicatif::{HumanBytes, MultiProgress, ProgressBar, ProgressStyle};
use trainyard_engine::job::Job;
use trainyard_engine::run::Report;

use super::{Speed, outcome_text};

/// Colours that can be read on dark and on light ground; hosts take them in turn.
const COLOURS: [Color; 6] =
    [Color::Cyan, Color::Green, Color::Yellow, Color::Magenta, Color::Blue, Color::Red];

/// Instances beyond these have no line of their own: a terminal has few lines.
const MOST_LINES: usize = 16;

pub(super) struct Live {
    all: MultiProgress,
    bars: BTreeMap<String, ProgressBar>,
    hosts: Vec<String>,
    /// Of the longest host name.
    width: usize,
}

impl Live {
    pub(super) fn new(job: &Job) -> Self {
        let all = MultiProgress::new();
        let hosts: Vec<_> = job.instances.iter().map(|instance| instance.host.clone()).collect();
        let width = hosts.iter().map(String::len).max().unwrap_or(0);
        let mut live = Self { all, bars: BTreeMap::new(), hosts, width };
        for host in live.hosts.iter().take(MOST_LINES) {
            let bar = live.all.add(ProgressBar::new_spinner()).with_prefix(live.name(host).to_string());
            bar.set_style(style());
            bar.set_message("waiting");
            bar.enable_steady_tick(Duration::from_millis(100));
            live.bars.insert(host.clone(), bar);
        }
        live
    }

    /// A host's name in its own colour, as wide as the longest.
    fn name(&self, host: &str) -> StyledObject<String> {
        let index = self.hosts.iter().position(|name| name == host).unwrap_or(0);
        Style::new().fg(COLOURS[index % COLOURS.len()]).apply_to(format!("{host:width$}", width = self.width))
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
            Report::Ended { outcome, .. } => bar.finish_with_message(outcome_text(outcome)),
            Report::Metric { .. } | Report::Warning { .. } => {}
        }
    }

    pub(super) fn log(&self, host: &str, line: &str) -> io::Result<()> {
        self.print(&format!("{} | {line}", self.name(host)))
    }

    /// Prints above the live lines.
    pub(super) fn print(&self, text: &str) -> io::Result<()> {
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
