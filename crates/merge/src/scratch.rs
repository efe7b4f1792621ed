//! Where everything lies that is not finished: one hidden folder beside the output.
//!
//! Beside it, so that the finished file can be renamed into place, and so that the space needed is taken from the
//! disk that the user chose. The folder goes away when the merge ends in whatever way; names from the archive
//! are never used in it.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use fs_err as fs;

use crate::error::{MergeError, unwritable};

const BUFFER: usize = 256 << 10;
/// How the folder's name begins.
pub(crate) const PREFIX: &str = ".trainyard-merge-";

/// The hidden folder of one merge.
#[derive(Debug)]
pub(crate) struct Scratch {
    folder: tempfile::TempDir,
    output: PathBuf,
}

impl Scratch {
    /// Makes the folder; that the output can not be written shows here, before anything is read.
    pub(crate) fn beside(output: &Path) -> Result<Self, MergeError> {
        if output.is_dir() {
            return Err(unwritable(output, io::ErrorKind::IsADirectory.into()));
        }
        let parent = match output.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let folder = tempfile::Builder::new()
            .prefix(PREFIX)
            .tempdir_in(parent)
            .map_err(|source| unwritable(output, source))?;
        Ok(Self { folder, output: output.to_path_buf() })
    }

    /// The path that the result will have.
    pub(crate) fn output(&self) -> &Path {
        &self.output
    }

    /// Where part number `n` of an archive is put.
    pub(crate) fn part(&self, n: usize) -> PathBuf {
        self.folder.path().join(format!("part-{n}"))
    }

    /// Where sorted run number `n` is put.
    pub(crate) fn run(&self, n: usize) -> PathBuf {
        self.folder.path().join(format!("run-{n}"))
    }

    /// The unfinished result.
    pub(crate) fn result(&self) -> Result<Writing, MergeError> {
        Writing::create(self.unfinished())
    }

    /// Shows the finished result under its name and returns its size.
    ///
    /// The file is not forced to the disk: after a power cut the archive is still there to merge again.
    pub(crate) fn publish(&self) -> Result<u64, MergeError> {
        let finish = || {
            let bytes = fs::metadata(self.unfinished())?.len();
            fs::rename(self.unfinished(), &self.output)?;
            Ok(bytes)
        };
        finish().map_err(|source| unwritable(&self.output, source))
    }

    /// An error of writing the result, in the words of the user.
    pub(crate) fn failed(&self, error: io::Error) -> MergeError {
        unwritable(self.unfinished(), error)
    }

    fn unfinished(&self) -> PathBuf {
        self.folder.path().join("result")
    }
}

/// A file in the scratch folder while it is written.
///
/// Encoders wrap an I/O error in types of their own; this keeps the system's answer, so that a full disk is never
/// mistaken for bad rows.
#[derive(Debug)]
pub(crate) struct Writing {
    path: PathBuf,
    file: BufWriter<fs::File>,
    failed: Option<io::ErrorKind>,
}

impl Writing {
    pub(crate) fn create(path: PathBuf) -> Result<Self, MergeError> {
        let file = fs::File::create(&path).map_err(|source| unwritable(&path, source))?;
        Ok(Self { path, file: BufWriter::with_capacity(BUFFER, file), failed: None })
    }

    /// Writes all of `bytes`.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Result<(), MergeError> {
        self.file.write_all(bytes).map_err(|source| unwritable(&self.path, source))
    }

    /// Writes out what is still buffered.
    pub(crate) fn finish(mut self) -> Result<(), MergeError> {
        self.file.flush().map_err(|source| unwritable(&self.path, source))
    }

    /// The error that an encoder ran into while writing here, if it was one of writing.
    pub(crate) fn failure(&self) -> Option<MergeError> {
        self.failed.map(|kind| unwritable(&self.path, kind.into()))
    }
}

impl Write for Writing {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.file.write(buf).inspect_err(|error| self.failed = Some(error.kind()))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush().inspect_err(|error| self.failed = Some(error.kind()))
    }
}
