//! `trainyard merge`: the parts of an archive as one file.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueHint;
use indicatif::{HumanBytes, HumanCount, ProgressBar};
use trainyard_merge::{MergeError, MergeOptions, MergeReport, Order, Progress, merge};

use crate::exit::{Exit, Refused};
use crate::show::out;

/// Join the parts in a model archive into one file
///
/// The parts are taken out in a stream and written one after the other, in the order of their hosts or
/// of a column. Parts that do not fit together are named.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Merge {
    /// model.tar.gz, a plain tar, or a folder of parts
    #[arg(value_hint = ValueHint::FilePath)]
    archive: PathBuf,
    /// The file to write; its ending decides the format: .parquet, .csv, .jsonl, .arrow, .npy or .npz
    #[arg(short, long, value_hint = ValueHint::FilePath)]
    output: PathBuf,
    /// Only join entries that fit this pattern [default: all with a known ending]
    #[arg(long, value_name = "PATTERN")]
    glob: Option<String>,
    /// Order the rows by this column instead of by host
    #[arg(long, value_name = "COLUMN")]
    order_by: Option<String>,
    /// Print what was merged as one JSON object
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:
  trainyard merge model.tar.gz -o neighbours.parquet --glob 'part-*.parquet'
  trainyard merge model.tar.gz -o words.csv --order-by file";

impl Merge {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let order = self.order_by.map_or(Order::Host, Order::Column);
        let options = MergeOptions { glob: self.glob, order, ..MergeOptions::default() };
        // Hidden by itself where standard error is not a terminal.
        let bar = ProgressBar::new_spinner();
        bar.enable_steady_tick(Duration::from_millis(100));
        let merged =
            merge(&self.archive, &self.output, &options, &|progress| bar.set_message(describe(progress)));
        bar.finish_and_clear();
        let report = merged.map_err(refusal)?;
        if self.json {
            out(&serde_json::to_string(&report)?)?;
        } else {
            out(&summary(&report))?;
        }
        Ok(Exit::Completed)
    }
}

/// What the caller asked for is told apart from what went wrong on the way.
fn refusal(error: MergeError) -> anyhow::Error {
    match error {
        MergeError::OutputFormat { .. } | MergeError::Glob { .. } => {
            Refused::from(anyhow::Error::new(error)).into()
        }
        other => other.into(),
    }
}

fn describe(progress: Progress) -> String {
    match progress {
        Progress::Taken { parts, bytes } => format!("{parts} parts taken out, {}", HumanBytes(bytes)),
        Progress::Joined { parts, rows } => format!("{parts} parts joined, {} rows", HumanCount(rows)),
    }
}

fn summary(report: &MergeReport) -> String {
    let (rows, bytes) = (HumanCount(report.rows), HumanBytes(report.bytes));
    let mut lines = vec![format!("merged {} parts: {rows} rows, {bytes}", report.parts)];
    lines.extend(report.warnings.iter().map(|warning| format!("warning: {warning}")));
    lines.join("\n")
}
