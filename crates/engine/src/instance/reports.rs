//! What the supervisor tells the engine, in the order in which it happens.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fs_err as fs;

use crate::run::{Appender, Outcome, Parts, Report, Stamped, Timestamp};

/// Between two reports of the same progress.
pub(crate) const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

/// The file of reports and what can't be written to it.
#[derive(Debug)]
pub(crate) struct Reports {
    path: PathBuf,
    appender: Appender,
    last_progress: Option<Instant>,
    /// A report was cut off, for instance because the disk was full.
    cut: bool,
}

impl Reports {
    /// Opens the file for appending.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let appender = Appender::open(path)?;
        Ok(Self { path: path.to_owned(), appender, last_progress: None, cut: false })
    }

    /// Tells something. That it can't be written must not end an instance that runs: only the last
    /// report is needed, see [`Reports::end`].
    pub(crate) fn tell(&mut self, report: Report) {
        let stamped = Stamped { at: Timestamp::now(), report };
        self.cut |= self.appender.append(&stamped).is_err();
    }

    /// Tells something the user should know.
    pub(crate) fn warn(&mut self, text: impl Into<String>) {
        self.tell(Report::Warning { text: text.into() });
    }

    /// Tells how far something has come, unless the last time was just now.
    pub(crate) fn progress(&mut self, report: impl FnOnce() -> Report) {
        let now = Instant::now();
        if self.last_progress.is_none_or(|last| now - last >= PROGRESS_INTERVAL) {
            self.last_progress = Some(now);
            self.tell(report());
        }
    }

    /// Tells how the instance ended.
    ///
    /// # Errors
    /// The file can't be written; nobody will learn how the instance ended.
    pub(crate) fn end(mut self, outcome: Outcome, parts: Parts) -> io::Result<()> {
        if self.cut {
            // So that this report is not taken for the rest of the one that was cut off.
            fs::OpenOptions::new().append(true).open(&self.path)?.write_all(b"\n")?;
        }
        let report = Report::Ended { outcome, parts };
        self.appender.append(&Stamped { at: Timestamp::now(), report })
    }
}
