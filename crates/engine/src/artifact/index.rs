//! The index of a part: one JSON object per line, one line per entry, in archive order. Written while a
//! folder is packed and read when parts are joined, both as a stream.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// One entry of an index.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct IndexEntry {
    /// As in the archive: a folder's ends in a slash.
    #[serde(with = "path_text")]
    pub(super) path: Vec<u8>,
    /// Bytes of content.
    pub(super) size: u64,
    /// XXH3 of the content, 128 bits as hexadecimal digits; none for a folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hash: Option<String>,
    pub(super) kind: IndexKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum IndexKind {
    File,
    Folder,
}

/// The index of a part could not be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read line {line} of the index {path:?}")]
pub struct IndexError {
    /// The index file.
    pub path: PathBuf,
    /// Its line, counted from 1; 0 when it could not be opened.
    pub line: u64,
    /// Why.
    pub source: io::Error,
}

/// Where the index of a part lies: beside it, `.index` added to its name.
pub fn index_path(part: &Path) -> PathBuf {
    let mut path = part.as_os_str().to_owned();
    path.push(".index");
    path.into()
}

pub(super) struct IndexWriter {
    lines: BufWriter<File>,
}

impl IndexWriter {
    pub(super) fn new(file: File) -> Self {
        Self { lines: BufWriter::new(file) }
    }

    pub(super) fn write(&mut self, entry: &IndexEntry) -> io::Result<()> {
        serde_json::to_writer(&mut self.lines, entry)?;
        self.lines.write_all(b"\n")
    }

    pub(super) fn finish(mut self) -> io::Result<()> {
        self.lines.flush()
    }
}

pub(super) struct IndexReader {
    path: PathBuf,
    lines: BufReader<File>,
    line: u64,
    text: Vec<u8>,
}

impl IndexReader {
    pub(super) fn open(path: PathBuf) -> Result<Self, IndexError> {
        match fs_err::File::open(&path) {
            Ok(file) => {
                let lines = BufReader::new(file.into_parts().0);
                Ok(Self { path, lines, line: 0, text: Vec::new() })
            }
            Err(source) => Err(IndexError { path, line: 0, source }),
        }
    }

    pub(super) fn read(&mut self) -> Result<Option<IndexEntry>, IndexError> {
        self.line += 1;
        self.read_line().map_err(|source| IndexError { path: self.path.clone(), line: self.line, source })
    }

    fn read_line(&mut self) -> io::Result<Option<IndexEntry>> {
        self.text.clear();
        if self.lines.read_until(b'\n', &mut self.text)? == 0 {
            return Ok(None);
        }
        Ok(Some(serde_json::from_slice(&self.text)?))
    }
}

/// A path as text where it is text, else as its bytes: JSON strings cannot hold every file name.
mod path_text {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Path {
        Text(String),
        Bytes(Vec<u8>),
    }

    pub(super) fn serialize<S: Serializer>(path: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(path) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => path.serialize(serializer),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        Ok(match Path::deserialize(deserializer)? {
            Path::Text(text) => text.into_bytes(),
            Path::Bytes(bytes) => bytes,
        })
    }
}
