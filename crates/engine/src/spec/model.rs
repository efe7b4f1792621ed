//! The limits of every member of the request, as a table.
//!
//! The table follows Amazon's service model of the API, in its order; a test holds it against an
//! extract of that model. It differs where a job here needs less or allows more: the role may be left
//! out, files of this machine stand where objects do, and this machine is a type of instance. Numbers
//! that the model leaves open end where its 32 bits do, or where the developer guide says so.

use super::channel::{
    Compression, Distribution, FileSystemAccess, FileSystemType, InputMode, RecordWrapper, S3DataType,
};
use super::enums::{PROCESSING_INSTANCE_TYPES, TRAINING_INSTANCE_TYPES};
use super::pattern::{self, Pattern};
use super::settings::{ARCHIVE_COMPRESSIONS, ShardBy};
use super::shape::{Entries, Member, Shape, Size, Text};

/// Highest number of the API's integers.
const INTEGER: i64 = i32::MAX as i64;
/// Longest run that Amazon allows: 28 days, in seconds.
const LONGEST_RUN: i64 = 28 * 86_400;

const fn required(name: &'static str, shape: Shape) -> Member {
    Member { name, required: true, shape }
}

const fn optional(name: &'static str, shape: Shape) -> Member {
    Member { name, required: false, shape }
}

const fn size(min: usize, max: usize) -> Size {
    Size { min, max }
}

const fn limits(min: usize, max: usize, pattern: &'static Pattern) -> Text {
    Text { size: size(min, max), pattern: Some(pattern) }
}

static ROLE_ARN: Text = limits(20, 2048, &pattern::ROLE_ARN);
static JOB_NAME: Text = limits(1, 63, &pattern::JOB_NAME);
static IMAGE: Text = limits(0, 255, &pattern::ANY_LINE);
static ALGORITHM_NAME: Text = limits(1, 170, &pattern::ALGORITHM_NAME);
static METRIC_NAME: Text = limits(1, 255, &pattern::SOME_LINE);
static METRIC_REGEX: Text = limits(1, 500, &pattern::SOME_LINE);
static COMMAND_WORD: Text = limits(0, 256, &pattern::ANY_LINE);
static LAMBDA_ARN: Text = limits(1, 2048, &pattern::LAMBDA_ARN);
static CHANNEL_NAME: Text = limits(1, 64, &pattern::CHANNEL_NAME);
static CONTENT_TYPE: Text = limits(0, 256, &pattern::ANY_LINE);
static OBJECT_URI: Text = limits(0, 1024, &pattern::OBJECT_URI);
static ATTRIBUTE_NAME: Text = limits(1, 256, &pattern::SOME_LINE);
static GROUP_NAME: Text = limits(1, 64, &pattern::SOME_LINE);
static HUB_CONTENT_ARN: Text = limits(0, 255, &pattern::ANY_LINE);
static FILE_SYSTEM_ID: Text = limits(11, 21, &pattern::FILE_SYSTEM_ID);
static DIRECTORY: Text = limits(0, 4096, &pattern::ANY_LINE);
static DATASET_ARN: Text = limits(0, 2048, &pattern::DATASET_ARN);
static KMS_KEY: Text = limits(0, 2048, &pattern::KMS_KEY);
static TRAINING_PLAN_ARN: Text = limits(50, 2048, &pattern::TRAINING_PLAN_ARN);
static SERVER_ID: Text = Text { size: size(0, 256), pattern: None };
static NETWORK_ID: Text = limits(0, 32, &pattern::NETWORK_ID);
static TAG_KEY: Text = limits(1, 128, &pattern::TAG);
static TAG_VALUE: Text = limits(0, 256, &pattern::TAG);
static NAME_256: Text = limits(1, 256, &pattern::ANY_LINE);
static CONFIG_KEY: Text = limits(1, 256, &pattern::ANY_LINE);
static CONFIG_VALUE: Text = limits(0, 256, &pattern::ANY_LINE);
static EXPERIMENT_NAME: Text = limits(1, 120, &pattern::EXPERIMENT_NAME);
static MODEL_ARN: Text = limits(1, 2048, &pattern::MODEL_ARN);
static SEQUENCE_LENGTH: Text = limits(1, 50, &pattern::SEQUENCE_LENGTH);
static EVALUATOR_ARN: Text = limits(0, usize::MAX, &pattern::ANY_LINE);
static MLFLOW_ARN: Text = limits(0, 2048, &pattern::MLFLOW_ARN);
static PACKAGE_GROUP_ARN: Text = limits(1, 2048, &pattern::PACKAGE_GROUP_ARN);
static PACKAGE_ARN: Text = limits(1, 2048, &pattern::PACKAGE_ARN);
static HYPERPARAMETER_KEY: Text = limits(0, 256, &pattern::ANY_LINE);
static HYPERPARAMETER_VALUE: Text = limits(0, 2500, &pattern::ANY_LINE);
static VARIABLE_NAME: Text = limits(0, 512, &pattern::VARIABLE_NAME);
static VARIABLE_VALUE: Text = limits(0, 512, &pattern::ANYTHING);

