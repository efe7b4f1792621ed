//! `trainyard pairs show`: the neighbours of one row.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::ValueHint;
use serde_json::json;
use trainyard_allpairs::{RowOfPairs, neighbours_of};

use crate::exit::{Exit, Refused};
use crate::show::out;

/// Show the neighbours of one row of a result
///
/// Reads only the part of the file in which the row is, however large the file.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  trainyard pairs show neighbours.parquet --row 17
  trainyard pairs show neighbours.parquet --row 17 --names words.txt")]
pub(super) struct ShowPairs {
    /// A result in Parquet
    #[arg(value_hint = ValueHint::FilePath)]
    pairs: PathBuf,
    /// The number of the row, from 0, or its id
    #[arg(long, allow_hyphen_values = true)]
    row: String,
    /// A text whose line number n, from 0, names row number n
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    names: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl ShowPairs {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let found =
            neighbours_of(&self.pairs, &self.row).with_context(|| self.pairs.display().to_string())?;
        let names = match &self.names {
            Some(file) => self.names_of(file, &found)?,
            None => HashMap::new(),
        };
        if self.json {
            out(&self.json(&found, &names))?;
        } else {
            out(&self.text(&found, &names))?;
        }
        Ok(Exit::Completed)
    }

    /// The names of the row and its neighbours.
    fn names_of(&self, file: &Path, found: &RowOfPairs) -> anyhow::Result<HashMap<i64, String>> {
        let row: Option<i64> = self.row.parse().ok();
        let numbers: Option<Vec<i64>> = found.neighbours.iter().map(|listed| listed.number).collect();
        let (Some(row), Some(mut numbers)) = (row, numbers) else {
            let text = format!("{}: --names is for rows with numbers; these have ids", self.pairs.display());
            return Err(Refused::from(anyhow::Error::msg(text)).into());
        };
        numbers.push(row);
        let last = numbers.iter().copied().max().unwrap_or(0);
        let mut names = HashMap::new();
        let lines = BufReader::new(fs_err::File::open(file)?).split(b'\n');
        for (number, line) in (0..=last).zip(lines) {
            let line = line.with_context(|| file.display().to_string())?;
            if numbers.contains(&number) {
                names.insert(number, String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned());
            }
        }
        match numbers.iter().find(|number| !names.contains_key(number)) {
            Some(missing) => {
                let text = format!("{}: there is no line for row {missing}", file.display());
                Err(Refused::from(anyhow::Error::msg(text)).into())
            }
            None => Ok(names),
        }
    }

    fn text(&self, found: &RowOfPairs, names: &HashMap<i64, String>) -> String {
        let name =
            |number: Option<i64>| number.and_then(|number| names.get(&number)).map_or("", String::as_str);
        let title = match name(self.row.parse().ok()) {
            "" => format!("row {}", self.row),
            name => format!("row {} {name}", self.row),
        };
        if found.neighbours.is_empty() {
            return format!("{title}: no neighbours in {}", self.pairs.display());
        }
        let mut lines = vec![format!("{title}: {} neighbours by {}", found.neighbours.len(), found.measure)];
        let width = found.neighbours.iter().map(|listed| listed.col.chars().count()).max().unwrap_or(0);
        for (rank, listed) in found.neighbours.iter().enumerate() {
            let line = format!(
                "{:>4}  {:>width$}  {:>9.6}  {}",
                rank + 1,
                listed.col,
                listed.value,
                name(listed.number)
            );
            lines.push(line.trim_end().to_owned());
        }
        lines.join("\n")
    }

    fn json(&self, found: &RowOfPairs, names: &HashMap<i64, String>) -> String {
        let id = |text: &str, number: Option<i64>| number.map_or_else(|| json!(text), |number| json!(number));
        let with_name = |mut object: serde_json::Value, number: Option<i64>| {
            if let Some(name) = number.and_then(|number| names.get(&number)) {
                object["name"] = json!(name);
            }
            object
        };
        let neighbours: Vec<_> = found
            .neighbours
            .iter()
            .map(|listed| {
                let object = json!({ "col": id(&listed.col, listed.number), (&found.measure): listed.value });
                with_name(object, listed.number)
            })
            .collect();
        let row: Option<i64> = self.row.parse().ok();
        let numbered = found.neighbours.iter().all(|listed| listed.number.is_some());
        let row = row.filter(|_| numbered);
        with_name(json!({ "row": id(&self.row, row), "neighbours": neighbours }), row).to_string()
    }
}
