//! CloudWatch Logs: the lines of all instances, as the SDKs and `aws logs tail` read them.

use std::path::PathBuf;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use trainyard_engine::engine::Jobs;
use trainyard_engine::job::{Job, SecondaryStatus};
use trainyard_engine::prepare::ACCOUNT;
use trainyard_engine::run::Timestamp;
use trainyard_engine::store::{JobQuery, SortBy};

use super::answer::{ApiError, ApiResult};
use crate::exit::one_line;

mod events;
mod filter;

/// The one group that there is.
const GROUP: &str = "/aws/sagemaker/TrainingJobs";
/// On a page of streams or groups.
const LONGEST_PAGE: usize = 50;

/// Carries out an operation by its name.
pub(super) fn carry_out(jobs: &Jobs, operation: &str, input: &Value) -> ApiResult {
    match operation {
        "DescribeLogGroups" => groups(jobs, &read(input)?),
        "DescribeLogStreams" => streams(jobs, &read(input)?),
        "GetLogEvents" => events::get(jobs, &read(input)?),
        "FilterLogEvents" => filter::filter(jobs, &read(input)?),
        other => Err(ApiError::unknown_operation(other)),
    }
}

fn read<T: DeserializeOwned>(input: &Value) -> Result<T, ApiError> {
    serde_path_to_error::deserialize(input).map_err(|error| {
        ApiError::new("SerializationException", format!("{}: {}", error.path(), error.inner()))
    })
}

fn invalid(message: impl Into<String>) -> ApiError {
    ApiError::new("InvalidParameterException", message)
}

/// One instance's lines in one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stream {
    /// `<job>/<host>-<seconds>`.
    name: String,
    /// When the attempt's instances were there.
    created: Timestamp,
    log: PathBuf,
}

/// The streams of a job: one for each instance from the moment at which it is there, also while it is silent.
fn streams_of(jobs: &Jobs, job: &Job) -> Vec<Stream> {
    let downloads =
        job.transitions.iter().filter(|transition| transition.status == SecondaryStatus::Downloading);
    let (mut streams, mut before) = (Vec::new(), 0);
    for (number, transition) in (1..).zip(downloads) {
        let attempt = if transition.attempt == 0 { number } else { transition.attempt };
        // One that was given up before its instances were there has no download; what it left belongs to the next one.
        let attempts = before + 1..=attempt;
        for instance in &job.instances {
            let log = |attempt| {
                let folder = jobs.attempt_folder(&job.name, attempt).join("instances");
                folder.join(&instance.host).join("log.jsonl")
            };
            let there = attempts.clone().rev().map(log).find(|log| log.exists());
            // A later attempt has only those that had not ended well.
            if let Some(log) = there.or_else(|| (number == 1).then(|| log(attempt))) {
                let name = format!("{}/{}-{}", job.name, instance.host, transition.start.seconds());
                streams.push(Stream { name, created: transition.start, log });
            }
        }
        before = attempt;
    }
    streams.sort_by(|a, b| a.name.cmp(&b.name));
    streams
}

/// The stream of a name.
fn stream(jobs: &Jobs, name: &str) -> Result<Stream, ApiError> {
    let missing = || ApiError::new("ResourceNotFoundException", "The specified log stream does not exist.");
    let job = name.split('/').next().unwrap_or_default();
    let job = job_named(jobs, job)?.ok_or_else(missing)?;
    streams_of(jobs, &job).into_iter().find(|stream| stream.name == name).ok_or_else(missing)
}

fn job_named(jobs: &Jobs, name: &str) -> Result<Option<Job>, ApiError> {
    let described = jobs.described(name).map_err(|error| ApiError::internal(one_line(&error.into())))?;
    Ok(described.map(|described| described.job).filter(|job| job.name == name))
}

