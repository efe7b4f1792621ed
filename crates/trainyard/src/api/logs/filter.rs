//! FilterLogEvents: several streams in order of time, as `aws logs tail` reads them.

use std::collections::BTreeMap;
use std::iter::{Peekable, Zip};
use std::vec::IntoIter;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::json;
use trainyard_engine::engine::Jobs;
use trainyard_engine::run::{LogLine, Timestamp};

use super::events::{MOST_BYTES, MOST_EVENTS, event, forward};
use super::{group_name, invalid, known_group, stream, with_prefix};
use crate::api::answer::{ApiError, ApiResult};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FilterLogEvents {
    log_group_name: Option<String>,
    log_group_identifier: Option<String>,
    log_stream_names: Option<Vec<String>>,
    log_stream_name_prefix: Option<String>,
    start_time: Option<u64>,
    end_time: Option<u64>,
    filter_pattern: Option<String>,
    next_token: Option<String>,
    limit: Option<usize>,
}

/// A stream's next lines, each with the offset at which it ends.
struct Source {
    name: String,
    lines: Peekable<Zip<IntoIter<LogLine>, IntoIter<u64>>>,
    /// Where the lines begin that were not told yet.
    offset: u64,
    /// Whether there are more lines than these.
    cut: bool,
}

/// Offsets by the names of streams.
type Places = BTreeMap<String, u64>;

pub(super) fn filter(jobs: &Jobs, input: &FilterLogEvents) -> ApiResult {
    known_group(jobs, group_name(input.log_group_name.as_deref(), input.log_group_identifier.as_deref())?)?;
    let limit = input.limit.unwrap_or(MOST_EVENTS);
    if !(1..=MOST_EVENTS).contains(&limit) {
        return Err(invalid(format!("limit is {limit}; it is 1 to {MOST_EVENTS}")));
    }
    let pattern = Pattern::parse(input.filter_pattern.as_deref().unwrap_or_default())?;
    let streams = match (&input.log_stream_names, &input.log_stream_name_prefix) {
        (Some(_), Some(_)) => {
            return Err(invalid("logStreamNames and logStreamNamePrefix exclude each other"));
        }
        (Some(names), None) => names.iter().map(|name| stream(jobs, name)).collect::<Result<_, _>>()?,
        (None, prefix) => with_prefix(jobs, prefix.as_deref().unwrap_or_default())?,
    };
    let places: Places = input.next_token.as_deref().map(of_token).transpose()?.unwrap_or_default();
    let wanted = |at: Timestamp| {
        input.start_time.is_none_or(|start| at.0 >= start) && input.end_time.is_none_or(|end| at.0 < end)
    };
    let mut sources = Vec::new();
    for stream in streams {
        let offset = places.get(&stream.name).copied().unwrap_or(0);
        let page = forward(&stream.log, offset, limit, wanted);
        let page = page.map_err(|error| ApiError::internal(error.to_string()))?;
        let lines = page.lines.into_iter().zip(page.ends).peekable();
        sources.push(Source { name: stream.name, lines, offset, cut: page.cut });
    }
    let (events, more) = merged(&mut sources, limit, &pattern);
    let mut answer = json!({ "events": events, "searchedLogStreams": [] });
    if more {
        let places: Places = sources.into_iter().map(|source| (source.name, source.offset)).collect();
        answer["nextToken"] = json!(URL_SAFE_NO_PAD.encode(json!(places).to_string()));
    }
    Ok(answer)
}

/// Lines of all sources in order of time, up to the limits of a page; tells whether there are more.
fn merged(sources: &mut [Source], limit: usize, pattern: &Pattern) -> (Vec<serde_json::Value>, bool) {
    let (mut events, mut bytes) = (Vec::new(), 0);
    loop {
        // What comes next in a source that was cut is not known, so nothing can come after it.
        if sources.iter_mut().any(|source| source.cut && source.lines.peek().is_none()) {
            return (events, true);
        }
        let next = sources.iter_mut().enumerate();
        let next = next.filter_map(|(at, source)| Some((source.lines.peek()?.0.at, at))).min();
        let Some((_, at)) = next else { return (events, false) };
        if events.len() == limit || bytes > MOST_BYTES {
            return (events, true);
        }
        let source = &mut sources[at];
        let Some((line, end)) = source.lines.next() else { return (events, false) };
        source.offset = end;
        if pattern.fits(&line.line) {
            bytes += line.line.len();
            let mut shown = event(&line);
            shown["logStreamName"] = json!(source.name);
            // The same whenever the line is told.
            shown["eventId"] = json!(format!("{}-{end}", source.name));
            events.push(shown);
        }
    }
}

fn of_token(token: &str) -> Result<Places, ApiError> {
    let bytes = URL_SAFE_NO_PAD.decode(token).ok();
    let places = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    places.ok_or_else(|| invalid("nextToken is none that was given out"))
}

/// Terms that all have to be in a line, those with a question mark at least one of, those with a minus none.
#[derive(Debug, Default, PartialEq, Eq)]
struct Pattern {
    all: Vec<String>,
    any: Vec<String>,
    none: Vec<String>,
}

impl Pattern {
    fn parse(text: &str) -> Result<Self, ApiError> {
        let text = text.trim();
        if text.starts_with(['{', '[', '%']) {
            return Err(invalid(format!(
                "filterPattern {text:?}: only terms are understood, not JSON, fields or expressions"
            )));
        }
        let mut pattern = Self::default();
        let mut rest = text;
        while !rest.is_empty() {
            let (kind, after) = match rest.as_bytes()[0] {
                b'?' => (&mut pattern.any, &rest[1..]),
                b'-' => (&mut pattern.none, &rest[1..]),
                _ => (&mut pattern.all, rest),
            };
            let (term, after) = match after.strip_prefix('"') {
                Some(quoted) => quoted
                    .split_once('"')
                    .ok_or_else(|| invalid("filterPattern: a quotation mark is missing"))?,
                None => after.split_once(' ').unwrap_or((after, "")),
            };
            kind.push(term.to_owned());
            rest = after.trim_start();
        }
        Ok(pattern)
    }

    fn fits(&self, line: &str) -> bool {
        let has = |term: &String| line.contains(term.as_str());
        self.all.iter().all(has)
            && !self.none.iter().any(has)
            && (self.any.is_empty() || self.any.iter().any(has))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_are_all_any_or_none_of() {
        let fits = |pattern: &str, line: &str| Pattern::parse(pattern).unwrap().fits(line);
        assert!(fits("", "anything") && fits("ERROR", "an ERROR here") && !fits("ERROR", "error"));
        assert!(fits("\"two words\" x", "x two words") && !fits("\"two words\"", "two  words"));
        assert!(fits("?a ?b", "b") && !fits("?a ?b", "c"));
        assert!(fits("a -b", "a") && !fits("a -b", "a b"));
        for refused in ["{ $.x = 1 }", "[a, b]", "%x%", "\"open"] {
            assert!(Pattern::parse(refused).is_err(), "{refused}");
        }
    }
}
