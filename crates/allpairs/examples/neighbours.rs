//! The workload on a folder, without a job: `neighbours MATRIX-FOLDER OUTPUT-FOLDER [name=value]…`.
//!
//! Names are the hyperparameters, and `threads`, `rank` and `hosts` besides. Prints the report as one line of JSON.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use trainyard_allpairs::{TrainInput, train};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [matrix, output, settings @ ..] = arguments.as_slice() else {
        return Err("usage: neighbours MATRIX-FOLDER OUTPUT-FOLDER [name=value]…".into());
    };
    let mut hyperparameters: BTreeMap<String, String> = settings
        .iter()
        .filter_map(|setting| setting.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let threads = hyperparameters.remove("threads").map(|threads| threads.parse()).transpose()?;
    let rank = hyperparameters.remove("rank").map_or(Ok(0), |rank| rank.parse())?;
    let hosts = hyperparameters.remove("hosts").map_or(Ok(1), |hosts| hosts.parse())?;
    let report = train(&TrainInput {
        matrix: Path::new(matrix),
        query: None,
        hyperparameters: &hyperparameters,
        host: &format!("algo-{}", rank + 1),
        rank,
        world_size: hosts,
        output: Path::new(output),
        checkpoints: None,
        threads,
        stop: &AtomicBool::new(false),
        progress: &|_| {},
        note: &|_| {},
    })?;
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}
