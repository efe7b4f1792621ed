//! Our own settings: the one member of a job file that is not Amazon's and is never sent to anyone.

use super::members::shape;

shape! {
    /// The top-level object `Trainyard` of a job file.
    TrainyardSettings {
        /// Asks for one result file, made of the parts of all instances, beside `model.tar.gz`.
        merge: MergeSettings,
        /// What a sharded channel is dealt out by: `key` (as Amazon does) or `size`.
        shard_by: String,
        /// Seconds between SIGTERM and SIGKILL when an instance is stopped.
        grace_in_seconds: i64,
        /// Size of `/dev/shm` of each instance, in GiB.
        #[serde(rename = "ShmSizeInGB")]
        shm_size_in_gb: i64,
        /// How the artifact is packed.
        output: OutputSettings,
    }
}

shape! {
    /// The merge step of a job.
    MergeSettings {
        /// Which files of the artifact are parts, as a glob such as `part-*.parquet`.
        glob: String,
        /// Name of the merged file; its ending (`.parquet`, `.csv`, `.jsonl`, `.npy`) is its format.
        output: String,
        /// Column that the merged rows are ordered by; without it they stay in the order of the hosts.
        order_by: String,
    }
}

shape! {
    /// How the artifact is packed.
    OutputSettings {
        /// Compression level of `model.tar.gz`, from 0 (stored) to 9 (smallest).
        level: i64,
    }
}
