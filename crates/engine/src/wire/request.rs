//! The request and those of its shapes that say what runs where on which objects.

use super::members::shape;
use super::rules::{
    DebugHookConfig, ExperimentConfig, InfraCheckConfig, MlflowConfig, ModelPackageConfig, ProfilerConfig,
    RemoteDebugConfig, RuleConfiguration, ServerlessJobConfig, SessionChainingConfig,
    TensorBoardOutputConfig,
};
use super::settings::TrainyardSettings;
use super::text_map::TextMap;

shape! {
    /// A whole `CreateTrainingJob` request, with our own settings beside Amazon's members.
    CreateTrainingJobRequest {
        /// Name of the training job.
        training_job_name: String,
        /// String map that the algorithm reads.
        hyper_parameters: TextMap,
        /// What runs.
        algorithm_specification: AlgorithmSpecification,
        /// The role that the job would assume at Amazon; optional here.
        role_arn: String,
        /// The channels.
        input_data_config: Vec<Channel>,
        /// Where the artifact goes.
        output_data_config: OutputDataConfig,
        /// How many instances, and of which type.
        resource_config: ResourceConfig,
        /// Private network of the instances.
        vpc_config: VpcConfig,
        /// When the job is stopped although it is not done.
        stopping_condition: StoppingCondition,
        /// Labels of the job.
        tags: Vec<Tag>,
        /// Whether the instances are cut off from every network.
        enable_network_isolation: bool,
        /// Whether traffic between instances is encrypted.
        enable_inter_container_traffic_encryption: bool,
        /// Whether interruptible capacity is used.
        enable_managed_spot_training: bool,
        /// Files kept across attempts.
        checkpoint_config: CheckpointConfig,
        /// What the debugger hook saves.
        debug_hook_config: DebugHookConfig,
        /// Rules of the debugger.
        debug_rule_configurations: Vec<RuleConfiguration>,
        /// Where TensorBoard files go.
        tensor_board_output_config: TensorBoardOutputConfig,
        /// The experiment that the job belongs to.
        experiment_config: ExperimentConfig,
        /// The profiler.
        profiler_config: ProfilerConfig,
        /// Rules of the profiler.
        profiler_rule_configurations: Vec<RuleConfiguration>,
        /// Environment variables of every instance.
        environment: TextMap,
        /// How often a job is tried again.
        retry_strategy: RetryStrategy,
        /// Whether a shell into the instances is opened.
        remote_debug_config: RemoteDebugConfig,
        /// Whether the instances are tested before use.
        infra_check_config: InfraCheckConfig,
        /// Whether session tags are passed on.
        session_chaining_config: SessionChainingConfig,
        /// A job of Amazon's own without instances of the user.
        serverless_job_config: ServerlessJobConfig,
        /// Where MLflow runs are recorded.
        mlflow_config: MlflowConfig,
        /// The model package that the result is registered as.
        model_package_config: ModelPackageConfig,
        /// Our own settings, never sent to anyone else.
        trainyard: TrainyardSettings,
    }
}

shape! {
    /// What runs, and how its input and its log are read.
    AlgorithmSpecification {
        /// Image that the instances run; exactly one of this and the algorithm name is given.
        training_image: String,
        /// Name or ARN of a stored algorithm.
        algorithm_name: String,
        /// Input mode of the channels that name none.
        training_input_mode: String,
        /// Metrics that are read out of the log.
        metric_definitions: Vec<MetricDefinition>,
        /// Whether metrics are kept as time series.
        enable_sage_maker_metrics_time_series: bool,
        /// Program that takes the place of the image's own entrypoint.
        container_entrypoint: Vec<String>,
        /// Arguments that take the place of `train`.
        container_arguments: Vec<String>,
        /// How the image is pulled.
        training_image_config: TrainingImageConfig,
    }
}

shape! {
    /// A metric that is read out of the log.
    MetricDefinition {
        /// Name of the metric.
        name: String,
        /// Regular expression whose first group is the value.
        regex: String,
    }
}

shape! {
    /// How the image is pulled.
    TrainingImageConfig {
        /// `Platform` or `Vpc`.
        training_repository_access_mode: String,
        /// Who gives the credentials of a private registry.
        training_repository_auth_config: TrainingRepositoryAuthConfig,
    }
}

shape! {
    /// Who gives the credentials of a private registry.
    TrainingRepositoryAuthConfig {
        /// ARN of the function that gives them.
        training_repository_credentials_provider_arn: String,
    }
}

shape! {
    /// One named input.
    Channel {
        /// Name of the channel, and of its folder.
        channel_name: String,
        /// Where its objects are.
        data_source: DataSource,
        /// Media type, passed through.
        content_type: String,
        /// `None` or `Gzip`.
        compression_type: String,
        /// `None` or `RecordIO`.
        record_wrapper_type: String,
        /// Input mode of this channel.
        input_mode: String,
        /// Asks for another order of the objects in each epoch.
        shuffle_config: ShuffleConfig,
    }
}

