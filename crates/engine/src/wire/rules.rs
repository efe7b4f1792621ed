//! The shapes of the services around a job: debugger, profiler, experiments and the like.

use super::members::shape;
use super::text_map::TextMap;

shape! {
    /// What the debugger hook saves.
    DebugHookConfig {
        /// Folder inside the instance.
        local_path "LocalPath": String,
        /// Prefix where tensors go.
        s3_output_path "S3OutputPath": String,
        /// Settings of the hook.
        hook_parameters "HookParameters": TextMap,
        /// Collections of tensors to save.
        collection_configurations "CollectionConfigurations": Vec<CollectionConfiguration>,
    }
}

shape! {
    /// A collection of tensors to save.
    CollectionConfiguration {
        /// Name of the collection.
        collection_name "CollectionName": String,
        /// Settings of the collection.
        collection_parameters "CollectionParameters": TextMap,
    }
}

shape! {
    /// One rule of the debugger or of the profiler.
    RuleConfiguration {
        /// Name of the rule.
        rule_configuration_name "RuleConfigurationName": String,
        /// Folder inside the instance.
        local_path "LocalPath": String,
        /// Prefix where its result goes.
        s3_output_path "S3OutputPath": String,
        /// Image that evaluates the rule.
        rule_evaluator_image "RuleEvaluatorImage": String,
        /// Type of the instance that evaluates it.
        instance_type "InstanceType": String,
        /// Room on that instance, in GB.
        volume_size_in_gb "VolumeSizeInGB": i64,
        /// Settings of the rule.
        rule_parameters "RuleParameters": TextMap,
    }
}

shape! {
    /// Where TensorBoard files go.
    TensorBoardOutputConfig {
        /// Folder inside the instance.
        local_path "LocalPath": String,
        /// Prefix where they go.
        s3_output_path "S3OutputPath": String,
    }
}

shape! {
    /// The experiment that a job belongs to.
    ExperimentConfig {
        /// Name of the experiment.
        experiment_name "ExperimentName": String,
        /// Name of the trial.
        trial_name "TrialName": String,
        /// Name that is shown for the trial component.
        trial_component_display_name "TrialComponentDisplayName": String,
        /// Name of the run.
        run_name "RunName": String,
    }
}

shape! {
    /// The profiler.
    ProfilerConfig {
        /// Prefix where its files go.
        s3_output_path "S3OutputPath": String,
        /// Time between two samples.
        profiling_interval_in_milliseconds "ProfilingIntervalInMilliseconds": i64,
        /// Settings of the profiler.
        profiling_parameters "ProfilingParameters": TextMap,
        /// Whether it is off.
        disable_profiler "DisableProfiler": bool,
    }
}

shape! {
    /// Whether a shell into the instances is opened.
    RemoteDebugConfig {
        /// Whether it is.
        enable_remote_debug "EnableRemoteDebug": bool,
    }
}

shape! {
    /// Whether the instances are tested before use.
    InfraCheckConfig {
        /// Whether they are.
        enable_infra_check "EnableInfraCheck": bool,
    }
}

shape! {
    /// Whether session tags are passed on.
    SessionChainingConfig {
        /// Whether they are.
        enable_session_tag_chaining "EnableSessionTagChaining": bool,
    }
}

shape! {
    /// A job of Amazon's own without instances of the user.
    ServerlessJobConfig {
        /// Model to start from.
        base_model_arn "BaseModelArn": String,
        /// Consent to the licence of the model.
        accept_eula "AcceptEula": bool,
        /// `FineTuning` or `Evaluation`.
        job_type "JobType": String,
        /// How the model is changed.
        customization_technique "CustomizationTechnique": String,
        /// How few parameters are trained.
        peft "Peft": String,
        /// How the model is judged.
        evaluation_type "EvaluationType": String,
        /// Who judges it.
        evaluator_arn "EvaluatorArn": String,
        /// Longest sequence in tokens, such as `32K`.
        sequence_length "SequenceLength": String,
    }
}

shape! {
    /// Where MLflow runs are recorded.
    MlflowConfig {
        /// ARN of the server.
        mlflow_resource_arn "MlflowResourceArn": String,
        /// Name of the experiment.
        mlflow_experiment_name "MlflowExperimentName": String,
        /// Name of the run.
        mlflow_run_name "MlflowRunName": String,
    }
}

shape! {
    /// The model package that a result is registered as.
    ModelPackageConfig {
        /// Group of the package.
        model_package_group_arn "ModelPackageGroupArn": String,
        /// Package to start from.
        source_model_package_arn "SourceModelPackageArn": String,
    }
}
