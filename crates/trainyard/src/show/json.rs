//! Events as JSON objects, one a line.

use std::path::Path;

use serde_json::json;
use trainyard_engine::job::{Job, Transition};
use trainyard_engine::run::{LogLine, Report, Stamped};

use super::Speed;
use crate::exit::Exit;

pub(super) fn transition(job: &Job, transition: &Transition) -> String {
    json!({
        "event": "transition",
        "job": job.name,
        "attempt": job.attempt,
        "status": job.status,
        "secondary_status": transition.status,
        "message": transition.message,
        "at": job.modified,
    })
    .to_string()
}

pub(super) fn warning(text: &str) -> String {
    json!({"event": "warning", "text": text}).to_string()
}

pub(super) fn log(host: &str, line: &LogLine) -> String {
    json!({"event": "log", "host": host, "stream": line.stream, "at": line.at, "line": line.line}).to_string()
}

pub(super) fn report(host: &str, stamped: &Stamped) -> String {
    let at = stamped.at;
    let progress = |phase: &str, objects: Option<u64>, bytes: Option<u64>| json!({"event": "progress", "host": host, "phase": phase, "objects": objects, "bytes": bytes, "at": at});
    let event = match &stamped.report {
        Report::Staging { objects, bytes, of_objects, of_bytes, millis } => {
            let speed = Speed::of(*bytes, *of_bytes, *millis);
            json!({
                "event": "progress", "host": host, "phase": "staging", "objects": objects, "bytes": bytes,
                "of_objects": of_objects, "of_bytes": of_bytes, "bytes_per_second": speed.bytes_per_second,
                "seconds_left": speed.seconds_left, "at": at,
            })
        }
        Report::Training => progress("training", None, None),
        Report::Collecting { bytes } => progress("collecting", None, Some(*bytes)),
        Report::Metric { name, value } => {
            json!({"event": "metric", "host": host, "name": name, "value": value, "at": at})
        }
        Report::Warning { text } => {
            json!({"event": "instance_warning", "host": host, "text": text, "at": at})
        }
        Report::Exited(exit) => json!({"event": "exited", "host": host, "exit_code": exit.code(), "at": at}),
        Report::Ended { outcome, .. } => {
            json!({"event": "instance_ended", "host": host, "outcome": outcome, "at": at})
        }
    };
    event.to_string()
}

pub(super) fn ended(job: &Job, folder: Option<&Path>, exit: Exit) -> String {
    let metrics = job.metrics.iter();
    let metrics: Vec<_> = metrics
        .map(|(name, (value, at))| json!({"MetricName": name, "Value": *value as f32, "Timestamp": at.seconds()}))
        .collect();
    json!({
        "event": "ended",
        "job": job.name,
        "attempt": job.attempt,
        "status": job.status,
        "secondary_status": job.secondary_status(),
        "failure_reason": job.failure_reason,
        "model": job.published.as_ref().and_then(|published| published.model.as_ref()),
        "output": job.published.as_ref().and_then(|published| published.output.as_ref()),
        "merged": job.merged,
        "folder": folder,
        "clashes": job.published.as_ref().map(|published| &published.clashes),
        "metrics": metrics,
        "warnings": job.warnings,
        "instances": job.instances.iter().map(|instance| json!({
            "host": instance.host,
            "attempt": instance.attempt,
            "outcome": instance.outcome,
        })).collect::<Vec<_>>(),
        "exit_code": exit as u8,
    })
    .to_string()
}
