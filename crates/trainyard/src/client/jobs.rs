//! Training jobs as the API has them: found, listed, and named when a name is wrong.

use anyhow::Context;
use serde_json::{Map, Value, json};

use super::{CallError, Client, Operation};

/// The most that a page of ListTrainingJobs has.
const PAGE: usize = 100;
/// Jobs whose names are looked through for one that is nearly right.
const LOOKED_AT: usize = 300;
/// How many names are proposed.
const PROPOSED: usize = 3;
/// From here on a name (from 0 to 1, Jaro-Winkler) is nearly right.
const NEARLY: f64 = 0.85;

/// A name that no job has.
#[derive(Debug, thiserror::Error)]
#[error("there is no training job {name}{}", meant(.near))]
pub(crate) struct UnknownJob {
    name: String,
    near: Vec<String>,
}

fn meant(near: &[String]) -> String {
    match near {
        [] => String::new(),
        near => format!(": did you mean {}?", near.join(", ")),
    }
}

/// The name in what may be a name or an ARN.
pub(crate) fn name_of(text: &str) -> &str {
    match text.rsplit_once(":training-job/") {
        Some((arn, name)) if arn.starts_with("arn:") => name,
        _ => text,
    }
}

impl Client {
    /// Has an operation on one job carried out.
    ///
    /// # Errors
    /// As [`Client::call`]; for a name that no job has, with those that are near.
    pub(crate) async fn on_job(&self, operation: Operation, job: &str) -> anyhow::Result<Value> {
        let name = name_of(job);
        match self.call(operation, &json!({ "TrainingJobName": name })).await {
            Err(error) if error.is_unknown_job() => {
                // Without the names the error is still the right one.
                let near = self.near(name).await.unwrap_or_default();
                Err(UnknownJob { name: name.to_owned(), near }.into())
            }
            result => Ok(result?),
        }
    }

    /// What the API says of a job.
    ///
    /// # Errors
    /// As [`Client::on_job`].
    pub(crate) async fn describe(&self, job: &str) -> anyhow::Result<Value> {
        let described = self.on_job(Operation::sagemaker("DescribeTrainingJob"), job).await?;
        described["TrainingJobName"].as_str().context("DescribeTrainingJob has answered without a name")?;
        Ok(described)
    }

    /// Summaries of jobs that fit the members of a ListTrainingJobs request, at most `limit`, page by page.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub(crate) async fn list(
        &self,
        mut input: Map<String, Value>,
        limit: usize,
    ) -> Result<Vec<Value>, CallError> {
        let mut found: Vec<Value> = Vec::new();
        while found.len() < limit {
            let page = PAGE.min(limit - found.len());
            input.insert("MaxResults".to_owned(), json!(page));
            let mut answer = self.call(Operation::sagemaker("ListTrainingJobs"), &json!(input)).await?;
            if let Value::Array(summaries) = answer["TrainingJobSummaries"].take() {
                found.extend(summaries);
            }
            match answer["NextToken"].take() {
                Value::String(token) => input.insert("NextToken".to_owned(), json!(token)),
                _ => break,
            };
        }
        found.truncate(limit);
        Ok(found)
    }

    async fn near(&self, name: &str) -> Result<Vec<String>, CallError> {
        let newest = json!({"SortBy": "CreationTime", "SortOrder": "Descending"});
        let Value::Object(newest) = newest else { return Ok(Vec::new()) };
        let listed = self.list(newest, LOOKED_AT).await?;
        let names = listed.iter().filter_map(|summary| summary["TrainingJobName"].as_str());
        Ok(nearest(name, names))
    }
}

/// Names that begin with the wrong one, and those nearly like it, the nearest first.
fn nearest<'a>(wrong: &str, names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let lower = wrong.to_lowercase();
    let likeness = |name: &str| {
        let name = name.to_lowercase();
        let slips = strsim::damerau_levenshtein(&lower, &name);
        // A slip in a few characters.
        let is_slip = slips <= 2 && 3 * slips <= name.chars().count();
        if name.starts_with(&lower) {
            1.0
        } else if is_slip {
            1.0 - slips as f64 / 100.0
        } else {
            strsim::jaro_winkler(&lower, &name)
        }
    };
    let mut near: Vec<_> =
        names.map(|name| (likeness(name), name)).filter(|(likeness, _)| *likeness >= NEARLY).collect();
    near.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    near.into_iter().take(PROPOSED).map(|(_, name)| name.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_nearly_right_finds_the_right_one() {
        let names = ["digits-2026-11-30", "fit-17", "fit-18", "other"];
        assert_eq!(nearest("digits", names.into_iter()), ["digits-2026-11-30"]);
        assert_eq!(nearest("fit-1", names.into_iter()), ["fit-17", "fit-18"]);
        assert_eq!(nearest("digist-2026-11-30", names.into_iter()), ["digits-2026-11-30"]);
        assert_eq!(nearest("fti-18", names.into_iter())[0], "fit-18");
        assert_eq!(nearest("tow", ["two", "tea"].into_iter()), ["two"]);
        assert_eq!(nearest("xyz", names.into_iter()), Vec::<String>::new());
        let error = UnknownJob { name: "ft".into(), near: vec!["fit".into(), "fat".into()] };
        assert_eq!(error.to_string(), "there is no training job ft: did you mean fit, fat?");
    }

    #[test]
    fn an_arn_names_its_job() {
        assert_eq!(name_of("arn:aws:sagemaker:us-east-1:000000000000:training-job/fit"), "fit");
        assert_eq!(name_of("fit"), "fit");
    }
}
