//! `trainyard list`: the jobs of an endpoint.

use clap::ValueEnum;
use comfy_table::{Table, presets};
use serde_json::{Map, Value, json};

use super::remote::{Remote, wait_for};
use crate::exit::Exit;
use crate::show::{moment, now, out, span};

/// List training jobs, the newest first
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct List {
    /// Only those whose names have TEXT in them
    #[arg(value_name = "TEXT")]
    name_contains: Option<String>,
    /// Only those in this status
    #[arg(long, value_enum, ignore_case = true)]
    status: Option<Status>,
    /// Only those created since then: a span such as 2h, 3d, or a time such as 2026-11-30 or 2026-11-30T08:00Z
    #[arg(long, value_name = "TIME", value_parser = since)]
    since: Option<f64>,
    /// What the list is ordered by
    #[arg(long, value_enum, default_value = "created")]
    sort: Sort,
    /// The other way round: the oldest, or Z, first
    #[arg(short, long)]
    reverse: bool,
    /// List at most N jobs
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50)]
    limit: usize,
    /// List all jobs
    #[arg(long, conflicts_with = "limit")]
    all: bool,
    /// Print each job as a JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    remote: Remote,
}

const EXAMPLES: &str = "Examples:
  trainyard list
  trainyard list digits --status failed --since 1d
  trainyard list --sort name --all
  trainyard list --json | jq -r .TrainingJobName";

/// The API's statuses.
#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "PascalCase")]
enum Status {
    InProgress,
    Completed,
    Failed,
    Stopping,
    Stopped,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Sort {
    Created,
    Name,
    Status,
}

impl List {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let client = self.remote.client()?;
        let limit = if self.all { usize::MAX } else { self.limit };
        wait_for(async {
            let jobs = client.list(self.request(), limit).await?;
            if self.json {
                jobs.iter().try_for_each(|job| out(&job.to_string()))?;
            } else {
                out(&table(&jobs))?;
            }
            Ok(Exit::Completed)
        })
    }

    /// Members of ListTrainingJobs.
    fn request(&self) -> Map<String, Value> {
        let mut request = Map::new();
        let mut add = |member: &str, value: Option<Value>| {
            request.extend(value.map(|value| (member.to_owned(), value)));
        };
        add("NameContains", self.name_contains.as_ref().map(|text| json!(text)));
        let status = self.status.and_then(|status| status.to_possible_value());
        add("StatusEquals", status.map(|status| json!(status.get_name())));
        add("CreationTimeAfter", self.since.map(|seconds| json!(seconds)));
        let (by, newest_first) = match self.sort {
            Sort::Created => ("CreationTime", true),
            Sort::Name => ("Name", false),
            Sort::Status => ("Status", false),
        };
        add("SortBy", Some(json!(by)));
        add("SortOrder", Some(json!(if newest_first == self.reverse { "Ascending" } else { "Descending" })));
        request
    }
}

fn table(jobs: &[Value]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["NAME", "STATUS", "SECONDARY", "CREATED", "TIME"]);
    for job in jobs {
        let text = |member: &str| job[member].as_str().unwrap_or("-").to_owned();
        let end = job["TrainingEndTime"].as_f64().unwrap_or_else(now);
        let taken = job["CreationTime"].as_f64().map_or_else(|| "-".to_owned(), |start| span(end - start));
        let (status, secondary) = (text("TrainingJobStatus"), text("SecondaryStatus"));
        table.add_row([text("TrainingJobName"), status, secondary, moment(&job["CreationTime"]), taken]);
    }
    table.trim_fmt()
}

/// A time span before now, or a time; without a zone it is UTC.
fn since(text: &str) -> Result<f64, String> {
    let wrong = || {
        format!(
            "{text:?} is no span such as 90m, 2h or 3d and no time such as 2026-11-30 or 2026-11-30T08:00Z"
        )
    };
    let units = [('s', 1.0), ('m', 60.0), ('h', 3_600.0), ('d', 86_400.0), ('w', 604_800.0)];
    for (unit, seconds) in units {
        if let Some(count) = text.strip_suffix(unit).and_then(|count| count.parse::<u32>().ok()) {
            return Ok(now() - f64::from(count) * seconds);
        }
    }
    if let Ok(at) = text.parse::<jiff::Timestamp>() {
        return Ok(at.as_duration().as_secs_f64());
    }
    let civil: jiff::civil::DateTime = text.trim_end_matches('Z').parse().map_err(|_| wrong())?;
    let at = jiff::tz::Offset::UTC.to_timestamp(civil).map_err(|_| wrong())?;
    Ok(at.as_duration().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_span_before_now_or_a_moment_of_utc() {
        assert!((now() - 7_200.0 - since("2h").unwrap()).abs() < 5.0);
        for (text, seconds) in [
            ("2015-08-30T12:36:00Z", 1_440_938_160.0),
            ("2015-08-30T14:36:00+02:00", 1_440_938_160.0),
            ("2015-08-30T12:36", 1_440_938_160.0),
            ("2015-08-30T12:36Z", 1_440_938_160.0),
            ("2015-08-30", 1_440_892_800.0),
        ] {
            assert_eq!(since(text), Ok(seconds), "{text}");
        }
        for wrong in ["", "h", "-2h", "yesterday", "2h30"] {
            assert!(since(wrong).unwrap_err().contains("90m"), "{wrong}");
        }
    }
}
