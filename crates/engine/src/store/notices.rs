//! Notices that have not been told yet.

use rusqlite::{OptionalExtension, Transaction, params};

use super::{Store, StoreError, milliseconds, timestamp};
use crate::notice::{Due, Notice};
use crate::run::Timestamp;

/// Added to a file of any version: older programs do not look at it.
pub(super) const TABLE: &str = "
    CREATE TABLE IF NOT EXISTS notices (
        number INTEGER PRIMARY KEY,
        subscriber TEXT NOT NULL,
        id TEXT NOT NULL,
        body TEXT NOT NULL,
        tries INTEGER NOT NULL,
        due INTEGER NOT NULL
    ) STRICT;
";

pub(super) fn add(
    transaction: &Transaction<'_>,
    notices: &[Notice],
    at: Timestamp,
) -> Result<(), StoreError> {
    let sql = "INSERT INTO notices (subscriber, id, body, tries, due) VALUES (?1, ?2, ?3, 0, ?4)";
    for Notice { subscriber, id, body } in notices {
        transaction.execute(sql, params![subscriber, id, body, milliseconds(at)])?;
    }
    Ok(())
}

impl Store {
    /// Notices whose time has come, the oldest first.
    pub fn due_notices(&self, now: Timestamp) -> Result<Vec<Due>, StoreError> {
        let sql = "SELECT number, subscriber, id, body, tries FROM notices WHERE due <= ?1 ORDER BY number";
        let mut statement = self.connection.prepare_cached(sql)?;
        let rows = statement.query_map([milliseconds(now)], |row| {
            let notice = Notice { subscriber: row.get(1)?, id: row.get(2)?, body: row.get(3)? };
            Ok(Due { number: row.get(0)?, notice, tries: row.get(4)? })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// When the next notice is due; of one id only, if that is given.
    pub fn next_notice(&self, id: Option<&str>) -> Result<Option<Timestamp>, StoreError> {
        let sql = "SELECT MIN(due) FROM notices WHERE ?1 IS NULL OR id = ?1";
        let next = self.connection.query_row(sql, [id], |row| row.get::<_, Option<i64>>(0)).optional()?;
        Ok(next.flatten().map(timestamp))
    }

    /// Takes out a notice.
    pub fn remove_notice(&mut self, number: i64) -> Result<(), StoreError> {
        self.connection.execute("DELETE FROM notices WHERE number = ?1", [number])?;
        Ok(())
    }

    /// Puts a notice off that was tried in vain.
    pub fn postpone_notice(&mut self, number: i64, until: Timestamp) -> Result<(), StoreError> {
        let sql = "UPDATE notices SET tries = tries + 1, due = ?2 WHERE number = ?1";
        self.connection.execute(sql, params![number, milliseconds(until)])?;
        Ok(())
    }
}
