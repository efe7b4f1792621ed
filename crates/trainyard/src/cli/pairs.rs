//! `trainyard pairs`: the rows of a matrix that are most alike, without a job.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use clap::ValueHint;
use indicatif::HumanCount;
use trainyard_allpairs::{
    Checkpoints, PairFormat, PairsInput, Settings, TrainError, TrainReport, Wanted, pairs,
};

use super::show_pairs::ShowPairs;
use super::stopping::{Pace, stop_on_signals};
use crate::exit::{Exit, Refused};
use crate::show::out;

/// Find the rows of a matrix that are most alike, by cosine similarity, exactly
///
/// MATRIX is a file or a folder of files: .npy, .npz (SciPy's CSR), .parquet, .arrow, .feather, .csv, .tsv,
/// .safetensors, .fvecs, .bvecs or .ivecs; the files of a folder are one matrix in the order of their names. The
/// result has the columns row, col and similarity, sorted by row and rank; a report lies beside it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(super) struct Pairs {
    #[command(subcommand)]
    command: Option<PairsCommand>,
    /// The matrix: a file, or a folder of files
    #[arg(required = true, value_hint = ValueHint::AnyPath)]
    matrix: Option<PathBuf>,
    /// The file to write; .parquet, .csv, .arrow or .npz, and .npy with --full [default: <MATRIX>-pairs.parquet here]
    #[arg(short, long, value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
    /// Find at most so many neighbours of each row [default: 10, unless there is a threshold]
    #[arg(short = 'k', long, value_name = "N")]
    top_k: Option<String>,
    /// Find only pairs at least this similar, from -1 to 1
    #[arg(short, long, value_name = "T", allow_hyphen_values = true)]
    threshold: Option<String>,
    /// Compare the rows of this file or folder with those of MATRIX, instead of these with one another
    #[arg(short, long, value_name = "MATRIX", value_hint = ValueHint::AnyPath)]
    query: Option<PathBuf>,
    /// List each pair once, with its lower row, not with both; for --threshold alone, or --mutual
    #[arg(long)]
    once: bool,
    /// Keep only pairs of rows that are in each other's lists
    #[arg(long)]
    mutual: bool,
    /// Write the distance, 1 - similarity, instead of the similarity
    #[arg(long)]
    distance: bool,
    /// Write all scores of all rows as one .npy matrix; above 10 GiB only with --force
    #[arg(long)]
    full: bool,
    /// Write the whole matrix however large it is
    #[arg(long)]
    force: bool,
    /// The column of a table that holds the ids of the rows [default: `id`, if there is one]
    #[arg(long, value_name = "COLUMN")]
    id_column: Option<String>,
    /// Whether the first line of a CSV file is a header [default: seen from that line]
    #[arg(long, value_name = "true|false")]
    csv_header: Option<String>,
    /// The tensor of a safetensors file
    #[arg(long, value_name = "NAME")]
    tensor: Option<String>,
    /// Keep finished blocks of rows in this folder, and take up those that are there
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    checkpoints: Option<PathBuf>,
    /// Threads to compute with [default: one for each processor that may be used]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// Print the report as one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum PairsCommand {
    Show(ShowPairs),
}

const EXAMPLES: &str = "Examples:
  trainyard pairs embeddings.npy -k 10 -o neighbours.parquet
  trainyard pairs show neighbours.parquet --row 17 --names words.txt
  trainyard pairs tfidf.npz --threshold 0.8 --once -o similar.csv
  trainyard pairs catalogue.parquet --query new.parquet -k 3 --id-column sku
  trainyard pairs embeddings.npy --full -o scores.npy

Ctrl-C stops within a moment and leaves no file. Exit codes: 0 written, 1 error, 2 bad command line, 11 stopped.";