/// All streams whose names start with a prefix, in order of their names.
fn with_prefix(jobs: &Jobs, prefix: &str) -> Result<Vec<Stream>, ApiError> {
    let mut found = Vec::new();
    match prefix.split_once('/') {
        Some((job, _)) => found.extend(job_named(jobs, job)?.iter().flat_map(|job| streams_of(jobs, job))),
        None => {
            let mut query = JobQuery { sort_by: SortBy::Name, limit: 1000, ..JobQuery::default() };
            loop {
                let listed =
                    jobs.list(&query).map_err(|error| ApiError::internal(one_line(&error.into())))?;
                for listed in listed.iter().filter(|listed| listed.name.starts_with(prefix)) {
                    found.extend(job_named(jobs, &listed.name)?.iter().flat_map(|job| streams_of(jobs, job)));
                }
                match listed.last() {
                    Some(last) if listed.len() == query.limit => {
                        query.after = Some(last.cursor(SortBy::Name))
                    }
                    _ => break,
                }
            }
        }
    }
    found.retain(|stream| stream.name.starts_with(prefix));
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// There is a group as soon as there is a job.
fn known_group(jobs: &Jobs, name: &str) -> Result<(), ApiError> {
    let any = jobs.list(&JobQuery { limit: 1, ..JobQuery::default() });
    let any = any.map_err(|error| ApiError::internal(one_line(&error.into())))?;
    if name == GROUP && !any.is_empty() {
        return Ok(());
    }
    Err(ApiError::new("ResourceNotFoundException", "The specified log group does not exist."))
}

/// A group may be named by its ARN instead.
fn group_name<'a>(name: Option<&'a str>, identifier: Option<&'a str>) -> Result<&'a str, ApiError> {
    let named = identifier
        .map(|text| text.rsplit_once("log-group:").map_or(text, |(_, name)| name.trim_end_matches(":*")));
    name.or(named).ok_or_else(|| invalid("logGroupName or logGroupIdentifier has to be given"))
}

fn arn(jobs: &Jobs, rest: &str) -> String {
    format!("arn:aws:logs:{}:{ACCOUNT}:log-group:{GROUP}{rest}", jobs.machine().region)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DescribeLogGroups {
    log_group_name_prefix: Option<String>,
    log_group_name_pattern: Option<String>,
}

fn groups(jobs: &Jobs, input: &DescribeLogGroups) -> ApiResult {
    let first = jobs.list(&JobQuery { limit: 1, ..JobQuery::default() });
    let first = first.map_err(|error| ApiError::internal(one_line(&error.into())))?;
    let wanted = input.log_group_name_prefix.as_ref().is_none_or(|prefix| GROUP.starts_with(prefix.as_str()))
        && input.log_group_name_pattern.as_ref().is_none_or(|pattern| GROUP.contains(pattern.as_str()));
    let groups = first.iter().filter(|_| wanted).map(|oldest| {
        json!({
            "logGroupName": GROUP, "creationTime": oldest.created.0, "metricFilterCount": 0, "storedBytes": 0,
            "arn": arn(jobs, ":*"), "logGroupArn": arn(jobs, ""), "logGroupClass": "STANDARD",
        })
    });
    Ok(json!({ "logGroups": groups.collect::<Vec<_>>() }))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DescribeLogStreams {
    log_group_name: Option<String>,
    log_group_identifier: Option<String>,
    log_stream_name_prefix: Option<String>,
    order_by: Option<String>,
    descending: Option<bool>,
    next_token: Option<String>,
    limit: Option<usize>,
}

fn streams(jobs: &Jobs, input: &DescribeLogStreams) -> ApiResult {
    known_group(jobs, group_name(input.log_group_name.as_deref(), input.log_group_identifier.as_deref())?)?;
    let by_time = match input.order_by.as_deref() {
        None | Some("LogStreamName") => false,
        Some("LastEventTime") => true,
        Some(other) => {
            return Err(invalid(format!("orderBy is {other}; it is LogStreamName or LastEventTime")));
        }
    };
    if by_time && input.log_stream_name_prefix.is_some() {
        return Err(invalid("Cannot order by LastEventTime with a logStreamNamePrefix."));
    }
    let limit = input.limit.unwrap_or(LONGEST_PAGE);
    if !(1..=LONGEST_PAGE).contains(&limit) {
        return Err(invalid(format!("limit is {limit}; it is 1 to {LONGEST_PAGE}")));
    }
    let mut all: Vec<_> = with_prefix(jobs, input.log_stream_name_prefix.as_deref().unwrap_or_default())?
        .into_iter()
        .map(|stream| (events::Span::of(&stream.log), stream))
        .collect();
    if by_time {
        all.sort_by_key(|(span, stream)| (span.last, stream.name.clone()));
    }
    if input.descending == Some(true) {
        all.reverse();
    }
    let start = match &input.next_token {
        None => 0,
        Some(token) => match all.iter().position(|(_, stream)| stream.name == *token) {
            Some(last) => last + 1,
            None => return Err(invalid("nextToken is none that was given out")),
        },
    };
    let page: Vec<_> = all.iter().skip(start).take(limit).collect();
    let shown: Vec<_> = page.iter().map(|(span, stream)| shown(jobs, stream, span)).collect();
    let mut answer = json!({ "logStreams": shown });
    // Only if there are more: the SDK asks again and again as long as there is one.
    if start + page.len() < all.len()
        && let Some((_, last)) = page.last()
    {
        answer["nextToken"] = json!(last.name);
    }
    Ok(answer)
}

fn shown(jobs: &Jobs, stream: &Stream, span: &events::Span) -> Value {
    let mut shown = json!({
        "logStreamName": stream.name,
        "creationTime": stream.created.0,
        "arn": arn(jobs, &format!(":log-stream:{}", stream.name)),
        "uploadSequenceToken": "0",
        "storedBytes": 0,
    });
    for (member, at) in [
        ("firstEventTimestamp", span.first),
        ("lastEventTimestamp", span.last),
        ("lastIngestionTime", span.last),
    ] {
        if let Some(at) = at {
            shown[member] = json!(at.0);
        }
    }
    shown
}
