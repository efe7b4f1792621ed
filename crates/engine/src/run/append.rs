//! Files to which one side appends lines and the other reads on.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use fs_err as fs;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Appends values to a file, one JSON line each.
#[derive(Debug)]
pub struct Appender {
    file: fs::File,
}

impl Appender {
    /// Opens a file for appending, making it if need be.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = fs::OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self { file })
    }

    /// Appends one value with a single write, so that a reader meets whole lines.
    pub fn append<T: Serialize>(&mut self, value: &T) -> io::Result<()> {
        let mut line = serde_json::to_vec(value)?;
        line.push(b'\n');
        self.file.write_all(&line)
    }

    /// Appends several values with a single write.
    pub fn append_all<T: Serialize>(&mut self, values: &[T]) -> io::Result<()> {
        let mut lines = Vec::new();
        for value in values {
            serde_json::to_writer(&mut lines, value)?;
            lines.push(b'\n');
        }
        self.file.write_all(&lines)
    }
}

/// Reads a file on from where the last read ended.
#[derive(Debug)]
pub struct Tail {
    path: PathBuf,
    offset: u64,
    /// The start of a line whose end is not there yet.
    unfinished: Vec<u8>,
}

impl Tail {
    /// Starts at the first line; the file need not exist yet.
    pub fn new(path: PathBuf) -> Self {
        Self { path, offset: 0, unfinished: Vec::new() }
    }

    /// All values of whole lines that have come since the last call.
    ///
    /// A line that is not a value is left out: a supervisor that was killed while writing must not
    /// hide what comes before or after.
    pub fn read<T: DeserializeOwned>(&mut self) -> io::Result<Vec<T>> {
        self.read_new_bytes()?;
        let Some(last) = self.unfinished.iter().rposition(|&byte| byte == b'\n') else {
            return Ok(Vec::new());
        };
        let rest = self.unfinished.split_off(last + 1);
        let lines = std::mem::replace(&mut self.unfinished, rest);
        Ok(lines.split(|&byte| byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect())
    }

    fn read_new_bytes(&mut self) -> io::Result<()> {
        let mut file = match fs::File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        file.seek(SeekFrom::Start(self.offset))?;
        let read = file.read_to_end(&mut self.unfinished)?;
        self.offset += read as u64;
        Ok(())
    }
}