static HYPERPARAMETERS: Entries =
    Entries { max: 100, keys: &HYPERPARAMETER_KEY, values: &HYPERPARAMETER_VALUE, secret: false };
static ENVIRONMENT: Entries =
    Entries { max: 100, keys: &VARIABLE_NAME, values: &VARIABLE_VALUE, secret: true };
static CONFIG_20: Entries = Entries { max: 20, keys: &CONFIG_KEY, values: &CONFIG_VALUE, secret: false };
static CONFIG_100: Entries = Entries { max: 100, keys: &CONFIG_KEY, values: &CONFIG_VALUE, secret: false };

/// The request.
pub(super) static REQUEST: &[Member] = &[
    required("TrainingJobName", Shape::Text(&JOB_NAME)),
    optional("HyperParameters", Shape::Map(&HYPERPARAMETERS)),
    // Not marked in the model, because a serverless job has neither; see the rules across members.
    optional("AlgorithmSpecification", Shape::Structure(ALGORITHM_SPECIFICATION)),
    optional("RoleArn", Shape::Text(&ROLE_ARN)),
    optional("InputDataConfig", Shape::Structures(size(1, 20), CHANNEL)),
    required("OutputDataConfig", Shape::Structure(OUTPUT_DATA_CONFIG)),
    optional("ResourceConfig", Shape::Structure(RESOURCE_CONFIG)),
    optional("VpcConfig", Shape::Structure(VPC_CONFIG)),
    optional("StoppingCondition", Shape::Structure(STOPPING_CONDITION)),
    optional("Tags", Shape::Structures(size(0, 50), TAG)),
    optional("EnableNetworkIsolation", Shape::Free),
    optional("EnableInterContainerTrafficEncryption", Shape::Free),
    optional("EnableManagedSpotTraining", Shape::Free),
    optional("CheckpointConfig", Shape::Structure(CHECKPOINT_CONFIG)),
    optional("DebugHookConfig", Shape::Structure(DEBUG_HOOK_CONFIG)),
    optional("DebugRuleConfigurations", Shape::Structures(size(0, 20), RULE_CONFIGURATION)),
    optional("TensorBoardOutputConfig", Shape::Structure(TENSOR_BOARD_OUTPUT_CONFIG)),
    optional("ExperimentConfig", Shape::Structure(EXPERIMENT_CONFIG)),
    optional("ProfilerConfig", Shape::Structure(PROFILER_CONFIG)),
    optional("ProfilerRuleConfigurations", Shape::Structures(size(0, 20), RULE_CONFIGURATION)),
    optional("Environment", Shape::Map(&ENVIRONMENT)),
    optional("RetryStrategy", Shape::Structure(RETRY_STRATEGY)),
    optional("RemoteDebugConfig", Shape::Structure(REMOTE_DEBUG_CONFIG)),
    optional("InfraCheckConfig", Shape::Structure(INFRA_CHECK_CONFIG)),
    optional("SessionChainingConfig", Shape::Structure(SESSION_CHAINING_CONFIG)),
    optional("ServerlessJobConfig", Shape::Structure(SERVERLESS_JOB_CONFIG)),
    optional("MlflowConfig", Shape::Structure(MLFLOW_CONFIG)),
    optional("ModelPackageConfig", Shape::Structure(MODEL_PACKAGE_CONFIG)),
    optional("Trainyard", Shape::Structure(TRAINYARD)),
];

