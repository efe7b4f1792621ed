//! Uploads in parts that are under way.

use std::collections::BTreeMap;

use rusqlite::{OptionalExtension, Row, params};

use super::{Index, parsed, text};
use crate::{Attributes, BucketError};

/// An upload that was begun.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Upload {
    pub(crate) key: String,
    pub(crate) id: String,
    /// Nanoseconds since 1970.
    pub(crate) begun: i64,
    /// What the object will have.
    pub(crate) attributes: Attributes,
}

/// A part that was received.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Part {
    /// From 1.
    pub(crate) number: u32,
    /// In bytes.
    pub(crate) size: u64,
    /// Nanoseconds since 1970.
    pub(crate) modified: i64,
    pub(crate) etag: String,
    /// Base64, by algorithm.
    pub(crate) checksums: BTreeMap<String, String>,
}

impl Index {
    /// Writes down that an upload was begun.
    pub(crate) fn begin(&self, upload: &Upload) -> Result<(), BucketError> {
        let attributes = text(&upload.attributes)?;
        let sql = "INSERT INTO uploads VALUES (?1, ?2, ?3, ?4)";
        self.ask(|connection| {
            let values = params![upload.key, upload.id, upload.begun, attributes];
            connection.execute(sql, values).map(drop)
        })
    }

    /// The upload of this id, if it is one of this key.
    pub(crate) fn upload(&self, key: &str, id: &str) -> Result<Option<Upload>, BucketError> {
        let sql = "SELECT key, id, begun, attributes FROM uploads WHERE key = ?1 AND id = ?2";
        self.ask(|connection| connection.prepare_cached(sql)?.query_row([key, id], upload).optional())
    }

    /// All uploads of keys with a prefix, in order of key and id.
    pub(crate) fn uploads(&self, prefix: &str) -> Result<Vec<Upload>, BucketError> {
        let sql = "SELECT key, id, begun, attributes FROM uploads WHERE key >= ?1 ORDER BY key, id";
        self.ask(|connection| {
            let mut statement = connection.prepare_cached(sql)?;
            let uploads = statement.query_map([prefix], upload)?;
            uploads.take_while(|it| !it.as_ref().is_ok_and(|it| !it.key.starts_with(prefix))).collect()
        })
    }

    /// Writes down a part in place of an earlier one of that number.
    pub(crate) fn store_part(&self, id: &str, part: &Part) -> Result<(), BucketError> {
        let checksums = text(&part.checksums)?;
        let sql = "INSERT OR REPLACE INTO parts VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        self.ask(|connection| {
            let size = part.size.cast_signed();
            let values = params![id, part.number, size, part.modified, part.etag, checksums];
            connection.prepare_cached(sql)?.execute(values).map(drop)
        })
    }

    /// The parts of an upload, by number.
    pub(crate) fn parts(&self, id: &str) -> Result<Vec<Part>, BucketError> {
        let sql = "SELECT number, size, modified, etag, checksums FROM parts WHERE id = ?1 ORDER BY number";
        self.ask(|connection| connection.prepare_cached(sql)?.query_map([id], part)?.collect())
    }

    /// Forgets an upload and its parts.
    pub(crate) fn end(&self, key: &str, id: &str) -> Result<(), BucketError> {
        self.ask(|connection| {
            connection.execute("DELETE FROM parts WHERE id = ?1", [id])?;
            connection.execute("DELETE FROM uploads WHERE key = ?1 AND id = ?2", [key, id]).map(drop)
        })
    }
}

fn upload(row: &Row<'_>) -> rusqlite::Result<Upload> {
    Ok(Upload { key: row.get(0)?, id: row.get(1)?, begun: row.get(2)?, attributes: parsed(row, 3)? })
}

fn part(row: &Row<'_>) -> rusqlite::Result<Part> {
    Ok(Part {
        number: row.get(0)?,
        size: row.get::<_, i64>(1)?.cast_unsigned(),
        modified: row.get(2)?,
        etag: row.get(3)?,
        checksums: parsed(row, 4)?,
    })
}
