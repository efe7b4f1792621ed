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
        training_job_name "TrainingJobName": String,
        /// String map that the algorithm reads.
        hyper_parameters "HyperParameters": TextMap,
        /// What runs.
        algorithm_specification "AlgorithmSpecification": AlgorithmSpecification,
        /// The role that the job would assume at Amazon; optional here.
        role_arn "RoleArn": String,
        /// The channels.
        input_data_config "InputDataConfig": Vec<Channel>,
        /// Where the artifact goes.
        output_data_config "OutputDataConfig": OutputDataConfig,
        /// How many instances, and of which type.
        resource_config "ResourceConfig": ResourceConfig,
        /// Private network of the instances.
        vpc_config "VpcConfig": VpcConfig,
        /// When the job is stopped although it is not done.
        stopping_condition "StoppingCondition": StoppingCondition,
        /// Labels of the job.
        tags "Tags": Vec<Tag>,
        /// Whether the instances are cut off from every network.
        enable_network_isolation "EnableNetworkIsolation": bool,
        /// Whether traffic between instances is encrypted.
        enable_inter_container_traffic_encryption "EnableInterContainerTrafficEncryption": bool,
        /// Whether interruptible capacity is used.
        enable_managed_spot_training "EnableManagedSpotTraining": bool,
        /// Files kept across attempts.
        checkpoint_config "CheckpointConfig": CheckpointConfig,
        /// What the debugger hook saves.
        debug_hook_config "DebugHookConfig": DebugHookConfig,
        /// Rules of the debugger.
        debug_rule_configurations "DebugRuleConfigurations": Vec<RuleConfiguration>,
        /// Where TensorBoard files go.
        tensor_board_output_config "TensorBoardOutputConfig": TensorBoardOutputConfig,
        /// The experiment that the job belongs to.
        experiment_config "ExperimentConfig": ExperimentConfig,
        /// The profiler.
        profiler_config "ProfilerConfig": ProfilerConfig,
        /// Rules of the profiler.
        profiler_rule_configurations "ProfilerRuleConfigurations": Vec<RuleConfiguration>,
        /// Environment variables of every instance.
        environment "Environment": TextMap,
        /// How often a job is tried again.
        retry_strategy "RetryStrategy": RetryStrategy,
        /// Whether a shell into the instances is opened.
        remote_debug_config "RemoteDebugConfig": RemoteDebugConfig,
        /// Whether the instances are tested before use.
        infra_check_config "InfraCheckConfig": InfraCheckConfig,
        /// Whether session tags are passed on.
        session_chaining_config "SessionChainingConfig": SessionChainingConfig,
        /// A job of Amazon's own without instances of the user.
        serverless_job_config "ServerlessJobConfig": ServerlessJobConfig,
        /// Where MLflow runs are recorded.
        mlflow_config "MlflowConfig": MlflowConfig,
        /// The model package that the result is registered as.
        model_package_config "ModelPackageConfig": ModelPackageConfig,
        /// Our own settings, never sent to anyone else.
        trainyard "Trainyard": TrainyardSettings,
    }
}

shape! {
    /// What runs, and how its input and its log are read.
    AlgorithmSpecification {
        /// Image that the instances run; exactly one of this and the algorithm name is given.
        training_image "TrainingImage": String,
        /// Name or ARN of a stored algorithm.
        algorithm_name "AlgorithmName": String,
        /// Input mode of the channels that name none.
        training_input_mode "TrainingInputMode": String,
        /// Metrics that are read out of the log.
        metric_definitions "MetricDefinitions": Vec<MetricDefinition>,
        /// Whether metrics are kept as time series.
        enable_sage_maker_metrics_time_series "EnableSageMakerMetricsTimeSeries": bool,
        /// Program that takes the place of the image's own entrypoint.
        container_entrypoint "ContainerEntrypoint": Vec<String>,
        /// Arguments that take the place of `train`.
        container_arguments "ContainerArguments": Vec<String>,
        /// How the image is pulled.
        training_image_config "TrainingImageConfig": TrainingImageConfig,
    }
}

