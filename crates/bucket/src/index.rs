//! What S3 keeps of objects beside their content, in one SQLite file per bucket.
//!
//! A row counts only as long as its object's file has the size and the time that the row names: people may
//! replace, copy or remove files by other means.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::{Attributes, BucketError};

mod uploads;

pub(crate) use uploads::{Part, Upload};

const SCHEMA: &str = "
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = NORMAL;
    CREATE TABLE IF NOT EXISTS objects (
        key TEXT PRIMARY KEY, odd INTEGER NOT NULL, size INTEGER NOT NULL, modified INTEGER NOT NULL,
        etag TEXT NOT NULL, attributes TEXT NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS odd_objects ON objects (key) WHERE odd = 1;
    CREATE TABLE IF NOT EXISTS uploads (
        key TEXT NOT NULL, id TEXT NOT NULL, begun INTEGER NOT NULL, attributes TEXT NOT NULL,
        PRIMARY KEY (key, id)
    ) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS parts (
        id TEXT NOT NULL, number INTEGER NOT NULL, size INTEGER NOT NULL, modified INTEGER NOT NULL,
        etag TEXT NOT NULL, checksums TEXT NOT NULL, PRIMARY KEY (id, number)
    ) WITHOUT ROWID;
";

/// What is known of one object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Record {
    /// Whether its file lies in the hidden folder because its key can't be a path.
    pub(crate) odd: bool,
    /// Of the file that it belongs to, in bytes.
    pub(crate) size: u64,
    /// Of the file that it belongs to, in nanoseconds since 1970.
    pub(crate) modified: i64,
    pub(crate) etag: String,
    pub(crate) attributes: Attributes,
}

/// An open index.
#[derive(Debug)]
pub(crate) struct Index {
    connection: Connection,
    path: PathBuf,
}

impl Index {
    /// Opens the file, which is made if it is not there.
    pub(crate) fn open(path: &Path) -> Result<Self, BucketError> {
        let failed = |source| BucketError::Index { path: path.to_owned(), source };
        let connection = Connection::open(path).map_err(failed)?;
        connection.execute_batch(SCHEMA).map_err(failed)?;
        Ok(Self { connection, path: path.to_owned() })
    }

    /// What is known of an object.
    pub(crate) fn find(&self, key: &str) -> Result<Option<Record>, BucketError> {
        let sql = "SELECT odd, size, modified, etag, attributes FROM objects WHERE key = ?1";
        self.ask(|connection| connection.prepare_cached(sql)?.query_row([key], record).optional())
    }

    /// Writes down an object in place of what was known of it.
    pub(crate) fn store(&self, key: &str, record: &Record) -> Result<(), BucketError> {
        let attributes = text(&record.attributes)?;
        let sql = "INSERT OR REPLACE INTO objects VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        self.ask(|connection| {
            let size = record.size.cast_signed();
            let values = params![key, record.odd, size, record.modified, record.etag, attributes];
            connection.prepare_cached(sql)?.execute(values).map(drop)
        })
    }

    /// Forgets an object.
    pub(crate) fn remove(&self, key: &str) -> Result<(), BucketError> {
        let sql = "DELETE FROM objects WHERE key = ?1";
        self.ask(|connection| connection.prepare_cached(sql)?.execute([key]).map(drop))
    }

    /// The odd keys from one on, in order of their bytes, that start with a prefix.
    pub(crate) fn odd(&self, prefix: &str, from: &str) -> Result<Vec<String>, BucketError> {
        let sql = "SELECT key FROM objects WHERE odd = 1 AND key >= ?1 ORDER BY key";
        self.ask(|connection| {
            let mut statement = connection.prepare_cached(sql)?;
            let keys = statement.query_map([from.max(prefix)], |row| row.get::<_, String>(0))?;
            keys.take_while(|key| !key.as_ref().is_ok_and(|key| !key.starts_with(prefix))).collect()
        })
    }

    fn ask<T>(&self, question: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, BucketError> {
        question(&self.connection).map_err(|source| BucketError::Index { path: self.path.clone(), source })
    }
}

fn record(row: &Row<'_>) -> rusqlite::Result<Record> {
    Ok(Record {
        odd: row.get(0)?,
        size: row.get::<_, i64>(1)?.cast_unsigned(),
        modified: row.get(2)?,
        etag: row.get(3)?,
        attributes: parsed(row, 4)?,
    })
}

fn text(value: &impl serde::Serialize) -> Result<String, BucketError> {
    serde_json::to_string(value).map_err(|error| BucketError::Io(error.into()))
}

fn parsed<T: serde::de::DeserializeOwned>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    serde_json::from_str(row.get_ref(column)?.as_str()?).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, error.into())
    })
}
