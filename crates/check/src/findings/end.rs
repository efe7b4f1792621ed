//! How the program ends: asked to, failing, and in which words.

use super::{About, Finding, fail, first_line, first_report, pass, unhurried, unknown, warning};
use crate::facts::{End, Facts, KillFacts, ProbeReport, Process, StopFacts, Trial};

/// What a wrapper has to do.
const EXEC: &str = "start it with exec, or pass signals on and wait for it";

/// What a wrapper has to do about exit codes.
const PASS_ON: &str = "start the program with exec, or end with its exit code (set -e)";

pub(super) fn sigterm(stopped: &Trial) -> Finding {
    let about = About::Sigterm;
    let report = match stopped {
        Ok(report) => report,
        Err(why) => return unknown(about, why.clone()),
    };
    match (&report.stop, report.end) {
        (Some(stop), _) => of_stop(stop),
        (None, Some(end)) => {
            let text = "before a signal could be sent: give a job that takes longer";
            unknown(about, format!("train ended with {} after {:.1} s, {text}", end.code, end.seconds))
        }
        (None, None) => unknown(about, "nothing was seen of it"),
    }
}

fn of_stop(stop: &StopFacts) -> Finding {
    let about = About::Sigterm;
    let first = &stop.first.command;
    let handling = stop.others.iter().find(|process| process.handles_sigterm);
    match (stop.first.handles_sigterm, handling, stop.ended_after) {
        (false, Some(behind), _) => fail(
            about,
            format!(
                "{:?}, the first process, does not pass SIGTERM on to {:?}: {EXEC}",
                first, behind.command
            ),
        ),
        (false, None, _) => warning(
            about,
            format!(
                "nothing handles it: as the first process of a container {first:?} is not even ended by it, but \
                 killed after 120 s; handle SIGTERM and save to /opt/ml/model or a checkpoint"
            ),
        ),
        (true, _, None) => {
            fail(about, format!("{first:?} handles it, but still ran when the grace was over: end"))
        }
        (true, _, Some(seconds)) => match stop.survivors.first() {
            Some(left) => fail(
                about,
                format!("{first:?} ended, but not {:?}, which is killed then: {EXEC}", left.command),
            ),
            None => pass(about, format!("{first:?} handles it and ended after {seconds:.1} s")),
        },
    }
}

pub(super) fn exit_code(facts: &Facts) -> Finding {
    let about = About::ExitCode;
    let reports = unhurried(facts).filter_map(|trial| trial.as_ref().ok());
    let swallowed = |report: &&ProbeReport| report.end.is_some_and(|end| end.code == 0);
    if let Some(text) = reports.filter(swallowed).find_map(|report| report.failure.as_deref()) {
        let text = first_line(text);
        return fail(about, format!("wrote {text:?} to the failure file and ended with 0: {PASS_ON}"));
    }
    match facts.killed.as_ref().ok().and_then(|report| report.kill.as_ref()) {
        Some(KillFacts::Killed { first, victim, end: Some(end) }) => of_kill(facts, first, victim, *end),
        Some(KillFacts::Killed { victim, end: None, .. }) => {
            unknown(about, format!("went on after {:?} was killed", victim.command))
        }
        Some(KillFacts::Alone { first }) => {
            pass(about, format!("{:?} is the first process itself", first.command))
        }
        Some(KillFacts::Several { .. }) | None => of_ends(facts),
    }
}

fn of_kill(facts: &Facts, first: &Process, victim: &Process, end: End) -> Finding {
    let (about, first, victim) = (About::ExitCode, &first.command, &victim.command);
    if end.code != 0 {
        return pass(about, format!("ends with {} when {victim:?} is killed", end.code));
    }
    // A program that still took all the time that it takes was not waiting for the one that was killed.
    if facts.plain.completed && end.seconds >= 0.9 * facts.plain.seconds {
        return unknown(about, format!("went on to its end after {victim:?} was killed"));
    }
    let seen = format!("{first:?} ended with 0 although {victim:?} was killed");
    fail(about, format!("{seen}, so a failed job would count as completed: {PASS_ON}"))
}

/// The exit code in the light of ends that nobody has brought about.
fn of_ends(facts: &Facts) -> Finding {
    let about = About::ExitCode;
    let ends = unhurried(facts).filter_map(|trial| trial.as_ref().ok()?.end);
    let code = facts.plain.exit_code.or_else(|| ends.map(|end| end.code).find(|&code| code != 0));
    match (code, first_report(facts)) {
        (Some(code), _) => pass(about, format!("a failure ends with {code}")),
        (None, Some(_)) => unknown(
            about,
            "train ended with 0 each time, also without configuration and input, and too soon to be looked at",
        ),
        (None, None) => unknown(about, "train could not be watched"),
    }
}

pub(super) fn failure_file(facts: &Facts) -> Finding {
    let about = About::FailureFile;
    let reports: Vec<_> = unhurried(facts).filter_map(|trial| trial.as_ref().ok()).collect();
    if let Some(text) = reports.iter().find_map(|report| report.failure.as_deref()) {
        return pass(about, format!("written when train fails: {}", first_line(text)));
    }
    if reports.iter().any(|report| report.end.is_some_and(|end| end.code != 0)) {
        return warning(
            about,
            "not written when train fails: the last error lines are the reason here, on SageMaker there is none; \
             write the reason to /opt/ml/output/failure",
        );
    }
    unknown(about, "train could not be made to fail: it ended with 0 without configuration and input")
}
