//! All lines of a job's instances from CloudWatch Logs, in order of time.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::task::JoinSet;

use super::{CallError, Client, Operation};

/// The group of all training jobs' streams.
pub(super) const GROUP: &str = "/aws/sagemaker/TrainingJobs";

/// One line of one instance, as FilterLogEvents has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Line {
    pub(crate) log_stream_name: String,
    /// In milliseconds since 1970.
    pub(crate) timestamp: i64,
    pub(crate) message: String,
}

impl Line {
    /// The instance: of `<job>/<host>-<seconds>` the part in the middle.
    pub(crate) fn host(&self) -> &str {
        host_of(&self.log_stream_name)
    }
}

pub(super) fn host_of(stream: &str) -> &str {
    let instance = stream.rsplit('/').next().unwrap_or(stream);
    instance.rsplit_once('-').map_or(instance, |(host, _)| host)
}

#[derive(Deserialize)]
struct Event {
    timestamp: i64,
    message: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    events: Vec<Event>,
    next_forward_token: String,
}

/// One stream, read as far as its token.
#[derive(Debug)]
struct Cursor {
    stream: String,
    token: Option<String>,
    lines: VecDeque<Line>,
    /// Whether there was nothing more when it was read last.
    is_dry: bool,
}

impl Cursor {
    fn new(stream: &str) -> Self {
        Self { stream: stream.to_owned(), token: None, lines: VecDeque::new(), is_dry: false }
    }

    async fn read_on(mut self, client: &Client) -> Result<Self, CallError> {
        let mut input = json!({
            "logGroupName": GROUP, "logStreamName": &self.stream, "startFromHead": true,
        });
        if let Some(token) = &self.token {
            input["nextToken"] = json!(token);
        }
        let page: Page = client.read(Operation::logs("GetLogEvents"), &input).await?;
        let events = page.events.into_iter();
        self.lines.extend(events.map(|event| Line {
            log_stream_name: self.stream.clone(),
            timestamp: event.timestamp,
            message: event.message,
        }));
        // A page may be empty in the middle; the token stays the same only at the end.
        self.is_dry = self.token.as_deref() == Some(page.next_forward_token.as_str());
        self.token = Some(page.next_forward_token);
        Ok(self)
    }
}

/// The lines of a job.
#[derive(Debug)]
pub(crate) struct LogReader {
    client: Arc<Client>,
    job: String,
    /// Only of this one.
    host: Option<String>,
    cursors: Vec<Cursor>,
}

impl LogReader {
    pub(crate) fn new(client: Arc<Client>, job: &str, host: Option<&str>) -> Self {
        Self { client, job: job.to_owned(), host: host.map(ToOwned::to_owned), cursors: Vec::new() }
    }

    /// Looks for streams that are new: of instances that have just begun, or of a later attempt.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub(crate) async fn find_streams(&mut self) -> Result<(), CallError> {
        let prefix =
            format!("{}/{}", self.job, self.host.as_ref().map_or(String::new(), |host| format!("{host}-")));
        let mut input = json!({"logGroupName": GROUP, "logStreamNamePrefix": prefix});
        loop {
            let answer = match self.client.call(Operation::logs("DescribeLogStreams"), &input).await {
                // The group is there with the first stream.
                Err(error) if error.code() == Some("ResourceNotFoundException") => return Ok(()),
                answer => answer?,
            };
            for stream in answer["logStreams"].as_array().into_iter().flatten() {
                let name = stream["logStreamName"].as_str().unwrap_or_default();
                // `algo-1-` is also the beginning of what is none of its streams.
                let is_wanted = self.host.as_deref().is_none_or(|host| host_of(name) == host);
                if is_wanted && !self.cursors.iter().any(|cursor| cursor.stream == name) {
                    self.cursors.push(Cursor::new(name));
                }
            }
            match answer["nextToken"].as_str() {
                Some(token) => input["nextToken"] = json!(token),
                None => return Ok(()),
            }
        }
    }

    /// The hosts that have streams.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = &str> {
        self.cursors.iter().map(|cursor| host_of(&cursor.stream))
    }

    /// The next lines in order of time; none if there are no more now.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub(crate) async fn next(&mut self) -> Result<Vec<Line>, CallError> {
        self.cursors.iter_mut().for_each(|cursor| cursor.is_dry = false);
        loop {
            self.fill().await?;
            let lines = take_ordered(&mut self.cursors);
            if !lines.is_empty() || self.cursors.iter().all(|cursor| cursor.is_dry) {
                return Ok(lines);
            }
        }
    }

    /// Reads on in all streams of which no line is left.
    async fn fill(&mut self) -> Result<(), CallError> {
        let (empty, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut self.cursors)
            .into_iter()
            .partition(|cursor| cursor.lines.is_empty() && !cursor.is_dry);
        self.cursors = kept;
        let mut reading = JoinSet::new();
        for cursor in empty {
            let client = Arc::clone(&self.client);
            reading.spawn(async move { cursor.read_on(&client).await });
        }
        for read in reading.join_all().await {
            self.cursors.push(read?);
        }
        self.cursors.sort_by(|a, b| a.stream.cmp(&b.stream));
        Ok(())
    }
}

/// Lines in order of time (those of one time in order of their streams), up to where a stream has to be read on first.
fn take_ordered(cursors: &mut [Cursor]) -> Vec<Line> {
    let mut taken = Vec::new();
    loop {
        if cursors.iter().any(|cursor| cursor.lines.is_empty() && !cursor.is_dry) {
            return taken;
        }
        let first = cursors.iter_mut().filter(|cursor| !cursor.lines.is_empty());
        let first = first.min_by_key(|cursor| cursor.lines.front().map(|line| line.timestamp));
        match first.and_then(|cursor| cursor.lines.pop_front()) {
            Some(line) => taken.push(line),
            None => return taken,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cursor(host: &str, times: &[i64], is_dry: bool) -> Cursor {
        let mut cursor = Cursor::new(&format!("job/{host}-17"));
        let stream = cursor.stream.clone();
        let line =
            |at: &i64| Line { log_stream_name: stream.clone(), timestamp: *at, message: at.to_string() };
        cursor.lines = times.iter().map(line).collect();
        cursor.is_dry = is_dry;
        cursor
    }

    fn texts(lines: &[Line]) -> Vec<String> {
        lines.iter().map(|line| format!("{} {}", line.host(), line.message)).collect()
    }

    #[test]
    fn lines_come_in_order_of_time_and_wait_for_what_may_still_come() {
        let mut cursors = [cursor("algo-1", &[1, 4, 4], false), cursor("algo-10", &[2, 4], false)];
        let taken = take_ordered(&mut cursors);
        assert_eq!(texts(&taken), ["algo-1 1", "algo-10 2", "algo-1 4", "algo-1 4"]);
        // Whoever may have earlier lines is read on before the others go on.
        assert_eq!(take_ordered(&mut cursors), []);
        cursors[0].is_dry = true;
        assert_eq!(texts(&take_ordered(&mut cursors)), ["algo-10 4"]);
    }

    #[test]
    fn a_streams_name_tells_its_host() {
        assert_eq!(host_of("my-job-1/algo-12-1700000000"), "algo-12");
        assert_eq!(host_of("strange"), "strange");
    }
}
