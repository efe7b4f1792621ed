//! The channels of a valid request.

use serde::{Deserialize, Serialize};

use super::ObjectUri;

/// One named input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelSpec {
    /// Name of the channel and of its folder; neither `.` nor `..`.
    pub name: String,
    /// Where its objects are.
    pub source: ChannelSource,
    /// Whether each instance gets all objects or its shard; a file system is always replicated.
    pub distribution: Distribution,
    /// Media type, passed through.
    pub content_type: Option<String>,
    /// Whether the stream is unpacked.
    pub compression: Compression,
    /// Whether each object is wrapped as a record.
    pub record_wrapper: RecordWrapper,
    /// The effective mode: the channel's own, else that of the algorithm.
    pub input_mode: InputMode,
    /// Start of the random order of the objects in each epoch.
    pub shuffle_seed: Option<i64>,
}

impl ChannelSpec {
    /// Whether the instances of a group get the channel.
    pub fn is_for(&self, group: &str) -> bool {
        match &self.source {
            ChannelSource::S3 { instance_groups, .. } => {
                instance_groups.is_empty() || instance_groups.iter().any(|name| name == group)
            }
            ChannelSource::FileSystem { .. } | ChannelSource::Dataset { .. } => true,
        }
    }
}

/// Where the objects of a channel are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChannelSource {
    /// Objects of a store, or files of this machine.
    S3 {
        /// What the URI means.
        data_type: S3DataType,
        /// Prefix or manifest.
        uri: ObjectUri,
        /// Attributes of an augmented manifest that are sent, in this order.
        attribute_names: Vec<String>,
        /// Groups that get the channel; all of them if empty.
        instance_groups: Vec<String>,
    },
    /// A folder of a shared file system.
    FileSystem {
        /// Identity of the file system.
        id: String,
        /// Whether it may be written.
        access: FileSystemAccess,
        /// Which kind of file system it is.
        kind: FileSystemType,
        /// Path of the folder in it.
        directory: String,
    },
    /// A dataset of Amazon's hub.
    Dataset {
        /// ARN of the dataset.
        arn: String,
    },
}

/// Declares a set of words of the API, so that each has one spelling and one meaning.
macro_rules! words {
    ($(#[$about:meta])* $name:ident { $($(#[$word_about:meta])* $word:ident = $text:literal,)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$word_about])* #[serde(rename = $text)] $word,)*
        }

        impl $name {
            /// The words of the API, in its order.
            pub const WORDS: &'static [&'static str] = &[$($text),*];

            /// The meaning of a word of the API.
            pub fn from_word(word: &str) -> Option<Self> {
                match word {
                    $($text => Some(Self::$word),)*
                    _ => None,
                }
            }

            /// The word of the API.
            pub fn word(self) -> &'static str {
                match self {
                    $(Self::$word => $text,)*
                }
            }
        }
    };
}

pub(super) use words;

words! {
    /// What the URI of a channel means.
    S3DataType {
        /// A file with one prefix and the rest of each name.
        ManifestFile = "ManifestFile",
        /// Every object whose key begins so.
        S3Prefix = "S3Prefix",
        /// A file of JSON lines whose attributes are the input.
        AugmentedManifestFile = "AugmentedManifestFile",
        /// Conversations for fine-tuning.
        Converse = "Converse",
    }
}

words! {
    /// What each instance gets of a channel.
    Distribution {
        /// All objects.
        FullyReplicated = "FullyReplicated",
        /// Its shard.
        ShardedByS3Key = "ShardedByS3Key",
    }
}

words! {
    /// How an instance reads a channel.
    InputMode {
        /// As named pipes, one for each epoch.
        Pipe = "Pipe",
        /// As files that are there before `train` starts.
        File = "File",
        /// As files whose content is fetched when it is read.
        FastFile = "FastFile",
    }
}

words! {
    /// Whether the stream of a channel is unpacked.
    Compression {
        /// The objects as they are.
        None = "None",
        /// Each object gunzipped.
        Gzip = "Gzip",
    }
}

words! {
    /// Whether each object is wrapped as a record.
    RecordWrapper {
        /// The objects as they are.
        None = "None",
        /// Each object as one record.
        RecordIo = "RecordIO",
    }
}

words! {
    /// Whether a file system may be written.
    FileSystemAccess {
        /// It may.
        ReadWrite = "rw",
        /// It may not.
        ReadOnly = "ro",
    }
}

words! {
    /// Which kind of file system a channel is on.
    FileSystemType {
        /// Elastic File System.
        Efs = "EFS",
        /// Lustre.
        FsxLustre = "FSxLustre",
    }
}
