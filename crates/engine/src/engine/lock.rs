//! Locks on files, which the kernel lets go of when their process ends, however it ends.

use fs_err as fs;
use std::fs::TryLockError;
use std::io;
use std::time::Duration;
use tokio::time::Instant;

/// How long a lock may outlive its process: a process that it was just starting holds it too, until that has become another
/// program.
const SOON: Duration = Duration::from_secs(2);

/// Time between two tries.
const PAUSE: Duration = Duration::from_millis(20);

/// Takes the lock of a file, which may be that of a process that was killed a moment ago. `false` if another one has it.
///
/// # Errors
/// The file can't be locked at all.
pub async fn lock_soon(file: &fs::File) -> io::Result<bool> {
    let end = Instant::now() + SOON;
    loop {
        match file.file().try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if Instant::now() >= end => return Ok(false),
            Err(TryLockError::WouldBlock) => tokio::time::sleep(PAUSE).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_lock_that_is_let_go_of_a_moment_later_is_taken_and_another_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let open =
            || fs::OpenOptions::new().create(true).append(true).open(folder.path().join("lock")).unwrap();
        let (held, file) = (open(), open());
        assert!(lock_soon(&held).await.unwrap());
        assert!(!lock_soon(&file).await.unwrap());
        let release = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            drop(held);
        };
        assert!(tokio::join!(lock_soon(&file), release).0.unwrap());
    }
}
