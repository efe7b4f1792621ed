//! `trainyard doctor`: what this machine has for running jobs, and how to get what it lacks.

use std::env;
use std::thread::available_parallelism;

use anyhow::Context;
use console::style;
use serde_json::json;
use trainyard_engine::doctor::{Finding, State, Subject, examine};

use crate::config::{Config, Flags};
use crate::exit::Exit;
use crate::machine::{docker_config, docker_sockets};
use crate::show::out;

/// Show what this machine has for running jobs, what is missing, and how to get it
///
/// Every part is tried. ✓ works, ✗ is needed and does not work, – is there only for those who ask for it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes: 0 everything needed works, 1 something does not.\n\nExamples:\n  \
                  trainyard doctor\n  trainyard doctor --json --data-dir /srv/jobs")]
pub(super) struct Doctor {
    #[command(flatten)]
    flags: Flags,
    /// Print what was found as one JSON object
    #[arg(long)]
    json: bool,
}

impl Doctor {
    pub(super) fn run(&self) -> anyhow::Result<Exit> {
        let config = Config::read(&self.flags)?;
        let program = env::current_exe().context("finding this program's own file")?;
        let (sockets, docker_config) = (docker_sockets(), docker_config());
        let subject = Subject {
            program: &program,
            data: &config.data_dir.value,
            sockets: &sockets,
            docker_config: docker_config.as_deref(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut findings = runtime.block_on(examine(&subject));
        findings.push(processors());
        let good = findings.iter().all(|finding| finding.state != State::Bad);
        if self.json {
            let listed: Vec<_> = findings.iter().map(as_json).collect();
            out(&json!({ "good": good, "findings": listed }).to_string())?;
        } else {
            findings.iter().try_for_each(|finding| out(&line(finding)))?;
        }
        Ok(if good { Exit::Completed } else { Exit::Error })
    }
}

/// What the built-in workload has to compute with.
fn processors() -> Finding {
    let count = available_parallelism().map_or(1, usize::from);
    let instructions = instructions();
    let said = format!("{count}, all-pairs uses {instructions}");
    Finding { what: "processors", state: State::Good, said, help: None }
}

#[cfg(target_arch = "x86_64")]
fn instructions() -> String {
    let known = [
        ("AVX2", is_x86_feature_detected!("avx2")),
        ("AVX-512", is_x86_feature_detected!("avx512f")),
        ("VNNI", is_x86_feature_detected!("avx512vnni")),
    ];
    let there: Vec<_> = known.into_iter().filter(|(_, there)| *there).map(|(name, _)| name).collect();
    if there.is_empty() { "SSE2".to_owned() } else { there.join(", ") }
}

#[cfg(not(target_arch = "x86_64"))]
fn instructions() -> String {
    "what every processor of its kind has".to_owned()
}

fn line(finding: &Finding) -> String {
    // Coloured only where standard output is a terminal that shows colours.
    let mark = match finding.state {
        State::Good => style("✓").green(),
        State::Bad => style("✗").red(),
        State::Absent => style("–").dim(),
    };
    let help = finding.help.as_ref().map(|help| format!(" ({help})")).unwrap_or_default();
    format!("{mark} {}: {}{help}", finding.what, finding.said)
}

fn as_json(finding: &Finding) -> serde_json::Value {
    let state = match finding.state {
        State::Good => "good",
        State::Bad => "bad",
        State::Absent => "absent",
    };
    json!({ "what": finding.what, "state": state, "said": finding.said, "help": finding.help })
}
