//! Notices that the instance is asked to stop: by a file in its folder or by SIGTERM.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::run::InstanceDirectory;
use crate::sys::watch_readable;

/// Between two looks where the kernel can't tell of changes.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Whether and when the instance has to stop.
#[derive(Clone, Debug)]
pub(crate) struct Stop {
    /// When the grace ends, once a stop is requested.
    kill_at: watch::Receiver<Option<Instant>>,
}

impl Stop {
    /// Starts to watch. SIGTERM counts as a request with the grace that is given; SIGINT, which a
    /// terminal sends to all that runs in it, counts as none.
    ///
    /// # Errors
    /// Signals can't be caught.
    pub(crate) fn watch(directory: &InstanceDirectory, grace: Duration) -> io::Result<Self> {
        let (sender, kill_at) = watch::channel(None);
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut changes = Changes::of(directory);
        let directory = directory.clone();
        tokio::spawn(async move {
            loop {
                match directory.stop_request() {
                    Ok(Some(request)) => request_stop(&sender, request.grace),
                    Ok(None) => {}
                    // Somebody wrote it, so somebody wants it to stop.
                    Err(_) => request_stop(&sender, grace),
                }
                tokio::select! {
                    () = changes.next() => {}
                    _ = terminate.recv() => request_stop(&sender, grace),
                    _ = interrupt.recv() => {}
                }
            }
        });
        Ok(Self { kill_at })
    }

    /// When the grace ends, once a stop is requested.
    pub(crate) fn kill_at(&self) -> Option<Instant> {
        *self.kill_at.borrow()
    }

    /// Waits until a stop is requested.
    pub(crate) async fn requested(&self) {
        let mut kill_at = self.kill_at.clone();
        if kill_at.wait_for(Option::is_some).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Waits until the grace has ended, however often it is made shorter meanwhile.
    pub(crate) async fn grace_ended(&self) {
        let mut kill_at = self.kill_at.clone();
        loop {
            let at = *kill_at.borrow_and_update();
            tokio::select! {
                () = until(at) => return,
                changed = kill_at.changed() => if changed.is_err() { return until(at).await },
            }
        }
    }
}

/// Waits for a time; without one, forever.
pub(crate) async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// A later request may make the grace shorter, never longer.
fn request_stop(sender: &watch::Sender<Option<Instant>>, grace: Duration) {
    let asked = Instant::now() + grace;
    sender.send_if_modified(|kill_at| {
        let sooner = kill_at.is_none_or(|at| asked < at);
        if sooner {
            *kill_at = Some(asked);
        }
        sooner
    });
}

/// Tells when a file has been put into a folder.
enum Changes {
    /// The kernel tells.
    Told(AsyncFd<OwnedFd>),
    /// Too many programs of this user have asked the kernel already.
    Looked,
}

impl Changes {
    fn of(directory: &InstanceDirectory) -> Self {
        let told = || -> io::Result<AsyncFd<OwnedFd>> {
            let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
            inotify::add_watch(&watch, directory.root(), WatchFlags::MOVED_TO)?;
            watch_readable(watch)
        };
        told().map_or(Self::Looked, Self::Told)
    }

    async fn next(&mut self) {
        let Self::Told(watch) = self else { return sleep(LOOK_AGAIN).await };
        let Ok(mut ready) = watch.readable().await else { return sleep(LOOK_AGAIN).await };
        let mut buffer = [MaybeUninit::uninit(); 4096];
        // What exactly was put there does not matter, only that it is looked at once more.
        while rustix::io::read(ready.get_inner(), &mut buffer).is_ok() {}
        ready.clear_ready();
    }
}
