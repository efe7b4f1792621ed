//! Our own settings: the one member of a job file that is not Amazon's and is never sent to anyone.

use super::members::shape;

shape! {
    /// The top-level object `Trainyard` of a job file.
    TrainyardSettings {
        /// Asks for one result file, made of the parts of all instances, beside `model.tar.gz`.
        merge "Merge": MergeSettings,
        /// What a sharded channel is dealt out by: `key` (as Amazon does) or `size`.
        shard_by "ShardBy": String,
        /// Seconds between SIGTERM and SIGKILL when an instance is stopped.
        grace_in_seconds "GraceInSeconds": i64,
        /// Size of `/dev/shm` of each instance, in GiB.
        shm_size_in_gb "ShmSizeInGB": i64,
        /// Most processes and threads of each instance at a time.
        pids_limit "PidsLimit": i64,
        /// How the artifact is packed.
        output "Output": OutputSettings,
    }
}

shape! {
    /// The merge step of a job.
    MergeSettings {
        /// Which files of the artifact are parts, as a glob such as `part-*.parquet`.
        glob "Glob": String,
        /// Name of the merged file; its ending (`.parquet`, `.csv`, `.jsonl`, `.arrow`, `.npy`, `.npz`) is its format.
        output "Output": String,
        /// Column that the merged rows are ordered by; without it they stay in the order of the hosts.
        order_by "OrderBy": String,
    }
}

shape! {
    /// How the artifact is packed.
    OutputSettings {
        /// Compression level of the archives, from 0 (stored; with zstd as 1) to 9 (smallest).
        level "Level": i64,
        /// Patterns of what is left out of the archives, such as `*.tmp` or `cache/**`.
        ignore "Ignore": Vec<String>,
        /// How the archives are compressed: `gzip`, as Amazon does, or `zstd`, which makes `model.tar.zst`.
        compression "Compression": String,
        /// From how many GB of one instance on a warning names its largest folders; without it 10.
        warn_above_in_gb "WarnAboveInGB": i64,
    }
}
