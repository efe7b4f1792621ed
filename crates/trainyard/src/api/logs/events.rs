//! GetLogEvents: one stream, page by page, forwards and backwards.
//!
//! A page's place is an offset in the file of the lines, which only grows; so tokens stay right for ever and
//! the order of lines never changes.

use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use fs_err as fs;
use serde::Deserialize;
use serde_json::{Value, json};
use trainyard_engine::engine::Jobs;
use trainyard_engine::run::{LogLine, Timestamp};

use super::{Stream, group_name, invalid, known_group, stream};
use crate::api::answer::{ApiError, ApiResult};

/// Of a page, in events and in bytes (CloudWatch Logs API reference, GetLogEvents).
pub(super) const MOST_EVENTS: usize = 10_000;
pub(super) const MOST_BYTES: usize = 1 << 20;
/// Read at once where a file is read backwards.
const PIECE: u64 = 256 << 10;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GetLogEvents {
    log_group_name: Option<String>,
    log_group_identifier: Option<String>,
    log_stream_name: String,
    start_time: Option<u64>,
    end_time: Option<u64>,
    next_token: Option<String>,
    limit: Option<usize>,
    #[serde(default)]
    start_from_head: bool,
}

/// Where a page begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// The lines from this offset on.
    Forward(u64),
    /// The lines before this offset.
    Backward(u64),
}

impl Place {
    fn parse(token: &str) -> Option<Self> {
        let (direction, rest) = token.split_once('/')?;
        let offset = rest.strip_suffix("/s")?.parse().ok()?;
        match direction {
            "f" => Some(Self::Forward(offset)),
            "b" => Some(Self::Backward(offset)),
            _ => None,
        }
    }

    fn token(self) -> String {
        match self {
            Self::Forward(offset) => format!("f/{offset:020}/s"),
            Self::Backward(offset) => format!("b/{offset:020}/s"),
        }
    }
}

pub(super) fn get(jobs: &Jobs, input: &GetLogEvents) -> ApiResult {
    known_group(jobs, group_name(input.log_group_name.as_deref(), input.log_group_identifier.as_deref())?)?;
    let limit = input.limit.unwrap_or(MOST_EVENTS);
    if !(1..=MOST_EVENTS).contains(&limit) {
        return Err(invalid(format!("limit is {limit}; it is 1 to {MOST_EVENTS}")));
    }
    let Stream { log, .. } = stream(jobs, &input.log_stream_name)?;
    let place = match &input.next_token {
        Some(token) => Place::parse(token).ok_or_else(|| invalid("nextToken is none that was given out"))?,
        None if input.start_from_head => Place::Forward(0),
        None => Place::Backward(u64::MAX),
    };
    let wanted = |at: Timestamp| {
        input.start_time.is_none_or(|start| at.0 >= start) && input.end_time.is_none_or(|end| at.0 < end)
    };
    let page = read(&log, place, limit, wanted).map_err(|error| ApiError::internal(error.to_string()))?;
    let events: Vec<_> = page.lines.iter().map(event).collect();
    Ok(json!({
        "events": events,
        "nextForwardToken": Place::Forward(page.end).token(),
        "nextBackwardToken": Place::Backward(page.start).token(),
    }))
}

/// A line as the API has it. A message has at least one character.
pub(super) fn event(line: &LogLine) -> Value {
    let message = if line.line.is_empty() { " " } else { line.line.as_str() };
    json!({"timestamp": line.at.0, "message": message, "ingestionTime": line.at.0})
}

/// Lines of a file and where they are.
#[derive(Default)]
pub(super) struct Page {
    pub(super) lines: Vec<LogLine>,
    /// Where each of them ends, where the page was read forwards.
    pub(super) ends: Vec<u64>,
    start: u64,
    pub(super) end: u64,
    /// Whether a limit has ended it.
    pub(super) cut: bool,
}

fn read(log: &Path, place: Place, limit: usize, wanted: impl Fn(Timestamp) -> bool) -> io::Result<Page> {
    match place {
        Place::Forward(from) => forward(log, from, limit, wanted),
        Place::Backward(before) => backward(log, before, limit, wanted),
    }
}

/// Lines from an offset on, up to the limits of a page; a line whose end is not there yet comes next time.
pub(super) fn forward(
    log: &Path,
    from: u64,
    limit: usize,
    wanted: impl Fn(Timestamp) -> bool,
) -> io::Result<Page> {
    let mut page = Page { start: from, end: from, ..Page::default() };
    let mut file = match fs::File::open(log) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(page),
        file => file?,
    };
    file.seek(SeekFrom::Start(from))?;
    let mut reader = BufReader::with_capacity(128 << 10, file);
    let (mut text, mut bytes) = (Vec::new(), 0);
    loop {
        text.clear();
        let read = reader.read_until(b'\n', &mut text)?;
        if text.last() != Some(&b'\n') {
            return Ok(page);
        }
        if page.lines.len() == limit {
            page.cut = true;
            return Ok(page);
        }
        // What a killed supervisor has left is no line.
        if let Ok(line) = serde_json::from_slice::<LogLine>(&text)
            && wanted(line.at)
        {
            bytes += line.line.len();
            if bytes > MOST_BYTES && !page.lines.is_empty() {
                page.cut = true;
                return Ok(page);
            }
            page.lines.push(line);
            page.ends.push(page.end + read as u64);
        }
        page.end += read as u64;
    }
}

