//! The failure reason: what went wrong first, on which instance, in at most 1,024 characters.

use crate::run::{Exit, Outcome};
use crate::signal::signal_name;

/// The longest `FailureReason` of the API, in characters.
pub const REASON_LIMIT: usize = 1024;

/// The failure reason for an instance that ended badly; `None` for one that did not.
///
/// The classes (`AlgorithmError`, `ClientError`, `InternalServerError`) and the place of the exit
/// code are SageMaker's; instance and signal name are ours and are never cut off.
pub(super) fn failure_reason(host: &str, outcome: &Outcome) -> Option<String> {
    let (start, end) = match outcome {
        Outcome::Completed | Outcome::Stopped => return None,
        Outcome::Failed { exit: Exit::OutOfMemory, explanation } => (
            "ClientError: Please use an instance type with more memory, or reduce the size of job data \
             processed on an instance."
                .to_owned(),
            match explanation.is_empty() {
                true => format!(", exit code: 137 ({host}, out of memory)"),
                false => format!(", exit code: 137 ({host}, out of memory: {explanation})"),
            },
        ),
        Outcome::Failed { exit, explanation } => {
            (format!("AlgorithmError: {explanation}"), exit_suffix(host, *exit))
        }
        Outcome::StagingFailed { explanation } => {
            (format!("ClientError: Data download failed:{explanation}"), format!(" ({host})"))
        }
        Outcome::CollectingFailed { explanation } => {
            (format!("ClientError: Artifact upload failed:{explanation}"), format!(" ({host})"))
        }
        Outcome::Broken { explanation } => {
            (format!("InternalServerError: {explanation}"), format!(" ({host})"))
        }
    };
    Some(cut(&start, &end))
}

/// A reason that no instance is the cause of.
pub(super) fn job_reason(class: &str, explanation: &str) -> String {
    cut(&format!("{class}: {explanation}"), "")
}

fn exit_suffix(host: &str, exit: Exit) -> String {
    let code = exit.code();
    match exit.signal().and_then(signal_name) {
        Some(signal) => format!(", exit code: {code} ({host}, killed by {signal})"),
        None => format!(", exit code: {code} ({host})"),
    }
}

/// `start` cut to whole characters so that `end` fits in behind it.
fn cut(start: &str, end: &str) -> String {
    let room = REASON_LIMIT.saturating_sub(end.chars().count());
    start.chars().take(room).chain(end.chars()).collect()
}
