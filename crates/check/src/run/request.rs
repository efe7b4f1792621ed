//! The job that an image is run on: made up, or the user's own.

use std::path::Path;

use indexmap::IndexMap;
use serde_json::Value;
use trainyard_engine::wire::{
    AlgorithmSpecification, Channel, CreateTrainingJobRequest, DataSource, OutputDataConfig, ResourceConfig,
    S3DataSource, StoppingCondition, TextMap,
};

/// Type of the instances where the job names none.
const INSTANCE_TYPE: &str = "ml.m5.large";

/// A job for an image about which nothing is known: two instances, the channels that are given as name and
/// URI, each whole on every instance.
pub fn made_up(
    image: &str,
    channels: &[(String, String)],
    hyperparameters: &IndexMap<String, String>,
) -> CreateTrainingJobRequest {
    let text = |value: &str| Some(value.to_owned());
    let channel = |(name, uri): &(String, String)| Channel {
        channel_name: text(name),
        data_source: Some(DataSource {
            s3_data_source: Some(S3DataSource {
                s3_data_type: text("S3Prefix"),
                s3_uri: text(uri),
                s3_data_distribution_type: text("FullyReplicated"),
                ..S3DataSource::default()
            }),
            ..DataSource::default()
        }),
        ..Channel::default()
    };
    let hyperparameters =
        hyperparameters.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str())));
    CreateTrainingJobRequest {
        algorithm_specification: Some(AlgorithmSpecification {
            training_image: text(image),
            training_input_mode: text("File"),
            ..AlgorithmSpecification::default()
        }),
        hyper_parameters: Some(TextMap(hyperparameters.collect())),
        input_data_config: (!channels.is_empty()).then(|| channels.iter().map(channel).collect()),
        resource_config: Some(ResourceConfig {
            instance_type: text(INSTANCE_TYPE),
            instance_count: Some(2),
            volume_size_in_gb: Some(1),
            ..ResourceConfig::default()
        }),
        ..CreateTrainingJobRequest::default()
    }
}

/// The user's own job with another image, and with further hyperparameters.
pub fn of_job_file(
    mut request: CreateTrainingJobRequest,
    image: &str,
    hyperparameters: &IndexMap<String, String>,
) -> CreateTrainingJobRequest {
    let algorithm = request.algorithm_specification.get_or_insert_default();
    algorithm.training_image = Some(image.to_owned());
    algorithm.algorithm_name = None;
    let own = request.hyper_parameters.get_or_insert_default();
    for (name, value) in hyperparameters {
        own.0.insert(name.clone(), Value::from(value.as_str()));
    }
    request
}

/// Keeps all that the job writes in a folder, and leaves out what is done with it afterwards.
pub(super) fn write_to(request: &mut CreateTrainingJobRequest, folder: &Path) {
    request.training_job_name = Some("check".to_owned());
    request.output_data_config = Some(OutputDataConfig {
        s3_output_path: Some(format!("file://{}", folder.display())),
        ..OutputDataConfig::default()
    });
    request.checkpoint_config = None;
    if let Some(settings) = &mut request.trainyard {
        settings.merge = None;
    }
}

/// Lets the job run for so many seconds at most.
pub(super) fn limit(request: &mut CreateTrainingJobRequest, seconds: u64) {
    request.stopping_condition = Some(StoppingCondition {
        max_runtime_in_seconds: Some(i64::try_from(seconds).unwrap_or(i64::MAX)),
        ..StoppingCondition::default()
    });
}

/// The same on one instance.
pub(super) fn on_one_instance(request: &mut CreateTrainingJobRequest) {
    let resources = request.resource_config.get_or_insert_default();
    let groups = resources.instance_groups.take().unwrap_or_default();
    if let Some(group) = groups.into_iter().next() {
        resources.instance_type = group.instance_type;
    }
    resources.instance_count = Some(1);
}

pub(super) fn image(request: &CreateTrainingJobRequest) -> &str {
    let algorithm = request.algorithm_specification.as_ref();
    algorithm.and_then(|algorithm| algorithm.training_image.as_deref()).unwrap_or_default()
}

pub(super) fn hyperparameters(request: &CreateTrainingJobRequest) -> IndexMap<String, String> {
    request.hyper_parameters.as_ref().map(TextMap::texts).unwrap_or_default()
}
