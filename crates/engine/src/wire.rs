//! What was sent: the `CreateTrainingJob` request with Amazon's exact member names.
//!
//! Every member is optional here, required ones too, and every word out of a fixed set is plain text:
//! what is missing or wrong is found by [`crate::spec`], all of it at once. Only what is not a
//! request at all (no JSON, a member that does not exist, a number where text belongs) fails to parse.
//! Written out again, a request has the members that were sent and no others.

mod members;
mod parse;
mod request;
mod rules;
mod settings;
#[cfg(test)]
mod tests;
mod text_map;

pub use parse::{ParseError, parse_json};
pub use request::{
    AlgorithmSpecification, Channel, CheckpointConfig, CreateTrainingJobRequest, DataSource, DatasetSource,
    FileSystemDataSource, HubAccessConfig, InstanceGroup, InstancePlacementConfig, InstancePreference,
    MetricDefinition, ModelAccessConfig, OutputDataConfig, PlacementSpecification, ResourceConfig,
    RetryStrategy, S3DataSource, ShuffleConfig, StoppingCondition, Tag, TrainingImageConfig,
    TrainingRepositoryAuthConfig, VpcConfig,
};
pub use rules::{
    CollectionConfiguration, DebugHookConfig, ExperimentConfig, InfraCheckConfig, MlflowConfig,
    ModelPackageConfig, ProfilerConfig, RemoteDebugConfig, RuleConfiguration, ServerlessJobConfig,
    SessionChainingConfig, TensorBoardOutputConfig,
};
pub use settings::{MergeSettings, OutputSettings, TrainyardSettings};
pub use text_map::TextMap;