static ALGORITHM_SPECIFICATION: &[Member] = &[
    optional("TrainingImage", Shape::Text(&IMAGE)),
    optional("AlgorithmName", Shape::Text(&ALGORITHM_NAME)),
    required("TrainingInputMode", Shape::Word(InputMode::WORDS)),
    optional("MetricDefinitions", Shape::Structures(size(0, 40), METRIC_DEFINITION)),
    optional("EnableSageMakerMetricsTimeSeries", Shape::Free),
    optional("ContainerEntrypoint", Shape::Texts(size(1, 100), &COMMAND_WORD)),
    optional("ContainerArguments", Shape::Texts(size(1, 100), &COMMAND_WORD)),
    optional("TrainingImageConfig", Shape::Structure(TRAINING_IMAGE_CONFIG)),
];

static METRIC_DEFINITION: &[Member] =
    &[required("Name", Shape::Text(&METRIC_NAME)), required("Regex", Shape::Text(&METRIC_REGEX))];

static TRAINING_IMAGE_CONFIG: &[Member] = &[
    required("TrainingRepositoryAccessMode", Shape::Word(&["Platform", "Vpc"])),
    optional("TrainingRepositoryAuthConfig", Shape::Structure(TRAINING_REPOSITORY_AUTH_CONFIG)),
];

static TRAINING_REPOSITORY_AUTH_CONFIG: &[Member] =
    &[required("TrainingRepositoryCredentialsProviderArn", Shape::Text(&LAMBDA_ARN))];

static CHANNEL: &[Member] = &[
    required("ChannelName", Shape::Text(&CHANNEL_NAME)),
    required("DataSource", Shape::Structure(DATA_SOURCE)),
    optional("ContentType", Shape::Text(&CONTENT_TYPE)),
    optional("CompressionType", Shape::Word(Compression::WORDS)),
    optional("RecordWrapperType", Shape::Word(RecordWrapper::WORDS)),
    optional("InputMode", Shape::Word(InputMode::WORDS)),
    optional("ShuffleConfig", Shape::Structure(&[required("Seed", Shape::Free)])),
];

static DATA_SOURCE: &[Member] = &[
    optional("S3DataSource", Shape::Structure(S3_DATA_SOURCE)),
    optional("FileSystemDataSource", Shape::Structure(FILE_SYSTEM_DATA_SOURCE)),
    optional("DatasetSource", Shape::Structure(DATASET_SOURCE)),
];

static S3_DATA_SOURCE: &[Member] = &[
    required("S3DataType", Shape::Word(S3DataType::WORDS)),
    required("S3Uri", Shape::Text(&OBJECT_URI)),
    optional("S3DataDistributionType", Shape::Word(Distribution::WORDS)),
    optional("AttributeNames", Shape::Texts(size(0, 16), &ATTRIBUTE_NAME)),
    optional("InstanceGroupNames", Shape::Texts(size(0, 5), &GROUP_NAME)),
    optional("ModelAccessConfig", Shape::Structure(MODEL_ACCESS_CONFIG)),
    optional("HubAccessConfig", Shape::Structure(HUB_ACCESS_CONFIG)),
];

static MODEL_ACCESS_CONFIG: &[Member] = &[required("AcceptEula", Shape::Free)];

static HUB_ACCESS_CONFIG: &[Member] = &[required("HubContentArn", Shape::Text(&HUB_CONTENT_ARN))];

static FILE_SYSTEM_DATA_SOURCE: &[Member] = &[
    required("FileSystemId", Shape::Text(&FILE_SYSTEM_ID)),
    required("FileSystemAccessMode", Shape::Word(FileSystemAccess::WORDS)),
    required("FileSystemType", Shape::Word(FileSystemType::WORDS)),
    required("DirectoryPath", Shape::Text(&DIRECTORY)),
];

static DATASET_SOURCE: &[Member] = &[required("DatasetArn", Shape::Text(&DATASET_ARN))];

static OUTPUT_DATA_CONFIG: &[Member] = &[
    optional("KmsKeyId", Shape::Text(&KMS_KEY)),
    required("S3OutputPath", Shape::Text(&OBJECT_URI)),
    optional("CompressionType", Shape::Word(&["GZIP", "NONE"])),
];

