//! A backend without processes: its supervisors are tasks that carry out one word each.
//!
//! Small, but real: it writes the same reports into the same run directory, obeys stop requests and
//! can be released. It serves tests of the engine, and people who want to see a job's course without
//! running anything. The first word of an instance's command says what it does: `true` completes,
//! `false` fails with exit code 1, `sleep` runs until it is stopped, `vanish` ends without a report.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tokio::sync::watch;

use super::{Backend, BackendError, Launch, Placement, Presence, Stop, Supervisor, launch_all};
use crate::artifact::{RemoveError, remove_tree};
use crate::run::{
    Appender, Exit, InstanceDirectory, Outcome, Parts, Report, Stamped, StopRequest, Timestamp,
};
use crate::spec::Capabilities;

const NAME: &str = "fake";

/// Runs supervisors as tasks; clones share them.
#[derive(Clone, Debug, Default)]
pub struct FakeBackend {
    tasks: Arc<Mutex<Tasks>>,
}

#[derive(Debug, Default)]
struct Tasks {
    next_id: u64,
    by_id: BTreeMap<String, Task>,
}

#[derive(Debug)]
struct Task {
    presence: watch::Receiver<Presence>,
    stop: watch::Sender<Option<StopRequest>>,
    abort: tokio::task::AbortHandle,
}

impl FakeBackend {
    /// A backend that nothing runs on.
    pub fn new() -> Self {
        Self::default()
    }

    fn tasks(&self) -> MutexGuard<'_, Tasks> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn presence(&self, placement: &Placement) -> Vec<watch::Receiver<Presence>> {
        let tasks = self.tasks();
        let gone = || watch::channel(Presence::Gone).1;
        let of = |supervisor: &Supervisor| tasks.by_id.get(&supervisor.id).map(|task| task.presence.clone());
        placement.supervisors.iter().map(|supervisor| of(supervisor).unwrap_or_else(gone)).collect()
    }

    fn start(&self, host: &str, directory: InstanceDirectory) -> Result<Supervisor, BackendError> {
        let failed = failed(host);
        let plan = directory.plan().map_err(|error| failed(io::Error::other(error)))?;
        let word = plan.command.first().cloned().unwrap_or_default();
        let mut tasks = self.tasks();
        tasks.next_id += 1;
        let id = tasks.next_id.to_string();
        let supervisor = Supervisor { host: host.to_owned(), id: id.clone() };
        directory.write_supervisor(&supervisor).map_err(|error| failed(io::Error::other(error)))?;
        let (present, presence) = watch::channel(Presence::Alive);
        let (stop, stopped) = watch::channel(None);
        let task = tokio::spawn(async move {
            // What can't be reported shows as a supervisor that is gone without a report.
            let _ = carry_out(&word, &directory, stopped).await;
            drop(present);
        });
        tasks.by_id.insert(id, Task { presence, stop, abort: task.abort_handle() });
        Ok(supervisor)
    }
}

#[async_trait]
impl Backend for FakeBackend {
    fn capabilities(&self) -> Capabilities {
        Capabilities::none()
    }

    async fn launch(&self, launch: &Launch) -> Result<Placement, BackendError> {
        launch_all(self, launch, Vec::new(), |host, directory| self.start(host, directory)).await
    }

    async fn observe(
        &self,
        placement: &Placement,
        known: &[Presence],
    ) -> Result<Vec<Presence>, BackendError> {
        let mut receivers = self.presence(placement);
        loop {
            let current: Vec<_> = receivers.iter().map(current_presence).collect();
            if current != known {
                return Ok(current);
            }
            let alive = receivers.iter_mut().filter(|receiver| current_presence(receiver) == Presence::Alive);
            let ends: Vec<_> = alive.map(|receiver| Box::pin(receiver.changed())).collect();
            if ends.is_empty() {
                std::future::pending::<()>().await;
            }
            // An error means that the task has ended, which the next look shows.
            let _ = futures_util::future::select_all(ends).await;
        }
    }

    async fn stop(&self, stop: &Stop<'_>) -> Result<(), BackendError> {
        let tasks = self.tasks();
        for supervisor in &stop.placement.supervisors {
            if let (true, Some(task)) =
                (stop.hosts.contains(&supervisor.host), tasks.by_id.get(&supervisor.id))
            {
                let written = stop.run.instance(&supervisor.host).request_stop(stop.grace);
                written.map_err(|error| failed(&supervisor.host)(io::Error::other(error)))?;
                // A task that has ended does not listen any more.
                let _ = task.stop.send(Some(StopRequest { grace: stop.grace }));
            }
        }
        Ok(())
    }

    async fn release(&self, placement: &Placement) -> Result<(), BackendError> {
        let mut tasks = self.tasks();
        for supervisor in &placement.supervisors {
            if let Some(task) = tasks.by_id.remove(&supervisor.id) {
                task.abort.abort();
            }
        }
        Ok(())
    }

    async fn remove(&self, folder: &Path) -> Result<(), RemoveError> {
        remove_tree(folder)
    }
}

fn failed(host: &str) -> impl Fn(io::Error) -> BackendError {
    let what = format!("starting or stopping {host}");
    move |source| BackendError::Unavailable { backend: NAME, what: what.clone(), source }
}

/// The sender lives as long as the task.
fn current_presence(receiver: &watch::Receiver<Presence>) -> Presence {
    if receiver.has_changed().is_err() { Presence::Gone } else { *receiver.borrow() }
}

async fn carry_out(
    word: &str,
    directory: &InstanceDirectory,
    mut stopped: watch::Receiver<Option<StopRequest>>,
) -> io::Result<()> {
    let mut reports = Appender::open(&directory.reports())?;
    let mut report = |report| reports.append(&Stamped { at: Timestamp::now(), report });
    report(Report::Staging { objects: 0, bytes: 0, of_objects: 0, of_bytes: 0, millis: 0 })?;
    report(Report::Training)?;
    let outcome = match word {
        "true" => Outcome::Completed,
        "false" => Outcome::Failed { exit: Exit::Code(1), explanation: "false".to_owned() },
        "sleep" => {
            // An error means that the backend is gone, and with it whoever could ask.
            let _ = stopped.wait_for(Option::is_some).await;
            Outcome::Stopped
        }
        "vanish" => return Ok(()),
        other => {
            Outcome::Broken { explanation: format!("the fake backend does not know the word {other:?}") }
        }
    };
    report(Report::Ended { outcome, parts: Parts::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::conformance;

    #[tokio::test]
    async fn the_fake_backend_conforms() {
        let backend = FakeBackend::new();
        conformance::all(&backend, &backend.clone(), &conformance::Place::machine()).await;
    }
}
