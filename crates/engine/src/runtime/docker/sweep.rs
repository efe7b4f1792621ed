//! Removes what killed supervisors have left with daemons.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bollard::models::ContainerSummary;
use bollard::query_parameters::{ListContainersOptions, ListNetworksOptions};
use fs_err as fs;
use rustix::fs::{FlockOperation, flock};
use tokio::time::timeout;

use super::network;
use super::start::{remove, take_back, wait};
use super::{DATA_LABEL, LOCK_LABEL, Left, PROGRAM_LABEL};
use crate::docker::Daemon;

/// How long the first process of a container may take to give back what was written.
const PATIENCE: Duration = Duration::from_secs(10);

/// The sockets of all daemons that jobs of a data folder have used, one a line.
const SOCKETS: &str = "docker-sockets";

/// Writes down that a daemon is used by jobs of a data folder.
pub fn remember(data: &Path, socket: &Path) -> io::Result<()> {
    let known = sockets(data);
    if known.iter().any(|known| known == socket) {
        return Ok(());
    }
    fs::create_dir_all(data)?;
    let lines = known.iter().map(PathBuf::as_path).chain([socket]);
    let text: String = lines.map(|socket| format!("{}\n", socket.display())).collect();
    let unfinished = data.join(format!("{SOCKETS}.{}", std::process::id()));
    fs::write(&unfinished, text)?;
    fs::rename(unfinished, data.join(SOCKETS))
}

fn sockets(data: &Path) -> Vec<PathBuf> {
    let text = fs::read_to_string(data.join(SOCKETS)).unwrap_or_default();
    text.lines().map(PathBuf::from).collect()
}

/// Removes containers and networks that belong to jobs of a data folder and to nobody who lives.
///
/// What can't be removed now is found again the next time; a daemon that does not answer runs nothing.
pub async fn sweep(data: &Path) {
    for socket in sockets(data) {
        if let Ok(daemon) = Daemon::connect(&socket).await {
            sweep_containers(&daemon, data).await;
            sweep_networks(&daemon, data).await;
        }
    }
}

fn of_data_folder(data: &Path) -> HashMap<String, Vec<String>> {
    HashMap::from([("label".to_owned(), vec![format!("{DATA_LABEL}={}", data.display())])])
}

async fn sweep_containers(daemon: &Daemon, data: &Path) {
    let options = ListContainersOptions {
        all: true,
        filters: Some(of_data_folder(data)),
        ..ListContainersOptions::default()
    };
    for found in daemon.client.list_containers(Some(options)).await.unwrap_or_default() {
        let Some((id, left)) = left(found) else { continue };
        let Some(_lock) = unused(&left.lock) else { continue };
        // Its first process ends by itself, and gives back what was written before it does.
        let _ = timeout(PATIENCE, wait(daemon, &id)).await;
        remove(daemon, &id).await;
        // If it fails, whoever needs the files says so.
        let _ = take_back(daemon, &left).await;
    }
}

fn left(found: ContainerSummary) -> Option<(String, Left)> {
    let labels = found.labels?;
    let lock = PathBuf::from(labels.get(LOCK_LABEL)?);
    let left = Left {
        image: found.image_id.or(found.image)?,
        scratch: lock.parent()?.join("scratch"),
        program: PathBuf::from(labels.get(PROGRAM_LABEL)?),
        lock,
        labels,
    };
    Some((found.id?, left))
}

async fn sweep_networks(daemon: &Daemon, data: &Path) {
    let options = ListNetworksOptions { filters: Some(of_data_folder(data)) };
    for network in daemon.client.list_networks(Some(options)).await.unwrap_or_default() {
        let lock = network.labels.as_ref().and_then(|labels| labels.get(LOCK_LABEL)).map(Path::new);
        let (Some(name), Some(lock)) = (&network.name, lock) else { continue };
        if let Some(_held) = unused(lock) {
            // The daemon keeps one that has containers.
            network::remove(daemon, name, lock).await;
        }
    }
}

/// A lock that nobody holds, held from now on; of one whose file was removed only the promise.
fn unused(path: &Path) -> Option<Option<fs::File>> {
    match fs::File::open(path) {
        Ok(file) => flock(&file, FlockOperation::NonBlockingLockExclusive).ok().map(|()| Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Some(None),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_unused_unless_somebody_holds_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        assert!(matches!(unused(&path), Some(None)));
        let held = fs::File::create(&path).unwrap();
        flock(&held, FlockOperation::LockShared).unwrap();
        assert!(unused(&path).is_none());
        drop(held);
        assert!(matches!(unused(&path), Some(Some(_))));
    }

    #[test]
    fn a_daemon_is_remembered_once() {
        let folder = tempfile::tempdir().unwrap();
        for socket in ["/run/a.sock", "/run/b.sock", "/run/a.sock"] {
            remember(folder.path(), Path::new(socket)).unwrap();
        }
        assert_eq!(sockets(folder.path()), [Path::new("/run/a.sock"), Path::new("/run/b.sock")]);
    }
}
