//! DescribeTrainingJob: what was sent, with the defaults that Amazon fills in, and what became of it.

use serde_json::{Map, Value, json};
use trainyard_engine::engine::{Described, Jobs};
use trainyard_engine::job::{Job, Transition};
use trainyard_engine::run::Timestamp;

use super::{arn, not_found};
use crate::api::answer::{ApiError, ApiResult};
use crate::exit::one_line;

/// Of a job that names none, in seconds: a day.
const DEFAULT_MAX_RUNTIME: u64 = 86_400;

/// Members of the request that are not shown again.
const NOT_SHOWN: [&str; 4] = ["Tags", "Trainyard", "SessionChainingConfig", "TrainingJobName"];

pub(super) fn describe(jobs: &Jobs, name: &str) -> ApiResult {
    let described = jobs.described(name).map_err(|error| ApiError::internal(one_line(&error.into())))?;
    let described = described.ok_or_else(not_found)?;
    let arn = arn(jobs, &described.job.name);
    shown(&described, &arn)
}

/// Seconds since 1970 with milliseconds, as the API's times are.
pub(super) fn seconds(at: Timestamp) -> Value {
    json!(at.0 as f64 / 1000.0)
}

pub(super) fn shown(described: &Described, arn: &str) -> ApiResult {
    let Described { request, job } = described;
    let sent = serde_json::to_value(request).map_err(|error| ApiError::internal(error.to_string()))?;
    let Value::Object(mut sent) = sent else { return Err(ApiError::internal("the request is damaged")) };
    NOT_SHOWN.iter().for_each(|member| drop(sent.shift_remove(*member)));
    fill_in(&mut sent);
    select(&mut sent);
    let profiled = profiling(&mut sent, job);
    let mut shown = Map::new();
    shown.insert("TrainingJobName".into(), json!(job.name));
    shown.insert("TrainingJobArn".into(), json!(arn));
    shown.insert("ModelArtifacts".into(), json!({ "S3ModelArtifacts": model_uri(&sent, job) }));
    shown.insert("TrainingJobStatus".into(), json!(job.status));
    shown.insert("SecondaryStatus".into(), json!(job.secondary_status()));
    shown.extend(job.failure_reason.iter().map(|reason| ("FailureReason".into(), json!(reason))));
    shown.extend(sent);
    shown.extend(profiled);
    shown.extend(times(job));
    let transitions: Vec<_> = job.transitions.iter().map(transition).collect();
    shown.insert("SecondaryStatusTransitions".into(), json!(transitions));
    let metrics = final_metrics(request, job);
    if !metrics.is_empty() {
        shown.insert("FinalMetricDataList".into(), json!(metrics));
    }
    Ok(Value::Object(shown))
}

/// What Amazon shows of members that were not sent.
fn fill_in(sent: &mut Map<String, Value>) {
    let mut default = |member: &str, path: &[&str], value: Value| {
        let mut at = sent.entry(path.first().copied().unwrap_or(member)).or_insert_with(|| json!({}));
        if !path.is_empty() {
            at = &mut at[member];
        }
        if at.is_null() || *at == json!({}) {
            *at = value;
        }
    };
    default("EnableSageMakerMetricsTimeSeries", &["AlgorithmSpecification"], json!(false));
    default("KmsKeyId", &["OutputDataConfig"], json!(""));
    default("CompressionType", &["OutputDataConfig"], json!("GZIP"));
    default("MaxRuntimeInSeconds", &["StoppingCondition"], json!(DEFAULT_MAX_RUNTIME));
    for member in
        ["EnableNetworkIsolation", "EnableInterContainerTrafficEncryption", "EnableManagedSpotTraining"]
    {
        default(member, &[], json!(false));
    }
    for channel in sent.get_mut("InputDataConfig").and_then(Value::as_array_mut).into_iter().flatten() {
        for member in ["CompressionType", "RecordWrapperType"] {
            if channel[member].is_null() {
                channel[member] = json!("None");
            }
        }
    }
}

/// The type that is taken of those that were preferred, and how many instances of it.
fn select(sent: &mut Map<String, Value>) {
    let Some(resources) = sent.get_mut("ResourceConfig") else { return };
    let taken = resources["InstancePreferences"][0].clone();
    if let Some(instance_type) = taken["InstanceType"].as_str() {
        resources["SelectedInstanceType"] = json!(instance_type);
        let count = taken["InstanceCount"].as_u64().or(resources["InstanceCount"].as_u64());
        resources["SelectedInstanceCount"] = json!(count);
    }
}