impl Pairs {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        if let Some(PairsCommand::Show(command)) = self.command {
            return command.run();
        }
        let Some(matrix) = self.matrix.as_deref() else {
            return Err(Refused::from(anyhow::anyhow!("name a matrix")).into());
        };
        let mut settings = Settings::parse(&self.hyperparameters()).map_err(usage)?;
        let part = self.part(matrix, &mut settings)?;
        let report = part.with_extension("report");
        let stop = stop_on_signals()?;
        let pace = Pace::new(self.json);
        let found = pairs(&PairsInput {
            matrix,
            query: self.query.as_deref(),
            settings: &settings,
            host: "here",
            share: (0, 1),
            part: &part,
            report: Some(&report),
            checkpoints: self.checkpoints.as_deref().map(|folder| Checkpoints { folder, block_rows: None }),
            threads: self.threads,
            stop: &stop,
            progress: &|progress| pace.show(progress),
            note: &|text| pace.note(text),
        });
        pace.finish();
        match found {
            Ok(found) if self.json => out(&serde_json::to_string(&found)?)?,
            Ok(found) => out(&summary(&found, &part))?,
            Err(TrainError::Stopped) => {
                eprintln!("stopped: {} was not written", part.display());
                return Ok(Exit::Stopped);
            }
            Err(TrainError::Hyperparameter(error)) => return Err(usage(error)),
            Err(error @ TrainError::FullSize { .. }) => {
                return Err(Refused::from(anyhow::Error::new(error)).into());
            }
            Err(error) => return Err(error.into()),
        }
        Ok(Exit::Completed)
    }

    /// What the options are called in a job, so that both mean the same and are checked in one place.
    fn hyperparameters(&self) -> BTreeMap<String, String> {
        let truth = |given: bool, value: &str| given.then(|| value.to_owned());
        let all = [
            ("top_k", self.top_k.clone()),
            ("threshold", self.threshold.clone()),
            ("pairs", truth(self.once, "once")),
            ("mutual", truth(self.mutual, "true")),
            ("output", truth(self.distance, "distance")),
            ("full", truth(self.full, "true")),
            ("force", truth(self.force, "true")),
            ("id_column", self.id_column.clone()),
            ("csv_header", self.csv_header.clone()),
            ("tensor", self.tensor.clone()),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }

    /// The file to write; its ending decides the format.
    fn part(&self, matrix: &Path, settings: &mut Settings) -> anyhow::Result<PathBuf> {
        let full = matches!(settings.wanted, Wanted::Full { .. });
        let part = self.output.clone().unwrap_or_else(|| {
            let stem = matrix.file_stem().unwrap_or_default().to_string_lossy();
            PathBuf::from(if full { format!("{stem}-scores.npy") } else { format!("{stem}-pairs.parquet") })
        });
        let ending = part.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        let format = PairFormat::of_ending(ending);
        let refused = |needed: &str| {
            let text = format!("{}: the ending must be {needed}", part.display());
            Err(Refused::from(anyhow::Error::msg(text)).into())
        };
        match format {
            _ if full && !ending.eq_ignore_ascii_case("npy") => return refused(".npy, for --full"),
            _ if full => {}
            None => return refused(".parquet, .csv, .arrow or .npz"),
            Some(format) => settings.format = format,
        }
        if is_within(&part, matrix) || self.query.as_deref().is_some_and(|query| is_within(&part, query)) {
            let text = format!("{}: the result would be part of the matrix", part.display());
            return Err(Refused::from(anyhow::Error::msg(text)).into());
        }
        Ok(part)
    }
}

/// Whether a file is this one or lies below this folder.
fn is_within(file: &Path, matrix: &Path) -> bool {
    let folder = file.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    let real = |path: &Path| path.canonicalize().ok();
    match (real(folder), file.file_name(), real(matrix)) {
        (Some(folder), Some(name), Some(matrix)) => folder.join(name).starts_with(matrix),
        _ => false,
    }
}

fn usage(error: trainyard_allpairs::HyperparameterError) -> anyhow::Error {
    // On a command line they are options.
    let text = error.to_string().replacen("hyperparameter ", "", 1);
    Refused::from(anyhow::Error::msg(text)).into()
}

fn summary(report: &TrainReport, part: &Path) -> String {
    let (rows, columns) = (report.matrix_rows, report.matrix_columns);
    let rows = match report.query_rows {
        Some(query) => format!("{} rows against {}", HumanCount(query), HumanCount(rows)),
        None => format!("{} rows", HumanCount(rows)),
    };
    let mut lines = vec![
        format!(
            "{rows} of {} columns: {} pairs in {:.2} s",
            HumanCount(columns),
            HumanCount(report.pairs),
            report.seconds
        ),
        format!(
            "{:.3e} pairs compared a second, {} threads",
            report.compared_pairs_per_second, report.threads
        ),
    ];
    if report.zero_rows.count > 0 {
        lines.push(format!(
            "warning: {} rows are zero and score 0 with every row",
            HumanCount(report.zero_rows.count)
        ));
    }
    if report.duplicate_rows > 0 {
        lines.push(format!("{} rows equal an earlier one", HumanCount(report.duplicate_rows)));
    }
    lines.push(format!("written: {}", part.display()));
    lines.join("\n")
}
