//! Checkpoints that are either there as a whole or not at all.
//!
//! A checkpoint is one file, `checkpoint-<step>`. The step and not the time stamp says which one is the
//! latest: files that were restored from a store all carry the time at which they were restored.

use std::io;
use std::path::{Path, PathBuf};

use fs_err::File;

const PREFIX: &str = "checkpoint-";

/// Writes the checkpoint of `step` into `folder` and returns its path.
///
/// `write` fills a file of another name, which takes the final name only when all of it is on the disk. A
/// program that is killed meanwhile leaves the checkpoints before it untouched; a checkpoint of the same step
/// is replaced.
///
/// # Errors
///
/// Whatever `write` returns, or the file can not be created, flushed or renamed; then no checkpoint of this
/// step has been added.
pub fn save(
    folder: &Path,
    step: u64,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<PathBuf> {
    fs_err::create_dir_all(folder)?;
    let unfinished = folder.join(format!(".{PREFIX}{step}.unfinished"));
    let path = folder.join(format!("{PREFIX}{step}"));
    let saved = fill(&unfinished, write).and_then(|()| fs_err::rename(&unfinished, &path));
    if saved.is_err() {
        // The first error is the one to report; a leftover is overwritten by the next try.
        let _ = fs_err::remove_file(&unfinished);
    }
    saved?;
    // The new name is an entry of the folder and is safe only with it.
    File::open(folder)?.sync_all()?;
    Ok(path)
}

fn fill(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let mut file = File::create(path)?;
    write(&mut file)?;
    file.sync_all()
}

/// The checkpoint with the highest step in `folder`, with that step. Other files are passed over, and a folder
/// that does not exist holds no checkpoint.
///
/// # Errors
///
/// The folder can not be read.
pub fn latest(folder: &Path) -> io::Result<Option<(u64, PathBuf)>> {
    if !folder.exists() {
        return Ok(None);
    }
    let mut latest = None;
    for entry in fs_err::read_dir(folder)? {
        let entry = entry?;
        let step = entry.file_name().to_str().and_then(step);
        latest = latest.max(step.map(|step| (step, entry.path())));
    }
    Ok(latest)
}

fn step(file_name: &str) -> Option<u64> {
    file_name.strip_prefix(PREFIX)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn saved(folder: &Path, step: u64) -> PathBuf {
        save(folder, step, |file| write!(file, "state {step}")).unwrap()
    }

    #[test]
    fn the_latest_is_the_one_with_the_highest_step() {
        let folder = tempfile::tempdir().unwrap();
        for step in [9, 10, 2] {
            saved(folder.path(), step);
        }
        let (step, path) = latest(folder.path()).unwrap().unwrap();
        assert_eq!(step, 10);
        assert_eq!(fs_err::read_to_string(path).unwrap(), "state 10");
    }

    #[test]
    fn a_checkpoint_that_could_not_be_written_leaves_no_trace() {
        let folder = tempfile::tempdir().unwrap();
        saved(folder.path(), 1);
        let error = save(folder.path(), 2, |file| {
            file.write_all(b"half")?;
            Err(io::Error::other("disk full"))
        });
        assert_eq!(error.unwrap_err().to_string(), "disk full");
        assert_eq!(latest(folder.path()).unwrap().unwrap().0, 1);
        assert_eq!(fs_err::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn the_same_step_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        saved(folder.path(), 1);
        let path = save(folder.path(), 1, |file| file.write_all(b"again")).unwrap();
        assert_eq!(fs_err::read_to_string(path).unwrap(), "again");
    }

    #[test]
    fn unfinished_and_foreign_files_are_no_checkpoints() {
        let folder = tempfile::tempdir().unwrap();
        for name in [".checkpoint-7.unfinished", "checkpoint-", "checkpoint-x", "model-9"] {
            fs_err::write(folder.path().join(name), "").unwrap();
        }
        assert_eq!(latest(folder.path()).unwrap(), None);
    }

    #[test]
    fn a_missing_folder_holds_no_checkpoint_and_is_made_by_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("checkpoints");
        assert_eq!(latest(&missing).unwrap(), None);
        saved(&missing, 0);
        assert_eq!(latest(&missing).unwrap().unwrap().0, 0);
    }
}
