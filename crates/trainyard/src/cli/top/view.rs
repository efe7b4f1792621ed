//! The table of `trainyard top`, and how it is renewed on a terminal.

use std::io;

use console::{Term, measure_text_width, truncate_str};
use serde_json::{Value, json};

use crate::client::usage::Usage;
use crate::show::{screen, span};

/// Instances beyond these are counted, not shown.
const MOST_INSTANCES: usize = 16;

/// A job that runs.
#[derive(Debug, Default)]
pub(super) struct JobRow {
    pub(super) name: String,
    pub(super) status: String,
    pub(super) message: String,
    /// Since it was created.
    pub(super) seconds: f64,
    pub(super) instances: Vec<InstanceRow>,
}

/// One of its instances.
#[derive(Debug, Default)]
pub(super) struct InstanceRow {
    pub(super) host: String,
    pub(super) usage: Usage,
    /// What it wrote last.
    pub(super) line: Option<String>,
}

impl JobRow {
    /// What an instance's metrics are found by.
    pub(super) fn path_of(&self, instance: &InstanceRow) -> String {
        format!("{}/{}", self.name, instance.host)
    }

    pub(super) fn as_json(&self) -> Value {
        let instances = self.instances.iter().map(|instance| {
            json!({
                "Host": instance.host,
                "CPUUtilization": instance.usage.processors,
                "MemoryUtilization": instance.usage.memory,
                "LastLine": instance.line,
            })
        });
        json!({
            "TrainingJobName": self.name,
            "SecondaryStatus": self.status,
            "StatusMessage": self.message,
            "Seconds": self.seconds,
            "Instances": instances.collect::<Vec<_>>(),
        })
    }
}

/// The lines of the table; one line each, whatever is in a name or a log.
pub(super) fn table(jobs: &[JobRow]) -> Vec<String> {
    let names = jobs.iter().flat_map(|job| {
        let hosts = job.instances.iter().map(|instance| instance.host.len() + 2);
        hosts.chain([job.name.len()])
    });
    let width = names.max().unwrap_or(0).max("JOB".len());
    let mut lines = vec![format!(
        "{:<width$}  {:<12}  {:<12}  {:>6}  {:>6}  LAST",
        "JOB", "STATUS", "TIME", "CPU", "MEMORY"
    )];
    if jobs.is_empty() {
        lines.push("no job is running".to_owned());
    }
    for job in jobs {
        let time = span(job.seconds);
        lines.push(format!(
            "{:<width$}  {:<12}  {time:<12}  {:>6}  {:>6}  {}",
            job.name, job.status, "", "", job.message
        ));
        for InstanceRow { host, usage, line } in job.instances.iter().take(MOST_INSTANCES) {
            let (cpu, memory) = (percent(usage.processors), percent(usage.memory));
            let line = line.as_deref().unwrap_or("-").trim();
            let host = format!("  {host}");
            lines.push(format!("{host:<width$}  {:<12}  {:<12}  {cpu:>6}  {memory:>6}  {line}", "", ""));
        }
        if job.instances.len() > MOST_INSTANCES {
            lines.push(format!("  and {} more", job.instances.len() - MOST_INSTANCES));
        }
    }
    lines.iter().map(|line| screen(&line.replace('\n', " ")).trim_end().to_owned()).collect()
}

fn percent(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.0} %"))
}

/// A terminal on which the table is renewed in place.
pub(super) struct Screen {
    terminal: Term,
    /// Lines of the table that stands there.
    height: usize,
}

impl Screen {
    pub(super) fn new() -> Self {
        Self { terminal: Term::buffered_stdout(), height: 0 }
    }

    /// Puts a new table in the place of the old one, cut to the size of the terminal.
    pub(super) fn renew(&mut self, jobs: &[JobRow]) -> io::Result<()> {
        let (rows, columns) = self.terminal.size();
        let mut lines = table(jobs);
        let room = usize::from(rows).saturating_sub(2).max(2);
        if lines.len() > room {
            let more = lines.len() - room + 1;
            lines.truncate(room - 1);
            lines.push(format!("and {more} lines more"));
        }
        self.terminal.clear_last_lines(self.height)?;
        for line in &lines {
            self.terminal.write_line(&cut(line, usize::from(columns)))?;
        }
        self.height = lines.len();
        self.terminal.flush()
    }
}

/// A line that stays in one line of the terminal.
fn cut(line: &str, columns: usize) -> String {
    if measure_text_width(line) < columns {
        line.to_owned()
    } else {
        truncate_str(line, columns.max(2) - 1, "…").into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_instance_has_one_line_whatever_it_wrote() {
        let usage = Usage { processors: Some(187.4), memory: Some(3.0) };
        let instance = InstanceRow { host: "algo-1".into(), usage, line: Some("\x1b[2Jepoch\n1".into()) };
        let silent = InstanceRow { host: "algo-2".into(), ..InstanceRow::default() };
        let job = JobRow {
            name: "fit".into(),
            status: "Training".into(),
            message: "Training in progress.".into(),
            seconds: 61.0,
            instances: vec![instance, silent],
        };
        let expected = [
            "JOB       STATUS        TIME             CPU  MEMORY  LAST",
            "fit       Training      1 min 1 s                     Training in progress.",
            "  algo-1                               187 %     3 %  \u{241b}[2Jepoch 1",
            "  algo-2                                   -       -  -",
        ];
        assert_eq!(table(&[job]), expected);
        assert_eq!(table(&[])[1], "no job is running");
    }

    #[test]
    fn a_line_is_cut_to_the_width_of_the_terminal() {
        assert_eq!(cut("short", 20), "short");
        assert_eq!(cut("a long line of text", 10), "a long l…");
    }
}
