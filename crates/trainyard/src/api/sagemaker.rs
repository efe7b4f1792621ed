//! SageMaker: the operations on training jobs.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use trainyard_engine::engine::{CreateError, EngineError, Jobs, StopError, TagChange};
use trainyard_engine::job::Status;
use trainyard_engine::prepare::ACCOUNT;
use trainyard_engine::store::StoreError;
use trainyard_engine::wire::CreateTrainingJobRequest;

use super::answer::{ApiError, ApiResult};
use crate::exit::one_line;

mod describe;
mod list;
mod search;
mod update;

/// Carries out an operation by its name.
pub(super) fn carry_out(jobs: &Jobs, operation: &str, input: Value) -> ApiResult {
    match operation {
        "CreateTrainingJob" => create(jobs, read(input)?),
        "DescribeTrainingJob" => describe::describe(jobs, &read::<Named>(input)?.job),
        "ListTrainingJobs" => list::list(jobs, read(input)?),
        "StopTrainingJob" => stop(jobs, &read::<Named>(input)?.job),
        "DeleteTrainingJob" => delete(jobs, &read::<Named>(input)?.job),
        "UpdateTrainingJob" => update::update(jobs, read(input)?),
        "Search" => search::search(jobs, &read(input)?),
        "AddTags" => add_tags(jobs, read(input)?),
        "ListTags" => list_tags(jobs, &read(input)?),
        "DeleteTags" => delete_tags(jobs, &read(input)?),
        other => Err(ApiError::unknown_operation(other)),
    }
}

/// Reads an operation's input; a member that does not fit is named.
fn read<T: DeserializeOwned>(input: Value) -> Result<T, ApiError> {
    serde_path_to_error::deserialize(input).map_err(|error| {
        ApiError::new("SerializationException", format!("{}: {}", error.path(), error.inner()))
    })
}

#[derive(Deserialize)]
struct Named {
    #[serde(rename = "TrainingJobName")]
    job: String,
}

/// What names an account's job all over the world; the name in it is in lower case, as at Amazon.
fn arn(jobs: &Jobs, job: &str) -> String {
    format!("arn:aws:sagemaker:{}:{ACCOUNT}:training-job/{}", jobs.machine().region, job.to_lowercase())
}

fn create(jobs: &Jobs, request: CreateTrainingJobRequest) -> ApiResult {
    let name = request.training_job_name.clone().unwrap_or_default();
    // Listing the objects of a store takes its time.
    match tokio::runtime::Handle::current().block_on(jobs.create(request)) {
        Ok(()) => Ok(json!({ "TrainingJobArn": arn(jobs, &name) })),
        Err(CreateError::Engine(EngineError::Store(StoreError::Exists { job }))) => Err(in_use(jobs, &job)),
        Err(CreateError::Engine(EngineError::Running { job })) => Err(in_use(jobs, &job)),
        Err(CreateError::Limit(error)) => Err(ApiError::new("ResourceLimitExceeded", error.to_string())),
        Err(CreateError::Request(error)) => Err(ApiError::validation(one_line(&error.into()))),
        Err(CreateError::Engine(error)) => Err(ApiError::internal(one_line(&error.into()))),
    }
}

fn in_use(jobs: &Jobs, job: &str) -> ApiError {
    let message = format!(
        "Training job names must be unique within an AWS account and region, and a training job with this name \
         already exists ({})",
        arn(jobs, job)
    );
    ApiError::new("ResourceInUse", message)
}

/// What the live service says of a name that it does not know.
fn not_found() -> ApiError {
    ApiError::validation("Requested resource not found.")
}

fn stop(jobs: &Jobs, job: &str) -> ApiResult {
    match jobs.stop(job) {
        Ok(()) => Ok(json!({})),
        Err(StopError::Status { status, .. }) => {
            let message = format!("The request was rejected because the training job is in status {status}.");
            Err(ApiError::validation(message))
        }
        Err(error) => Err(refused(error)),
    }
}

