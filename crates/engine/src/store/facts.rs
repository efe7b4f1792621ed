//! What jobs are searched by beside the columns of lists: their hyperparameters, and their metrics once they have ended.

use rusqlite::{Transaction, params};
use serde::Deserialize;

use super::StoreError;
use crate::job::Job;
use crate::wire::TextMap;

/// Texts are kept up to so many characters; a search looks at the whole ones afterwards.
pub(super) const LENGTH: usize = 256;

/// The part of a request that facts are made of.
#[derive(Deserialize)]
struct Sent {
    #[serde(rename = "HyperParameters")]
    hyperparameters: Option<TextMap>,
}

/// Stores the hyperparameters of a new job; a request that can't be read has none.
pub(super) fn of_request(transaction: &Transaction<'_>, job: &str, request: &str) -> Result<(), StoreError> {
    let sent = serde_json::from_str::<Sent>(request).ok().and_then(|sent| sent.hyperparameters);
    for (name, text) in sent.iter().flat_map(TextMap::texts) {
        put(transaction, job, &format!("HyperParameters.{name}"), &text)?;
    }
    Ok(())
}

/// Stores the last values of the metrics of a job that has ended, with the precision in which they are shown.
pub(super) fn of_metrics(transaction: &Transaction<'_>, job: &Job) -> Result<(), StoreError> {
    for (name, (value, _)) in &job.metrics {
        put(transaction, &job.name, &format!("Metrics.{name}"), &f64::from(*value as f32).to_string())?;
    }
    Ok(())
}

fn put(transaction: &Transaction<'_>, job: &str, name: &str, text: &str) -> Result<(), StoreError> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
    let sql = "INSERT OR REPLACE INTO facts (job, name, text, number) VALUES (?1, ?2, ?3, ?4)";
    transaction.prepare_cached(sql)?.execute(params![job, name, cut(text), number])?;
    Ok(())
}

/// The part of a text that is kept.
pub(super) fn cut(text: &str) -> &str {
    text.char_indices().nth(LENGTH).map_or(text, |(end, _)| &text[..end])
}
