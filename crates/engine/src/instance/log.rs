//! What `train` writes: cut into lines, stamped, kept, and searched for metrics.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use super::metrics::Metrics;
use super::reports::Reports;
use crate::run::{Appender, LogLine, Stream, Timestamp};

/// A longer line is cut, so that one without an end needs no more memory.
const LONGEST_LINE: usize = 256 * 1024;

/// How long a line may wait until it is written to the log.
const WAIT: Duration = Duration::from_millis(100);

/// Waiting bytes from which on the log is written at once.
const BATCH: usize = 256 * 1024;

/// How many of the last lines are remembered, to explain a failure.
const REMEMBERED: usize = 10;

/// Cuts a stream of bytes into lines.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    unfinished: Vec<u8>,
}

impl Lines {
    /// Takes the next bytes and calls `each` with every line that they complete.
    pub(crate) fn push(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8])) {
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
            if self.unfinished.is_empty() {
                cut(&rest[..end], &mut each);
            } else {
                self.unfinished.extend_from_slice(&rest[..end]);
                cut(&self.unfinished, &mut each);
                self.unfinished.clear();
            }
            rest = &rest[end + 1..];
        }
        self.unfinished.extend_from_slice(rest);
        while self.unfinished.len() > LONGEST_LINE {
            let end = boundary(&self.unfinished);
            each(&self.unfinished[..end]);
            self.unfinished.drain(..end);
        }
    }

    /// The last line, if it has no newline.
    pub(crate) fn finish(&mut self, mut each: impl FnMut(&[u8])) {
        if !self.unfinished.is_empty() {
            each(&self.unfinished);
            self.unfinished.clear();
        }
    }
}

fn cut(line: &[u8], each: &mut impl FnMut(&[u8])) {
    let mut rest = line;
    while rest.len() > LONGEST_LINE {
        let (piece, after) = rest.split_at(boundary(rest));
        each(piece);
        rest = after;
    }
    each(rest);
}

/// Where to cut a line that is too long: not within a UTF-8 character, of which all bytes but the
/// first are 10xxxxxx.
fn boundary(line: &[u8]) -> usize {
    let within = |at: usize| line.get(at).is_some_and(|byte| byte & 0xC0 == 0x80);
    (LONGEST_LINE - 3..=LONGEST_LINE).rev().find(|&at| !within(at)).unwrap_or(LONGEST_LINE)
}

/// The log of one instance.
#[derive(Debug)]
pub(crate) struct Log {
    appender: Appender,
    waiting: Vec<LogLine>,
    waiting_bytes: usize,
    oldest: Option<Instant>,
    failed: Option<io::Error>,
    metrics: Metrics,
    last_errors: VecDeque<String>,
    last_output: VecDeque<String>,
}

impl Log {
    /// A log that goes on at the end of what has been written before.
    pub(crate) fn new(appender: Appender, metrics: Metrics) -> Self {
        Self {
            appender,
            waiting: Vec::new(),
            waiting_bytes: 0,
            oldest: None,
            failed: None,
            metrics,
            last_errors: VecDeque::new(),
            last_output: VecDeque::new(),
        }
    }

    /// Takes a line that has just arrived.
    pub(crate) fn add(&mut self, at: Timestamp, stream: Stream, line: &[u8], reports: &mut Reports) {
        let line = String::from_utf8_lossy(line).into_owned();
        self.metrics.search(&line, reports);
        let last = match stream {
            Stream::Stdout => &mut self.last_output,
            Stream::Stderr => &mut self.last_errors,
        };
        if last.len() == REMEMBERED {
            last.pop_front();
        }
        last.push_back(line.clone());
        self.waiting_bytes += line.len();
        self.waiting.push(LogLine { at, stream, line });
        if self.waiting_bytes >= BATCH {
            self.write();
        } else {
            self.oldest.get_or_insert_with(Instant::now);
        }
    }

    /// When the lines that wait have to be written.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.oldest.map(|oldest| oldest + WAIT)
    }

    /// When metrics that wait have to be reported.
    pub(crate) fn metrics_due(&self) -> Option<Instant> {
        self.metrics.due()
    }

    /// Reports the metrics that wait.
    pub(crate) fn report_metrics(&mut self, reports: &mut Reports) {
        self.metrics.report(reports);
    }

    /// Writes the lines that wait. That they can't be written must not end a job that runs.
    pub(crate) fn write(&mut self) {
        let written = self.appender.append_all(&self.waiting);
        if let Err(error) = written {
            self.failed.get_or_insert(error);
        }
        self.waiting.clear();
        self.waiting_bytes = 0;
        self.oldest = None;
    }

    /// Writes all that is left and says what was lost.
    pub(crate) fn finish(&mut self, reports: &mut Reports) {
        self.write();
        self.metrics.finish(reports);
        if let Some(error) = &self.failed {
            reports.warn(format!("log lines were lost: {error}"));
        }
    }

    /// The last lines of standard error, else of standard output.
    pub(crate) fn last_lines(&self) -> Option<String> {
        let text = |lines: &VecDeque<String>| {
            let lines: Vec<&str> =
                lines.iter().map(|line| line.trim_end()).filter(|line| !line.is_empty()).collect();
            (!lines.is_empty()).then(|| lines.join("\n"))
        };
        text(&self.last_errors).or_else(|| text(&self.last_output))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines(pieces: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut cutter = Lines::default();
        let mut found = Vec::new();
        for piece in pieces {
            cutter.push(piece, |line| found.push(line.to_vec()));
        }
        cutter.finish(|line| found.push(line.to_vec()));
        found
    }

    #[test]
    fn the_last_line_is_kept_without_a_newline() {
        assert_eq!(lines(&[b"a\n\nb"]), [b"a".to_vec(), b"".to_vec(), b"b".to_vec()]);
        assert_eq!(lines(&[b"a\n"]), [b"a".to_vec()]);
    }

    #[test]
    fn a_long_line_is_cut_between_characters() {
        let text = "é".repeat(LONGEST_LINE);
        let found = lines(&[b"x", text.as_bytes()]);
        assert!(found.iter().all(|line| line.len() <= LONGEST_LINE && std::str::from_utf8(line).is_ok()));
        assert_eq!(found.concat().len(), text.len() + 1);
    }

    proptest! {
        #[test]
        fn how_the_bytes_arrive_changes_no_line(text in "[a\n]{0,60}", at in 0_usize..60) {
            let bytes = text.as_bytes();
            let (first, second) = bytes.split_at(at.min(bytes.len()));
            prop_assert_eq!(lines(&[first, second]), lines(&[bytes]));
            let mut expected: Vec<Vec<u8>> = bytes.split(|&b| b == b'\n').map(<[u8]>::to_vec).collect();
            if expected.last().is_some_and(Vec::is_empty) {
                expected.pop();
            }
            prop_assert_eq!(lines(&[bytes]), expected);
        }
    }
}
