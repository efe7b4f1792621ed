//! `trainyard gc`: removes what nobody needs any more.

use std::sync::Arc;
use std::time::Duration;

use indicatif::HumanBytes;
use serde_json::json;
use trainyard_engine::backend::local::LocalBackend;
use trainyard_engine::engine::{Collected, Engine, GcLimits};

use crate::config::{Config, Flags};
use crate::exit::Exit;
use crate::machine::{machine, store_credentials};
use crate::show::out;

/// Remove what nobody needs any more
///
/// What killed processes have left; uploads of artifacts that nobody will complete; objects of stores beyond what may be kept for other jobs (`[cache] max` of the
/// configuration file); and, if asked for, jobs that ended long ago, with their logs but without their artifacts.
/// `trainyard serve` does the same every hour.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Gc {
    /// Only say what would be removed
    #[arg(long)]
    dry_run: bool,
    /// Remove all objects that are kept for other jobs
    #[arg(long)]
    whole_cache: bool,
    /// Forget jobs that ended more than DAYS days ago [default: `[gc] keep_jobs_days` of the configuration file, else none]
    #[arg(long, value_name = "DAYS")]
    keep_jobs_days: Option<u32>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    flags: Flags,
}

const EXAMPLES: &str = "Examples:
  trainyard gc --dry-run
  trainyard gc --keep-jobs-days 30
  trainyard gc --whole-cache --json";

impl Gc {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let config = Config::read(&self.flags)?;
        let mut limits = limits(&config);
        limits.dry_run = self.dry_run;
        limits.keep_jobs = self.keep_jobs_days.map(days).or(limits.keep_jobs);
        if self.whole_cache {
            limits.cache = 0;
        }
        let backend = LocalBackend::new(machine(&config, None)?.program);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let collected = runtime.block_on(async {
            let engine = Engine::open(&config.data_dir.value, Arc::new(backend))?;
            engine.with_credentials(store_credentials()).collect(limits).await
        })?;
        out(&if self.json { in_json(&collected, self.dry_run) } else { in_words(&collected, self.dry_run) })?;
        Ok(Exit::Completed)
    }
}

/// What the configuration lets stay.
pub(super) fn limits(config: &Config) -> GcLimits {
    GcLimits {
        cache: config.storage.cache_limit(&config.data_dir.value),
        keep_jobs: config.storage.keep_jobs_days.map(days),
        dry_run: false,
    }
}

fn days(count: u32) -> Duration {
    Duration::from_secs(u64::from(count) * 86_400)
}

fn in_json(collected: &Collected, dry_run: bool) -> String {
    let Collected { scratch, cache, jobs, job_bytes, uploads, uploads_left } = collected;
    json!({
        "dry_run": dry_run,
        "scratch": {"files": scratch.objects, "bytes": scratch.bytes},
        "cache": {"objects": cache.objects, "bytes": cache.bytes},
        "jobs": {"names": jobs, "bytes": job_bytes},
        "uploads": {"given_up": uploads, "left": uploads_left},
    })
    .to_string()
}

fn in_words(collected: &Collected, dry_run: bool) -> String {
    let Collected { scratch, cache, jobs, job_bytes, uploads, uploads_left } = collected;
    let removed = if dry_run { "would be removed" } else { "removed" };
    let mut text = format!(
        "{removed}: {} files of instances that do not run any more ({}), {} objects of the cache ({}), {} jobs ({}), {} uploads",
        scratch.objects,
        HumanBytes(scratch.bytes),
        cache.objects,
        HumanBytes(cache.bytes),
        jobs.len(),
        HumanBytes(*job_bytes),
        uploads,
    );
    for job in jobs {
        text.push_str("\n  ");
        text.push_str(job);
    }
    for left in uploads_left {
        text.push_str("\nuploads that are still there: ");
        text.push_str(left);
    }
    text
}
