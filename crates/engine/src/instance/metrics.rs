//! Metrics that are read from log lines.

use std::time::{Duration, Instant};

use regex::Regex;

use super::reports::Reports;
use crate::plan::MetricDefinition;
use crate::run::Report;

/// Values of one metric that are reported as they come, per [`WINDOW`]; of more, only the latest.
const PER_WINDOW: u32 = 10;
const WINDOW: Duration = Duration::from_millis(200);

/// How CloudWatch Logs shows a tab, for which people write their expressions.
const TAB: &str = "#011";

/// The metrics of one instance.
#[derive(Debug)]
pub(crate) struct Metrics {
    metrics: Vec<Metric>,
    skipped: Skipped,
}

/// Captures that were no finite numbers.
#[derive(Debug, Default)]
struct Skipped {
    count: u64,
    /// The first of them.
    sample: Option<String>,
}

#[derive(Debug)]
struct Metric {
    name: String,
    regex: Regex,
    pace: Pace,
}

/// How often a metric has been reported lately.
#[derive(Debug)]
struct Pace {
    window_start: Instant,
    in_window: u32,
    waiting: Option<f64>,
}

impl Metrics {
    /// Gets ready to search; an expression that can't be used is left out with a warning.
    pub(crate) fn new(definitions: &[MetricDefinition], reports: &mut Reports) -> Self {
        let mut metrics = Vec::new();
        for MetricDefinition { name, regex } in definitions {
            match Regex::new(regex) {
                Ok(regex) if regex.captures_len() < 2 => reports
                    .warn(format!("metric {name:?}: the expression has no capture group ( ) for the value")),
                Ok(regex) => {
                    let pace = Pace { window_start: Instant::now(), in_window: 0, waiting: None };
                    metrics.push(Metric { name: name.clone(), regex, pace });
                }
                Err(error) => reports.warn(format!("metric {name:?}: the expression can't be used: {error}")),
            }
        }
        Self { metrics, skipped: Skipped::default() }
    }

    /// Reports every value in a line.
    pub(crate) fn search(&mut self, line: &str, reports: &mut Reports) {
        if self.metrics.is_empty() {
            return;
        }
        let with_tabs_shown = line.contains('\t').then(|| line.replace('\t', TAB));
        let Self { metrics, skipped, .. } = self;
        for metric in metrics {
            if !metric.search(line, skipped, reports)
                && let Some(line) = &with_tabs_shown
            {
                metric.search(line, skipped, reports);
            }
        }
    }

    /// When values that wait have to be reported.
    pub(crate) fn due(&self) -> Option<Instant> {
        let waiting = self.metrics.iter().filter(|metric| metric.pace.waiting.is_some());
        waiting.map(|metric| metric.pace.window_start + WINDOW).min()
    }

    /// Reports the values that wait.
    pub(crate) fn report(&mut self, reports: &mut Reports) {
        for Metric { name, pace, .. } in &mut self.metrics {
            if let Some(value) = pace.waiting.take() {
                pace.tell(name, value, reports);
            }
        }
    }

    /// Reports all that is left, and what was skipped.
    pub(crate) fn finish(&mut self, reports: &mut Reports) {
        self.report(reports);
        if let Skipped { count: skipped, sample: Some(sample) } = &self.skipped {
            reports.warn(format!(
                "{skipped} metric values were skipped, for they are no finite numbers: {sample}"
            ));
        }
    }
}

impl Metric {
    /// Tells whether the expression was found.
    fn search(&mut self, line: &str, skipped: &mut Skipped, reports: &mut Reports) -> bool {
        let Self { name, regex, pace } = self;
        let mut found = false;
        for captures in regex.captures_iter(line) {
            found = true;
            let Some(capture) = captures.get(1) else { continue };
            match number(capture.as_str()) {
                Some(value) => pace.take(name, value, reports),
                None => {
                    skipped.count += 1;
                    skipped
                        .sample
                        .get_or_insert_with(|| format!("{:?} for metric {name:?}", capture.as_str()));
                }
            }
        }
        found
    }
}

impl Pace {
    fn take(&mut self, name: &str, value: f64, reports: &mut Reports) {
        if self.window_start.elapsed() >= WINDOW {
            self.window_start = Instant::now();
            self.in_window = 0;
        }
        if self.in_window < PER_WINDOW {
            self.waiting = None;
            self.tell(name, value, reports);
        } else {
            self.waiting = Some(value);
        }
    }

    fn tell(&mut self, name: &str, value: f64, reports: &mut Reports) {
        self.in_window += 1;
        reports.tell(Report::Metric { name: name.to_owned(), value });
    }
}

fn number(text: &str) -> Option<f64> {
    text.trim().parse::<f64>().ok().filter(|value| value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{Stamped, Tail};

    fn reported(regex: &str, lines: &[&str]) -> Vec<Report> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("reports.jsonl");
        let mut reports = Reports::open(&path).unwrap();
        let definition = MetricDefinition { name: "m".to_owned(), regex: regex.to_owned() };
        let mut metrics = Metrics::new(&[definition], &mut reports);
        for line in lines {
            metrics.search(line, &mut reports);
        }
        metrics.finish(&mut reports);
        Tail::new(path).read::<Stamped>().unwrap().into_iter().map(|stamped| stamped.report).collect()
    }

    fn values(regex: &str, lines: &[&str]) -> Vec<f64> {
        let value = |report| if let Report::Metric { value, .. } = report { Some(value) } else { None };
        reported(regex, lines).into_iter().filter_map(value).collect()
    }

    #[test]
    fn every_match_of_a_line_is_a_value() {
        assert_eq!(values("loss=([0-9.e-]+)", &["loss=1.5 loss=2e-3", "x", "loss=3"]), [1.5, 0.002, 3.0]);
    }

    #[test]
    fn a_tab_is_found_as_itself_and_as_cloudwatch_shows_it() {
        assert_eq!(values("loss\t(.+)", &["loss\t1"]), [1.0]);
        assert_eq!(values("loss#011(.+)", &["loss\t1"]), [1.0]);
        assert_eq!(values("loss.*?([0-9]+)$", &["loss\t1"]), [1.0]);
    }

    #[test]
    fn what_is_no_finite_number_is_skipped_and_counted() {
        let found = reported("v=(.+)", &["v=dog", "v=nan", "v=inf", "v=1e999", "v=7"]);
        let [Report::Metric { value: 7.0, .. }, Report::Warning { text }] = &found[..] else {
            panic!("{found:?}");
        };
        assert!(text.starts_with("4 ") && text.contains("\"dog\""), "{text}");
    }

    #[test]
    fn an_expression_that_can_not_be_used_is_one_warning() {
        for regex in ["(?=x)(y)", "no group"] {
            let found = reported(regex, &["y", "y"]);
            assert!(matches!(&found[..], [Report::Warning { .. }]), "{found:?}");
        }
    }

    #[test]
    fn of_very_many_values_the_last_one_is_always_reported() {
        let lines: Vec<String> = (0..10_000).map(|value| format!("v={value}")).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let found = values("v=(.+)", &lines);
        assert!(found.len() < 1_000, "{}", found.len());
        assert_eq!(found.last(), Some(&9_999.0));
    }
}
