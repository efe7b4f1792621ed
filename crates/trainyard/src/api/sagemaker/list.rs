//! ListTrainingJobs.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::{Value, json};
use trainyard_engine::engine::Jobs;
use trainyard_engine::run::Timestamp;
use trainyard_engine::store::{JobQuery, Listed, SortBy};

use super::describe::seconds;
use super::{arn, status};
use crate::api::answer::{ApiError, ApiResult};
use crate::exit::one_line;

/// On a page that names no size.
const USUAL_PAGE: u32 = 10;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct ListTrainingJobs {
    next_token: Option<String>,
    max_results: Option<u32>,
    creation_time_after: Option<f64>,
    creation_time_before: Option<f64>,
    last_modified_time_after: Option<f64>,
    last_modified_time_before: Option<f64>,
    name_contains: Option<String>,
    status_equals: Option<String>,
    sort_by: Option<String>,
    sort_order: Option<String>,
    warm_pool_status_equals: Option<String>,
    training_plan_arn_equals: Option<String>,
}

pub(super) fn list(jobs: &Jobs, input: ListTrainingJobs) -> ApiResult {
    let limit = input.max_results.unwrap_or(USUAL_PAGE);
    if !(1..=100).contains(&limit) {
        let rule = if limit == 0 { "greater than or equal to 1" } else { "less than or equal to 100" };
        return Err(ApiError::validation(format!(
            "1 validation error detected: Value '{limit}' at 'maxResults' failed to satisfy constraint: Member must \
             have value {rule}"
        )));
    }
    // There are neither warm pools nor training plans, so no job has one.
    if input.warm_pool_status_equals.is_some() || input.training_plan_arn_equals.is_some() {
        return Ok(json!({ "TrainingJobSummaries": [] }));
    }
    let query = query(input, limit)?;
    let mut listed = jobs.list(&query).map_err(|error| ApiError::internal(one_line(&error.into())))?;
    let more = listed.len() > limit as usize;
    listed.truncate(limit as usize);
    let token = listed.last().filter(|_| more).map(|last| token(last, query.sort_by));
    let summaries: Vec<_> = listed.iter().map(|listed| summary(jobs, listed)).collect();
    let mut answer = json!({ "TrainingJobSummaries": summaries });
    if let Some(token) = token {
        answer["NextToken"] = json!(token);
    }
    Ok(answer)
}

fn query(input: ListTrainingJobs, limit: u32) -> Result<JobQuery, ApiError> {
    let at = |seconds: Option<f64>| seconds.map(|seconds| Timestamp((seconds * 1000.0).max(0.0) as u64));
    let sort_by = match input.sort_by.as_deref() {
        None | Some("CreationTime") => SortBy::Created,
        Some("Name") => SortBy::Name,
        Some("Status") => SortBy::Status,
        Some(other) => return Err(of_set(other, "sortBy", "Name, CreationTime, Status")),
    };
    let descending = match input.sort_order.as_deref() {
        None | Some("Ascending") => false,
        Some("Descending") => true,
        Some(other) => return Err(of_set(other, "sortOrder", "Ascending, Descending")),
    };
    Ok(JobQuery {
        created_after: at(input.creation_time_after),
        created_before: at(input.creation_time_before),
        modified_after: at(input.last_modified_time_after),
        modified_before: at(input.last_modified_time_before),
        name_contains: input.name_contains,
        wanted: Vec::new(),
        status: input.status_equals.as_deref().map(status).transpose()?,
        sort_by,
        descending,
        after: input.next_token.as_deref().map(of_token).transpose()?,
        // One more tells whether there are more.
        limit: limit as usize + 1,
    })
}

fn of_set(value: &str, path: &str, set: &str) -> ApiError {
    ApiError::validation(format!(
        "1 validation error detected: Value '{value}' at '{path}' failed to satisfy constraint: Member must satisfy \
         enum value set: [{set}]"
    ))
}

fn token(last: &Listed, sort_by: SortBy) -> String {
    URL_SAFE_NO_PAD.encode(json!(last.cursor(sort_by)).to_string())
}

fn of_token(token: &str) -> Result<(String, String), ApiError> {
    let bytes = URL_SAFE_NO_PAD.decode(token).ok();
    let cursor = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    cursor.ok_or_else(|| ApiError::validation("NextToken is none that was given out"))
}

fn summary(jobs: &Jobs, listed: &Listed) -> Value {
    let mut summary = json!({
        "TrainingJobName": listed.name,
        "TrainingJobArn": arn(jobs, &listed.name),
        "CreationTime": seconds(listed.created),
        "LastModifiedTime": seconds(listed.modified),
        "TrainingJobStatus": listed.status,
        "SecondaryStatus": listed.secondary,
    });
    if let Some(ended) = listed.ended {
        summary["TrainingEndTime"] = seconds(ended);
    }
    summary
}
