//! Our own settings of a valid request.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::channel::words;

/// Our own settings, all of them with a default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// The merge step, if there is one.
    pub merge: Option<MergeSpec>,
    /// What sharded channels are dealt out by.
    pub shard_by: ShardBy,
    /// Time between SIGTERM and SIGKILL; without it the caller's default counts.
    pub grace: Option<Duration>,
    /// Size of `/dev/shm` of each instance in GiB; without it half of the memory.
    pub shm_size_gb: Option<u32>,
    /// Most processes and threads of each instance at a time; without it the planner's default counts.
    pub pids_limit: Option<u32>,
    /// Compression level of the artifact, 0 to 9; without it the packer's default counts.
    pub output_level: Option<u32>,
    /// Patterns of what is left out of the archives.
    pub output_ignore: Vec<String>,
    /// What an instance may put into an archive without a warning, in GB; without it 10.
    pub output_warn_above_gb: Option<u32>,
}

/// The merge step of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergeSpec {
    /// Which files of the artifact are parts; without it the merger's default counts.
    pub glob: Option<String>,
    /// Plain name of the merged file, with one of the endings of [`MERGE_ENDINGS`].
    pub output: String,
    /// Column that the rows are ordered by; without it they stay in the order of the hosts.
    pub order_by: Option<String>,
}

/// Endings of a merged file; each stands for a format.
pub const MERGE_ENDINGS: &[&str] = &[".parquet", ".csv", ".jsonl", ".arrow", ".npy", ".npz"];

/// The compression of the artifact that is our own.
pub(super) const ZSTD: &str = "zstd";

/// How the artifact may be compressed.
pub(super) const ARCHIVE_COMPRESSIONS: &[&str] = &["gzip", ZSTD];

words! {
    /// What sharded channels are dealt out by.
    ShardBy {
        /// One object after the other, in the order of the keys.
        Key = "key",
        /// So that each instance gets about the same number of bytes.
        Size = "size",
    }
}
