//! From what was seen to what it means and what to change: no file, no process, no clock.

use serde::Serialize;

use crate::facts::{Facts, Trial};

mod end;
mod program;
mod runs;

#[cfg(test)]
mod tests;

/// One line about an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What it is about.
    pub about: About,
    /// Whether it is as it should be.
    pub verdict: Verdict,
    /// What was seen, and what to change.
    pub text: String,
}

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum About {
    /// The processor that the image is for.
    Architecture,
    /// Layers and bytes.
    Size,
    /// The form of ENTRYPOINT.
    Entrypoint,
    /// The program and its interpreter.
    Program,
    /// USER, and what it may write.
    User,
    /// The job as it is.
    Job,
    /// What is left in `/opt/ml/model`.
    Model,
    /// Hyperparameters are strings.
    Hyperparameters,
    /// An instance for which no object is left.
    EmptyShard,
    /// SIGTERM.
    Sigterm,
    /// The exit code.
    ExitCode,
    /// `/opt/ml/output/failure`.
    FailureFile,
    /// Files outside of `/opt/ml` and `/tmp`.
    Writes,
}

/// Whether something is as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It is.
    Pass,
    /// It could not be told.
    Unknown,
    /// It works, but whoever made the image should know.
    Warning,
    /// It is not.
    Fail,
}

/// All findings about an image, in the order in which they are read.
pub fn findings(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(image) = &facts.image {
        findings.push(program::architecture(image));
        findings.push(program::size(image));
        findings.push(program::entrypoint(image, facts.stopped.as_ref().ok()));
        findings.push(program::program(&image.program));
        findings.push(program::user(image, first_report(facts)));
    }
    findings.push(runs::job(facts));
    findings.push(runs::model(&facts.plain));
    findings.push(runs::hyperparameters(facts));
    findings.push(runs::empty_shard(facts));
    findings.push(end::sigterm(&facts.stopped));
    findings.push(end::exit_code(facts));
    findings.push(end::failure_file(facts));
    if facts.image.is_some() {
        findings.push(runs::writes(&facts.whole));
    }
    findings
}

/// Findings about an image in which there is nothing to run.
pub fn without_program(image: &crate::facts::ImageFacts) -> Vec<Finding> {
    vec![
        program::architecture(image),
        program::size(image),
        program::entrypoint(image, None),
        program::program(&image.program),
    ]
}

/// An image that can't run here at all.
pub fn of_other_platform(explanation: String) -> Vec<Finding> {
    vec![Finding { about: About::Architecture, verdict: Verdict::Fail, text: explanation }]
}

/// The worst of all.
pub fn worst(findings: &[Finding]) -> Verdict {
    findings.iter().map(|finding| finding.verdict).max().unwrap_or(Verdict::Pass)
}

fn first_report(facts: &Facts) -> Option<&crate::facts::ProbeReport> {
    [&facts.whole, &facts.stopped, &facts.killed, &facts.broken]
        .into_iter()
        .find_map(|trial| trial.as_ref().ok())
}

/// Those of the trials in which the program was left to end by itself.
fn unhurried(facts: &Facts) -> impl Iterator<Item = &Trial> {
    [Some(&facts.whole), Some(&facts.broken), facts.empty.as_ref(), facts.numbers.as_ref()]
        .into_iter()
        .flatten()
}

/// As much of a reason as fits into a line.
fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(120).collect()
}

fn pass(about: About, text: impl Into<String>) -> Finding {
    Finding { about, verdict: Verdict::Pass, text: text.into() }
}

fn unknown(about: About, text: impl Into<String>) -> Finding {
    Finding { about, verdict: Verdict::Unknown, text: text.into() }
}

fn warning(about: About, text: impl Into<String>) -> Finding {
    Finding { about, verdict: Verdict::Warning, text: text.into() }
}

fn fail(about: About, text: impl Into<String>) -> Finding {
    Finding { about, verdict: Verdict::Fail, text: text.into() }
}
