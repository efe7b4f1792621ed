//! Jobs and their events in one SQLite file.
//!
//! An event is committed before the job that it changes is shown to anyone, so what a user has seen
//! is never lost. The file is in WAL mode: readers do not wait for the writer.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension, params};

use crate::job::Event;
use crate::run::Timestamp;

/// The tables that this program reads and writes; kept in SQLite's own `user_version`.
const SCHEMA_VERSION: i64 = 1;

const SCHEMA: &str = "
    CREATE TABLE jobs (
        name TEXT PRIMARY KEY COLLATE NOCASE,
        request TEXT NOT NULL,
        created INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE events (
        job TEXT NOT NULL COLLATE NOCASE REFERENCES jobs (name) ON DELETE CASCADE,
        number INTEGER NOT NULL,
        at INTEGER NOT NULL,
        event TEXT NOT NULL,
        PRIMARY KEY (job, number)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE placements (
        job TEXT NOT NULL COLLATE NOCASE REFERENCES jobs (name) ON DELETE CASCADE,
        placement TEXT NOT NULL
    ) STRICT;
";

/// The store of all jobs below one data folder.
#[derive(Debug)]
pub struct Store {
    connection: Connection,
}

/// A store that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The folder of the file could not be made.
    #[error("store of jobs")]
    Folder(#[from] std::io::Error),
    /// SQLite refused.
    #[error("store of jobs")]
    Sqlite(#[from] rusqlite::Error),
    /// The file was written by a newer version.
    #[error("{path} has version {found}; this program reads version {SCHEMA_VERSION} and older")]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
    },
    /// A row holds something else than it should.
    #[error("store of jobs: {job} has a damaged event")]
    Damaged {
        /// The job's name.
        job: String,
        /// What does not fit.
        source: serde_json::Error,
    },
    /// A job of that name is there already.
    #[error("a training job named {job} already exists")]
    Exists {
        /// The job's name.
        job: String,
    },
}

/// A job as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredJob {
    /// The request, as JSON.
    pub request: String,
    /// When it was submitted.
    pub created: Timestamp,
    /// What has happened to it, in order.
    pub events: Vec<(Timestamp, Event)>,
    /// What the backend's launches have returned, as JSON, oldest first.
    pub placements: Vec<String>,
}

impl Store {
    /// Opens the store, making it if need be.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        if let Some(folder) = path.parent() {
            fs_err::create_dir_all(folder)?;
        }
        let mut connection = Connection::open(path)?;
        connection.busy_timeout(std::time::Duration::from_secs(10))?;
        connection.pragma_update(None, "foreign_keys", true)?;
        let found: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
        if found > SCHEMA_VERSION {
            return Err(StoreError::Version { path: path.to_owned(), found });
        }
        if found == 0 {
            create_schema(&mut connection)?;
        }
        // A power cut may undo the newest transitions but never damages the file; a killed process
        // undoes nothing. NORMAL saves a disk flush for each transition.
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        Ok(Self { connection })
    }

    /// Adds a job that nothing has happened to yet.
    pub fn add(&mut self, name: &str, request: &str, created: Timestamp) -> Result<(), StoreError> {
        let sql = "INSERT INTO jobs (name, request, created) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING";
        match self.connection.execute(sql, params![name, request, milliseconds(created)])? {
            0 => Err(StoreError::Exists { job: name.to_owned() }),
            _ => Ok(()),
        }
    }

    /// Writes down what has happened to a job; when this returns it is kept.
    pub fn append(&mut self, job: &str, at: Timestamp, event: &Event) -> Result<(), StoreError> {
        let event = to_json(job, event)?;
        let sql = "INSERT INTO events (job, number, at, event)
                   SELECT ?1, 1 + COALESCE(MAX(number), 0), ?2, ?3 FROM events WHERE job = ?1";
        self.connection.prepare_cached(sql)?.execute(params![job, milliseconds(at), event])?;
        Ok(())
    }

    /// Writes down where a launch has placed instances.
    pub fn add_placement(&mut self, job: &str, placement: &str) -> Result<(), StoreError> {
        let sql = "INSERT INTO placements (job, placement) VALUES (?1, ?2)";
        self.connection.execute(sql, params![job, placement])?;
        Ok(())
    }

    /// Everything about one job.
    pub fn job(&self, name: &str) -> Result<Option<StoredJob>, StoreError> {
        let sql = "SELECT request, created FROM jobs WHERE name = ?1";
        let row = self.connection.query_row(sql, [name], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        let Some((request, created)) = row else { return Ok(None) };
        let events = self.events(name)?;
        let placements = self.placements(name)?;
        Ok(Some(StoredJob { request, created: timestamp(created), events, placements }))
    }

    /// Forgets a job.
    pub fn remove(&mut self, name: &str) -> Result<(), StoreError> {
        self.connection.execute("DELETE FROM jobs WHERE name = ?1", [name])?;
        Ok(())
    }

    fn events(&self, job: &str) -> Result<Vec<(Timestamp, Event)>, StoreError> {
        let mut statement =
            self.connection.prepare_cached("SELECT at, event FROM events WHERE job = ?1 ORDER BY number")?;
        let rows = statement.query_map([job], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?)))?;
        let mut events = Vec::new();
        for row in rows {
            let (at, event) = row?;
            let event = serde_json::from_str(&event)
                .map_err(|source| StoreError::Damaged { job: job.to_owned(), source })?;
            events.push((timestamp(at), event));
        }
        Ok(events)
    }

    fn placements(&self, job: &str) -> Result<Vec<String>, StoreError> {
        let sql = "SELECT placement FROM placements WHERE job = ?1 ORDER BY rowid";
        let mut statement = self.connection.prepare_cached(sql)?;
        let rows = statement.query_map([job], |row| row.get(0))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

fn create_schema(connection: &mut Connection) -> Result<(), StoreError> {
    connection.pragma_update(None, "journal_mode", "WAL")?;
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    // Another process may have been faster.
    let found: i64 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if found == 0 {
        transaction.execute_batch(SCHEMA)?;
        transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    }
    transaction.commit()?;
    Ok(())
}

fn to_json(job: &str, event: &Event) -> Result<String, StoreError> {
    serde_json::to_string(event).map_err(|source| StoreError::Damaged { job: job.to_owned(), source })
}

fn milliseconds(at: Timestamp) -> i64 {
    i64::try_from(at.0).unwrap_or(i64::MAX)
}

fn timestamp(milliseconds: i64) -> Timestamp {
    Timestamp(u64::try_from(milliseconds).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(folder: &tempfile::TempDir) -> Store {
        Store::open(&folder.path().join("state/jobs.sqlite")).unwrap()
    }

    #[test]
    fn what_was_stored_is_there_after_opening_again_and_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = store(&folder);
        first.add("Job", "{}", Timestamp(5)).unwrap();
        first.append("Job", Timestamp(6), &Event::Launched).unwrap();
        first.append("Job", Timestamp(7), &Event::StopRequested).unwrap();
        first.add_placement("Job", "[1]").unwrap();
        drop(first);
        let stored = store(&folder).job("Job").unwrap().unwrap();
        assert_eq!(stored.created, Timestamp(5));
        assert_eq!(stored.events, [(Timestamp(6), Event::Launched), (Timestamp(7), Event::StopRequested)]);
        assert_eq!(stored.placements, ["[1]"]);
    }

    #[test]
    fn a_name_is_taken_once_whatever_its_case() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = store(&folder);
        store.add("Job", "{}", Timestamp(5)).unwrap();
        assert!(matches!(store.add("jOB", "{}", Timestamp(6)), Err(StoreError::Exists { .. })));
    }

    #[test]
    fn a_removed_job_leaves_nothing_and_its_name_is_free() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = store(&folder);
        store.add("job", "{}", Timestamp(5)).unwrap();
        store.append("job", Timestamp(6), &Event::Launched).unwrap();
        store.remove("job").unwrap();
        assert_eq!(store.job("job").unwrap(), None);
        store.add("job", "{}", Timestamp(7)).unwrap();
        assert_eq!(store.job("job").unwrap().unwrap().events, []);
    }

    #[test]
    fn a_file_of_a_newer_version_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        store(&folder).connection.pragma_update(None, "user_version", 99).unwrap();
        let error = Store::open(&folder.path().join("state/jobs.sqlite")).unwrap_err();
        assert!(error.to_string().contains("version 99"), "{error}");
    }
}
