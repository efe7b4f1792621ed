//! Measures what an instance takes of the machine, for as long as its program runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::statvfs;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::cgroup::machine_memory;
use crate::run::{Appender, Timestamp, UsageSample};

mod gpu;
mod source;

use gpu::Gpus;
pub(crate) use source::{Processes, Source};

/// What is measured, and against what.
pub(crate) struct Measured {
    /// Who counts.
    pub(crate) source: Source,
    /// Bytes that the instance may have; absent if it may have all.
    pub(crate) memory: Option<u64>,
    /// What it writes to.
    pub(crate) disk: Disk,
    /// Its GPUs as the Container Device Interface names them.
    pub(crate) gpus: Vec<String>,
}

/// The disk of an instance.
pub(crate) struct Disk {
    /// A folder on it.
    pub(crate) folder: PathBuf,
    /// The bytes of the instance's own volume and how many are taken, where it has one.
    pub(crate) volume: Option<(Arc<AtomicU64>, u64)>,
}

impl Disk {
    fn used(&self) -> Option<f64> {
        if let Some((used, volume)) = &self.volume {
            return percent(used.load(Ordering::Relaxed), *volume);
        }
        let found = statvfs(&self.folder).ok()?;
        percent(found.f_blocks.saturating_sub(found.f_bavail), found.f_blocks)
    }
}

fn percent(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| 100.0 * part as f64 / whole as f64)
}

/// Until the next measurement, by the time since the first: a job of seconds has some, and one of the longest run that
/// there may be (28 days) 40,000 lines.
fn pause(elapsed: Duration) -> Duration {
    match elapsed.as_secs() {
        ..60 => Duration::from_secs(1),
        60..600 => Duration::from_secs(10),
        _ => Duration::from_secs(60),
    }
}

/// Measurements that are being made.
pub(crate) struct Usage {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Usage {
    /// Starts to measure; what can't be written is not there to be shown, and ends nothing.
    pub(crate) fn start(measured: Measured, file: &Path) -> Option<Self> {
        let appender = Appender::open(file).ok()?;
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(measure(measured, appender, stopped));
        Some(Self { stop, task })
    }

    /// Measures a last time, once the program has ended.
    pub(crate) async fn finish(self) {
        // Both fail only if the task has ended.
        let _ = self.stop.send(());
        let _ = self.task.await;
    }
}

async fn measure(measured: Measured, mut appender: Appender, mut stopped: oneshot::Receiver<()>) {
    let started = Instant::now();
    let mut gpus = Gpus::new(&["nvidia-smi"], &measured.gpus);
    let mut before = (started, Duration::ZERO);
    loop {
        let looked = async {
            tokio::time::sleep(pause(started.elapsed())).await;
            gpus.look().await;
        };
        let last = tokio::select! {
            () = looked => false,
            _ = &mut stopped => true,
        };
        if let Some(counted) = measured.source.count().await {
            let now = Instant::now();
            let (time, since) = (counted.cpu.saturating_sub(before.1), now - before.0);
            before = (now, counted.cpu.max(before.1));
            let memory = measured.memory.unwrap_or_else(machine_memory);
            let sample = UsageSample {
                at: Timestamp::now(),
                cpu: rounded(100.0 * time.as_secs_f64() / since.as_secs_f64().max(1e-3)),
                memory: rounded(percent(counted.memory, memory).unwrap_or(0.0)),
                disk: measured.disk.used().map(rounded),
                gpu: gpus.busy,
                gpu_memory: gpus.memory,
            };
            // A full disk shows elsewhere.
            let _ = appender.append(&sample);
        }
        if last {
            return;
        }
    }
}

/// To thousandths, so that lines stay short.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_job_has_a_bounded_number_of_measurements() {
        let longest = Duration::from_secs(28 * 86_400);
        let (mut at, mut lines) = (Duration::ZERO, 0);
        while at < longest {
            at += pause(at);
            lines += 1;
        }
        assert!(lines < 41_000, "{lines}");
    }

    #[tokio::test]
    async fn a_program_that_ends_at_once_has_a_measurement_too() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("usage.jsonl");
        let measured = Measured {
            source: Source::Fixed(Duration::from_secs(7200), machine_memory() / 4),
            memory: None,
            disk: Disk { folder: folder.path().into(), volume: Some((Arc::new(AtomicU64::new(30)), 120)) },
            gpus: Vec::new(),
        };
        Usage::start(measured, &file).unwrap().finish().await;
        let text = fs_err::read_to_string(&file).unwrap();
        let sample: UsageSample = serde_json::from_str(text.trim()).unwrap();
        assert!(sample.cpu > 1e5 && (sample.memory - 25.0).abs() < 0.1, "{sample:?}");
        assert_eq!((sample.disk, sample.gpu), (Some(25.0), None));
    }
}