shape! {
    /// Where the objects of a channel are; exactly one of the members is given.
    DataSource {
        /// Objects of a store.
        s3_data_source: S3DataSource,
        /// A folder of a shared file system.
        file_system_data_source: FileSystemDataSource,
        /// A dataset of a hub.
        dataset_source: DatasetSource,
    }
}

shape! {
    /// Objects of a store.
    S3DataSource {
        /// What the URI means.
        s3_data_type: String,
        /// Prefix or manifest.
        s3_uri: String,
        /// `FullyReplicated` or `ShardedByS3Key`.
        s3_data_distribution_type: String,
        /// Attributes of an augmented manifest that are sent.
        attribute_names: Vec<String>,
        /// Instance groups that get the channel.
        instance_group_names: Vec<String>,
        /// Consent to the licence of a model.
        model_access_config: ModelAccessConfig,
        /// The hub that the objects belong to.
        hub_access_config: HubAccessConfig,
    }
}

shape! {
    /// Consent to the licence of a model.
    ModelAccessConfig {
        /// Whether the licence is accepted.
        accept_eula: bool,
    }
}

shape! {
    /// The hub that objects belong to.
    HubAccessConfig {
        /// ARN of the content.
        hub_content_arn: String,
    }
}

shape! {
    /// A folder of a shared file system.
    FileSystemDataSource {
        /// Identity of the file system.
        file_system_id: String,
        /// `rw` or `ro`.
        file_system_access_mode: String,
        /// `EFS` or `FSxLustre`.
        file_system_type: String,
        /// Path of the folder in the file system.
        directory_path: String,
    }
}

shape! {
    /// A dataset of a hub.
    DatasetSource {
        /// ARN of the dataset.
        dataset_arn: String,
    }
}

shape! {
    /// Asks for another order of the objects in each epoch.
    ShuffleConfig {
        /// Start of the random order.
        seed: i64,
    }
}

shape! {
    /// Where the artifact goes.
    OutputDataConfig {
        /// Key that the artifact is encrypted with.
        kms_key_id: String,
        /// Prefix below which `<job>/output/` is written.
        s3_output_path: String,
        /// `GZIP` or `NONE`.
        compression_type: String,
    }
}

shape! {
    /// How many instances, and of which type.
    ResourceConfig {
        /// Type of every instance; not together with instance groups.
        instance_type: String,
        /// Number of instances; not together with instance groups.
        instance_count: i64,
        /// Room for input and output of each instance, in GB.
        #[serde(rename = "VolumeSizeInGB")]
        volume_size_in_gb: i64,
        /// Key that the volume is encrypted with.
        volume_kms_key_id: String,
        /// How long the instances are kept for the next job, in seconds.
        keep_alive_period_in_seconds: i64,
        /// Groups of instances of different types.
        instance_groups: Vec<InstanceGroup>,
        /// ARN of reserved capacity.
        training_plan_arn: String,
        /// Where instances are placed.
        instance_placement_config: InstancePlacementConfig,
    }
}

shape! {
    /// Instances of one type in a job of several types.
    InstanceGroup {
        /// Type of the instances.
        instance_type: String,
        /// Number of the instances.
        instance_count: i64,
        /// Name of the group.
        instance_group_name: String,
    }
}

shape! {
    /// Where instances are placed.
    InstancePlacementConfig {
        /// Whether several jobs may share a server.
        enable_multiple_jobs: bool,
        /// Instances per server.
        placement_specifications: Vec<PlacementSpecification>,
    }
}

shape! {
    /// How many instances one server gets.
    PlacementSpecification {
        /// Identity of the server.
        ultra_server_id: String,
        /// Number of instances.
        instance_count: i64,
    }
}

shape! {
    /// Private network of the instances.
    VpcConfig {
        /// Security groups.
        security_group_ids: Vec<String>,
        /// Subnets.
        subnets: Vec<String>,
    }
}

shape! {
    /// When the job is stopped although it is not done.
    StoppingCondition {
        /// Longest run, in seconds.
        max_runtime_in_seconds: i64,
        /// Longest run with all waiting for interruptible capacity, in seconds.
        max_wait_time_in_seconds: i64,
        /// Longest wait for capacity, in seconds.
        max_pending_time_in_seconds: i64,
    }
}

shape! {
    /// A label.
    Tag {
        /// Name of the label.
        key: String,
        /// Value of the label.
        value: String,
    }
}

shape! {
    /// Files kept across attempts.
    CheckpointConfig {
        /// Prefix where they are kept.
        s3_uri: String,
        /// Folder that they appear in.
        local_path: String,
    }
}

shape! {
    /// How often a job is tried again.
    RetryStrategy {
        /// Highest number of further attempts.
        maximum_retry_attempts: i64,
    }
}