shape! {
    /// A metric that is read out of the log.
    MetricDefinition {
        /// Name of the metric.
        name "Name": String,
        /// Regular expression whose first group is the value.
        regex "Regex": String,
    }
}

shape! {
    /// How the image is pulled.
    TrainingImageConfig {
        /// `Platform` or `Vpc`.
        training_repository_access_mode "TrainingRepositoryAccessMode": String,
        /// Who gives the credentials of a private registry.
        training_repository_auth_config "TrainingRepositoryAuthConfig": TrainingRepositoryAuthConfig,
    }
}

shape! {
    /// Who gives the credentials of a private registry.
    TrainingRepositoryAuthConfig {
        /// ARN of the function that gives them.
        training_repository_credentials_provider_arn "TrainingRepositoryCredentialsProviderArn": String,
    }
}

shape! {
    /// One named input.
    Channel {
        /// Name of the channel, and of its folder.
        channel_name "ChannelName": String,
        /// Where its objects are.
        data_source "DataSource": DataSource,
        /// Media type, passed through.
        content_type "ContentType": String,
        /// `None` or `Gzip`.
        compression_type "CompressionType": String,
        /// `None` or `RecordIO`.
        record_wrapper_type "RecordWrapperType": String,
        /// Input mode of this channel.
        input_mode "InputMode": String,
        /// Asks for another order of the objects in each epoch.
        shuffle_config "ShuffleConfig": ShuffleConfig,
    }
}

shape! {
    /// Where the objects of a channel are; exactly one of the members is given.
    DataSource {
        /// Objects of a store.
        s3_data_source "S3DataSource": S3DataSource,
        /// A folder of a shared file system.
        file_system_data_source "FileSystemDataSource": FileSystemDataSource,
        /// A dataset of a hub.
        dataset_source "DatasetSource": DatasetSource,
    }
}

shape! {
    /// Objects of a store.
    S3DataSource {
        /// What the URI means.
        s3_data_type "S3DataType": String,
        /// Prefix or manifest.
        s3_uri "S3Uri": String,
        /// `FullyReplicated` or `ShardedByS3Key`.
        s3_data_distribution_type "S3DataDistributionType": String,
        /// Attributes of an augmented manifest that are sent.
        attribute_names "AttributeNames": Vec<String>,
        /// Instance groups that get the channel.
        instance_group_names "InstanceGroupNames": Vec<String>,
        /// Consent to the licence of a model.
        model_access_config "ModelAccessConfig": ModelAccessConfig,
        /// The hub that the objects belong to.
        hub_access_config "HubAccessConfig": HubAccessConfig,
    }
}

shape! {
    /// Consent to the licence of a model.
    ModelAccessConfig {
        /// Whether the licence is accepted.
        accept_eula "AcceptEula": bool,
    }
}

shape! {
    /// The hub that objects belong to.
    HubAccessConfig {
        /// ARN of the content.
        hub_content_arn "HubContentArn": String,
    }
}

shape! {
    /// A folder of a shared file system.
    FileSystemDataSource {
        /// Identity of the file system.
        file_system_id "FileSystemId": String,
        /// `rw` or `ro`.
        file_system_access_mode "FileSystemAccessMode": String,
        /// `EFS` or `FSxLustre`.
        file_system_type "FileSystemType": String,
        /// Path of the folder in the file system.
        directory_path "DirectoryPath": String,
    }
}

shape! {
    /// A dataset of a hub.
    DatasetSource {
        /// ARN of the dataset.
        dataset_arn "DatasetArn": String,
    }
}

shape! {
    /// Asks for another order of the objects in each epoch.
    ShuffleConfig {
        /// Start of the random order.
        seed "Seed": i64,
    }
}

shape! {
    /// Where the artifact goes.
    OutputDataConfig {
        /// Key that the artifact is encrypted with.
        kms_key_id "KmsKeyId": String,
        /// Prefix below which `<job>/output/` is written.
        s3_output_path "S3OutputPath": String,
        /// `GZIP` or `NONE`.
        compression_type "CompressionType": String,
    }
}

