//! Jobs and their events in one embedded SQLite file.
//!
//! Every event is in the file before anything that follows from it is shown, so a process that is
//! killed loses nothing that anybody has seen. Beside the events stands what lists of jobs show, so that
//! they need not replay anything.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::job::{Event, Job, Outline};
use crate::notice::Notice;
use crate::run::Timestamp;

mod facts;
mod list;
mod migrate;
mod notices;
mod tags;

pub use list::{Compared, JobQuery, Listed, SortBy, Wanted};

/// Raised when the tables change in a way that older programs can't read.
const SCHEMA_VERSION: i64 = 3;

/// How long another process may hold the file.
const BUSY_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

const SCHEMA: &str = "
    CREATE TABLE jobs (
        name TEXT PRIMARY KEY COLLATE NOCASE,
        request TEXT NOT NULL,
        created INTEGER NOT NULL,
        outline TEXT NOT NULL,
        status TEXT NOT NULL,
        secondary TEXT NOT NULL,
        modified INTEGER NOT NULL,
        ended INTEGER,
        snapshot TEXT
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
        attempt INTEGER NOT NULL,
        placement TEXT NOT NULL
    ) STRICT;
    CREATE INDEX placements_job ON placements (job);
    CREATE TABLE tags (
        job TEXT NOT NULL COLLATE NOCASE REFERENCES jobs (name) ON DELETE CASCADE,
        number INTEGER NOT NULL,
        key TEXT NOT NULL,
        value TEXT NOT NULL,
        PRIMARY KEY (job, key)
    ) STRICT, WITHOUT ROWID;
";

/// What lists and searches go along: each index has all that a list shows, so that nothing else is read.
const INDEXES: &str = "
    CREATE INDEX jobs_by_created ON jobs (created, name, status, secondary, modified, ended);
    CREATE INDEX jobs_by_modified ON jobs (modified, name, status, secondary, created, ended);
    CREATE INDEX jobs_by_name ON jobs (name, status, secondary, created, modified, ended);
    CREATE INDEX jobs_by_status ON jobs (status, name, secondary, created, modified, ended);
    CREATE INDEX jobs_of_status_by_created ON jobs (status, created, name, secondary, modified, ended);
    CREATE INDEX jobs_of_status_by_modified ON jobs (status, modified, name, secondary, created, ended);
    CREATE TABLE facts (
        job TEXT NOT NULL COLLATE NOCASE REFERENCES jobs (name) ON DELETE CASCADE,
        name TEXT NOT NULL,
        text TEXT NOT NULL,
        number REAL,
        PRIMARY KEY (job, name)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX facts_by_text ON facts (name, text, job);
    CREATE INDEX facts_by_number ON facts (name, number, job);
    CREATE INDEX tags_by_value ON tags (key, value, job);
";

/// The open file.
#[derive(Debug)]
pub struct Store {
    connection: Connection,
}

/// Why the store can't be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The folder can't be made.
    #[error("store of jobs")]
    Folder(#[from] std::io::Error),
    /// The file can't be read or written.
    #[error("store of jobs")]
    Sqlite(#[from] rusqlite::Error),
    /// Another version of this program wrote it.
    #[error(
        "{path} has version {found}; this program reads version {SCHEMA_VERSION}: move the data folder away"
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// What it says.
        found: i64,
    },
    /// What was stored for a job can't be read.
    #[error("store of jobs: {job} has a damaged record")]
    Damaged {
        /// The job's name.
        job: String,
        /// What does not fit.
        source: serde_json::Error,
    },
    /// Names are unique, whatever their case: the ARN is in lower case.
    #[error("a training job named {job} already exists")]
    Exists {
        /// The name as it is stored.
        job: String,
    },
}

impl StoreError {
    /// Whether there may be room later.
    pub fn is_disk_full(&self) -> bool {
        matches!(self, Self::Sqlite(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull))
    }
}

/// A job as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredJob {
    /// The name, in its original case.
    pub name: String,
    /// The request as it was submitted.
    pub request: String,
    /// When it was submitted.
    pub created: Timestamp,
    /// What was known of it then.
    pub outline: Outline,
    /// All that has happened, in order.
    pub events: Vec<(Timestamp, Event)>,
    /// The attempts and placements of its launches, in order; the latter are the backend's own data.
    pub placements: Vec<(u32, String)>,
}

