//! Watches that an instance keeps to its volume: its inputs and all that it writes to its own folders.
//!
//! The file systems that people have can rarely limit a folder, so its size is measured again and again, the less often
//! the longer it takes.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fs_err as fs;
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use crate::explain::bytes;
use crate::plan::{ChannelPlan, InstancePlan};

/// Between two measurements at least.
const PAUSE: Duration = Duration::from_secs(1);
/// The pause is so many times as long as the measurement before it, which thus costs a twentieth of a processor.
const PATIENCE: u32 = 19;

/// The volume of an instance, if it has a limit.
pub(crate) struct Volume {
    limit: Option<Limit>,
    exceeded: watch::Receiver<Option<String>>,
}

#[derive(Debug, Clone)]
struct Limit {
    folder: PathBuf,
    volume: u64,
    input: u64,
    /// What was in the folder before the program started.
    before: u64,
    /// Bytes that it had when it was last looked at.
    used: Arc<AtomicU64>,
}

impl Volume {
    /// Starts to watch the folder that holds all that the instance writes.
    pub(crate) async fn watch(plan: &InstancePlan, folder: &Path) -> Self {
        let (sender, exceeded) = watch::channel(None);
        let Some(volume) = plan.limits.volume else { return Self { limit: None, exceeded } };
        let input = plan.channels.iter().map(ChannelPlan::volume).fold(0, u64::saturating_add);
        let before = measured(folder).await;
        let used = Arc::new(AtomicU64::new(input));
        let limit = Limit { folder: folder.to_owned(), volume, input, before, used };
        tokio::spawn(look_again(limit.clone(), sender));
        Self { limit: Some(limit), exceeded }
    }

    /// Bytes that are taken, as they are measured from time to time, and those that it holds; none without a limit.
    pub(crate) fn used(&self) -> Option<(Arc<AtomicU64>, u64)> {
        self.limit.as_ref().map(|limit| (Arc::clone(&limit.used), limit.volume))
    }

    /// Waits until there is more than the volume holds; for ever without a limit.
    pub(crate) async fn exceeded(&self) {
        if self.exceeded.clone().wait_for(Option::is_some).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Whether there was or is more than the volume holds, and how much.
    pub(crate) async fn is_exceeded(&self) -> Option<String> {
        let earlier = self.exceeded.borrow().clone();
        match (earlier, &self.limit) {
            (None, Some(limit)) => limit.look().await,
            (earlier, _) => earlier,
        }
    }
}

impl Limit {
    async fn look(&self) -> Option<String> {
        let written = measured(&self.folder).await.saturating_sub(self.before);
        let all = self.input.saturating_add(written);
        self.used.store(all, Ordering::Relaxed);
        (all > self.volume).then(|| {
            let (all, volume) = (bytes(all), bytes(self.volume));
            format!(
                "the volume is full: inputs and what was written have {all}, VolumeSizeInGB allows {volume}"
            )
        })
    }
}

/// Ends when nobody wants to know any more.
async fn look_again(limit: Limit, sender: watch::Sender<Option<String>>) {
    let mut pause = PAUSE;
    loop {
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = sender.closed() => return,
        }
        let started = Instant::now();
        if let Some(explanation) = limit.look().await {
            // Nobody may be there any more.
            let _ = sender.send(Some(explanation));
            return;
        }
        pause = PAUSE.max(started.elapsed() * PATIENCE);
    }
}

async fn measured(folder: &Path) -> u64 {
    let folder = folder.to_owned();
    spawn_blocking(move || size(&folder)).await.unwrap_or_default()
}

/// Bytes that a folder takes on the disk. What vanishes meanwhile or may not be looked at does not count; a file with
/// several names counts once.
fn size(folder: &Path) -> u64 {
    let mut folders = vec![folder.to_owned()];
    let mut seen = HashSet::new();
    let mut sum: u64 = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let Ok(found) = entry.metadata() else { continue };
            if found.nlink() == 1 || found.is_dir() || seen.insert((found.dev(), found.ino())) {
                sum = sum.saturating_add(found.blocks().saturating_mul(512));
            }
            if found.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_the_size_of_what_is_in_it_once_and_no_links_are_followed() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("inside");
        fs::create_dir(&inside).unwrap();
        fs::write(folder.path().join("large"), vec![1; 1 << 20]).unwrap();
        let empty = size(&inside);
        fs::write(inside.join("file"), vec![1; 100_000]).unwrap();
        let once = size(&inside);
        assert!((100_000..200_000).contains(&(once - empty)), "{once}");
        fs::hard_link(inside.join("file"), inside.join("again")).unwrap();
        fs::os::unix::fs::symlink("..", inside.join("out")).unwrap();
        assert!(size(&inside) - once < 100_000, "{}", size(&inside));
        assert_eq!(size(&folder.path().join("absent")), 0);
    }

    #[tokio::test]
    async fn the_inputs_count_and_what_was_there_before_does_not() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("before"), vec![1; 100_000]).unwrap();
        let before = size(folder.path());
        let used = Arc::default();
        let limit = Limit { folder: folder.path().to_owned(), volume: 300_000, input: 250_000, before, used };
        assert_eq!(limit.look().await, None);
        fs::write(folder.path().join("written"), vec![1; 100_000]).unwrap();
        let explanation = limit.look().await.unwrap();
        assert!(explanation.contains("(300000 bytes)"), "{explanation}");
    }
}