/// Between two samples of the profiler, in milliseconds, of a job that names no other time.
const PROFILING_INTERVAL: u64 = 500;

/// What is shown of the profiler. What its instances take is measured for every job and is in CloudWatch; its rules are
/// programs of Amazon's own and are not evaluated.
fn profiling(sent: &mut Map<String, Value>, job: &Job) -> Map<String, Value> {
    let mut shown = Map::new();
    let config = sent.get_mut("ProfilerConfig").and_then(Value::as_object_mut);
    let enabled = config.is_some_and(|config| {
        config.entry("ProfilingIntervalInMilliseconds").or_insert_with(|| json!(PROFILING_INTERVAL));
        config.get("DisableProfiler") != Some(&json!(true))
    });
    shown.insert("ProfilingStatus".into(), json!(if enabled { "Enabled" } else { "Disabled" }));
    let rules = sent.get("ProfilerRuleConfigurations").and_then(Value::as_array);
    let statuses: Vec<_> = rules
        .into_iter()
        .flatten()
        .map(|rule| {
            json!({
                "RuleConfigurationName": rule["RuleConfigurationName"],
                "RuleEvaluationStatus": "Error",
                "StatusDetails": "rules are not evaluated here; what the instances take is in CloudWatch",
                "LastModifiedTime": seconds(job.created),
            })
        })
        .collect();
    if !statuses.is_empty() {
        shown.insert("ProfilerRuleEvaluationStatuses".into(), json!(statuses));
    }
    shown
}

/// The place of the archive or of the plain files, whether it is there yet or not.
fn model_uri(sent: &Map<String, Value>, job: &Job) -> String {
    if let Some(model) = job.published.as_ref().and_then(|published| published.model.clone()) {
        return model;
    }
    let member = |name: &str| sent.get("OutputDataConfig").and_then(|output| output[name].as_str());
    let own = || sent.get("Trainyard")?.get("Output")?.get("Compression")?.as_str();
    let name = match member("CompressionType") {
        Some("NONE") => "model/",
        _ if own() == Some("zstd") => "model.tar.zst",
        _ => "model.tar.gz",
    };
    let output = member("S3OutputPath").unwrap_or_default().trim_end_matches('/');
    format!("{output}/{}/output/{name}", job.name)
}

fn times(job: &Job) -> impl Iterator<Item = (String, Value)> {
    let mut times = vec![("CreationTime", seconds(job.created)), ("LastModifiedTime", seconds(job.modified))];
    times.extend(job.started.map(|at| ("TrainingStartTime", seconds(at))));
    if let Some(ended) = job.ended {
        times.push(("TrainingEndTime", seconds(ended)));
        if let Some(started) = job.started {
            // In whole seconds of the clock, as observed, and never none.
            let taken = ended.seconds().saturating_sub(started.seconds()).max(1);
            times.push(("TrainingTimeInSeconds", json!(taken)));
            times.push(("BillableTimeInSeconds", json!(taken)));
        }
    }
    times.into_iter().map(|(name, value)| (name.to_owned(), value))
}

fn transition(transition: &Transition) -> Value {
    let mut shown = json!({
        "Status": transition.status,
        "StartTime": seconds(transition.start),
        "StatusMessage": transition.message,
    });
    if let Some(end) = transition.end {
        shown["EndTime"] = seconds(end);
    }
    shown
}

/// The last value of each metric that was seen, in the order of their definitions: 32-bit floats at whole seconds.
fn final_metrics(request: &trainyard_engine::wire::CreateTrainingJobRequest, job: &Job) -> Vec<Value> {
    let defined = request.algorithm_specification.as_ref().and_then(|it| it.metric_definitions.as_ref());
    let names = defined.into_iter().flatten().filter_map(|metric| metric.name.as_ref());
    let seen = names.filter_map(|name| Some((name, job.metrics.get(name)?)));
    seen.map(|(name, (value, at))| {
        json!({"MetricName": name, "Value": f64::from(*value as f32), "Timestamp": at.seconds()})
    })
    .collect()
}
