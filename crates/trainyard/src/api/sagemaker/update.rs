//! UpdateTrainingJob: the profiler of a job that runs; what else it changes at Amazon does not exist here.

use serde::Deserialize;
use serde_json::json;
use trainyard_engine::engine::{AmendError, Jobs, StopError};
use trainyard_engine::wire::{
    CreateTrainingJobRequest, ProfilerConfig, RemoteDebugConfig, RuleConfiguration,
};

use super::{arn, refused};
use crate::api::answer::{ApiError, ApiResult};

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct UpdateTrainingJob {
    training_job_name: String,
    profiler_config: Option<ProfilerConfig>,
    profiler_rule_configurations: Option<Vec<RuleConfiguration>>,
    resource_config: Option<serde_json::Value>,
    remote_debug_config: Option<RemoteDebugConfig>,
}

pub(super) fn update(jobs: &Jobs, input: UpdateTrainingJob) -> ApiResult {
    let name = input.training_job_name.clone();
    if let Some(member) = refused_member(&input) {
        // Who asks for a job that is not there learns that first.
        jobs.described(&name)
            .map_err(|error| ApiError::internal(crate::exit::one_line(&error.into())))?
            .ok_or_else(super::not_found)?;
        return Err(ApiError::validation(format!(
            "{member}: not supported; of a job nothing can be changed but its tags and its profiler"
        )));
    }
    match jobs.amend(&name, |request| amend(request, input)) {
        Ok(job) => Ok(json!({ "TrainingJobArn": arn(jobs, &job.name) })),
        Err(AmendError::Job(StopError::Status { status, .. })) => Err(ApiError::validation(format!(
            "The request was rejected because the training job is in status {status}."
        ))),
        Err(AmendError::Job(error)) => Err(refused(error)),
        Err(AmendError::Violations(violations)) => Err(ApiError::validation(violations.to_string())),
    }
}

/// Warm pools and shells into instances do not exist here.
fn refused_member(input: &UpdateTrainingJob) -> Option<&'static str> {
    let shell = input.remote_debug_config.as_ref().and_then(|config| config.enable_remote_debug);
    if input.resource_config.is_some() {
        return Some("ResourceConfig");
    }
    (shell == Some(true)).then_some("RemoteDebugConfig")
}

/// Members that are not sent stay as they are; rules come to those that there are.
fn amend(request: &mut CreateTrainingJobRequest, input: UpdateTrainingJob) {
    if let Some(sent) = input.profiler_config {
        let config = request.profiler_config.get_or_insert_default();
        config.s3_output_path = sent.s3_output_path.or(config.s3_output_path.take());
        config.profiling_interval_in_milliseconds =
            sent.profiling_interval_in_milliseconds.or(config.profiling_interval_in_milliseconds);
        config.profiling_parameters = sent.profiling_parameters.or(config.profiling_parameters.take());
        config.disable_profiler = sent.disable_profiler.or(config.disable_profiler);
    }
    if let Some(rules) = input.profiler_rule_configurations {
        request.profiler_rule_configurations.get_or_insert_default().extend(rules);
    }
}
