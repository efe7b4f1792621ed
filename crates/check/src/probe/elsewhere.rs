//! What a program has changed outside of the folders that are its own.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use fs_err as fs;

/// Where a program may write, and what is no file system of the image.
const PASSED_OVER: [&str; 5] = ["/opt/ml", "/tmp", "/proc", "/sys", "/dev"];

/// Longer than a tick of the clock by which the kernel stamps files.
const TICK: Duration = Duration::from_millis(12);

/// Seconds and nanoseconds.
pub(super) type Time = (i64, i64);

/// The time of a file that is changed now. What was changed before this call has an earlier one.
pub(super) fn now() -> io::Result<Time> {
    sleep(TICK);
    let file = Path::new("/tmp/.trainyard-check");
    fs::write(file, "x")?;
    let found = fs::symlink_metadata(file)?;
    fs::remove_file(file)?;
    Ok(changed_at(&found))
}

/// Files that were made, written or given other rights since; and folders from which something was
/// removed. What can't be read is passed over.
pub(super) fn changed(since: Time) -> Vec<PathBuf> {
    let mut changed = Vec::new();
    look(Path::new("/"), since, &mut changed);
    changed
}

fn look(folder: &Path, since: Time, changed: &mut Vec<PathBuf>) {
    let before = changed.len();
    let mut entries: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    entries.sort();
    for path in entries.iter().filter(|path| !PASSED_OVER.iter().any(|own| path == &Path::new(own))) {
        let Ok(found) = fs::symlink_metadata(path) else { continue };
        if found.is_dir() {
            look(path, since, changed);
        } else if changed_at(&found) >= since {
            changed.push(path.clone());
        }
    }
    let is_new = fs::symlink_metadata(folder).is_ok_and(|found| changed_at(&found) >= since);
    if is_new && changed.len() == before && folder != Path::new("/") {
        changed.push(folder.to_owned());
    }
}

fn changed_at(found: &std::fs::Metadata) -> Time {
    (found.ctime(), found.ctime_nsec())
}