shape! {
    /// How many instances, and of which type.
    ResourceConfig {
        /// Type of every instance; not together with instance groups.
        instance_type "InstanceType": String,
        /// Number of instances; not together with instance groups.
        instance_count "InstanceCount": i64,
        /// Room for input and output of each instance, in GB.
        volume_size_in_gb "VolumeSizeInGB": i64,
        /// Key that the volume is encrypted with.
        volume_kms_key_id "VolumeKmsKeyId": String,
        /// How long the instances are kept for the next job, in seconds.
        keep_alive_period_in_seconds "KeepAlivePeriodInSeconds": i64,
        /// Groups of instances of different types.
        instance_groups "InstanceGroups": Vec<InstanceGroup>,
        /// ARN of reserved capacity.
        training_plan_arn "TrainingPlanArn": String,
        /// Where instances are placed.
        instance_placement_config "InstancePlacementConfig": InstancePlacementConfig,
        /// Types of which one is taken, the most wanted first; not together with a type or groups.
        instance_preferences "InstancePreferences": Vec<InstancePreference>,
        /// The type that was taken; told by `DescribeTrainingJob`, never sent.
        selected_instance_type "SelectedInstanceType": String,
        /// How many instances of it; told, never sent.
        selected_instance_count "SelectedInstanceCount": i64,
    }
}

shape! {
    /// Instances of one type in a job of several types.
    InstanceGroup {
        /// Type of the instances.
        instance_type "InstanceType": String,
        /// Number of the instances.
        instance_count "InstanceCount": i64,
        /// Name of the group.
        instance_group_name "InstanceGroupName": String,
    }
}

shape! {
    /// One of the types that a job could run on.
    InstancePreference {
        /// Type of the instances.
        instance_type "InstanceType": String,
        /// Number of the instances, if it is not the same for all types.
        instance_count "InstanceCount": i64,
        /// ARNs of reserved capacity.
        training_plan_arns "TrainingPlanArns": Vec<String>,
    }
}

shape! {
    /// Where instances are placed.
    InstancePlacementConfig {
        /// Whether several jobs may share a server.
        enable_multiple_jobs "EnableMultipleJobs": bool,
        /// Instances per server.
        placement_specifications "PlacementSpecifications": Vec<PlacementSpecification>,
    }
}

shape! {
    /// How many instances one server gets.
    PlacementSpecification {
        /// Identity of the server.
        ultra_server_id "UltraServerId": String,
        /// Number of instances.
        instance_count "InstanceCount": i64,
    }
}

shape! {
    /// Private network of the instances.
    VpcConfig {
        /// Security groups.
        security_group_ids "SecurityGroupIds": Vec<String>,
        /// Subnets.
        subnets "Subnets": Vec<String>,
    }
}

shape! {
    /// When the job is stopped although it is not done.
    StoppingCondition {
        /// Longest run, in seconds.
        max_runtime_in_seconds "MaxRuntimeInSeconds": i64,
        /// Longest run with all waiting for interruptible capacity, in seconds.
        max_wait_time_in_seconds "MaxWaitTimeInSeconds": i64,
        /// Longest wait for capacity, in seconds.
        max_pending_time_in_seconds "MaxPendingTimeInSeconds": i64,
    }
}

shape! {
    /// A label.
    Tag {
        /// Name of the label.
        key "Key": String,
        /// Value of the label.
        value "Value": String,
    }
}

shape! {
    /// Files kept across attempts.
    CheckpointConfig {
        /// Prefix where they are kept.
        s3_uri "S3Uri": String,
        /// Folder that they appear in.
        local_path "LocalPath": String,
    }
}

shape! {
    /// How often a job is tried again.
    RetryStrategy {
        /// Highest number of further attempts.
        maximum_retry_attempts "MaximumRetryAttempts": i64,
    }
}
