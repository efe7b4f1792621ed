//! Built-in workloads, as the `train` of an instance.

use std::path::PathBuf;

use trainyard_allpairs::{TrainReport, train_here};

use super::stopping::{Pace, stop_on_signals};
use crate::exit::Exit;
use crate::show::out;

/// Cosine similarity between all rows of the channel `matrix`; run inside an instance
#[derive(Debug, clap::Args)]
pub(super) struct Allpairs {
    /// Where the contract's tree is
    #[arg(long, default_value = trainyard_toolkit::contract::ROOT)]
    root: PathBuf,
}

impl Default for Allpairs {
    fn default() -> Self {
        Self { root: trainyard_toolkit::contract::ROOT.into() }
    }
}

impl Allpairs {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let stop = stop_on_signals()?;
        let pace = Pace::in_a_job();
        let report = train_here(&self.root, &stop, &|progress| pace.show(progress), &|text| pace.note(text))?;
        out(&summary(&report))?;
        Ok(Exit::Completed)
    }
}

/// What was done, for the log; the report file beside the part has it all.
fn summary(report: &TrainReport) -> String {
    let rows = format!("rows {}..{}", report.first_row, report.first_row + report.rows);
    let matrix = format!("{} x {}", report.matrix_rows, report.matrix_columns);
    let mut text = format!("{rows} of {matrix}: {} pairs in {:.2} s", report.pairs, report.seconds);
    if report.zero_rows.count > 0 {
        text = format!(
            "{text}\nwarning: {} rows are zero and score 0 with every row; the first are {:?}",
            report.zero_rows.count, report.zero_rows.first
        );
    }
    text
}
