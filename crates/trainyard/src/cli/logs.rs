//! `trainyard logs`: what the instances of a job have written.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep};

use super::remote::{Remote, wait_for};
use super::wait::{has_ended, pause};
use crate::client::Client;
use crate::client::logs::{Line, LogReader};
use crate::exit::{Exit, Refused};
use crate::show::{End, HostNames, remark, screen};

/// Between two looks at the streams.
const PAUSE: Duration = Duration::from_millis(250);
/// At Amazon lines come some seconds after they were written, and fewer looks are allowed.
const PAUSE_AT_AMAZON: Duration = Duration::from_secs(2);
const LATE_AT_AMAZON: Duration = Duration::from_secs(10);

/// Show what the instances of a training job have written
///
/// In order of time, with the instance before each line. On a terminal control characters are made visible; into a
/// pipe lines go as they are.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Logs {
    /// Name or ARN
    job: String,
    /// Go on until the job has ended, and say how
    #[arg(short, long)]
    follow: bool,
    /// Only the lines of this instance, without its name before them
    #[arg(long, value_name = "HOST")]
    instance: Option<String>,
    /// Print each line as a JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    remote: Remote,
}

const EXAMPLES: &str = "Examples:
  trainyard logs fit-1
  trainyard logs fit-1 -f
  trainyard logs fit-1 --instance algo-2 | grep loss
  trainyard logs fit-1 --json | jq -r .message

Ctrl-C ends it; the job goes on.";

impl Logs {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let client = self.remote.client()?;
        let host = self.instance.as_deref();
        wait_for(async {
            if self.follow {
                if let Followed::Ended(end) = follow(&client, &self.job, host, self.json).await? {
                    remark(&end.text());
                }
                return Ok(Exit::Completed);
            }
            let name = known_name(&client, &self.job, host).await?;
            let mut printer = Printer::new(self.json, host.is_none());
            let mut reader = LogReader::new(Arc::clone(&client), &name, host);
            reader.find_streams().await?;
            printer.know(&reader);
            while printer.print(&reader.next().await?)? {}
            Ok(Exit::Completed)
        })
    }
}

/// The job's name as it is spelled, if it has the instance that is asked for.
async fn known_name(client: &Client, job: &str, host: Option<&str>) -> anyhow::Result<String> {
    let described = client.describe(job).await?;
    if let Some(host) = host {
        let count = instances(&described["ResourceConfig"]);

        let number = host.strip_prefix("algo-").and_then(|number| number.parse().ok());
        if number.is_none_or(|number: u64| !(1..=count).contains(&number)) {
            let last = if count == 1 { "only algo-1".to_owned() } else { format!("algo-1 to algo-{count}") };
            return Err(Refused::from(anyhow::anyhow!("{job} has no instance {host}, but {last}")).into());
        }
    }
    Ok(described["TrainingJobName"].as_str().unwrap_or(job).to_owned())
}

/// How many instances a job has, in all its groups.
pub(super) fn instances(resources: &Value) -> u64 {
    let groups = resources["InstanceGroups"].as_array().into_iter().flatten();
    let in_groups: u64 = groups.filter_map(|group| group["InstanceCount"].as_u64()).sum();
    let selected = resources["SelectedInstanceCount"].as_u64();
    selected.or(resources["InstanceCount"].as_u64()).unwrap_or(0).max(in_groups)
}

/// Why lines are followed no longer.
pub(super) enum Followed {
    /// The job has ended.
    Ended(End),
    /// Somebody has pressed Ctrl-C.
    Interrupted,
    /// Nobody reads them any more.
    Unread,
}

/// Prints lines as they come until the job has ended.
pub(super) async fn follow(
    client: &Arc<Client>,
    job: &str,
    host: Option<&str>,
    json: bool,
) -> anyhow::Result<Followed> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        ended = until_ended(client, job, host, json) => ended,
        _ = interrupt.recv() => Ok(Followed::Interrupted),
    }
}

async fn until_ended(
    client: &Arc<Client>,
    job: &str,
    host: Option<&str>,
    json: bool,
) -> anyhow::Result<Followed> {
    let name = known_name(client, job, host).await?;
    let at_amazon = client.place().is_amazon;
    let mut printer = Printer::new(json, host.is_none());
    let mut reader = LogReader::new(Arc::clone(client), &name, host);
    let (mut described, mut looked) = (client.describe(&name).await?, Instant::now());
    loop {
        // What is read after the end was seen is all that there is.
        let ended = has_ended(&described);
        if ended && at_amazon {
            sleep(LATE_AT_AMAZON).await;
        }
        reader.find_streams().await?;
        printer.know(&reader);
        loop {
            let lines = reader.next().await?;
            if lines.is_empty() {
                break;
            }
            if !printer.print(&lines)? {
                return Ok(Followed::Unread);
            }
        }
        if ended {
            return Ok(Followed::Ended(End::of_described(&described)));
        }
        sleep(if at_amazon { PAUSE_AT_AMAZON } else { PAUSE }).await;
        if looked.elapsed() >= pause(client) {
            (described, looked) = (client.describe(&name).await?, Instant::now());
        }
    }
}

/// Writes lines to standard output.
struct Printer {
    json: bool,
    with_names: bool,
    /// Whether somebody's terminal would obey what is in a line.
    to_terminal: bool,
    hosts: HostNames,
}

impl Printer {
    fn new(json: bool, with_names: bool) -> Self {
        Self { json, with_names, to_terminal: io::stdout().is_terminal(), hosts: HostNames::default() }
    }

    fn know(&mut self, reader: &LogReader) {
        reader.hosts().for_each(|host| self.hosts.add(host));
    }

    /// Whether there was something to print and somebody to read it.
    fn print(&self, lines: &[Line]) -> io::Result<bool> {
        let text = lines.iter().fold(String::new(), |mut text, line| {
            self.add(&mut text, line);
            text
        });
        let mut stdout = io::stdout().lock();
        match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
            result => result.map(|()| !lines.is_empty()),
        }
    }

    fn add(&self, text: &mut String, line: &Line) {
        // A String takes everything.
        let _ = if self.json {
            writeln!(text, "{}", serde_json::json!(line))
        } else {
            let message = if self.to_terminal { screen(&line.message) } else { line.message.as_str().into() };
            match self.with_names {
                true => writeln!(text, "{} | {message}", self.hosts.name(line.host())),
                false => writeln!(text, "{message}"),
            }
        };
    }
}