static RESOURCE_CONFIG: &[Member] = &[
    optional("InstanceType", Shape::Word(TRAINING_INSTANCE_TYPES)),
    optional("InstanceCount", Shape::Number(0, INTEGER)),
    optional("VolumeSizeInGB", Shape::Number(0, INTEGER)),
    optional("VolumeKmsKeyId", Shape::Text(&KMS_KEY)),
    optional("KeepAlivePeriodInSeconds", Shape::Number(0, 21_600)),
    optional("InstanceGroups", Shape::Structures(size(0, 5), INSTANCE_GROUP)),
    optional("TrainingPlanArn", Shape::Text(&TRAINING_PLAN_ARN)),
    optional("InstancePlacementConfig", Shape::Structure(INSTANCE_PLACEMENT_CONFIG)),
    optional("InstancePreferences", Shape::Structures(size(1, 5), INSTANCE_PREFERENCE)),
    optional("SelectedInstanceType", Shape::Word(TRAINING_INSTANCE_TYPES)),
    optional("SelectedInstanceCount", Shape::Number(0, INTEGER)),
];

static INSTANCE_PREFERENCE: &[Member] = &[
    required("InstanceType", Shape::Word(TRAINING_INSTANCE_TYPES)),
    // As of a group.
    optional("InstanceCount", Shape::Number(1, INTEGER)),
    optional("TrainingPlanArns", Shape::Texts(size(1, 1), &TRAINING_PLAN_ARN)),
];

static INSTANCE_GROUP: &[Member] = &[
    required("InstanceType", Shape::Word(TRAINING_INSTANCE_TYPES)),
    // The model allows a group of none; such a group would have no meaning.
    required("InstanceCount", Shape::Number(1, INTEGER)),
    required("InstanceGroupName", Shape::Text(&GROUP_NAME)),
];

static INSTANCE_PLACEMENT_CONFIG: &[Member] = &[
    optional("EnableMultipleJobs", Shape::Free),
    optional("PlacementSpecifications", Shape::Structures(size(0, 10), PLACEMENT_SPECIFICATION)),
];

static PLACEMENT_SPECIFICATION: &[Member] = &[
    optional("UltraServerId", Shape::Text(&SERVER_ID)),
    required("InstanceCount", Shape::Number(0, INTEGER)),
];

static VPC_CONFIG: &[Member] = &[
    required("SecurityGroupIds", Shape::Texts(size(1, 5), &NETWORK_ID)),
    required("Subnets", Shape::Texts(size(1, 16), &NETWORK_ID)),
];

static STOPPING_CONDITION: &[Member] = &[
    optional("MaxRuntimeInSeconds", Shape::Number(1, LONGEST_RUN)),
    optional("MaxWaitTimeInSeconds", Shape::Number(1, INTEGER)),
    optional("MaxPendingTimeInSeconds", Shape::Number(1800, 2_419_200)),
];

static TAG: &[Member] = &[required("Key", Shape::Text(&TAG_KEY)), required("Value", Shape::Text(&TAG_VALUE))];

static CHECKPOINT_CONFIG: &[Member] =
    &[required("S3Uri", Shape::Text(&OBJECT_URI)), optional("LocalPath", Shape::Text(&DIRECTORY))];

static DEBUG_HOOK_CONFIG: &[Member] = &[
    optional("LocalPath", Shape::Text(&DIRECTORY)),
    required("S3OutputPath", Shape::Text(&OBJECT_URI)),
    optional("HookParameters", Shape::Map(&CONFIG_20)),
    optional("CollectionConfigurations", Shape::Structures(size(0, 20), COLLECTION_CONFIGURATION)),
];

static COLLECTION_CONFIGURATION: &[Member] = &[
    optional("CollectionName", Shape::Text(&NAME_256)),
    optional("CollectionParameters", Shape::Map(&CONFIG_20)),
];

static RULE_CONFIGURATION: &[Member] = &[
    required("RuleConfigurationName", Shape::Text(&NAME_256)),
    optional("LocalPath", Shape::Text(&DIRECTORY)),
    optional("S3OutputPath", Shape::Text(&OBJECT_URI)),
    required("RuleEvaluatorImage", Shape::Text(&IMAGE)),
    optional("InstanceType", Shape::Word(PROCESSING_INSTANCE_TYPES)),
    optional("VolumeSizeInGB", Shape::Number(0, INTEGER)),
    optional("RuleParameters", Shape::Map(&CONFIG_100)),
];

