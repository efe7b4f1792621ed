//! Members of a request that do not go together.

use super::UriError;
use super::channel::InputMode;

/// A rule across members that a request breaks. Where Amazon's own text is known, it is used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Conflict {
    /// A map of texts has a value that is something else.
    #[error("the value of '{key}' at '{member}' must be a string: write {meant} instead of {found}")]
    NotAString {
        /// Path of the map as Amazon writes it.
        member: String,
        /// The key.
        key: String,
        /// The value as JSON.
        found: String,
        /// The string that was meant, as JSON.
        meant: String,
    },
    /// A tag that looks like one of our own settings is none.
    #[error("the tag '{key}' with the value '{value}': {why}")]
    SettingTag {
        /// Its key.
        key: String,
        /// Its value.
        value: String,
        /// What would be right.
        why: String,
    },
    /// There is an image and an algorithm name.
    #[error(
        "AlgorithmSpecification has both TrainingImage and AlgorithmName: exactly one of them must be given"
    )]
    ImageAndName,
    /// There is neither.
    #[error(
        "AlgorithmSpecification has neither TrainingImage nor AlgorithmName: exactly one of them must be given"
    )]
    NeitherImageNorName,
    /// The job is Amazon's own and has no instances.
    #[error(
        "ServerlessJobConfig stands without {missing}: a job runs on instances here, so {missing} must be given"
    )]
    Serverless {
        /// The member that is missing.
        missing: &'static str,
    },
    /// There are groups, and a type or count beside them.
    #[error(
        "ResourceConfig has InstanceGroups and also {beside}: give either InstanceGroups or InstanceType and InstanceCount"
    )]
    GroupsAndMore {
        /// The member beside the groups.
        beside: &'static str,
    },
    /// There are preferred types, and something that says in another way which are taken.
    #[error(
        "ResourceConfig has InstancePreferences, which do not go together with {beside}: leave out one of them"
    )]
    PreferencesAndMore {
        /// The other member.
        beside: &'static str,
    },
    /// It is not clear how many instances of a preferred type there are.
    #[error(
        "ResourceConfig.InstancePreferences: give InstanceCount either in each of them, or once in ResourceConfig"
    )]
    PreferredCounts,
    /// Reserved capacity is named twice.
    #[error(
        "ResourceConfig has TrainingPlanArn, and InstancePreferences with TrainingPlanArns: leave out one of them"
    )]
    PreferredPlans,
    /// The job is larger than any that is run here.
    #[error("ResourceConfig asks for {count} instances: a job has at most 10000")]
    TooManyInstances {
        /// All instances of the request.
        count: u64,
    },
    /// There is a waiting time, but nothing to wait for.
    #[error(
        "Invalid MaxWaitTimeInSeconds. It is only supported when EnableManagedSpotTraining is set to true"
    )]
    WaitWithoutSpot,
    /// The waiting time is missing, or shorter than the run.
    #[error(
        "Invalid MaxWaitTimeInSeconds. It must be present and be greater than or equal to MaxRuntimeInSeconds"
    )]
    SpotWithoutWait,
    /// Instances can not be kept in such a job.
    #[error("Invalid KeepAlivePeriodInSeconds. It is not supported together with {with}")]
    KeepAlive {
        /// The other member.
        with: &'static str,
    },
    /// Something that must be unique comes twice.
    #[error("{member} '{name}' is given more than once in {list}: each must be unique")]
    Repeated {
        /// The list.
        list: &'static str,
        /// The member of its elements.
        member: &'static str,
        /// The value that comes again.
        name: String,
    },
    /// The name of a channel would leave the folder of the channels.
    #[error("ChannelName '{name}' can not be the name of a folder")]
    ChannelFolder {
        /// The name.
        name: String,
    },
    /// The name of one channel is that of a file which belongs to another.
    #[error("ChannelName '{name}' is the name of a file that channel '{owner}' needs beside its folder")]
    ChannelFile {
        /// The name.
        name: String,
        /// The other channel.
        owner: String,
    },
    /// A channel has no source, or several.
    #[error(
        "channel '{channel}' has {count} sources in its DataSource: exactly one of S3DataSource, FileSystemDataSource and DatasetSource must be given"
    )]
    Sources {
        /// The channel.
        channel: String,
        /// How many there are.
        count: usize,
    },
    /// A value needs another input mode.
    #[error("channel '{channel}': {member} {value} needs InputMode {needed}, but it is {mode}", needed = needed.word(), mode = mode.word())]
    Mode {
        /// The channel.
        channel: String,
        /// The member.
        member: &'static str,
        /// Its value.
        value: String,
        /// The mode that it needs.
        needed: InputMode,
        /// The mode that the channel has.
        mode: InputMode,
    },
    /// Only a prefix can be read as it is needed.
    #[error("channel '{channel}': InputMode FastFile needs S3DataType S3Prefix, but it is {data_type}")]
    FastFile {
        /// The channel.
        channel: String,
        /// What its URI means.
        data_type: String,
    },
    /// An augmented manifest without names: nothing of it would be sent.
    #[error("channel '{channel}': S3DataType AugmentedManifestFile needs AttributeNames")]
    AttributesMissing {
        /// The channel.
        channel: String,
    },
    /// Names of attributes where there are none.
    #[error("channel '{channel}': AttributeNames need S3DataType AugmentedManifestFile")]
    AttributesUnused {
        /// The channel.
        channel: String,
    },
    /// A member needs a private network.
    #[error("{member} needs VpcConfig")]
    NoVpc {
        /// The member.
        member: String,
    },
    /// Some channels name groups, others do not.
    #[error(
        "some channels have InstanceGroupNames ({with}), others have none ({without}): give them for all channels or for none"
    )]
    GroupsOfSomeChannels {
        /// The channels that do.
        with: String,
        /// The channels that do not.
        without: String,
    },
    /// A channel names a group that does not exist.
    #[error("channel '{channel}': there is no instance group '{group}' in ResourceConfig")]
    UnknownGroup {
        /// The channel.
        channel: String,
        /// The name.
        group: String,
    },
    /// The volume has no key because it is a disk of the instance.
    #[error("VolumeKmsKeyId can not be given for {instance_type}, whose volume is a disk of its own")]
    VolumeKey {
        /// The type.
        instance_type: String,
    },
    /// A URI that has the form of one, but points to no objects.
    #[error("{member}: {wrong}")]
    Uri {
        /// The member.
        member: String,
        /// What is wrong with it.
        wrong: UriError,
    },
    /// The merged file would be no plain file of a known format.
    #[error(
        "Trainyard.Merge.Output '{output}' must be the name of a file that ends in .parquet, .csv, .jsonl, .arrow, .npy or .npz"
    )]
    MergeOutput {
        /// The name.
        output: String,
    },
    /// What says which files are left out can't be read.
    #[error("Trainyard.Output.Ignore '{glob}' is not a pattern such as *.tmp or cache/**: {wrong}")]
    Ignore {
        /// The pattern.
        glob: String,
        /// What is wrong with it.
        wrong: &'static str,
    },
    /// Files are not compressed.
    #[error(
        "Trainyard.Output.Compression '{compression}' is about the archive, which OutputDataConfig.CompressionType NONE does not make: leave out one of them"
    )]
    CompressionOfFiles {
        /// As given.
        compression: String,
    },
    /// There would be no archive to merge the parts of.
    #[error(
        "Trainyard.Merge reads model.tar.gz, which OutputDataConfig.CompressionType NONE does not make: leave out one of them"
    )]
    MergeOfFiles,
    /// What says which files are parts can't be read.
    #[error("Trainyard.Merge.Glob '{glob}' is not a pattern of file names such as part-*.csv: {wrong}")]
    MergeGlob {
        /// The pattern.
        glob: String,
        /// What is wrong with it.
        wrong: &'static str,
    },
}
