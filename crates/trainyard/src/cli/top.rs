//! `trainyard top`: the jobs that run, their instances and what those are doing.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::remote::{Remote, wait_for};
use crate::client::Client;
use crate::exit::{Exit, one_line};
use crate::show::{now, out};

mod view;

use view::{InstanceRow, JobRow, Screen};

/// Show the jobs that run, their instances and what those take and wrote last
///
/// The table is renewed in place. Into a pipe each look is a table of its own. Of the processors 100 % is one of them.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Top {
    /// Only those whose names have TEXT in them
    #[arg(value_name = "TEXT")]
    name_contains: Option<String>,
    /// Seconds between two looks
    #[arg(short, long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..))]
    interval: u64,
    /// Look once
    #[arg(long)]
    once: bool,
    /// Show at most N jobs
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    limit: usize,
    /// Print each job of each look as a JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    remote: Remote,
}

const EXAMPLES: &str = "Examples:
  trainyard top
  trainyard top digits --interval 5
  trainyard top --once --json | jq .Instances

Ctrl-C ends it.";

impl Top {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let client = self.remote.client()?;
        wait_for(async {
            let mut interrupt = signal(SignalKind::interrupt())?;
            tokio::select! {
                shown = self.show(&client) => shown?,
                _ = interrupt.recv() => {}
            }
            Ok(Exit::Completed)
        })
    }

    async fn show(&self, client: &Arc<Client>) -> anyhow::Result<()> {
        let mut screen = (io::stdout().is_terminal() && !self.json).then(Screen::new);
        loop {
            let jobs = self.look(client).await?;
            match &mut screen {
                Some(screen) => screen.renew(&jobs)?,
                None if self.json => jobs.iter().try_for_each(|job| out(&job.as_json().to_string()))?,
                None => out(&view::table(&jobs).join("\n"))?,
            }
            if self.once {
                return Ok(());
            }
            sleep(Duration::from_secs(self.interval)).await;
        }
    }

    /// What there is to see now.
    async fn look(&self, client: &Arc<Client>) -> anyhow::Result<Vec<JobRow>> {
        let mut names = Vec::new();
        for status in ["InProgress", "Stopping"] {
            let mut request = Map::new();
            request.insert("StatusEquals".to_owned(), json!(status));
            request.insert("SortBy".to_owned(), json!("CreationTime"));
            request.insert("SortOrder".to_owned(), json!("Descending"));
            request.extend(self.name_contains.as_ref().map(|text| ("NameContains".to_owned(), json!(text))));
            let listed = client.list(request, self.limit.saturating_sub(names.len())).await?;
            names.extend(
                listed.iter().filter_map(|job| job["TrainingJobName"].as_str().map(ToOwned::to_owned)),
            );
        }
        let mut looking = JoinSet::new();
        for (place, name) in names.into_iter().enumerate() {
            let client = Arc::clone(client);
            looking.spawn(async move { Ok::<_, anyhow::Error>((place, look_at(&client, &name).await?)) });
        }
        let rows: anyhow::Result<Vec<_>> = looking.join_all().await.into_iter().collect();
        let mut rows = rows?;
        rows.sort_by_key(|(place, _)| *place);
        let mut rows: Vec<_> = rows.into_iter().filter_map(|(_, row)| row).collect();
        add_usage(client, &mut rows).await;
        Ok(rows)
    }
}

/// One job and its instances; none if it has been deleted meanwhile.
async fn look_at(client: &Arc<Client>, name: &str) -> anyhow::Result<Option<JobRow>> {
    let described = match client.describe(name).await {
        Err(error) if error.is::<crate::client::jobs::UnknownJob>() => return Ok(None),
        described => described?,
    };
    let mut lines = client.last_lines(name).await?;
    let count = super::logs::instances(&described["ResourceConfig"]);
    let instances = (1..=count).map(|number| {
        let host = format!("algo-{number}");
        let line = lines.remove(&host);
        InstanceRow { host, line, ..InstanceRow::default() }
    });
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let last = described["SecondaryStatusTransitions"].as_array().and_then(|all| all.last());
    Ok(Some(JobRow {
        name: text(&described["TrainingJobName"]),
        status: text(&described["SecondaryStatus"]),
        message: last.map(|last| text(&last["StatusMessage"])).unwrap_or_default(),
        seconds: described["CreationTime"].as_f64().map_or(0.0, |start| now() - start),
        instances: instances.collect(),
    }))
}

/// Adds what instances take. An endpoint that does not measure it shows all the rest.
async fn add_usage(client: &Client, jobs: &mut [JobRow]) {
    let instances = jobs.iter().flat_map(|job| job.instances.iter().map(|instance| job.path_of(instance)));
    let instances: Vec<_> = instances.collect();
    if instances.is_empty() {
        return;
    }
    match client.usage(&instances, now()).await {
        Ok(mut usage) => {
            for job in jobs {
                for at in 0..job.instances.len() {
                    let path = job.path_of(&job.instances[at]);
                    job.instances[at].usage = usage.remove(&path).unwrap_or_default();
                }
            }
        }
        Err(error) => {
            let trouble = one_line(&error.into());
            jobs.iter_mut().for_each(|job| job.message = format!("{} (no metrics: {trouble})", job.message));
        }
    }
}
