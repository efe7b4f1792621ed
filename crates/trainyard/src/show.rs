//! Showing a running job: as JSON lines for programs, as plain lines, or live on a terminal.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

use trainyard_engine::engine::Notice;
use trainyard_engine::job::Job;
use trainyard_engine::run::{LogLine, Outcome, Report, Stamped, Tail};

use crate::exit::Exit;

mod end;
pub(crate) mod fetching;
mod hosts;
mod json;
mod live;
mod screen;
mod speed;
mod time;

pub(crate) use end::{Changes, End};
pub(crate) use hosts::HostNames;
pub(crate) use screen::screen;
pub(crate) use time::{moment, now, span};

use live::Live;
use speed::Speed;

/// How a job is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// One JSON object a line.
    Json,
    /// One plain line for each thing that happens.
    Lines,
    /// Lines above one live line for each instance.
    Live,
}

impl Form {
    /// What fits: JSON if it is asked for, live if somebody is looking.
    pub(crate) fn choose(json: bool) -> Self {
        match (json, io::stdout().is_terminal() && io::stderr().is_terminal()) {
            (true, _) => Self::Json,
            (false, true) => Self::Live,
            (false, false) => Self::Lines,
        }
    }
}

/// Shows one job.
pub(crate) struct Display {
    form: Form,
    live: Option<Live>,
    changes: Changes,
    warnings: usize,
    /// Each host's log, read as far as it has been shown.
    logs: BTreeMap<String, Tail>,
    /// Why nothing can be shown any more.
    failed: Option<io::Error>,
}

impl Display {
    pub(crate) fn new(form: Form, job: &Job) -> Self {
        let live = (form == Form::Live).then(|| Live::new(job));
        Self { form, live, changes: Changes::default(), warnings: 0, logs: BTreeMap::new(), failed: None }
    }

    /// Shows what is new. A job goes on when it can't be shown; [`Display::finish`] tells why.
    pub(crate) fn show(&mut self, notice: &Notice) {
        if self.failed.is_some() {
            return;
        }
        let shown = match notice {
            Notice::Job(job) => self.job(job),
            Notice::Report { host, report } => self.report(host, report),
            Notice::Log { host, log, end } => self.log(host, log, *end),
        };
        self.failed = shown.err();
    }

    /// Says something beside the job.
    pub(crate) fn remark(&self, text: &str) {
        match &self.live {
            // Whoever can't see it has asked for it all the same.
            Some(live) => drop(live.print(text)),
            None => remark(text),
        }
    }

    /// Shows the end and what there is to find.
    ///
    /// `folder` is where the artifacts are on this machine.
    ///
    /// # Errors
    /// The first thing that could not be shown.
    pub(crate) fn finish(self, job: &Job, folder: Option<&Path>, exit: Exit) -> io::Result<()> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        if let Some(live) = &self.live {
            live.clear()?;
        }
        match self.form {
            Form::Json => out(&json::ended(job, folder, exit)),
            Form::Lines | Form::Live => out(&End::of_job(job, folder).text()),
        }
    }

    fn job(&mut self, job: &Job) -> io::Result<()> {
        for text in &job.warnings[self.warnings.min(job.warnings.len())..] {
            match self.form {
                Form::Json => out(&json::warning(text))?,
                Form::Lines | Form::Live => self.print(&["warning: ", text].concat())?,
            }
        }
        self.warnings = job.warnings.len();
        let Some(last) = job.transitions.last() else { return Ok(()) };
        let (status, secondary) = (job.status.to_string(), last.status.to_string());
        let Some(line) = self.changes.line(&job.name, &status, &secondary, &last.message) else {
            return Ok(());
        };
        match self.form {
            Form::Json => out(&json::transition(job, last)),
            Form::Lines | Form::Live => self.print(&line),
        }
    }

    fn report(&mut self, host: &str, stamped: &Stamped) -> io::Result<()> {
        match (&self.live, self.form) {
            (Some(live), _) => {
                live.report(host, &stamped.report);
                Ok(())
            }
            (None, Form::Json) => out(&json::report(host, stamped)),
            (None, _) => match phase_line(&stamped.report) {
                Some(text) => out(&format!("{host}: {text}")),
                None => Ok(()),
            },
        }
    }

    /// Shows the lines of a log up to its end.
    fn log(&mut self, host: &str, log: &Path, end: u64) -> io::Result<()> {
        let mut tail = self.logs.remove(host).unwrap_or_else(|| Tail::new(log.to_owned()));
        loop {
            let lines: Vec<LogLine> = tail.read_before(end)?;
            if lines.is_empty() {
                break;
            }
            lines.iter().try_for_each(|line| self.line(host, line))?;
        }
        self.logs.insert(host.to_owned(), tail);
        Ok(())
    }

    fn line(&self, host: &str, line: &LogLine) -> io::Result<()> {
        match (&self.live, self.form) {
            (Some(live), _) => live.log(host, &line.line),
            (None, Form::Json) => out(&json::log(host, line)),
            (None, _) => out(&format!("{host} | {}", line.line)),
        }
    }

    fn print(&self, text: &str) -> io::Result<()> {
        match &self.live {
            Some(live) => live.print(text),
            None => out(text),
        }
    }
}

/// Writes one line to standard output, safely if that is a terminal; a reader that has gone away is no error.
pub(crate) fn out(text: &str) -> io::Result<()> {
    let shown = if io::stdout().is_terminal() { screen(text) } else { text.into() };
    match writeln!(io::stdout().lock(), "{shown}") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Says something beside the results.
pub(crate) fn remark(text: &str) {
    let shown = if io::stderr().is_terminal() { screen(text) } else { text.into() };
    // Whoever can't see it has asked for it all the same.
    let _ = writeln!(io::stderr(), "{shown}");
}

/// What is worth a plain line: where an instance's phase changes, not each step in it.
fn phase_line(report: &Report) -> Option<String> {
    match report {
        Report::Ended { outcome, .. } => Some(outcome_text(outcome)),
        Report::Staging { .. }
        | Report::Training
        | Report::Metric { .. }
        | Report::Warning { .. }
        | Report::Exited(_)
        | Report::Collecting { .. } => None,
    }
}

/// How an instance ended, in a few words.
fn outcome_text(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Completed => "completed".to_owned(),
        Outcome::Failed { exit, .. } => ["failed with exit code ", &exit.code().to_string()].concat(),
        Outcome::Stopped => "stopped".to_owned(),
        Outcome::StagingFailed { explanation }
        | Outcome::CollectingFailed { explanation }
        | Outcome::Broken { explanation } => ["failed: ", explanation].concat(),
    }
}
