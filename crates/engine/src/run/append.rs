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

/// Bytes that are read at once from a file that may be long.
const AT_ONCE: u64 = 1 << 20;

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
        self.read_new_bytes(u64::MAX)?;
        Ok(self.whole_lines())
    }

    /// Values of whole lines before the offset `end`, of about a mebibyte at a time; none once all
    /// have been read.
    pub fn read_before<T: DeserializeOwned>(&mut self, end: u64) -> io::Result<Vec<T>> {
        let mut values = Vec::new();
        while values.is_empty() && self.offset < end {
            if self.read_new_bytes(AT_ONCE.min(end - self.offset))? == 0 {
                break;
            }
            values = self.whole_lines();
        }
        Ok(values)
    }

    /// Takes the values of whole lines out of what has been read.
    fn whole_lines<T: DeserializeOwned>(&mut self) -> Vec<T> {
        let Some(last) = self.unfinished.iter().rposition(|&byte| byte == b'\n') else {
            return Vec::new();
        };
        let rest = self.unfinished.split_off(last + 1);
        let lines = std::mem::replace(&mut self.unfinished, rest);
        lines.split(|&byte| byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
    }

    /// Reads at most so many bytes on, and says how many there were.
    fn read_new_bytes(&mut self, most: u64) -> io::Result<u64> {
        let mut file = match fs::File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            Err(error) => return Err(error),
        };
        file.seek(SeekFrom::Start(self.offset))?;
        let read = file.take(most).read_to_end(&mut self.unfinished)? as u64;
        self.offset += read;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_file_is_read_in_pieces_up_to_a_given_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines");
        let lines: Vec<String> = (0..40).map(|number| number.to_string().repeat(50_000)).collect();
        Appender::open(&path).unwrap().append_all(&lines).unwrap();
        let end = fs::metadata(&path).unwrap().len();
        Appender::open(&path).unwrap().append(&"beyond").unwrap();
        let mut tail = Tail::new(path);
        let mut read: Vec<String> = Vec::new();
        loop {
            let piece: Vec<String> = tail.read_before(end).unwrap();
            if piece.is_empty() {
                break;
            }
            assert!(piece.len() < 25, "{} lines at once", piece.len());
            read.extend(piece);
        }
        assert_eq!(read, lines);
        assert_eq!(tail.read::<String>().unwrap(), ["beyond"]);
    }

    #[test]
    fn a_line_longer_than_a_piece_arrives_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines");
        let line = "x".repeat(3 << 20);
        Appender::open(&path).unwrap().append(&line).unwrap();
        let end = fs::metadata(&path).unwrap().len();
        assert_eq!(Tail::new(path).read_before::<String>(end).unwrap(), [line]);
    }
}
