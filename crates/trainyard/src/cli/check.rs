//! `trainyard check`: does an image keep the contract?

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::ValueHint;
use console::Style;
use indexmap::IndexMap;
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use trainyard_check::findings::{Finding, Verdict, findings, of_other_platform, without_program, worst};
use trainyard_check::run::{Check, CheckError, Checked, Question, made_up, of_job_file};
use trainyard_engine::backend::local::LocalBackend;
use trainyard_engine::wire::CreateTrainingJobRequest;

use crate::config::{Config, Flags};
use crate::exit::{Exit, Refused};
use crate::job_file;
use crate::machine::machine;
use crate::show::{Form, fetching, out};

/// Tell whether a training image keeps the contract
///
/// The image is started on small jobs, with two instances and with one to which something happens: SIGTERM,
/// no input, empty channels. Each line says what was seen and what to change. What can't be told about an
/// image without its data is told once a job or channels are given.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct CheckImage {
    /// What TrainingImage would be, such as team/fit:1 or docker-archive:fit.tar
    image: String,
    /// Run the image on the job in FILE; its own image is not used
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    job: Option<PathBuf>,
    /// Give a made-up job the channel NAME with the files of DIR
    #[arg(long = "channel", value_name = "NAME=DIR", value_parser = channel, conflicts_with = "job")]
    channels: Vec<(String, PathBuf)>,
    /// Give the job a hyperparameter
    #[arg(long = "hyperparameter", value_name = "NAME=VALUE", value_parser = hyperparameter)]
    hyperparameters: Vec<(String, String)>,
    /// Longest time of one run
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    timeout: u32,
    /// Longest time between SIGTERM and the end of train
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    grace: u32,
    /// Print all findings and what was seen as one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    flags: Flags,
}

const EXAMPLES: &str = "Examples:
  trainyard check docker-archive:fit.tar
  trainyard check team/fit:1 --channel train=./sample --hyperparameter epochs=1
  trainyard check team/fit:1 --job job.json --json

Exit codes: 0 no line says fail, 10 one does, 1 and 2 the image could not be checked.";

fn channel(text: &str) -> Result<(String, PathBuf), String> {
    let (name, folder) = text.split_once('=').ok_or("write NAME=DIR, such as train=./sample")?;
    Ok((name.to_owned(), PathBuf::from(folder)))
}

fn hyperparameter(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE, such as epochs=1")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Everything, for programs.
#[derive(Serialize)]
struct Answer<'a> {
    image: &'a str,
    verdict: Verdict,
    findings: &'a [Finding],
    facts: serde_json::Value,
}

impl CheckImage {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let config = Config::read(&self.flags)?;
        let machine = machine(&config, Some(Duration::from_secs(self.grace.into())))?;
        let question = Question {
            request: self.request()?,
            given: self.job.is_some() || !self.channels.is_empty(),
            time_limit: Duration::from_secs(self.timeout.into()),
            grace: Duration::from_secs(self.grace.into()),
        };
        let quiet = self.json || !std::io::stderr().is_terminal();
        // Nobody may be there to read it.
        let tell = move |text: &str| _ = (!quiet).then(|| writeln!(std::io::stderr(), "running {text}"));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let checked = runtime.block_on(async {
            let check = Check {
                backend: Arc::new(LocalBackend::new(machine.program.clone())),
                machine: &machine,
                data: &config.data_dir.value,
                interrupted: interrupts()?,
                tell: &tell,
            };
            check.run(question, fetching::show(Form::choose(self.json))).await.map_err(refusal)
        });
        runtime.shutdown_background();
        self.answer(checked?)
    }

    fn request(&self) -> anyhow::Result<CreateTrainingJobRequest> {
        let image = job_file::absolute_image(&self.image, &std::env::current_dir()?);
        let hyperparameters = IndexMap::from_iter(self.hyperparameters.clone());
        if let Some(job) = &self.job {
            return Ok(of_job_file(job_file::read(job)?, &image, &hyperparameters));
        }
        let channel = |(name, folder): &(String, PathBuf)| {
            let folder = std::path::absolute(folder).with_context(|| format!("--channel {name}"))?;
            anyhow::Ok((name.clone(), format!("file://{}/", folder.display())))
        };
        let channels = self.channels.iter().map(channel).collect::<Result<Vec<_>, _>>()?;
        Ok(made_up(&image, &channels, &hyperparameters))
    }

    fn answer(&self, checked: Checked) -> anyhow::Result<Exit> {
        let (findings, facts) = match checked {
            Checked::Run(facts) => (findings(&facts), serde_json::to_value(facts)?),
            Checked::NoProgram(image) => (without_program(&image), serde_json::json!({ "image": image })),
            Checked::OtherPlatform(text) => (of_other_platform(text), serde_json::json!({})),
        };
        let verdict = worst(&findings);
        if self.json {
            let answer = Answer { image: &self.image, verdict, findings: &findings, facts };
            out(&serde_json::to_string(&answer)?)?;
        } else {
            findings.iter().try_for_each(|finding| out(&line(finding)))?;
            out(&summary(&findings))?;
        }
        Ok(if verdict == Verdict::Fail { Exit::Failed } else { Exit::Completed })
    }
}

/// Becomes true at the first SIGINT or SIGTERM.
fn interrupts() -> anyhow::Result<watch::Receiver<bool>> {
    let (sender, receiver) = watch::channel(false);
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        // Whoever listens may have ended.
        let _ = sender.send(true);
    });
    Ok(receiver)
}

/// What the caller can put right is told apart by the exit code.
fn refusal(error: CheckError) -> anyhow::Error {
    match error {
        CheckError::Prepare(_) => Refused::from(anyhow::Error::new(error)).into(),
        other => other.into(),
    }
}

fn word(verdict: Verdict) -> (&'static str, Style) {
    match verdict {
        Verdict::Pass => ("pass", Style::new().green()),
        Verdict::Unknown => ("?", Style::new().dim()),
        Verdict::Warning => ("warning", Style::new().yellow()),
        Verdict::Fail => ("fail", Style::new().red().bold()),
    }
}

/// One line, in columns.
fn line(finding: &Finding) -> String {
    let (word, colour) = word(finding.verdict);
    let about = serde_json::to_value(finding.about).ok();
    let about = about.as_ref().and_then(|about| about.as_str()).unwrap_or_default();
    // A reason may have several lines, and a line is what this promises.
    let text = finding.text.replace('\n', " | ");
    format!("{}  {about:15}  {text}", colour.apply_to(format!("{word:7}")))
}

fn summary(findings: &[Finding]) -> String {
    let count = |verdict| findings.iter().filter(|finding| finding.verdict == verdict).count();
    format!(
        "{} passed, {} failed, {} warnings, {} could not be told",
        count(Verdict::Pass),
        count(Verdict::Fail),
        count(Verdict::Warning),
        count(Verdict::Unknown)
    )
}

#[cfg(test)]
mod tests {
    use trainyard_check::findings::About;

    use super::*;

    #[test]
    fn a_finding_is_one_line_whatever_a_program_has_said() {
        let text = "failed: a\nb".to_owned();
        let line = line(&Finding { about: About::Job, verdict: Verdict::Fail, text });
        assert_eq!(console::strip_ansi_codes(&line), "fail     job              failed: a | b");
    }
}
