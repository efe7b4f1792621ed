//! `trainyard plan`: what each instance would get, without starting anything.

use std::path::PathBuf;

use clap::ValueHint;
use comfy_table::{CellAlignment, Table, presets};
use indicatif::HumanBytes;
use serde::Serialize;
use trainyard_engine::backend::Backend;
use trainyard_engine::backend::local::LocalBackend;
use trainyard_engine::plan::JobPlan;
use trainyard_engine::prepare::{check, plan_checked};
use trainyard_toolkit::split::row_range;

use crate::config::{Config, Flags};
use crate::exit::{Exit, Refused};
use crate::job_file;
use crate::machine::machine;
use crate::show::{Form, fetching};

/// Show what each instance of a job would get, without starting anything
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  trainyard plan job.json\n  trainyard plan job.json --rows 1000000 --json"
)]
pub(super) struct Plan {
    /// The job file, or - for standard input
    #[arg(value_hint = ValueHint::FilePath)]
    job: PathBuf,
    #[command(flatten)]
    flags: Flags,
    /// Show the row range of each instance for a matrix of N rows
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=i64::MAX as u64))]
    rows: Option<u64>,
    /// Print the plan as one JSON object
    #[arg(long)]
    json: bool,
}

impl Plan {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let config = Config::read(&self.flags)?;
        let request = job_file::read(&self.job)?;
        let machine = machine(&config, None)?;
        let backend = LocalBackend::new(machine.program.clone());
        let capabilities = backend.capabilities();
        let form = Form::choose(self.json);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let prepared = runtime.block_on(async {
            let checked = check(request, &machine, &capabilities).await?;
            plan_checked(checked, &machine, fetching::show(form)).await
        });
        let prepared = prepared.map_err(anyhow::Error::new).map_err(Refused::from)?;
        let summary = Summary::of(&prepared.submission.plan, self.rows);
        if self.json {
            crate::show::out(&serde_json::to_string(&summary)?)?;
        } else {
            crate::show::out(&summary.text())?;
        }
        Ok(Exit::Completed)
    }
}

/// A plan as people and programs want to see it.
#[derive(Debug, Serialize)]
struct Summary {
    job: String,
    instances: Vec<InstanceRow>,
    channels: Vec<ChannelTotal>,
    output: String,
    warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
struct InstanceRow {
    host: String,
    channels: Vec<Share>,
    /// First row and the one after the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    rows: Option<(u64, u64)>,
}

#[derive(Debug, Serialize)]
struct Share {
    channel: String,
    objects: u64,
    bytes: u64,
}

/// A channel over all instances.
#[derive(Debug, Serialize)]
struct ChannelTotal {
    channel: String,
    /// Summed over the instances: what is replicated counts once for each.
    objects: u64,
    bytes: u64,
    /// The most bytes of an instance, divided by the mean; 1 is even.
    skew: f64,
}

impl Summary {
    fn of(plan: &JobPlan, rows: Option<u64>) -> Self {
        let world_size = plan.instances.len();
        let numbered = plan.instances.iter().enumerate();
        let instances = numbered.map(|(rank, instance)| InstanceRow {
            host: instance.host.clone(),
            channels: instance.channels.iter().map(Share::of).collect(),
            rows: rows.map(|rows| row_range(rank, world_size, rows)).map(|range| (range.start, range.end)),
        });
        let instances: Vec<_> = instances.collect();
        // Not every instance has every channel.
        let mut names: Vec<&String> = Vec::new();
        for channel in plan.instances.iter().flat_map(|instance| &instance.channels) {
            if !names.contains(&&channel.name) {
                names.push(&channel.name);
            }
        }
        let channels = names.into_iter().map(|name| {
            let shares = instances.iter().flat_map(|row| &row.channels);
            ChannelTotal::of(name, shares.filter(|share| share.channel == *name))
        });
        Self {
            job: plan.job.clone(),
            channels: channels.collect(),
            instances,
            output: plan.output.uri.clone(),
            warnings: plan.warnings.clone(),
        }
    }

    fn text(&self) -> String {
        let mut text = format!("{}\n{}\n", self.table(), self.totals());
        text.push_str(&["output: ", &self.output].concat());
        for warning in &self.warnings {
            text.push_str(&["\nwarning: ", warning].concat());
        }
        text
    }

    fn table(&self) -> Table {
        let with_rows = self.instances.iter().any(|instance| instance.rows.is_some());
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        let mut header = vec!["INSTANCE", "CHANNEL", "OBJECTS", "BYTES"];
        header.extend(with_rows.then_some("ROWS"));
        table.set_header(header);
        for instance in &self.instances {
            for row in instance.cells() {
                table.add_row(row);
            }
        }
        for column in 2..4 {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table
    }

    fn totals(&self) -> String {
        let line = |total: &ChannelTotal| {
            let (name, objects, bytes) = (&total.channel, total.objects, HumanBytes(total.bytes));
            format!("total {name}: {objects} objects, {bytes}, skew {:.2}\n", total.skew)
        };
        self.channels.iter().map(line).collect()
    }
}

impl InstanceRow {
    /// One line for each channel, or one for an instance without any.
    fn cells(&self) -> Vec<Vec<String>> {
        let rows = self.rows.map(|(start, end)| format!("{start}..{end}"));
        let line = |channel: &str, objects: String, bytes: String| {
            let mut cells = vec![self.host.clone(), channel.to_owned(), objects, bytes];
            cells.extend(rows.clone());
            cells
        };
        if self.channels.is_empty() {
            return vec![line("-", "0".to_owned(), "0".to_owned())];
        }
        let shares = self.channels.iter();
        shares
            .map(|share| line(&share.channel, share.objects.to_string(), HumanBytes(share.bytes).to_string()))
            .collect()
    }
}

impl Share {
    fn of(channel: &trainyard_engine::plan::ChannelPlan) -> Self {
        Self { channel: channel.name.clone(), objects: channel.entries() as u64, bytes: channel.size() }
    }
}

impl ChannelTotal {
    fn of<'a>(channel: &str, shares: impl Iterator<Item = &'a Share> + Clone) -> Self {
        let count = shares.clone().count();
        let bytes: u64 = shares.clone().map(|share| share.bytes).sum();
        let most = shares.clone().map(|share| share.bytes).max().unwrap_or(0);
        let mean = bytes as f64 / count.max(1) as f64;
        let skew = if bytes == 0 { 1.0 } else { most as f64 / mean };
        Self { channel: channel.to_owned(), objects: shares.map(|share| share.objects).sum(), bytes, skew }
    }
}