fn delete(jobs: &Jobs, job: &str) -> ApiResult {
    // The engine waits for what it removes.
    let deleted = tokio::runtime::Handle::current().block_on(jobs.delete(job));
    match deleted {
        Ok(()) => Ok(json!({})),
        Err(StopError::Status { status, .. }) => {
            let message =
                format!("The training job is in status {status}; only one that has ended can be deleted.");
            Err(ApiError::new("ResourceInUse", message))
        }
        Err(error) => Err(refused(error)),
    }
}

fn refused(error: StopError) -> ApiError {
    match error {
        StopError::Unknown(_) => not_found(),
        StopError::Elsewhere(_) | StopError::Status { .. } => ApiError::validation(error.to_string()),
        StopError::Engine(error) => ApiError::internal(one_line(&error.into())),
    }
}

#[derive(Deserialize)]
struct Tag {
    #[serde(rename = "Key")]
    key: String,
    #[serde(rename = "Value")]
    value: String,
}

#[derive(Deserialize)]
struct AddTags {
    #[serde(rename = "ResourceArn")]
    arn: String,
    #[serde(rename = "Tags")]
    tags: Vec<Tag>,
}

#[derive(Deserialize)]
struct ListTags {
    #[serde(rename = "ResourceArn")]
    arn: String,
}

#[derive(Deserialize)]
struct DeleteTags {
    #[serde(rename = "ResourceArn")]
    arn: String,
    #[serde(rename = "TagKeys")]
    keys: Vec<String>,
}

/// The API's own limit for one resource.
const MOST_TAGS: usize = 50;

fn add_tags(jobs: &Jobs, input: AddTags) -> ApiResult {
    let job = job_of(&input.arn)?;
    let tags: Vec<_> = input.tags.into_iter().map(|tag| (tag.key, tag.value)).collect();
    for (key, value) in &tags {
        check_tag(key, value)?;
    }
    let mut all = jobs.tags(job, TagChange::None).map_err(refused)?;
    all.retain(|(key, _)| !tags.iter().any(|(new, _)| new == key));
    if all.len() + tags.len() > MOST_TAGS {
        return Err(ApiError::new(
            "ResourceLimitExceeded",
            format!("a resource has at most {MOST_TAGS} tags"),
        ));
    }
    Ok(tags_answer(jobs.tags(job, TagChange::Add(&tags)).map_err(refused)?))
}

fn check_tag(key: &str, value: &str) -> Result<(), ApiError> {
    let (in_key, in_value) = (key.chars().count(), value.chars().count());
    if !(1..=128).contains(&in_key) || in_value > 256 {
        let message = format!(
            "the tag {key:?} has {in_key} characters in its key and {in_value} in its value; 1 to 128 and 0 to 256 are allowed"
        );
        return Err(ApiError::validation(message));
    }
    Ok(())
}

fn list_tags(jobs: &Jobs, input: &ListTags) -> ApiResult {
    Ok(tags_answer(jobs.tags(job_of(&input.arn)?, TagChange::None).map_err(refused)?))
}

fn delete_tags(jobs: &Jobs, input: &DeleteTags) -> ApiResult {
    jobs.tags(job_of(&input.arn)?, TagChange::Remove(&input.keys)).map_err(refused)?;
    Ok(json!({}))
}

fn tags_answer(tags: Vec<(String, String)>) -> Value {
    let tags: Vec<_> = tags.into_iter().map(|(key, value)| json!({"Key": key, "Value": value})).collect();
    json!({ "Tags": tags })
}

/// The name of the training job that an ARN means.
fn job_of(arn: &str) -> Result<&str, ApiError> {
    let resource = arn.strip_prefix("arn:").and_then(|rest| rest.splitn(5, ':').nth(4));
    let job = resource.and_then(|resource| resource.strip_prefix("training-job/"));
    job.ok_or_else(|| ApiError::validation(format!("'{arn}' is not the ARN of a training job, such as arn:aws:sagemaker:us-east-1:{ACCOUNT}:training-job/my-job")))
}

/// Reads a status as the API spells it.
fn status(text: &str) -> Result<Status, ApiError> {
    serde_json::from_value(text.into()).map_err(|_| {
        ApiError::validation(format!(
            "1 validation error detected: Value '{text}' at 'statusEquals' failed to satisfy constraint: Member must \
             satisfy enum value set: [InProgress, Completed, Failed, Stopping, Stopped, Deleting]"
        ))
    })
}