/// The last lines before an offset, up to the limits of a page.
fn backward(log: &Path, before: u64, limit: usize, wanted: impl Fn(Timestamp) -> bool) -> io::Result<Page> {
    let mut file = match fs::File::open(log) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(Page::default());
        }
        file => file?,
    };
    let mut end = before.min(file.metadata()?.len());
    if before > end {
        end = last_line_end(&mut file, end)?;
    }
    let mut page = Page { start: end, end, ..Page::default() };
    let mut bytes = 0;
    // The beginning of a line whose end is known.
    let mut rest: Vec<u8> = Vec::new();
    let mut at = end;
    while at > 0 && page.lines.len() < limit {
        let from = at.saturating_sub(PIECE);
        let mut piece = vec![0; (at - from) as usize];
        file.seek(SeekFrom::Start(from))?;
        file.read_exact(&mut piece)?;
        piece.extend_from_slice(&rest);
        let first = if from == 0 {
            0
        } else {
            piece.iter().position(|&byte| byte == b'\n').map_or(piece.len(), |at| at + 1)
        };
        let (head, lines) = piece.split_at(first);
        for text in lines.split_inclusive(|&byte| byte == b'\n').rev() {
            let line = serde_json::from_slice::<LogLine>(text).ok().filter(|line| wanted(line.at));
            let length = line.as_ref().map_or(0, |line| line.line.len());
            let full = page.lines.len() == limit || (bytes + length > MOST_BYTES && !page.lines.is_empty());
            if full {
                page.lines.reverse();
                return Ok(page);
            }
            bytes += length;
            page.lines.extend(line);
            page.start -= text.len() as u64;
        }
        rest = head.to_vec();
        at = from;
    }
    page.lines.reverse();
    Ok(page)
}

/// Where the last whole line ends.
fn last_line_end(file: &mut fs::File, length: u64) -> io::Result<u64> {
    let mut at = length;
    while at > 0 {
        let from = at.saturating_sub(PIECE);
        let mut piece = vec![0; (at - from) as usize];
        file.seek(SeekFrom::Start(from))?;
        file.read_exact(&mut piece)?;
        if let Some(last) = piece.iter().rposition(|&byte| byte == b'\n') {
            return Ok(from + last as u64 + 1);
        }
        at = from;
    }
    Ok(0)
}

/// The times of the first and the last line.
pub(super) struct Span {
    pub(super) first: Option<Timestamp>,
    pub(super) last: Option<Timestamp>,
}

impl Span {
    /// Of a file; one that can't be read has none.
    pub(super) fn of(log: &Path) -> Self {
        let at = |page: io::Result<Page>| page.ok().and_then(|page| Some(page.lines.first()?.at));
        Self { first: at(forward(log, 0, 1, |_| true)), last: at(backward(log, u64::MAX, 1, |_| true)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use trainyard_engine::run::{Appender, Stream as Of};

    fn log(folder: &tempfile::TempDir, lines: &[String]) -> std::path::PathBuf {
        let path = folder.path().join("log");
        let lines: Vec<_> = (0..)
            .zip(lines)
            .map(|(at, line)| LogLine { at: Timestamp(at), stream: Of::Stdout, line: line.clone() })
            .collect();
        Appender::open(&path).unwrap().append_all(&lines).unwrap();
        path
    }

    fn texts(page: &Page) -> Vec<String> {
        page.lines.iter().map(|line| line.line.clone()).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn pages_in_either_direction_are_all_lines_in_order(
            lines in prop::collection::vec("[a-z]{0,20}", 0..40),
            limit in 1_usize..9,
            long in any::<bool>(),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let mut lines = lines;
            if long {
                lines.push("x".repeat(700_000));
            }
            let path = log(&folder, &lines);
            let (mut forwards, mut at) = (Vec::new(), 0);
            loop {
                let page = forward(&path, at, limit, |_| true).unwrap();
                if page.lines.is_empty() {
                    break;
                }
                at = page.end;
                forwards.extend(texts(&page));
            }
            prop_assert_eq!(&forwards, &lines);
            let (mut backwards, mut at) = (Vec::new(), u64::MAX);
            loop {
                let page = backward(&path, at, limit, |_| true).unwrap();
                if page.lines.is_empty() {
                    break;
                }
                at = page.start;
                backwards.splice(0..0, texts(&page));
            }
            prop_assert_eq!(&backwards, &lines);
        }
    }

    #[test]
    fn a_line_without_its_end_comes_when_it_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = log(&folder, &["one".into()]);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, [whole.as_slice(), &whole[..10]].concat()).unwrap();
        let page = forward(&path, 0, 9, |_| true).unwrap();
        assert_eq!((texts(&page), page.end), (vec!["one".to_owned()], whole.len() as u64));
        assert_eq!(texts(&backward(&path, u64::MAX, 9, |_| true).unwrap()), ["one"]);
        fs::write(&path, [whole.as_slice(), &whole].concat()).unwrap();
        assert_eq!(texts(&forward(&path, page.end, 9, |_| true).unwrap()), ["one"]);
    }

    #[test]
    fn tokens_are_read_as_they_were_written() {
        for place in [Place::Forward(0), Place::Backward(u64::MAX), Place::Forward(17)] {
            assert_eq!(Place::parse(&place.token()), Some(place));
        }
        for wrong in ["", "f/1", "x/1/s", "f/-1/s", "f//s"] {
            assert_eq!(Place::parse(wrong), None);
        }
    }
}