static TENSOR_BOARD_OUTPUT_CONFIG: &[Member] =
    &[optional("LocalPath", Shape::Text(&DIRECTORY)), required("S3OutputPath", Shape::Text(&OBJECT_URI))];

static EXPERIMENT_CONFIG: &[Member] = &[
    optional("ExperimentName", Shape::Text(&EXPERIMENT_NAME)),
    optional("TrialName", Shape::Text(&EXPERIMENT_NAME)),
    optional("TrialComponentDisplayName", Shape::Text(&EXPERIMENT_NAME)),
    optional("RunName", Shape::Text(&EXPERIMENT_NAME)),
];

static PROFILER_CONFIG: &[Member] = &[
    optional("S3OutputPath", Shape::Text(&OBJECT_URI)),
    optional("ProfilingIntervalInMilliseconds", Shape::Free),
    optional("ProfilingParameters", Shape::Map(&CONFIG_20)),
    optional("DisableProfiler", Shape::Free),
];

static RETRY_STRATEGY: &[Member] = &[required("MaximumRetryAttempts", Shape::Number(1, 30))];

static REMOTE_DEBUG_CONFIG: &[Member] = &[optional("EnableRemoteDebug", Shape::Free)];

static INFRA_CHECK_CONFIG: &[Member] = &[optional("EnableInfraCheck", Shape::Free)];

static SESSION_CHAINING_CONFIG: &[Member] = &[optional("EnableSessionTagChaining", Shape::Free)];

static SERVERLESS_JOB_CONFIG: &[Member] = &[
    required("BaseModelArn", Shape::Text(&MODEL_ARN)),
    optional("AcceptEula", Shape::Free),
    required("JobType", Shape::Word(&["FineTuning", "Evaluation"])),
    optional("CustomizationTechnique", Shape::Word(&["SFT", "DPO", "RLVR", "RLAIF"])),
    optional("Peft", Shape::Word(&["LORA"])),
    optional(
        "EvaluationType",
        Shape::Word(&["LLMAJEvaluation", "CustomScorerEvaluation", "BenchmarkEvaluation"]),
    ),
    optional("EvaluatorArn", Shape::Text(&EVALUATOR_ARN)),
    optional("SequenceLength", Shape::Text(&SEQUENCE_LENGTH)),
];

static MLFLOW_CONFIG: &[Member] = &[
    required("MlflowResourceArn", Shape::Text(&MLFLOW_ARN)),
    optional("MlflowExperimentName", Shape::Text(&NAME_256)),
    optional("MlflowRunName", Shape::Text(&NAME_256)),
];

static MODEL_PACKAGE_CONFIG: &[Member] = &[
    required("ModelPackageGroupArn", Shape::Text(&PACKAGE_GROUP_ARN)),
    optional("SourceModelPackageArn", Shape::Text(&PACKAGE_ARN)),
];

/// Our own settings.
static TRAINYARD: &[Member] = &[
    optional("Merge", Shape::Structure(MERGE)),
    optional("ShardBy", Shape::Word(ShardBy::WORDS)),
    optional("GraceInSeconds", Shape::Number(0, 86_400)),
    optional("ShmSizeInGB", Shape::Number(1, 65_536)),
    // Linux has no higher process ids: PID_MAX_LIMIT.
    optional("PidsLimit", Shape::Number(16, 4_194_304)),
    optional("Output", Shape::Structure(OUTPUT)),
];

static OUTPUT: &[Member] = &[
    optional("Level", Shape::Number(0, 9)),
    optional("Ignore", Shape::Texts(size(0, 100), &NAME_256)),
    optional("Compression", Shape::Word(ARCHIVE_COMPRESSIONS)),
    optional("WarnAboveInGB", Shape::Number(0, 65_536)),
];

static MERGE: &[Member] = &[
    optional("Glob", Shape::Text(&NAME_256)),
    required("Output", Shape::Text(&NAME_256)),
    optional("OrderBy", Shape::Text(&NAME_256)),
];
