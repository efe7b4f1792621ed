//! Strips into a file, on a thread of its own.

use crate::npy;
use crate::output::{PartError, unfinished};
use fs_err::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// Writes strips while others are computed.
pub(super) struct StripWriter {
    path: PathBuf,
    unfinished: PathBuf,
    full: Option<SyncSender<Strip>>,
    empty: Receiver<Strip>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

/// Scores on their way to the file.
pub(super) struct Strip(Vec<f32>);

impl Strip {
    pub(super) fn scores(&mut self) -> &mut [f32] {
        &mut self.0
    }
}

impl StripWriter {
    /// Begins a file of so many rows and columns.
    pub(super) fn create(path: &Path, (rows, columns): (usize, usize)) -> Result<Self, PartError> {
        let unfinished = unfinished(path);
        let mut file = File::create(&unfinished)?;
        file.write_all(&npy::header("<f4", &format!("({rows}, {columns})"), 64))?;
        let (full, to_write) = sync_channel::<Strip>(1);
        let (written, empty) = sync_channel(2);
        for _ in 0..2 {
            // There is room for both.
            let _ = written.send(Strip(Vec::new()));
        }
        let thread = std::thread::spawn(move || {
            for strip in to_write {
                file.write_all(bytemuck::cast_slice(&strip.0))?;
                // Nobody waits for the last ones.
                let _ = written.send(strip);
            }
            file.flush()
        });
        Ok(Self { path: path.to_owned(), unfinished, full: Some(full), empty, thread: Some(thread) })
    }

    /// Room for so many scores; waits for a strip to be written if there is none.
    pub(super) fn buffer(&mut self, scores: usize) -> Result<Strip, PartError> {
        match self.empty.recv() {
            Ok(mut strip) => {
                strip.0.resize(scores, 0.0);
                Ok(strip)
            }
            Err(_) => Err(self.failure()),
        }
    }

    /// Hands a strip over to be written.
    pub(super) fn write(&mut self, strip: Strip) -> Result<(), PartError> {
        let sent = self.full.as_ref().map(|full| full.send(strip));
        if matches!(sent, Some(Ok(()))) { Ok(()) } else { Err(self.failure()) }
    }

    /// Completes the file and gives it its name.
    pub(super) fn finish(mut self) -> Result<(), PartError> {
        self.join()?;
        Ok(fs_err::rename(&self.unfinished, &self.path)?)
    }

    fn join(&mut self) -> io::Result<()> {
        self.full = None;
        let Some(thread) = self.thread.take() else { return Ok(()) };
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the writing thread failed")))
    }

    fn failure(&mut self) -> PartError {
        match self.join() {
            Err(error) => PartError::Io(error),
            Ok(()) => PartError::Io(io::Error::other("the writing thread ended early")),
        }
    }
}

impl Drop for StripWriter {
    fn drop(&mut self) {
        let _ = self.join();
        // Gone already if the file was finished; nobody is left to tell if it can not be removed.
        let _ = fs_err::remove_file(&self.unfinished);
    }
}
