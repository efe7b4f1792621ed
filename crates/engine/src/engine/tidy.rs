//! What stays of a job that has ended: its plan, reports and logs, and what a resume needs.

use std::io;
use std::path::{Path, PathBuf};

use fs_err as fs;

use super::Engine;
use crate::artifact::index_path;
use crate::backend::{Backend, Placement};
use crate::job::{Job, Status};
use crate::run::{InstanceDirectory, RunDirectory, RunDirectoryError};

/// Removes all of an ended job that nobody needs any more.
///
/// Parts of instances that ended well stay until the job has completed: a resumed job uses them
/// again unchanged.
pub(super) async fn after(engine: &Engine, job: &Job) -> io::Result<()> {
    let backend = engine.backend.as_ref();
    for attempt in 1..=job.attempt {
        let root = engine.attempt_folder(&job.name, attempt);
        let Ok(run) = RunDirectory::open(&root) else { continue };
        remove_tree(backend, &run.bases()).await?;
        for instance in &job.instances {
            let directory = run.instance(&instance.host);
            remove_tree(backend, &directory.scratch()).await?;
            let kept =
                job.status != Status::Completed && instance.has_completed() && instance.attempt == attempt;
            if !kept {
                remove_parts(&directory)?;
            }
        }
        let merge = run.instance(crate::job::MERGE_HOST);
        remove_tree(backend, &merge.scratch()).await?;
        remove_parts(&merge)?;
    }
    Ok(())
}

/// The supervisors and networks that were written down in the run directories of a job.
pub(super) fn written_down(job_folder: &Path) -> Result<Placement, RunDirectoryError> {
    let mut placement = Placement { supervisors: Vec::new(), networks: Vec::new() };
    for attempt in folders(job_folder)? {
        // Without its format nothing was started yet.
        if let Ok(run) = RunDirectory::open(&attempt) {
            placement.networks.extend(run.network()?);
        }
        for instance in folders(&attempt.join("instances"))? {
            placement.supervisors.extend(InstanceDirectory::open(&instance).supervisor()?);
        }
    }
    Ok(placement)
}

/// The folders in a folder that need not be there.
pub(super) fn folders(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut folders = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            folders.push(path);
        }
    }
    Ok(folders)
}

/// Removes every attempt of a job that is forgotten; the lock stays, for its holder.
pub(super) async fn remove_attempts(backend: &dyn Backend, job_folder: &Path) -> io::Result<()> {
    for attempt in folders(job_folder)? {
        remove_tree(backend, &attempt).await?;
    }
    Ok(())
}

/// Removes what an instance has handed back.
fn remove_parts(directory: &InstanceDirectory) -> io::Result<()> {
    for part in [directory.model_part(), directory.output_part()] {
        remove_file(&index_path(&part))?;
        remove_file(&part)?;
    }
    remove_file(&directory.merged_file())
}

/// Removes a file that need not be there.
pub(super) fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

async fn remove_tree(backend: &dyn Backend, path: &Path) -> io::Result<()> {
    backend.remove(path).await.map_err(io::Error::other)
}