impl StoredJob {
    /// The job after all that has happened.
    pub fn replayed(&self) -> Job {
        Job::replay(&self.outline, self.created, &self.events)
    }
}

impl Store {
    /// Opens the file, making it and its folder if need be.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        if let Some(folder) = path.parent() {
            fs_err::create_dir_all(folder)?;
        }
        let mut connection = Connection::open(path)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.pragma_update(None, "foreign_keys", true)?;
        let found: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
        match found {
            0 => create_schema(&mut connection)?,
            1 => migrate::from_version_1(&mut connection, path)?,
            2 => migrate::from_version_2(&mut connection)?,
            SCHEMA_VERSION => {}
            _ => return Err(StoreError::Version { path: path.to_owned(), found }),
        }
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        connection.execute_batch(notices::TABLE)?;
        Ok(Self { connection })
    }

    /// Takes in a new job, as it is before anything has happened to it.
    ///
    /// # Errors
    /// There is one of this name already.
    pub fn add(&mut self, job: &Job, outline: &Outline, request: &str) -> Result<(), StoreError> {
        let outline = to_json(&job.name, outline)?;
        let sql = "INSERT INTO jobs (name, request, created, outline, status, secondary, modified)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?3) ON CONFLICT DO NOTHING";
        let (status, secondary) = (job.status.to_string(), job.secondary_status().to_string());
        let values = params![job.name, request, milliseconds(job.created), outline, status, secondary];
        let transaction =
            self.connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        if transaction.prepare_cached(sql)?.execute(values)? == 1 {
            facts::of_request(&transaction, &job.name, request)?;
            return Ok(transaction.commit()?);
        }
        drop(transaction);
        let taken = self.name(&job.name)?.unwrap_or_else(|| job.name.clone());
        Err(StoreError::Exists { job: taken })
    }

    /// Stores what has happened to a job, and what it is `after` that.
    ///
    /// The notices that follow from it are stored with it, or neither is.
    pub fn append(
        &mut self,
        after: &Job,
        at: Timestamp,
        event: &Event,
        notices: &[Notice],
    ) -> Result<(), StoreError> {
        let (name, event) = (&after.name, to_json(&after.name, event)?);
        let transaction =
            self.connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        let sql = "INSERT INTO events (job, number, at, event)
                   SELECT ?1, 1 + COALESCE(MAX(number), 0), ?2, ?3 FROM events WHERE job = ?1";
        transaction.prepare_cached(sql)?.execute(params![name, milliseconds(at), event])?;
        let sql = "UPDATE jobs SET status = ?2, secondary = ?3, modified = ?4, ended = ?5, snapshot = ?6
                   WHERE name = ?1";
        let (status, secondary) = (after.status.to_string(), after.secondary_status().to_string());
        let (modified, ended) = (milliseconds(after.modified), after.ended.map(milliseconds));
        // Of jobs that have ended there are many, and they are read again and again.
        let snapshot = after.ended.map(|_| to_json(name, after)).transpose()?;
        transaction
            .prepare_cached(sql)?
            .execute(params![name, status, secondary, modified, ended, snapshot])?;
        if after.ended.is_some() {
            facts::of_metrics(&transaction, after)?;
        }
        notices::add(&transaction, notices, at)?;
        Ok(transaction.commit()?)
    }

    /// Stores where an attempt was launched.
    pub fn add_placement(&mut self, job: &str, attempt: u32, placement: &str) -> Result<(), StoreError> {
        let sql = "INSERT INTO placements (job, attempt, placement) VALUES (?1, ?2, ?3)";
        self.connection.execute(sql, params![job, attempt, placement])?;
        Ok(())
    }

    /// The job of this name, in any case.
    pub fn job(&self, name: &str) -> Result<Option<StoredJob>, StoreError> {
        let sql = "SELECT name, request, created, outline FROM jobs WHERE name = ?1";
        let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get::<_, String>(3)?));
        let Some((name, request, created, outline)) =
            self.connection.query_row(sql, [name], read).optional()?
        else {
            return Ok(None);
        };
        let name: String = name;
        let outline = of_json(&name, &outline)?;
        let (events, placements) = (self.events(&name)?, self.placements(&name)?);
        Ok(Some(StoredJob { name, request, created: timestamp(created), outline, events, placements }))
    }

    /// What was sent for the job of this name, in any case, and what became of it.
    pub fn shown(&self, name: &str) -> Result<Option<(String, Job)>, StoreError> {
        let sql = "SELECT request, snapshot FROM jobs WHERE name = ?1";
        let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let mut statement = self.connection.prepare_cached(sql)?;
        let Some((request, snapshot)) = statement.query_row([name], read).optional()? else {
            return Ok(None);
        };
        let snapshot: Option<String> = snapshot;
        // One that another version has written is made anew.
        if let Some(job) = snapshot.and_then(|text| serde_json::from_str(&text).ok()) {
            return Ok(Some((request, job)));
        }
        Ok(self.job(name)?.map(|stored| (request, stored.replayed())))
    }

    /// Puts another request in the place of the one that was submitted.
    pub fn replace_request(&mut self, name: &str, request: &str) -> Result<(), StoreError> {
        self.connection.execute("UPDATE jobs SET request = ?2 WHERE name = ?1", params![name, request])?;
        Ok(())
    }

    /// Names of the jobs that have not ended, the oldest first.
    pub fn unfinished(&self) -> Result<Vec<String>, StoreError> {
        let mut statement =
            self.connection.prepare("SELECT name FROM jobs WHERE ended IS NULL ORDER BY created, rowid")?;
        let rows = statement.query_map([], |row| row.get(0))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Forgets a job and all that has happened to it; one that is not there is no error.
    pub fn remove(&mut self, name: &str) -> Result<(), StoreError> {
        self.connection.execute("DELETE FROM jobs WHERE name = ?1", [name])?;
        Ok(())
    }

    /// The name of a job in its original case.
    fn name(&self, name: &str) -> Result<Option<String>, StoreError> {
        let sql = "SELECT name FROM jobs WHERE name = ?1";
        Ok(self.connection.query_row(sql, [name], |row| row.get(0)).optional()?)
    }

    fn events(&self, job: &str) -> Result<Vec<(Timestamp, Event)>, StoreError> {
        events_in(&self.connection, "events", job)
    }

    fn placements(&self, job: &str) -> Result<Vec<(u32, String)>, StoreError> {
        let sql = "SELECT attempt, placement FROM placements WHERE job = ?1 ORDER BY rowid";
        let mut statement = self.connection.prepare_cached(sql)?;
        let rows = statement.query_map([job], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

/// What has happened to a job, from a table of that form.
fn events_in(connection: &Connection, table: &str, job: &str) -> Result<Vec<(Timestamp, Event)>, StoreError> {
    let sql = format!("SELECT at, event FROM {table} WHERE job = ?1 ORDER BY number");
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = statement.query_map([job], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?)))?;
    let mut events = Vec::new();
    for row in rows {
        let (at, event) = row?;
        events.push((timestamp(at), of_json(job, &event)?));
    }
    Ok(events)
}

/// Another process may be making the same tables.
fn create_schema(connection: &mut Connection) -> Result<(), StoreError> {
    write_ahead(connection)?;
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let found: i64 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if found == 0 {
        transaction.execute_batch(SCHEMA)?;
        transaction.execute_batch(INDEXES)?;
        transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    }
    transaction.commit()?;
    Ok(())
}

/// SQLite does not wait here for other processes that do the same, whatever its timeout.
fn write_ahead(connection: &Connection) -> Result<(), StoreError> {
    let deadline = std::time::Instant::now() + BUSY_TIMEOUT;
    loop {
        match connection.pragma_update(None, "journal_mode", "WAL") {
            Err(error)
                if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy)
                    && std::time::Instant::now() < deadline =>
            {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            result => return Ok(result?),
        }
    }
}

fn to_json(job: &str, value: &impl serde::Serialize) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|source| StoreError::Damaged { job: job.to_owned(), source })
}

fn of_json<T: serde::de::DeserializeOwned>(job: &str, text: &str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|source| StoreError::Damaged { job: job.to_owned(), source })
}

/// A status as the API spells it.
fn spelled<T: serde::de::DeserializeOwned>(job: &str, text: String) -> Result<T, StoreError> {
    serde_json::from_value(text.into()).map_err(|source| StoreError::Damaged { job: job.to_owned(), source })
}

fn milliseconds(at: Timestamp) -> i64 {
    i64::try_from(at.0).unwrap_or(i64::MAX)
}

fn timestamp(milliseconds: i64) -> Timestamp {
    Timestamp(u64::try_from(milliseconds).unwrap_or(0))
}

#[cfg(test)]
mod tests;
