//! What came of the job, and of the same with other input.

use super::{About, Finding, fail, first_line, pass, unknown, warning};
use crate::facts::{Facts, PlainRun, ProbeReport, Trial};

/// What to give so that more can be told.
const GIVE: &str = "give it what it needs with --channel, --hyperparameter or --job";

pub(super) fn job(facts: &Facts) -> Finding {
    let (about, plain) = (About::Job, &facts.plain);
    let what = if facts.job.given { "the job" } else { "a made-up job" };
    let instances = match plain.instances {
        1 => "1 instance".to_owned(),
        count => format!("{count} instances"),
    };
    if plain.completed {
        let text = format!("{what} on {instances} completed after {:.1} s", plain.seconds);
        return match plain.warnings.first() {
            Some(warned) => warning(about, format!("{text}; {warned}")),
            None => pass(about, text),
        };
    }
    if plain.timed_out {
        let limit = facts.job.time_limit;
        return unknown(about, format!("{what} was not done after {limit} s: --timeout gives it more"));
    }
    let reason = plain.reason.as_deref().unwrap_or("no reason is known");
    // Before a program can fail it has to start, and for that no data is needed.
    if facts.job.given || matches!(plain.exit_code, Some(126 | 127)) {
        return fail(about, format!("{what} on {instances} failed: {reason}"));
    }
    unknown(about, format!("{what} failed, which a job with real input might not: {reason}; {GIVE}"))
}

pub(super) fn model(plain: &PlainRun) -> Finding {
    let about = About::Model;
    match (plain.completed, plain.has_model) {
        (_, true) => pass(about, "something was written to /opt/ml/model"),
        (true, false) => warning(
            about,
            "nothing was written to /opt/ml/model, and only what is there becomes the artifact",
        ),
        (false, false) => unknown(about, "the job did not complete"),
    }
}

pub(super) fn hyperparameters(facts: &Facts) -> Finding {
    let (about, count) = (About::Hyperparameters, facts.job.hyperparameters);
    if count == 0 {
        return unknown(about, "the job has none: give some with --hyperparameter NAME=VALUE");
    }
    if facts.plain.completed {
        return pass(about, format!("the job completed with {count}, all of them strings"));
    }
    let ended_well = |trial: &Trial| trial.as_ref().is_ok_and(|report| code(report) == Some(0));
    if facts.numbers.as_ref().is_some_and(ended_well) {
        return fail(
            about,
            "the job fails, and completes if they are numbers in hyperparameters.json: every value is a string \
             there, so convert it: int(value)",
        );
    }
    unknown(about, "the job did not complete, whether they are strings or numbers")
}

pub(super) fn empty_shard(facts: &Facts) -> Finding {
    let about = About::EmptyShard;
    let Some(trial) = &facts.empty else {
        return unknown(about, "the job has no channel: give one with --channel NAME=DIR");
    };
    let report = match trial {
        Ok(report) => report,
        Err(why) => return unknown(about, why.clone()),
    };
    let Some(code) = code(report) else { return unknown(about, "train did not end by itself") };
    if code == 0 {
        return pass(about, "ends with 0 when its channels are empty");
    }
    let said = report.failure.as_deref().map(|text| format!(" ({})", first_line(text))).unwrap_or_default();
    let text = format!("ends with {code}{said} when its channels are empty");
    if !facts.plain.completed {
        return unknown(about, format!("{text}, but the job fails anyway"));
    }
    let change =
        "an instance for which no object is left has an existing, empty folder: write nothing and end with 0";
    match facts.job.deals_out {
        true => fail(about, format!("{text}; {change}")),
        false => warning(about, format!("{text}; that matters once a channel is ShardedByS3Key: {change}")),
    }
}

pub(super) fn writes(whole: &Trial) -> Finding {
    let about = About::Writes;
    let report = match whole {
        Ok(report) => report,
        Err(why) => return unknown(about, why.clone()),
    };
    if report.elsewhere.is_empty() {
        return match code(report) {
            Some(0) => pass(about, "only below /opt/ml and /tmp"),
            _ => unknown(about, "only below /opt/ml and /tmp until train failed"),
        };
    }
    let mut shown: Vec<_> = report.elsewhere.iter().take(3).map(|path| path.display().to_string()).collect();
    if report.elsewhere_count > shown.len() {
        shown.push(format!("{} more", report.elsewhere_count - shown.len()));
    }
    let shown = shown.join(", ");
    warning(
        about,
        format!(
            "also {shown}: nothing of that is kept; results belong into /opt/ml/model, the rest into /tmp"
        ),
    )
}

fn code(report: &ProbeReport) -> Option<i32> {
    report.end.map(|end| end.code)
}
